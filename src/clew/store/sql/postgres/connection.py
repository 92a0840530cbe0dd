"""PostgreSQL connections with clew's settings, named statements, and translation of PostgreSQL's errors.

Safe with a pooler that assigns connections per transaction: nothing is left in a session. No SET, prepared statement,
temporary table or lock outlives its transaction.
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
from clew.store.sql.statements import load_queries, read_sql
from clew.store.sql.tails import Tails

__all__ = ["Connection", "PostgresStatements", "connect", "is_conflict", "is_cut_off", "shown_url", "translate"]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_NAME: Final = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")
_REFUSED: Final = re.compile(
    r'FATAL: +(?:.* authentication failed|(?:database|role) ".*" does not exist|no pg_hba\.conf entry)'
    "|no password supplied"
)
"""Messages of a server that refuses a connection. The driver reports no code for them, only the text."""
_ENDED: Final = (
    psycopg.errors.AdminShutdown,
    psycopg.errors.CrashShutdown,
    psycopg.errors.CannotConnectNow,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
"""Errors of a server that is ending a connection. The driver does not count the last one as a connection error."""
_CONNECT_DEFAULTS: Final = {
    "connect_timeout": "5",
    "application_name": "clew",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""Defaults for what the URL leaves open: an unreachable server is noticed within half a minute."""


def _numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with numbered parameters, and their names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _NAME.sub(number, statement), tuple(names)


SENT: Final = frozenset(re.findall(r"^-- name: ([a-z_]+)\n-- sent$", read_sql("postgres/queries.sql"), re.MULTILINE))
"""Statements whose row count is not needed, or that fail by themselves if it is not one. In a pipeline they are sent
without waiting; the next read or commit waits for all of them."""

QUERIES: Final = {name: _numbered(body) for name, body in load_queries("postgres/queries.sql").items()}


class _JsonbLoader(Loader):
    """Loads JSONB as text; its first byte is the format version."""

    format = psycopg.pq.Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data)[1:].decode()


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    # clew uses JSON as the original text, and all integers are as wide as the columns.
    for name in ("json", "jsonb"):
        adapters.register_loader(name, TextLoader)
    adapters.register_loader("json", TextBinaryLoader)
    adapters.register_loader("jsonb", _JsonbLoader)
    adapters.register_dumper(int, Int8BinaryDumper)
    return adapters


_ADAPTERS: Final = _adapters()


def connect(url: str, *, reader: bool = False) -> Connection:
    """Open a connection; a reader's transactions see one state and cannot write."""
    try:
        params: dict[str, Any] = {**_CONNECT_DEFAULTS, **conninfo_to_dict(url)}
    except (psycopg.Error, UnicodeError):
        # The driver's message quotes the URL, including the password.
        raise errors.InvalidInput(
            "invalid PostgreSQL URL; use postgresql://user:password@host:5432/database, with special characters "
            "of the password escaped: %40 for @, %2F for /, %25 for %"
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
        """Return whether the statement's result is not waited for; otherwise sync, so that everything before it is
        complete."""
        if self._pipeline is None or name in SENT:
            return self._pipeline is not None
        self._pipeline.sync()
        return False

    def first(self, name: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None:
        return self._fetch(name, params).fetchone()

    def rows(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        return self._fetch(name, params).fetchall()

    def _fetch(self, name: str, params: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        cursor = self._execute(name, params)
        if self._pipeline is not None:
            # Tells the server that the statement is complete; otherwise it would count as idle in a transaction and be
            # ended while it holds locks.
            self._pipeline.sync()
        return cursor

    def each(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        return self._execute(name, params)

    def _execute(self, name: str, params: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        statement, names = QUERIES[name]
        return self.connection.cursor(binary=True).execute(statement.encode(), tuple(map(params.__getitem__, names)))


def shown_url(url: str) -> str:
    """Return a URL for display, without credentials."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "postgresql:"
    host, port = parts.get("host") or "", parts.get("port")
    return f"postgresql://{host}{f':{port}' if port else ''}/{parts.get('dbname') or ''}"


def is_cut_off(error: BaseException) -> bool:
    """Return whether the server is unreachable for now: the same operation can be retried."""
    if isinstance(error, _ENDED):
        return True
    if isinstance(error, psycopg.OperationalError) and not isinstance(error, psycopg.errors.PipelineAborted):
        # Errors with a code come from the server; these are about connections.
        return error.sqlstate is None or error.sqlstate.startswith(("08", "57P", "53300"))
    return isinstance(error, psycopg.InterfaceError)


def is_conflict(error: BaseException) -> bool:
    """Return whether the transaction lost a conflict with another one: a retry sees the other's changes."""
    return isinstance(
        error,
        psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure | psycopg.errors.UniqueViolation,
    )


def translate(error: BaseException, url: str) -> BaseException:
    """Translate an error of PostgreSQL or its driver; return anything else unchanged."""
    if not isinstance(error, psycopg.Error):
        return error
    where, why = shown_url(url), " ".join(str(error).split())
    if isinstance(error, psycopg.errors.DiskFull):
        return errors.StorageFull(f"no room left to write {where} ({why}); make room and try again")
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return errors.StoreBusy(f"another process holds a lock on rows to be written in {where} ({why}); try again")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return errors.StoreReadOnly(f"{where} is read-only ({why}); use the URL of the primary server")
    if _REFUSED.search(why):
        return errors.StoreUnavailable(
            f"{where} cannot be opened ({why}); check the database name, the user and the password"
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return errors.StoreUnavailable(f"this user has no access to {where} ({why}); grant the missing privilege")
    if isinstance(error, psycopg.errors.QueryCanceled | psycopg.errors.TransactionTimeout):
        return errors.StoreUnavailable(
            f"{where} cancelled a statement ({why}); check that statement_timeout is long enough: "
            "ALTER DATABASE … SET statement_timeout = 0"
        )
    if is_cut_off(error) or isinstance(error, psycopg.OperationalError):
        return errors.StoreUnavailable(
            f"{where} cannot be reached ({why}); check that the server is running, and try again"
        )
    if isinstance(error, psycopg.errors.DivisionByZero):
        return errors.InternalError("a write names a row that is not in its session, or its transaction was abandoned")
    if isinstance(error, psycopg.DataError):
        return errors.UnsupportedValue(f"{where} cannot hold this value ({why})")
    if isinstance(error, psycopg.IntegrityError):
        return errors.InternalError(f"a unit broke a constraint of the schema: {why}")
    return errors.StoreError(f"{where}: {why}")
