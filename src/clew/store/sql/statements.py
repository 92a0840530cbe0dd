"""What a SQL engine gives the code that all SQL stores share: named statements, and reads of one state of the store."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from clew.store.sql.kept_lines import KeptLines

__all__ = ["Reads", "SqlReader", "Statements", "reading"]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound="SqlReader")


class Statements(Protocol):
    """Runs named statements inside the transaction that is open now."""

    def run(self, name: str, params: Mapping[str, Any]) -> int:
        """Run and return how many rows were changed."""
        ...

    def many(self, name: str, params: Iterable[Mapping[str, Any]]) -> int:
        """Run once for each and return how many rows were changed in all."""
        ...

    def first(self, name: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None: ...

    def rows(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]: ...


class Reads(Protocol):
    """Read transactions off the event loop, each of which sees one state of the store.

    ``lines`` are those that are kept in memory, by a store that hears of every write.
    """

    @property
    def lines(self) -> KeptLines | None: ...

    async def run(self, call: Callable[[Statements], T], session_id: str | None = None) -> T:
        """``session_id`` is the session the call is about, where it is about one."""
        ...

    async def at_once(self, ask: Callable[[Reads], Coroutine[Any, Any, T]], session_id: str | None = None) -> T:
        """The same for several calls: all that ``ask`` runs on the reads it is given sees one state."""
        ...


class SqlReader:
    """One of the contracts on a SQL engine, told by ``reads`` how to get at a state of the store."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads


def reading(call: Callable[Concatenate[R, Statements, P], T]) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """A method of a contract, written as what it does inside one read transaction."""
    # Behind self and sql a session comes first, in every method that is about one.
    is_about_session = list(inspect.signature(call).parameters)[2:3] == ["session_id"]

    @functools.wraps(call)
    async def read(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        about = (args[0] if args else kwargs.get("session_id")) if is_about_session else None
        named = about if isinstance(about, str) else None
        return await self._reads.run(lambda sql: call(self, sql, *args, **kwargs), named)

    return read
