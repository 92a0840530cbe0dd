"""The interface of a SQL engine to the code shared by all SQL stores: named statements, and reads of one state of the
store.

A ``.sql`` file consists of blocks headed ``-- name: x``. A block headed ``-- fragment: x`` is text that other blocks
include with ``{x}``. Parameters are written ``:name``.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from importlib import resources
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from clew.errors import InternalError
from clew.store.sql.line_cache import LineCache
from clew.store.sql.tails import Tails

__all__ = [
    "FEW_TURNS",
    "IsLong",
    "ReadTransaction",
    "Reads",
    "SqlReader",
    "Statements",
    "TooLong",
    "end_of",
    "has_longer_view",
    "load_queries",
    "measured",
    "must",
    "read_sql",
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


_HEAD = re.compile(r"^-- (name|fragment): ([a-z_]+)$", re.MULTILINE)


def read_sql(path: str, package: str = "clew.store.sql") -> str:
    """Return the text of a data file in a package."""
    return resources.files(package).joinpath(path).read_text(encoding="utf-8")


def load_queries(path: str, package: str = "clew.store.sql") -> dict[str, str]:
    """Return the named statements of a file, with fragments filled in, without comments and extra white space."""
    pieces = _HEAD.split(read_sql(path, package))[1:]
    fragments: dict[str, str] = {}
    queries: dict[str, str] = {}
    for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        target = fragments if kind == "fragment" else queries
        if name in target:
            raise InternalError(f"{path} names {name} twice")
        lines = (line.split("--")[0].strip() for line in body.splitlines())
        target[name] = " ".join(line for line in lines if line).rstrip(";")
    # Twice, because a fragment may include another.
    for name, body in queries.items():
        for fragment, text in (*fragments.items(), *fragments.items()):
            body = body.replace("{" + fragment + "}", text)
        queries[name] = body
    return queries


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
