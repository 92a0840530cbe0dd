"""Turns that the writer remembers: each is asked for again when it ends, and when the next one begins below it.

Only the one writer may: what it remembers is dropped when another program has written, or a transaction failed.
"""

from __future__ import annotations

from typing import Final

from clew.errors import InternalError
from clew.store.sql import rows
from clew.store.sql.pending import Pending
from clew.store.sql.statements import Statements
from clew.transcript.turn import Turn

__all__ = ["Turns"]

_MOST: Final = 256
_MOST_DATA: Final = 4096
"""How many, and how long the data of one may be: a megabyte at most."""


class Turns:
    """The newest turns that were written, and how many messages were linked to those opened here."""

    def __init__(self, sql: Statements, pending: Pending) -> None:
        self._sql = sql
        self._pending = pending
        self._turns: dict[str, Turn] = {}
        self._linked: dict[str, int] = {}

    def get(self, session_id: str, turn_id: str) -> Turn:
        turn = self._turns.get(turn_id)
        if turn is not None and turn.session_id == session_id:
            return turn
        # One that the same unit opened may wait to be written and be forgotten here: it was large, or one of many.
        self._pending.flush(session_id)
        row = self._sql.first("get_turn", {"id": turn_id, "session_id": session_id})
        if row is None:
            raise InternalError("a write names a turn that is not there", turn_id=turn_id)
        return rows.to_turn(row)

    def keep(self, turn: Turn, *, new: bool = False) -> rows.Params:
        """Remember a turn as it is about to be written, unless it is large; its row."""
        if len(self._turns) >= _MOST:
            self.forget()
        params = rows.turn_params(turn)
        if len(params["data_json"]) <= _MOST_DATA:
            self._turns[turn.id] = turn
            if new:
                self._linked[turn.id] = 0
        else:
            self._turns.pop(turn.id, None)
            self._linked.pop(turn.id, None)
        return params

    def link(self, turn_id: str) -> int | None:
        """The place of the next message of a turn, which is taken with that; None where it has to be looked up."""
        place = self._linked.get(turn_id)
        if place is not None:
            self._linked[turn_id] = place + 1
        return place

    def forget(self) -> None:
        self._turns.clear()
        self._linked.clear()
