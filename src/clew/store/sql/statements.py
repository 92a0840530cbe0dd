"""What a SQL engine gives the code that all SQL stores share: named statements, and reads of one state of the store."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from clew.errors import InternalError
from clew.store.sql.kept_lines import KeptLines
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
"""A session with no more turns than that is read in some milliseconds, however much of it is wanted."""


class Statements(Protocol):
    """Runs named statements inside the transaction that is open now."""

    @property
    def tails(self) -> Tails | None:
        """What the writer of this process remembers of the journal, where there is one."""
        ...

    def run(self, name: str, params: Mapping[str, Any]) -> int:
        """Run and return how many rows were changed."""
        ...

    def many(self, name: str, params: Iterable[Mapping[str, Any]]) -> int:
        """Run once for each and return how many rows were changed in all."""
        ...

    def first(self, name: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None: ...

    def rows(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]: ...

    def each(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        """The same one by one, for many that are large: none is held longer than it is looked at."""
        ...


def must(sql: Statements, name: str, params: Mapping[str, Any], rows_changed: int = 1) -> None:
    """Run a statement that finds what it names inside the unit's own session, or the unit fails.

    Exactly so many rows must change: a write that may come twice needs ``DO UPDATE``, not ``DO NOTHING``.
    """
    if sql.run(name, params) != rows_changed:
        ids = {key: value for key, value in params.items() if key.endswith("_id")}
        raise InternalError(f"{name}: a write names what is not in its session", **ids)


IsLong: TypeAlias = bool | Callable[[Statements], bool]
"""Whether a read goes over much of the store. Where that depends on the session, a short read finds it out first."""


class Reads(Protocol):
    """Read transactions off the event loop, each of which sees one state of the store.

    Long ones have a lane of their own: however many there are, a short one never waits for them.

    ``lines`` are those that are kept in memory, by a store that hears of every write. ``on_spot``: the event loop
    itself reads, for which a few rows are enough.
    """

    @property
    def lines(self) -> KeptLines | None: ...

    @property
    def on_spot(self) -> bool: ...

    async def run(self, call: Callable[[Statements], T], session_id: str | None = None, *, long: IsLong = False) -> T:
        """``session_id`` is the session the call is about, where it is about one."""
        ...

    async def at_once(
        self,
        ask: Callable[[Reads], Coroutine[Any, Any, T]],
        session_id: str | None = None,
        *,
        hot: bool = False,
        again: str | None = None,
    ) -> T:
        """The same for several calls: all that ``ask`` runs on the reads it is given sees one state.

        ``hot``, ``again``: see :meth:`clew.store.base.Moment.at_once`.
        """
        ...


class SqlReader:
    """One of the contracts on a SQL engine, told by ``reads`` how to get at a state of the store."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads


def reading(call: Callable[Concatenate[R, Statements, P], T]) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """A method of a contract, written as what it does inside one read transaction.

    It reads no more than it says: some rows, found by an index. The others below may take long, and say so.
    """
    return _method(call, None)


def reading_session(
    call: Callable[Concatenate[R, Statements, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """The same, of one that reads most of a session: a long read where that has many turns."""

    def is_long(_: Reads, named: Mapping[str, Any]) -> IsLong:
        wanted = named.get("turns", named.get("limit"))
        return lambda sql: _is_long(sql, "has_more_turns", named["session_id"], wanted)

    return _method(call, is_long)


def reading_view(
    call: Callable[Concatenate[R, Statements, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """The same, of one that reads a line as far back as its newest compaction, or only what is not kept of it."""

    def is_long(reads: Reads, named: Mapping[str, Any]) -> IsLong:
        kept = named.get("kept") and reads.lines is not None and reads.lines.holds(named["session_id"])
        if kept or named.get("near"):
            return False
        return lambda sql: has_longer_view(sql, named["session_id"], named.get("turns"))

    return _method(call, is_long)


def reading_list(
    call: Callable[Concatenate[R, Statements, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """The same, of one that answers a page of a ``query``: an index finds it, unless a title is looked for."""
    return _method(call, lambda _, named: named["query"].title is not None)


def reading_store(
    call: Callable[Concatenate[R, Statements, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """The same, of one that goes over the whole store."""
    return _method(call, lambda _, named: True)


def _method(
    call: Callable[Concatenate[R, Statements, P], T], is_long: Callable[[Reads, Mapping[str, Any]], IsLong] | None
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    parameters = list(inspect.signature(call).parameters)[2:]
    # Behind self and sql a session comes first, in every method that is about one.
    is_about_session = parameters[:1] == ["session_id"]

    @functools.wraps(call)
    async def read(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        about = (args[0] if args else kwargs.get("session_id")) if is_about_session else None
        known = about if isinstance(about, str) else None
        long: IsLong = False
        if is_long is not None:
            long = is_long(self._reads, {**dict(zip(parameters, args, strict=False)), **kwargs})
        return await self._reads.run(lambda sql: call(self, sql, *args, **kwargs), known, long=long)

    return read


def has_longer_view(sql: Statements, session_id: str, turns: int | None) -> bool:
    """Whether a view of a session, or of its last ``turns`` turns, is more than a few of them."""
    return _is_long(sql, "has_longer_view", session_id, turns)


def _is_long(sql: Statements, measure: str, session_id: str, wanted: int | None) -> bool:
    # A call that says how many turns it wants reads no more than those.
    if wanted is not None:
        return wanted > FEW_TURNS
    return sql.first(measure, {"id": session_id, "turns": FEW_TURNS}) is not None
