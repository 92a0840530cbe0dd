"""Pages of long histories: what each shows is what the whole has there, by the pure rules, wherever it is."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clew.store.base import Store
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.unit import LinkMessage, MoveHead, OpenTurn, Write
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe, settled, user_row
from clew.transcript.line import line_messages, line_turns
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.turn import MoveReason, Turn, TurnKind
from tests.contract.looked_at import check_looks
from tests.rounds import rounds


class Tale:
    """A long session with forks, rewinds and compactions, written many turns at a time."""

    def __init__(self, scribe: Scribe, clock: FakeClock, rng: random.Random) -> None:
        self.scribe = scribe
        self.clock = clock
        self.rng = rng
        self.head: str | None = None
        self.turns: list[str] = []

    async def tell(self, turns: int) -> None:
        """So many turns below the head."""
        writes: list[Write] = []
        for number in range(turns):
            asked = user_row(self.scribe.mint, self.scribe.session_id, f"prompt {number}", self.clock.now_ms())
            read = {"type": "tool-read", "toolCallId": f"c{number}", "state": "output-available", "output": "it"}
            path: dict[str, Any] = {"input": {"path": f"file{self.rng.randrange(9)}"}}
            said = self._said(read | path if self.rng.random() < 0.3 else {"type": "text", "text": "yes"})
            writes += [*settled(asked), *settled(said), *self._turn("normal", asked.id, said.id)]
        await self.scribe.commit(*writes)

    async def resend(self) -> None:
        """The prompt of some turn of the line once more, as a sibling."""
        tree = await self.scribe.store.load_tree(self.scribe.session_id)
        turn = self.rng.choice([turn for turn in line_turns(tree) if turn.kind == "normal"])
        await self._move(turn.parent_turn_id, "rewind")
        await self.scribe.commit(*self._turn("normal", tree.links[turn.id][0]))

    async def rewind(self, *, back: bool) -> None:
        """To a turn of the line, or to any there is."""
        tree = await self.scribe.store.load_tree(self.scribe.session_id)
        turns = [turn.id for turn in line_turns(tree)] if back else self.turns
        await self._move(self.rng.choice(turns), "rewind" if back else "goto")

    async def compact(self) -> None:
        tree = await self.scribe.store.load_tree(self.scribe.session_id)
        held = [id_ for turn, id_ in line_messages(tree) if turn.kind == "normal"]
        tail = self.rng.choice([*held[-30:], None, "msg_gone"])
        marker = self._said({"type": "data-compaction", "data": {"summary": "so far", "tail_start_id": tail}})
        await self.scribe.commit(*settled(marker), *self._turn("compaction", marker.id))

    def _said(self, part: dict[str, Any]) -> MessageRow:
        now = self.clock.now_ms()
        row = PartRow(self.scribe.mint.part(), 0, part, now, now)
        return MessageRow(self.scribe.mint.message(), self.scribe.session_id, "assistant", now, now, {}, (row,))

    def _turn(self, kind: TurnKind, *messages: str) -> list[Write]:
        self.clock.advance(1)
        now, id_ = self.clock.now_ms(), self.scribe.mint.turn()
        about: dict[str, Any] = {"id": id_, "session_id": self.scribe.session_id, "parent_turn_id": self.head}
        turn = Turn(**about, kind=kind, status="completed", created_at=now, settled_at=now)
        self.head = id_
        self.turns.append(id_)
        why: MoveReason = "turn" if kind == "normal" else "compaction"
        return [OpenTurn(turn), *(LinkMessage(id_, message) for message in messages), MoveHead(id_, now, why)]

    async def _move(self, to: str | None, why: MoveReason) -> None:
        self.clock.advance(1)
        self.head = to
        await self.scribe.commit(MoveHead(to, self.clock.now_ms(), why))


@pytest.mark.slow
@pytest.mark.rule("ST-15")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("seed", range(2, 2 + rounds(2)))
async def test_a_page_of_a_long_history_is_what_the_whole_has_there(kind: str, seed: int, tmp_path: Path) -> None:
    """Forks, rewinds and compactions over several miles: tree, reflog, files and messages, each page of them."""
    clock, rng = FakeClock(), random.Random(seed)
    store: Store = MemoryStore() if kind == "memory" else await open_sqlite(tmp_path / "store.db", clock=clock)
    try:
        tale = Tale(await Scribe.create(store, clock=clock), clock, rng)
        await tale.tell(rng.randint(80, 160))
        for _ in range(5):
            await check_looks(store, tale.scribe.session_id, rng)
            match rng.choice(["back", "back", "resend", "goto", "compact", "compact"]):
                case "back":
                    await tale.rewind(back=True)
                case "goto":
                    await tale.rewind(back=False)
                case "resend":
                    await tale.resend()
                case "compact":
                    await tale.compact()
            await tale.tell(rng.choice([0, 1, 70, 140]))
        await check_looks(store, tale.scribe.session_id, rng)
    finally:
        await store.close()


async def test_summaries_that_are_said_to_lie_above_one_another_are_counted_once(tmp_path: Path) -> None:
    """Turns that are damaged may name one another in a ring; who looks at the reflog is answered all the same."""
    clock = FakeClock()
    store = await open_sqlite(tmp_path / "store.db", clock=clock)
    try:
        tale = Tale(await Scribe.create(store, clock=clock), clock, random.Random(0))
        await tale.tell(3)
        above = tale.turns[-1]
        marks = []
        for _ in range(2):
            marker = tale._said({"type": "data-compaction", "data": {"summary": "so far", "tail_start_id": "msg_gone"}})
            await tale.scribe.commit(*settled(marker), *tale._turn("compaction", marker.id))
            marks.append(tale.turns[-1])
            await tale.tell(1)
        with closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
            other.execute("UPDATE chat_turns SET compaction_turn_id = ? WHERE id = ?", (marks[0], above))
        page = await store.load_moves(tale.scribe.session_id)
        assert [move.to_turn_id for move in page.moves] == tale.turns[::-1]
    finally:
        await store.close()
