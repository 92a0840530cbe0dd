"""A store that was told a conversation, for the judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from clew.ids import Mint
from clew.session.history.check import check
from clew.store.base import FullSession, PendingStream, QueuedMessage
from clew.store.pending_work import with_tail
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.unit import Enqueue, JournalEntry, SetHidden
from clew.testing.chunks import reasoning, text, tool_call, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow
from clew.transcript.metadata import projection_of
from clew.transcript.projection import compaction_tails, hidden_messages
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import HeadMove, Tree, Turn

replace = msgspec.structs.replace


@dataclass
class Rows:
    """The rows of a session as the judge gets them. Each may be changed: no unit would write what a test needs."""

    session: Session
    state: SessionState
    messages: dict[str, MessageRow]
    turns: dict[str, Turn]
    links: dict[str, tuple[str, ...]]
    moves: dict[int, HeadMove]
    queue: dict[str, Enqueue]
    seals: dict[str, str]
    pruned: list[Pruned]
    journal: dict[str, tuple[JournalEntry, ...]]

    @classmethod
    def of(cls, whole: FullSession, state: SessionState) -> Rows:
        return cls(
            whole.session,
            state,
            {row.id: row for row in whole.messages} | {one.message.id: one.message for one in whole.pending},
            dict(whole.tree.turns),
            dict(whole.tree.links),
            {move.seq: move for move in whole.tree.moves},
            {one.message.id: Enqueue(one.message.id, one.queued_at, one.interrupt) for one in whole.queue},
            dict(whole.seals),
            list(whole.pruned),
            {one.message.id: one.entries for one in whole.pending},
        )

    def changed(self, whole: FullSession) -> FullSession:
        """What the store says with these rows in it."""
        state = self.state
        messages = {id_: with_tail(row, self.journal.get(id_, ())) for id_, row in self.messages.items()}
        moves = tuple(move for _, move in sorted(self.moves.items()))
        return replace(
            whole,
            session=self.session,
            messages=tuple(messages.values()),
            tree=Tree(state.head_turn_id, state.open_turn_id, self.turns, self.links, moves),
            queue=tuple(QueuedMessage(messages[id_], one.queued_at, one.interrupt) for id_, one in self.queue.items()),
            seals=self.seals,
            pending=tuple(PendingStream(self.session.id, self.messages[id_], has) for id_, has in self.journal.items()),
            pruned=tuple(self.pruned),
        )


class SpoiledStore(MemoryStore):
    """A store that reads sessions as a test has changed them."""

    def __init__(self) -> None:
        super().__init__()
        self.spoiled: dict[str, Rows] = {}

    async def spoil(self, session_id: str) -> Rows:
        """The rows of a session, to be changed."""
        whole = await super().find_full_session(session_id)
        assert whole is not None
        return self.spoiled.setdefault(session_id, Rows.of(whole, await self.load_state(session_id)))

    async def find_full_session(self, session_id: str) -> FullSession | None:
        whole = await super().find_full_session(session_id)
        rows = self.spoiled.get(session_id)
        return whole if rows is None or whole is None else rows.changed(whole)


class Told:
    """A session of two settled turns and one that is open with a stream under way, and names for what is in it."""

    rows: Rows

    def __init__(self, store: SpoiledStore, scribe: Scribe) -> None:
        self.store = store
        self.scribe = scribe
        self.session_id = scribe.session_id
        self.first = self.second = ("", "", "")
        self.open_turn = self.question = self.streaming = ""

    async def problems(self) -> list[tuple[str, str | None]]:
        found = await check(self.store)
        assert {problem.session_id for problem in found} <= {self.session_id}
        return [(problem.what, problem.id) for problem in found]

    def set_turn(self, turn_id: str, **changes: Any) -> None:
        self.rows.turns[turn_id] = replace(self.rows.turns[turn_id], **changes)

    def set_message(self, message_id: str, **changes: Any) -> None:
        self.rows.messages[message_id] = replace(self.rows.messages[message_id], **changes)

    def set_state(self, **changes: Any) -> None:
        self.rows.state = replace(self.rows.state, **changes)

    def set_session(self, **changes: Any) -> None:
        self.rows.session = replace(self.rows.session, **changes)

    def set_part(self, message_id: str, place: int, **changes: Any) -> None:
        parts = list(self.rows.messages[message_id].parts)
        parts[place] = replace(parts[place], **changes)
        self.set_message(message_id, parts=tuple(parts))

    async def hide(self) -> None:
        """Write the projections as the unit of a head move would."""
        tree = await self.store.load_tree(self.session_id)
        rows = {row.id: row for row in await self.store.load_messages(self.session_id)}
        truth = hidden_messages(tree, compaction_tails(tree, rows))
        stale = {id_: None for id_, row in rows.items() if projection_of(row.metadata) != (None, None)}
        await self.scribe.commit(SetHidden({**stale, **truth}))


async def tell(store: SpoiledStore | None = None) -> Told:
    store = store or SpoiledStore()
    clock = FakeClock()
    scribe = await Scribe.create(store, clock=clock, mint=Mint(clock))
    told = Told(store, scribe)
    told.first = await scribe.turn("hello", text("hi there"))
    told.second = await scribe.turn("look", [*reasoning("hm"), *tool_call("read", {"path": "/x"}), *tool_output("y")])
    opened = await scribe.prompt("go on")
    told.open_turn, told.question = opened.id, opened.user.id
    recorder = opened.recorder()
    told.streaming = recorder.message.id
    await recorder.send(c.StartStep())
    await recorder.send(c.TextStart("t"))
    await recorder.flush()
    for chunk in text("one two three", id="t", open=True)[1:]:
        recorder.write(chunk)
        await recorder.flush()
    told.rows = await store.spoil(told.session_id)
    return told
