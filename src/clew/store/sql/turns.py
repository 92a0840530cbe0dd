"""A cache of turns for the writer: each is read again when it ends, and when the next turn begins below it.

Valid only with a single writer: the cache is dropped when another program has written, or a transaction failed.
"""

from __future__ import annotations

from typing import Final

from clew.errors import InternalError
from clew.store.sql import rows
from clew.store.sql.statements import Statements
from clew.store.sql.write_buffer import WriteBuffer
from clew.transcript.turn import Turn

__all__ = ["Turns"]

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
