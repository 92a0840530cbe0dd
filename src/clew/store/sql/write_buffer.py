"""The write buffer: what a unit has said so far and the tables do not hold yet, and the turns it is about.

A turn names the same few rows again and again: its message, its turn, the session and its state. They are gathered
here and written in the order in which one needs the other, when the unit ends, or before a statement that reads them.

The turns are valid only with a single writer: they are dropped when another program has written, or a transaction
failed.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from clew.errors import InternalError
from clew.store.sql import rows
from clew.store.sql.statements import Statements
from clew.transcript.message import MessageRow
from clew.transcript.session import SessionState
from clew.transcript.turn import Step, Turn
from clew.transcript.usage import Usage

__all__ = ["Turns", "WriteBuffer"]

_MAX_ROWS: Final = 1_000
"""More rows of a kind than a turn has. An imported session can have any number, and is written in batches."""


class WriteBuffer:
    """Rows of one session that wait to be written. Empty whenever a unit begins, and when it has ended."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._touched: dict[str, int] = {}
        """By when at least each session was updated. A time that does not move leaves three indexes as they are."""
        self.clear()

    def clear(self) -> None:
        """Forget what waits: it was written, or its transaction was rolled back."""
        self._waits = False
        self._messages: dict[str, MessageRow] = {}
        self._new: set[str] = set()
        self._parts: list[rows.Params] = []
        self._seals: list[rows.Params] = []
        self._links: list[rows.Params] = []
        self._patched: dict[str, rows.Params] = {}
        self._turns: dict[str, rows.Params] = {}
        self._set_turns: dict[str, rows.Params] = {}
        self._steps: list[Step] = []
        self._usage, self._cost_usd, self._at = Usage(), 0.0, 0
        self._booked = False
        self._state: SessionState | None = None

    def reset(self) -> None:
        """Forget also what is known of the tables: another program may have written."""
        self.clear()
        self._touched.clear()

    def forget_session(self, session_id: str) -> None:
        """It is deleted; one that gets its name may be older."""
        self._touched.pop(session_id, None)

    # Messages

    def insert_message(self, message: MessageRow, parts: list[rows.Params]) -> None:
        if len(self._messages) >= _MAX_ROWS:
            self._write_rows()
        self._messages[message.id] = message
        self._new.add(message.id)
        self._parts += parts
        self._waits = True

    def is_new(self, message_id: str) -> bool:
        """Return whether this unit inserts the message."""
        return message_id in self._new

    def find_message(self, message_id: str) -> MessageRow | None:
        """One that waits to be inserted, as it will be."""
        return self._messages.get(message_id)

    def find_metadata(self, message_id: str) -> dict[str, Any] | None:
        """The metadata of a message that waits to be inserted, or given others."""
        if message_id in self._messages:
            return self._messages[message_id].metadata
        return self._patched[message_id]["metadata"] if message_id in self._patched else None

    def set_metadata(self, message_id: str, metadata: dict[str, Any], updated_at: int) -> None:
        self._waits = True
        new = self._messages.get(message_id)
        if new is not None:
            later = max(new.updated_at, updated_at)
            self._messages[message_id] = replace(new, metadata=metadata, updated_at=later)
            return
        if len(self._patched) >= _MAX_ROWS:
            self._write_patches()
        held = self._patched.get(message_id)
        later = max(held["updated_at"], updated_at) if held is not None else updated_at
        self._patched[message_id] = {"id": message_id, "metadata": metadata, "updated_at": later}

    def set_created(self, message_id: str, created_at: int) -> None:
        new = self._messages.get(message_id)
        if new is not None:
            self._messages[message_id] = replace(new, created_at=created_at)
        else:
            self._sql.run("set_message_created", {"id": message_id, "created_at": created_at})

    def seal(self, message_id: str, digest: str) -> None:
        """Of a message that waits to be inserted."""
        self._seals.append({"message_id": message_id, "digest": digest})

    # Turns

    def insert_turn(self, turn: Turn, params: rows.Params) -> None:
        self._turns[turn.id] = params
        self._waits = True

    def set_turn(self, turn: Turn, params: rows.Params) -> None:
        (self._turns if turn.id in self._turns else self._set_turns)[turn.id] = params
        self._waits = True

    def link(self, turn_id: str, position: int, message_id: str) -> None:
        if len(self._links) >= _MAX_ROWS:
            self._write_rows()
        self._links.append({"turn_id": turn_id, "position": position, "message_id": message_id})
        self._waits = True

    def book_step(self, step: Step) -> None:
        if len(self._steps) >= _MAX_ROWS:
            self._write_rows()
            self._write_steps()
        self._steps.append(step)
        self._waits = True

    def finish_step(self, turn_id: str, index: int, at: int) -> bool:
        """Whether it waits to be inserted; then it ends at that time."""
        for place, step in enumerate(self._steps):
            if (step.turn_id, step.index) == (turn_id, index):
                self._steps[place] = replace(step, finished_at=at)
                return True
        return False

    # The session

    def book(self, session_id: str, usage: Usage, cost_usd: float) -> None:
        if self._cost_usd and cost_usd:
            # A sum of fractions depends on the order: each is added to what is stored, as every store does it.
            self._write_session(session_id)
        self._usage, self._cost_usd, self._booked = self._usage + usage, self._cost_usd + cost_usd, True
        self._waits = True

    def touch(self, at: int) -> None:
        self._at = max(self._at, at)
        self._waits = True

    def set_state(self, state: SessionState) -> None:
        self._state = state
        self._waits = True

    # Writing

    def flush(self, session_id: str) -> None:
        """Write what waits."""
        if not self._waits:
            return
        sql = self._sql
        self._write_rows()
        self._write_patches()
        _run(sql, "set_turn", list(self._set_turns.values()))
        self._write_steps()
        self._write_session(session_id)
        if self._state is not None:
            sql.run("set_state", {"id": session_id, **msgspec.structs.asdict(self._state)})
        self.clear()

    def _write_steps(self) -> None:
        _run(self._sql, "insert_step", [rows.step_params(step) for step in self._steps])
        self._steps = []

    def _write_rows(self) -> None:
        _run(self._sql, "insert_turn", list(self._turns.values()))
        _run(self._sql, "insert_message", [rows.message_params(one) for one in self._messages.values()])
        _run(self._sql, "insert_new_part", self._parts)
        _run(self._sql, "insert_link", self._links)
        _run(self._sql, "insert_seal", self._seals)
        self._turns, self._messages, self._parts, self._links, self._seals = {}, {}, [], [], []

    def _write_patches(self) -> None:
        for patch in self._patched.values():
            self._sql.run("set_message_metadata", {**patch, "metadata_json": rows.encode(patch["metadata"])})
        self._patched = {}

    def _write_session(self, session_id: str) -> None:
        later = self._at > self._touched.get(session_id, 0)
        if later:
            if len(self._touched) > 10_000:
                self._touched.clear()
            self._touched[session_id] = self._at
        params: rows.Params = {"id": session_id, "updated_at": self._at}
        if self._booked:
            sums = {**msgspec.structs.asdict(self._usage), "total": self._usage.total, "cost_usd": self._cost_usd}
            self._sql.run("book_session_later" if later else "book_session", {**params, **sums})
        elif later:
            self._sql.run("touch_session", params)
        self._usage, self._cost_usd, self._at, self._booked = Usage(), 0.0, 0, False


def _run(sql: Statements, name: str, params: list[rows.Params]) -> None:
    if len(params) == 1:
        sql.run(name, params[0])
    elif params:
        sql.many(name, params)


_MAX_TURNS: Final = 256
_MAX_DATA_BYTES: Final = 4096
"""Limits of the number of turns and of the data of each: a megabyte at most."""


class Turns:
    """The newest turns written, and how many messages were linked to those opened here."""

    def __init__(self, sql: Statements, pending: WriteBuffer) -> None:
        self._sql = sql
        self._pending = pending
        self._turns: dict[str, Turn] = {}
        self._linked: dict[str, int] = {}

    def get(self, session_id: str, turn_id: str) -> Turn:
        turn = self._turns.get(turn_id)
        if turn is not None and turn.session_id == session_id:
            return turn
        # A turn opened by this unit may be unwritten and not cached: it was large, or one of many.
        self._pending.flush(session_id)
        row = self._sql.first("get_turn", {"id": turn_id, "session_id": session_id})
        if row is None:
            raise InternalError("a write names a turn that does not exist", turn_id=turn_id)
        return rows.to_turn(row)

    def keep(self, turn: Turn, *, new: bool = False) -> rows.Params:
        """Cache a turn that is about to be written, unless it is large; return its row."""
        if len(self._turns) >= _MAX_TURNS:
            self.forget()
        params = rows.turn_params(turn)
        if len(params["data_json"]) <= _MAX_DATA_BYTES:
            self._turns[turn.id] = turn
            if new:
                self._linked[turn.id] = 0
        else:
            self._turns.pop(turn.id, None)
            self._linked.pop(turn.id, None)
        return params

    def link(self, turn_id: str) -> int | None:
        """Reserve and return the position of a turn's next message; None where it must be looked up."""
        position = self._linked.get(turn_id)
        if position is not None:
            self._linked[turn_id] = position + 1
        return position

    def forget(self) -> None:
        self._turns.clear()
        self._linked.clear()
