"""Copies of a line: a session of its own, that owes its source nothing and changes nothing in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from clew.errors import ClewError, InternalError
from clew.ids import Mint, check_part_id
from clew.session.history.check import check
from clew.store.base import FullSession, Store
from clew.store.copied_line import CopiedMessage, CopiedTurn
from clew.store.unit import (
    AddPruned,
    Committed,
    CopyLine,
    DeleteSession,
    InsertMessage,
    InsertSession,
    LinkMessage,
    MoveHead,
    OpenTurn,
    PatchMessage,
    PutBlob,
    SealMessage,
    SetHidden,
    Unit,
    Write,
)
from clew.testing.chunks import reasoning, text, tool_call, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import MODEL, Scribe, settled
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.projection import compaction_tails, hidden_messages
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Turn
from clew.transcript.usage import Usage

replace = msgspec.structs.replace

PICTURE = b"\x89PNG"
DIGEST = sha256(PICTURE).hexdigest()


class Source:
    """A session of four turns, the last a compaction, with all that a copy has to take along; and its copies."""

    def __init__(self, scribe: Scribe) -> None:
        self.scribe = scribe
        self.store = scribe.store
        self.mint = scribe.mint
        self.line: tuple[LineTurn, ...] = ()

    @classmethod
    async def tell(cls, scribe: Scribe) -> Source:
        source = cls(scribe)
        first, picture, _ = await scribe.turn("hello", text("hi"), usage=Usage(1, 2, 3, 4, 5))
        calls = [*reasoning("hm"), *tool_call("read", {"path": "/x"}), *tool_output("y" * 50)]
        _, kept, _ = await scribe.turn("look", calls, usage=Usage(10, 20, 30, 40, 50))
        third, _, again = await scribe.turn("more", calls, status="failed")
        now = scribe.clock.now_ms()
        file = {"type": "file", "mediaType": "image/png", "url": f"/api/blobs/{DIGEST}"}
        shown = MessageRow(
            scribe.mint.message(),
            scribe.session_id,
            "user",
            now,
            now,
            {"client_message_id": "mine"},
            (PartRow(scribe.mint.part(), 0, file, 3, 4),),
        )
        await scribe.commit(
            PutBlob(DIGEST, "image/png", PICTURE, now),
            *settled(shown),
            LinkMessage(first, shown.id),
            PatchMessage(picture, now, {"snapshot_id": "s1", "note": "zoë"}),
            AddPruned((source.pruned(again, 2),)),
            AddPruned((source.pruned(again, 2, keep=4),)),
            *source.compaction(third, kept),
        )
        await source.project(scribe.session_id)
        source.line = (await scribe.store.load_line(scribe.session_id)).turns
        return source

    def pruned(self, message_id: str, part: int, keep: int = 0) -> Pruned:
        return Pruned(0, message_id, part, 12, keep, 77)

    def compaction(self, parent: str, tail_start_id: str) -> tuple[Write, ...]:
        now = self.scribe.clock.now_ms()
        session_id, marker_id = self.scribe.session_id, self.mint.message()
        turn = Turn(
            id=self.mint.turn(),
            session_id=session_id,
            parent_turn_id=parent,
            created_at=now,
            kind="compaction",
            status="completed",
            settled_at=now,
            data={"tokens": 3},
        )
        part = {"type": "data-compaction", "data": {"summary": "s", "tail_start_id": tail_start_id}}
        marker = MessageRow(
            marker_id, session_id, "assistant", now, now, {}, (PartRow(self.mint.part(), 0, part, now, now),)
        )
        return (*settled(marker), OpenTurn(turn), LinkMessage(turn.id, marker_id), MoveHead(turn.id, now, "turn"))

    async def project(self, session_id: str) -> None:
        """Write the projections of a session, as the unit that moves its head would."""
        tree = await self.store.load_tree(session_id)
        rows = {row.id: row for row in await self.store.load_messages(session_id)}
        truth = hidden_messages(tree, compaction_tails(tree, rows))
        await self.store.commit(Unit(session_id, (SetHidden({id_: truth.get(id_) for id_ in sorted(rows)}),)))

    def copying(self, session_id: str, turns: Sequence[LineTurn], inserted: frozenset[str] = frozenset()) -> CopyLine:
        """The write for these turns. What it says of places is wrong on purpose: the store works it out."""
        return CopyLine(
            self.scribe.session_id,
            tuple(
                CopiedTurn(
                    replace(
                        entry.turn,
                        id=self.mint.turn(),
                        session_id=session_id,
                        parent_turn_id="trn_wrong",
                        depth=9,
                        compaction_turn_id=None,
                        origin_turn_id=entry.turn.id,
                    ),
                    tuple(CopiedMessage(row.id, self.mint.message(), row.id in inserted) for row in entry.messages),
                )
                for entry in turns
            ),
        )

    def unit(self, write: CopyLine, *before: Write, session_id: str) -> Unit:
        session = Session(id=session_id, agent="assistant", model=MODEL, created_at=5, updated_at=6)
        head = MoveHead(write.turns[-1].turn.id, 7, "branch")
        return Unit(session_id, (InsertSession(session), *before, write, head))

    async def branch(self, turns: int) -> tuple[str, CopyLine]:
        """Copy the first so many turns into a new session."""
        session_id = self.mint.session(self.store.capabilities.session_ids)
        write = self.copying(session_id, self.line[:turns])
        assert await self.store.commit(self.unit(write, session_id=session_id)) == Committed()
        return session_id, write

    async def whole(self, session_id: str) -> FullSession:
        whole = await self.store.find_full_session(session_id)
        assert whole is not None
        return whole


@pytest.fixture
async def source(scribe: Scribe) -> Source:
    return await Source.tell(scribe)


def nameless(row: MessageRow) -> MessageRow:
    return replace(row, parts=tuple(replace(part, id="") for part in row.parts))


def ids_of(write: CopyLine) -> dict[str, str]:
    return {copied.source_id: copied.id for entry in write.turns for copied in entry.messages}


async def test_a_copied_line_is_its_source_under_other_names(store: Store, source: Source) -> None:
    """Messages, parts, seals, turns, links, steps, prunes, sums and blobs; the source is as it was."""
    before = await source.whole(source.scribe.session_id)
    assert {row.metadata.get("hidden_by") for row in before.messages} == {None, "compaction"}
    session_id, write = await source.branch(4)
    ids = ids_of(write)
    copy = await source.whole(session_id)
    rows = [
        replace(
            nameless(row),
            id=ids[row.id],
            session_id=session_id,
            metadata={k: v for k, v in row.metadata.items() if k not in ("hidden_at", "hidden_by", "snapshot_id")},
        )
        for row in before.messages
    ]
    assert [nameless(row) for row in copy.messages] == sorted(rows, key=lambda row: (row.created_at, row.id))
    turns = [entry.turn for entry in write.turns]
    parents = [None, *(turn.id for turn in turns)]
    compaction = turns[3].id
    assert copy.tree.turns == {
        turn.id: replace(
            turn, parent_turn_id=parent, depth=depth, compaction_turn_id=compaction if turn.id == compaction else None
        )
        for depth, (turn, parent) in enumerate(zip(turns, parents, strict=False))
    }
    assert copy.tree.links == {entry.turn.id: tuple(m.id for m in entry.messages) for entry in write.turns}
    assert copy.tree.moves == (HeadMove(1, session_id, None, compaction, 7, "branch"),)
    assert (copy.tree.head_turn_id, copy.tree.open_turn_id) == (compaction, None)
    assert copy.seals == {ids[id_]: digest for id_, digest in before.seals.items()}
    assert copy.pruned == tuple(replace(one, message_id=ids[one.message_id]) for one in before.pruned)
    assert [one.seq for one in copy.pruned] == [1, 2]
    for entry, turn in zip(source.line, turns, strict=True):
        steps = await store.load_steps(entry.turn.id)
        assert await store.load_steps(turn.id) == tuple(
            replace(step, turn_id=turn.id, message_id=ids[step.message_id]) for step in steps
        )
    assert copy.session == replace(
        before.session,
        id=session_id,
        created_at=5,
        updated_at=6,
        head_turn_id=compaction,
    )
    assert await source.whole(source.scribe.session_id) == before


async def test_copied_parts_have_ids_of_their_own_in_the_order_of_the_line(store: Store, source: Source) -> None:
    """Of the usual form, and none of them twice, whichever copy it is of."""
    made: list[str] = []
    for _ in range(2):
        session_id, _ = await source.branch(4)
        line = (await store.load_line(session_id)).turns
        made += [part.id for entry in line for row in entry.messages for part in row.parts]
    old = {part.id for entry in source.line for row in entry.messages for part in row.parts}
    assert len(set(made) | old) == 3 * len(old)
    assert made == sorted(made)
    assert [check_part_id(id_) for id_ in made] == made


async def test_a_session_copied_in_part_has_the_sums_of_what_was_copied(store: Store, source: Source) -> None:
    """Two turns of four: their steps alone count, and no prune of a message that stayed behind comes along."""
    session_id, _ = await source.branch(2)
    copy = await source.whole(session_id)
    assert copy.session.usage == Usage(11, 22, 33, 44, 55)
    assert copy.session.total_tokens == 165
    assert copy.pruned == ()
    assert await check(store) == []


async def test_a_copied_line_may_begin_in_the_middle(store: Store, source: Source) -> None:
    """Its first turn is a root, whatever stood above the turn it was copied from."""
    session_id = source.mint.session(source.store.capabilities.session_ids)
    write = source.copying(session_id, source.line[1:3])
    await store.commit(source.unit(write, session_id=session_id))
    tree = await store.load_tree(session_id)
    assert [(turn.depth, turn.parent_turn_id) for turn in sorted(tree.turns.values(), key=lambda t: t.depth)] == [
        (0, None),
        (1, write.turns[0].turn.id),
    ]
    assert await check(store) == []


async def test_the_judge_finds_nothing_wrong_with_a_copy_or_its_source(store: Store, source: Source) -> None:
    """Once the projections are written, as the engine does in the same unit."""
    session_id, _ = await source.branch(4)
    await source.project(session_id)
    assert await check(store) == []


async def test_a_copy_the_unit_inserts_by_itself_is_only_linked(store: Store, source: Source) -> None:
    """It keeps what it was given; steps come along, and so do prunes of the parts it has."""
    looked, more = source.line[1].messages[1], source.line[2].messages[1]
    await source.scribe.commit(AddPruned((source.pruned(looked.id, 2),)))
    session_id = source.mint.session(source.store.capabilities.session_ids)
    write = source.copying(session_id, source.line[:3], frozenset({looked.id, more.id}))
    ids = ids_of(write)
    own = []
    # One copy is whole, the other ends before the output that was pruned.
    for row, parts in ((looked, looked.parts), (more, more.parts[:2])):
        parts = tuple(replace(part, id=source.mint.part()) for part in parts)
        own.append(replace(row, id=ids[row.id], session_id=session_id, parts=parts))
    inserts = [InsertMessage(row) for row in own]
    seals = [SealMessage(row.id, row.seal) for row in own]
    await store.commit(source.unit(write, *inserts, *seals, session_id=session_id))
    assert [await store.find_message(session_id, row.id) for row in own] == own
    assert (await store.load_tree(session_id)).links == {
        entry.turn.id: tuple(copied.id for copied in entry.messages) for entry in write.turns
    }
    assert [step.message_id for step in await store.load_steps(write.turns[1].turn.id)] == [ids[looked.id]]
    assert await store.load_pruned(session_id) == (Pruned(3, ids[looked.id], 2, 12, 0, 77),)
    assert (await store.seals(session_id)).items() >= {(seal.message_id, seal.digest) for seal in seals}
    assert await check(store) == []


def spoilt(write: CopyLine, what: str, source: Source, elsewhere: str) -> CopyLine:
    first, *rest = write.turns
    message, *others = first.messages
    turn: dict[str, Any] = {}
    if what == "of another session":
        message = message._replace(source_id=elsewhere)
    elif what == "of no session":
        message = message._replace(source_id=source.mint.message())
    elif what == "inserted, of another session":
        message = CopiedMessage(elsewhere, message.id, True)
    elif what == "never inserted":
        message = message._replace(inserted=True)
    elif what == "twice":
        others = [message, *others]
    elif what == "under a name that is taken":
        message = message._replace(id=others[0].id)
    elif what == "an open turn":
        turn = {"status": "running"}
    elif what == "a turn of another session":
        turn = {"session_id": source.scribe.session_id}
    elif what == "a turn twice":
        rest[0] = CopiedTurn(replace(rest[0].turn, id=first.turn.id), rest[0].messages)
    return CopyLine(write.source_session_id, (CopiedTurn(replace(first.turn, **turn), (message, *others)), *rest))


@pytest.mark.parametrize(
    "what",
    [
        "of another session",
        "of no session",
        "inserted, of another session",
        "never inserted",
        "twice",
        "under a name that is taken",
        "an open turn",
        "a turn of another session",
        "a turn twice",
    ],
)
async def test_a_copy_of_what_is_not_there_fails_and_leaves_nothing(
    store: Store, source: Source, mint: Mint, clock: FakeClock, what: str
) -> None:
    """Neither a session nor a row of it; the copies before and after it in the same group are whole."""
    other = await Scribe.create(store, clock=clock, mint=mint)
    _, elsewhere, _ = await other.turn("elsewhere", text("there"))
    made = [source.mint.session(source.store.capabilities.session_ids) for _ in range(3)]
    writes = [source.copying(session_id, source.line[:2]) for session_id in made]
    writes[1] = spoilt(writes[1], what, source, elsewhere)
    units = [source.unit(write, session_id=id_) for id_, write in zip(made, writes, strict=True)]
    outcomes = await asyncio.gather(*(store.submit(unit) for unit in units), return_exceptions=True)
    assert (outcomes[0], outcomes[2]) == (Committed(), Committed())
    assert isinstance(outcomes[1], InternalError)
    assert await store.find_full_session(made[1]) is None
    assert await store.load_messages(made[1]) == ()
    assert [await store.find_turn(entry.turn.id) for entry in writes[1].turns] == [None, None]
    copies = [await source.whole(made[place]) for place in (0, 2)]
    assert [[nameless(replace(row, id="", session_id="")) for row in copy.messages] for copy in copies] == [
        [nameless(replace(row, id="", session_id="")) for row in copies[0].messages]
    ] * 2
    assert await check(store) == []


async def test_a_copy_of_a_session_that_is_not_there_fails(store: Store, source: Source) -> None:
    """Even though its messages are there, in another."""
    session_id = source.mint.session(source.store.capabilities.session_ids)
    write = source.copying(session_id, source.line[:1])
    gone = CopyLine(source.mint.session(source.store.capabilities.session_ids), write.turns)
    with pytest.raises(ClewError):
        await store.commit(source.unit(gone, session_id=session_id))
    assert await store.find_full_session(session_id) is None


@pytest.mark.parametrize("first", ["source", "copy"])
async def test_deleting_either_leaves_the_other_whole(store: Store, source: Source, first: str) -> None:
    """Its blob too, which goes with the last session that names it; prunes go with their session."""
    copy_id, _ = await source.branch(4)
    await source.project(copy_id)
    pair = [source.scribe.session_id, copy_id]
    gone, left = pair if first == "source" else reversed(pair)
    before = await source.whole(left)
    await store.commit(Unit(gone, (DeleteSession(),)))
    assert await store.load_pruned(gone) == ()
    assert await source.whole(left) == before
    blob = await store.find_blob(DIGEST)
    assert blob is not None
    assert blob.data == PICTURE
    assert await check(store) == []
    await store.commit(Unit(left, (DeleteSession(),)))
    assert await store.find_blob(DIGEST) is None
    assert await check(store) == []


async def test_only_the_blobs_that_copied_parts_name_are_linked(store: Store, source: Source) -> None:
    """A copy that leaves the picture out does not keep it."""
    session_id = source.mint.session(source.store.capabilities.session_ids)
    await store.commit(source.unit(source.copying(session_id, source.line[1:2]), session_id=session_id))
    await store.commit(Unit(source.scribe.session_id, (DeleteSession(),)))
    assert await store.find_blob(DIGEST) is None
    assert await check(store) == []


async def test_a_copy_of_a_copy_is_a_copy(store: Store, source: Source) -> None:
    """Its turns name those they were copied from, its prunes go on counting where they were."""
    session_id, _ = await source.branch(3)
    scribe = Scribe(store, session_id, source.mint, source.scribe.clock)
    again = Source(scribe)
    again.line = (await store.load_line(session_id)).turns
    second, write = await again.branch(3)
    ids = ids_of(write)
    assert [nameless(replace(row, session_id="")) for row in await store.load_messages(second)] == [
        nameless(replace(row, session_id="", id=ids[row.id])) for row in await store.load_messages(session_id)
    ]
    output = again.line[2].messages[1].id
    await store.commit(Unit(second, (AddPruned((source.pruned(ids[output], 2),)),)))
    assert [one.seq for one in await store.load_pruned(second)] == [1, 2, 3]
    assert [one.seq for one in await store.load_pruned(session_id)] == [1, 2]
    assert await check(store) == []
