"""A store that was told a conversation, for the judge."""

from __future__ import annotations

from typing import Any

import msgspec

from clew.ids import Mint
from clew.session.history.check import check
from clew.store.memory.session_value import SessionValue
from clew.store.memory.store import MemoryStore
from clew.store.unit import SetHidden
from clew.testing.chunks import reasoning, text, tool_call, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c
from clew.transcript.metadata import projection_of
from clew.transcript.projection import compaction_tails, hidden_messages

replace = msgspec.structs.replace


class Told:
    """A session of two settled turns and one that is open with a stream under way, and names for what is in it."""

    def __init__(self, store: MemoryStore, scribe: Scribe) -> None:
        self.store = store
        self.scribe = scribe
        self.session_id = scribe.session_id
        self.first = self.second = ("", "", "")
        self.open_turn = self.question = self.streaming = ""

    @property
    def value(self) -> SessionValue:
        return self.store._values[self.session_id]

    async def problems(self) -> list[tuple[str, str | None]]:
        found = await check(self.store)
        assert {problem.session_id for problem in found} <= {self.session_id}
        return [(problem.what, problem.id) for problem in found]

    def set_turn(self, turn_id: str, **changes: Any) -> None:
        self.value.turns[turn_id] = replace(self.value.turns[turn_id], **changes)

    def set_message(self, message_id: str, **changes: Any) -> None:
        self.value.messages[message_id] = replace(self.value.messages[message_id], **changes)

    def set_state(self, **changes: Any) -> None:
        self.value.state["state"] = replace(self.value.state["state"], **changes)

    def set_session(self, **changes: Any) -> None:
        self.value.row["session"] = replace(self.value.row["session"], **changes)

    def set_part(self, message_id: str, place: int, **changes: Any) -> None:
        parts = list(self.value.messages[message_id].parts)
        parts[place] = replace(parts[place], **changes)
        self.set_message(message_id, parts=tuple(parts))

    async def hide(self) -> None:
        """Write the projections as the unit of a head move would."""
        tree = await self.store.load_tree(self.session_id)
        rows = {row.id: row for row in await self.store.load_messages(self.session_id)}
        truth = hidden_messages(tree, compaction_tails(tree, rows))
        stale = {id_: None for id_, row in rows.items() if projection_of(row.metadata) != (None, None)}
        await self.scribe.commit(SetHidden({**stale, **truth}))


async def tell(store: MemoryStore | None = None) -> Told:
    store = store or MemoryStore()
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
    return told
