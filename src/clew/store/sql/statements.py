"""The interface of a SQL engine to the code shared by all SQL stores: named statements, and reads of one state of the
store."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from clew.errors import InternalError
from clew.store.sql.line_cache import LineCache
from clew.store.sql.tails import Tails

__all__ = [
    "FEW_TURNS",
    "IsLong",
    "Reads",
    "SqlReader",
    "Statements",
    "has_longer_view",
    "must",
    "reading",
    "reading_list",
    "reading_session",
    "reading_store",
    "reading_view",
]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound="SqlReader")

FEW_TURNS: Final = 200
"""A session with at most this many turns is read in a few milliseconds, however much of it is requested."""


class Statements(Protocol):
    """Runs named statements inside the open transaction."""

    @property
    def tails(self) -> Tails | None:
        """Return the writer's cached journal tails, if this process has a writer."""
        ...

    def run(self, name: str, params: Mapping[str, Any]) -> int:
        """Run a statement and return the number of changed rows."""
        ...

    def many(self, name: str, params: Iterable[Mapping[str, Any]]) -> int:
        """Run a statement once for each set of parameters and return the number of changed rows in all."""
        ...

    def first(self, name: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None: ...

    def rows(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]: ...

    def each(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        """Yield rows one by one, for many large ones: none is held longer than needed."""
        ...


def must(sql: Statements, name: str, params: Mapping[str, Any], rows_changed: int = 1) -> None:
    """Run a statement that must find what it names inside the unit's session; otherwise the unit fails.

    Exactly ``rows_changed`` rows must change: a write that may repeat needs ``DO UPDATE``, not ``DO NOTHING``.
    """
    if sql.run(name, params) != rows_changed:
        ids = {key: value for key, value in params.items() if key.endswith("_id")}
        raise InternalError(f"{name}: a write names a row that is not in its session", **ids)


IsLong: TypeAlias = bool | Callable[[Statements], bool]
"""Whether a read covers much of the store. Where that depends on the session, a short read determines it first."""


class Reads(Protocol):
    """Read transactions off the event loop, each of which sees one state of the store.

    Long reads have their own threads: however many there are, a short one never waits for them.

    ``lines`` is the cache of lines, in a store that sees every write.
    """

    @property
    def lines(self) -> LineCache | None: ...

    async def run(self, call: Callable[[Statements], T], session_id: str | None = None, *, long: IsLong = False) -> T:
        """Run one read. ``session_id`` is the session it is about, if any."""
        ...

    async def at_once(self, ask: Callable[[Reads], Coroutine[Any, Any, T]], session_id: str | None = None) -> T:
        """Run several reads: everything that ``ask`` runs on the given reads sees one state."""
        ...


class SqlReader:
    """A contract implemented on a SQL engine; ``reads`` runs its read transactions."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads


def reading(call: Callable[Concatenate[R, Statements, P], T]) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Make a method that runs inside one read transaction.

    It reads a few rows, found by an index. The decorators below are for methods that may take long.
    """
    return _method(call, None)


def reading_session(
    call: Callable[Concatenate[R, Statements, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Make a method that reads most of a session: a long read if the session has many turns."""

    def is_long(_: Reads, named: Mapping[str, Any]) -> IsLong:
        wanted = named.get("turns", named.get("limit"))
        return lambda sql: _is_long(sql, "has_more_turns", named["session_id"], wanted)

    return _method(call, is_long)


def reading_view(
    call: Callable[Concatenate[R, Statements, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Make a method that reads a line back to its newest compaction, or only the part of it that is not cached."""

    def is_long(reads: Reads, named: Mapping[str, Any]) -> IsLong:
        cached = named.get("kept") and reads.lines is not None and reads.lines.holds(named["session_id"])
        if cached or named.get("near"):
            return False
        return lambda sql: has_longer_view(sql, named["session_id"], named.get("turns"))

    return _method(call, is_long)


def reading_list(
    call: Callable[Concatenate[R, Statements, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Make a method that returns a page of a ``query``: an index finds it, unless it filters by title."""
    return _method(call, lambda _, named: named["query"].title is not None)


def reading_store(
    call: Callable[Concatenate[R, Statements, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Make a method that reads the whole store."""
    return _method(call, lambda _, named: True)


def _method(
    call: Callable[Concatenate[R, Statements, P], T], is_long: Callable[[Reads, Mapping[str, Any]], IsLong] | None
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    parameters = list(inspect.signature(call).parameters)[2:]
    # Methods about a session have its id as the first parameter after self and sql.
    is_about_session = parameters[:1] == ["session_id"]

    @functools.wraps(call)
    async def read(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        subject = (args[0] if args else kwargs.get("session_id")) if is_about_session else None
        session_id = subject if isinstance(subject, str) else None
        long: IsLong = False
        if is_long is not None:
            long = is_long(self._reads, {**dict(zip(parameters, args, strict=False)), **kwargs})
        return await self._reads.run(lambda sql: call(self, sql, *args, **kwargs), session_id, long=long)

    return read


def has_longer_view(sql: Statements, session_id: str, turns: int | None) -> bool:
    """Return whether a view of a session, or of its last ``turns`` turns, has more than a few turns."""
    return _is_long(sql, "has_longer_view", session_id, turns)


def _is_long(sql: Statements, measure: str, session_id: str, wanted: int | None) -> bool:
    # A call with a number of turns reads no more than those.
    if wanted is not None:
        return wanted > FEW_TURNS
    return sql.first(measure, {"id": session_id, "turns": FEW_TURNS}) is not None
