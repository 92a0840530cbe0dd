"""Views of a long line: read back only to the start of the newest compaction's tail."""

from __future__ import annotations

from typing import Any

import pytest

from clew.store.base import LineSlice, Store
from clew.store.unit import LinkMessage, MoveHead, MoveTurn, OpenTurn, Write
from clew.testing.chunks import text
from clew.testing.scribe import Scribe, settled
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.turn import Turn
from clew.transcript.view import model_view, visible_view


def compaction(scribe: Scribe, parent: str, tail: str | None, turn_id: str) -> tuple[Write, ...]:
    """Return the writes of a compaction below a turn; a ``tail`` of "marker" is its own marker."""
    now, marker_id = scribe.clock.now_ms(), scribe.mint.message()
    turn = Turn(
        id=turn_id,
        session_id=scribe.session_id,
        parent_turn_id=parent,
        created_at=now,
        kind="compaction",
        status="completed",
        settled_at=now,
    )
    data = {"summary": "so far", "tail_start_id": marker_id if tail == "marker" else tail}
    part = PartRow(scribe.mint.part(), 0, {"type": "data-compaction", "data": data}, now, now)
    row = MessageRow(marker_id, scribe.session_id, "assistant", now, now, {}, (part,))
    return OpenTurn(turn), *settled(row), LinkMessage(turn_id, row.id)


async def load_checked_view(store: Store, session_id: str) -> LineSlice:
    """Return the view, which must equal that of the complete line."""
    view = await store.find_view(session_id)
    whole = await store.load_line(session_id)
    assert view is not None
    assert view.complete
    assert visible_view(view.turns) == visible_view(whole.turns)
    assert model_view(view.turns) == model_view(whole.turns)
    assert contents_of(view) == contents_of(whole)[len(whole.turns) - len(view.turns) :]
    return view


def contents_of(line: LineSlice) -> list[Any]:
    """Return the contents of a line without ids and times of parts, which a view may leave out."""
    return [
        (entry.turn, [(row.id, row.role, row.metadata, [part.data for part in row.parts]) for row in entry.messages])
        for entry in line.turns
    ]


@pytest.mark.parametrize(
    ("tail", "turns"),
    [("user 2", 4), ("reply 2", 4), ("user 0", 6), ("marker", 2), ("nowhere", 2), ("user 4", 2), (None, 6)],
)
async def test_a_view_begins_where_the_tail_does(store: Store, scribe: Scribe, tail: str | None, turns: int) -> None:
    """The tail begins above or below the compaction; one that is not on the line, or the marker, begins below it."""
    written = [await scribe.turn(f"prompt {n}", text(f"answer {n}")) for n in range(4)]
    message_ids = {f"user {n}": ids[1] for n, ids in enumerate(written)} | {
        f"reply {n}": ids[2] for n, ids in enumerate(written)
    }
    opened = await scribe.prompt("after")
    message_ids |= {"user 4": opened.user.id, "nowhere": scribe.mint.message()}
    turn_id = scribe.mint.turn()
    await scribe.commit(
        *compaction(scribe, written[3][0], message_ids.get(tail or "", tail), turn_id),
        MoveTurn(opened.id, turn_id),
        MoveHead(turn_id, 9, "compaction"),
    )
    view = await load_checked_view(store, scribe.session_id)
    assert len(view.turns) == turns
    assert [entry.turn.id for entry in view.turns[-2:]] == [turn_id, opened.id]


@pytest.mark.parametrize("tail", ["user 1", "open", "marker", "nowhere"])
async def test_a_compaction_between_the_head_and_the_open_turn_is_in_the_view(
    store: Store, scribe: Scribe, tail: str
) -> None:
    """This holds before and after the head has followed, and after the open turn was left."""
    first, _, _ = await scribe.turn("one", text("1"))
    second, user, _ = await scribe.turn("two", text("2"))
    opened = await scribe.prompt("three")
    message_ids = {"user 1": user, "open": opened.user.id, "nowhere": scribe.mint.message()}
    turn_id = scribe.mint.turn()
    writes = compaction(scribe, second, message_ids.get(tail, tail), turn_id)
    await scribe.commit(*writes, MoveTurn(opened.id, turn_id))
    tail_turns = [second] if tail == "user 1" else []
    view = await load_checked_view(store, scribe.session_id)
    assert [entry.turn.id for entry in view.turns] == [*tail_turns, turn_id, opened.id]
    await scribe.commit(MoveHead(turn_id, 9, "compaction"))
    assert await load_checked_view(store, scribe.session_id) == view
    await scribe.commit(*opened.settling("failed"), MoveHead(turn_id, 10, "rewind"))
    view = await load_checked_view(store, scribe.session_id)
    assert [entry.turn.id for entry in view.turns] == [*tail_turns, turn_id]
    await scribe.commit(MoveHead(first, 11, "rewind"))
    assert [entry.turn.id for entry in (await load_checked_view(store, scribe.session_id)).turns] == [first]


async def test_without_a_compaction_a_view_is_as_long_as_asked(store: Store, scribe: Scribe) -> None:
    """It also says whether there is more."""
    assert await store.find_view(scribe.session_id) == LineSlice((), complete=True)
    assert await store.find_view(scribe.mint.session(store.capabilities.session_ids)) is None
    for n in range(3):
        await scribe.turn(f"prompt {n}", text(f"answer {n}"))
    whole = contents_of(await store.load_line(scribe.session_id))
    near = await store.find_view(scribe.session_id, near=True)
    assert (near and contents_of(near), near and near.complete) == (whole, True)
    for turns, complete in ((1, False), (2, False), (3, True), (4, True)):
        view = await store.find_view(scribe.session_id, turns=turns)
        assert view is not None
        assert (contents_of(view), view.complete) == (whole[-turns:], complete)
