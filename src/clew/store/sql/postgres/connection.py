"""PostgreSQL connections as clew wants them, named statements on one, and PostgreSQL's errors in clew's words.

A pooler that hands connections out by transaction may stand in between: nothing is left behind in a session. No SET,
no prepared statement, no temporary table, no lock outlives its transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import TextBinaryLoader, TextLoader

from clew import errors
from clew.store.sql.queries import load_queries, read_sql
from clew.store.sql.tails import Tails

__all__ = ["Connection", "PostgresStatements", "connect", "is_conflict", "is_cut_off", "shown_url", "translate"]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_NAME: Final = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")
_REFUSED: Final = re.compile(
    r'FATAL: +(?:.* authentication failed|(?:database|role) ".*" does not exist|no pg_hba\.conf entry)'
    "|no password supplied"
)
"""What a server says to whom it does not let in. The driver gives no code for that, only the words."""
_ENDED: Final = (
    psycopg.errors.AdminShutdown,
    psycopg.errors.CrashShutdown,
    psycopg.errors.CannotConnectNow,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
"""What a server says as it ends a connection. The driver does not count the last one among those about connections."""
_PATIENCE: Final = {
    "connect_timeout": "5",
    "application_name": "clew",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""Whatever the address does not say itself: a server that has gone away without a word is noticed in half a minute."""


def _numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """A statement with its parameters by number, and their names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _NAME.sub(number, statement), tuple(names)


SENT: Final = frozenset(re.findall(r"^-- name: ([a-z_]+)\n-- sent$", read_sql("postgres/queries.sql"), re.MULTILINE))
"""Of these nobody asks how many rows they change, or they fail by themselves where that is not one. In a pipeline they
are sent, and whoever reads next, or commits, waits for all of them at once."""

QUERIES: Final = {name: _numbered(body) for name, body in load_queries("postgres/queries.sql").items()}


class _JsonbLoader(Loader):
    """JSONB as text; a byte in front of it says in which form it was sent."""

    format = psycopg.pq.Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data)[1:].decode()


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    # JSON is text to clew, as it was written; and a number is as wide as the columns are, whatever it is.
    for name in ("json", "jsonb"):
        adapters.register_loader(name, TextLoader)
    adapters.register_loader("json", TextBinaryLoader)
    adapters.register_loader("jsonb", _JsonbLoader)
    adapters.register_dumper(int, Int8BinaryDumper)
    return adapters


_ADAPTERS: Final = _adapters()


def connect(url: str, *, reader: bool = False) -> Connection:
    """A connection whose transactions are begun by name; a reader's see one state and cannot write."""
    try:
        params: dict[str, Any] = {**_PATIENCE, **conninfo_to_dict(url)}
    except (psycopg.Error, UnicodeError):
        # What the driver says quotes the address, password and all.
        raise errors.InvalidInput(
            "this is not an address of PostgreSQL; write postgresql://user:password@host:5432/database, and what is "
            "special in a password as %40 for @, %2F for /, %25 for %"
        ) from None
    try:
        connection = psycopg.connect(
            **params,
            context=_Context(),
            prepare_threshold=None,
            cursor_factory=psycopg.RawCursor,
            client_encoding="utf8",
        )
    except psycopg.Error as error:
        raise translate(error, url) from error
    if reader:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
    else:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


class _Context:
    adapters = _ADAPTERS
    connection = None


class PostgresStatements:
    """Named statements on one connection, in the transaction that the first of them begins."""

    tails: Tails | None = None

    def __init__(self, connection: Connection, pipeline: psycopg.Pipeline | None = None) -> None:
        self.connection = connection
        self._pipeline = pipeline

    def run(self, name: str, params: Mapping[str, Any]) -> int:
        cursor = self._execute(name, params)
        return 1 if self._is_sent(name) else cursor.rowcount

    def many(self, name: str, params: Iterable[Mapping[str, Any]]) -> int:
        statement, names = QUERIES[name]
        cursor = self.connection.cursor(binary=True)
        values = [tuple(map(one.__getitem__, names)) for one in params]
        cursor.executemany(statement.encode(), values)
        return len(values) if self._is_sent(name) else max(cursor.rowcount, 0)

    def _is_sent(self, name: str) -> bool:
        """Whether what comes of a statement is not waited for; where it is, all before it has come, too."""
        if self._pipeline is None or name in SENT:
            return self._pipeline is not None
        self._pipeline.sync()
        return False

    def first(self, name: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None:
        return self._answered(name, params).fetchone()

    def rows(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        return self._answered(name, params).fetchall()

    def _answered(self, name: str, params: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        cursor = self._execute(name, params)
        if self._pipeline is not None:
            # The server knows that all was asked: it counts as idle then, and ends one that stays so and holds locks.
            self._pipeline.sync()
        return cursor

    def each(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        return self._execute(name, params)

    def _execute(self, name: str, params: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        statement, names = QUERIES[name]
        return self.connection.cursor(binary=True).execute(statement.encode(), tuple(map(params.__getitem__, names)))


def shown_url(url: str) -> str:
    """An address as it may be shown: without what opens it."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "postgresql:"
    host, port = parts.get("host") or "", parts.get("port")
    return f"postgresql://{host}{f':{port}' if port else ''}/{parts.get('dbname') or ''}"


def is_cut_off(error: BaseException) -> bool:
    """Whether the server, or the way to it, is not there now: the same may be tried again."""
    if isinstance(error, _ENDED):
        return True
    if isinstance(error, psycopg.OperationalError) and not isinstance(error, psycopg.errors.PipelineAborted):
        # What has a code the server has said itself; these are about connections.
        return error.sqlstate is None or error.sqlstate.startswith(("08", "57P", "53300"))
    return isinstance(error, psycopg.InterfaceError)


def is_conflict(error: BaseException) -> bool:
    """Whether two transactions met, of which one had to give way: done again, it sees what the other has done."""
    return isinstance(
        error,
        psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure | psycopg.errors.UniqueViolation,
    )


def translate(error: BaseException, url: str) -> BaseException:
    """The error a caller gets for one that PostgreSQL, or its driver, raised; anything else is passed on as it is."""
    if not isinstance(error, psycopg.Error):
        return error
    where, why = shown_url(url), " ".join(str(error).split())
    if isinstance(error, psycopg.errors.DiskFull):
        return errors.StorageFull(f"no room left to write {where} ({why}); make room and try again")
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return errors.StoreBusy(f"another process keeps what was to be written in {where} locked ({why}); try again")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return errors.StoreReadOnly(f"{where} takes no writes ({why}); name the primary server")
    if _REFUSED.search(why):
        return errors.StoreUnavailable(f"{where} cannot be opened ({why}); look at its name, the user and the password")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return errors.StoreUnavailable(f"{where} may not be used by this user ({why}); grant what is missing")
    if isinstance(error, psycopg.errors.QueryCanceled | psycopg.errors.TransactionTimeout):
        return errors.StoreUnavailable(
            f"{where} has ended a statement before it was done ({why}); see that statement_timeout leaves it time: "
            "ALTER DATABASE … SET statement_timeout = 0"
        )
    if is_cut_off(error) or isinstance(error, psycopg.OperationalError):
        return errors.StoreUnavailable(f"{where} cannot be reached ({why}); see that the server runs, and try again")
    if isinstance(error, psycopg.errors.DivisionByZero):
        return errors.InternalError("a write names what is not in its session, or was given up")
    if isinstance(error, psycopg.DataError):
        return errors.UnsupportedValue(f"{where} cannot hold this value ({why})")
    if isinstance(error, psycopg.IntegrityError):
        return errors.InternalError(f"a unit broke a constraint of the schema: {why}")
    return errors.StoreError(f"{where}: {why}")
