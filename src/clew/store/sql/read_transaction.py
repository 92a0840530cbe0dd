"""Reads in an open transaction: several questions about one state, and reads too long for the lane they began in."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from clew.errors import InternalError
from clew.store.sql.line_cache import LineCache
from clew.store.sql.statements import IsLong, Reads, Statements

__all__ = ["ReadTransaction", "TooLong", "end_of", "measured"]

T = TypeVar("T")


class TooLong(Exception):
    """Raised when a read started in the short lane belongs in the long one."""


class Answers(Protocol):
    """Runs a read and translates its errors to the store's."""

    def __call__(self, call: Callable[[Statements], Any], sql: Statements) -> Any: ...


class ReadTransaction:
    """Reads in an already open transaction; none of them waits."""

    def __init__(self, sql: Statements, lines: LineCache | None, *, in_long: bool, answer: Answers) -> None:
        self._sql = sql
        self._in_long = in_long
        self._answer = answer
        self.lines = lines

    async def run(self, call: Callable[[Statements], T], session_id: str | None = None, *, long: IsLong = False) -> T:
        if long is False or self._in_long:
            read: T = self._answer(call, self._sql)
        else:
            read = self._answer(lambda sql: measured(call, sql, long), self._sql)
        return read

    async def at_once(self, ask: Callable[[Reads], Coroutine[Any, Any, T]], session_id: str | None = None) -> T:
        return await ask(self)


def measured(call: Callable[[Statements], T], sql: Statements, long: IsLong) -> T:
    """Run a read in the short lane, if it belongs there."""
    if long is True or (callable(long) and long(sql)):
        raise TooLong
    return call(sql)


def end_of(asked: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that only reads, and so never waits."""
    try:
        asked.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    asked.close()
    raise InternalError("a combined read may await nothing but the store")
