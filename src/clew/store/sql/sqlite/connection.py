"""SQLite connections with clew's settings, and translation of SQLite's errors."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from clew import errors
from clew.platform.files import CLOEXEC, is_read_only, pwrite
from clew.store.file_lock import leave, use
from clew.store.sql.queries import load_queries
from clew.store.sql.sqlite.names import use_names
from clew.store.sql.tails import Tails

BUSY_TIMEOUT_MS: Final = 5000
QUERIES: Final[dict[str, str]] = load_queries("sqlite/queries.sql")

_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The first bytes of a rollback journal; the page count of its original database is at byte 16."""
_PROBE: Final = 1 << 16
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class Connect(Protocol):
    """A factory of a store's connections. The default is :func:`connect`; one with its own disk access ends with
    :func:`prepare`."""

    def __call__(self, path: Path, *, writer: bool) -> sqlite3.Connection: ...


def connect(path: Path, *, writer: bool, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> sqlite3.Connection:
    """Open a connection with the settings all connections share; a reader's cannot write at all."""
    # mode=rw even for readers: a reader must be able to create the shared-memory file of a store that is not open.
    uri = f"{path.resolve().as_uri()}?mode=rwc" if writer else uri_to_read(path)
    connection = sqlite3.connect(
        uri,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=busy_timeout_ms / 1000,
        cached_statements=256,
        factory=_Counted,
    )
    return prepare(connection, path, writer=writer, busy_timeout_ms=busy_timeout_ms)


def prepare(
    connection: sqlite3.Connection, path: Path, *, writer: bool, busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> sqlite3.Connection:
    """Apply the settings all connections share to an open connection."""
    try:
        connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
        mode = connection.execute(f"PRAGMA journal_mode{' = WAL' if writer else ''}").fetchone()[0]
        if mode != "wal" and (writer or not _is_at_rest(path)):
            raise errors.StoreUnavailable(
                f"{path} cannot use WAL mode (SQLite reports {mode!r}); choose a local folder for the store"
            )
        connection.execute("PRAGMA synchronous = NORMAL")
        # Overwrite deleted content, whatever this SQLite's build default is.
        connection.execute("PRAGMA secure_delete = ON")
        _prepare_statements(connection)
        if not writer:
            connection.execute("PRAGMA query_only = ON")
            keep_scratch_in_memory(connection)
        use_names(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_in_memory() -> sqlite3.Connection:
    """Open an empty database in memory. It need not be closed: nothing could be saved."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256, factory=_InMemory
    )
    _prepare_statements(connection)
    return connection


class _InMemory(sqlite3.Connection):
    """A connection that is not reported when it is collected without having been closed."""

    def __del__(self) -> None:
        self.close()


def _prepare_statements(connection: sqlite3.Connection) -> None:
    """Apply what the schema and the statements depend on."""
    connection.execute("PRAGMA foreign_keys = ON")
    connection.create_function("contains_text", 2, _contains_text, deterministic=True)


def keep_scratch_in_memory(connection: sqlite3.Connection) -> None:
    """Keep temporary data of statements, such as the turns on a path or original pages, out of files.

    That is faster, and a file in the system's temporary folder could expose deleted content on another disk. So
    statements that delete much run in portions. A writer is set so only once its tables are migrated: building an index
    may sort more than fits in memory.
    """
    connection.execute("PRAGMA temp_store = MEMORY")


def connect_to_inspect(path: Path) -> sqlite3.Connection:
    """Open a connection to inspect a file without changing it: no journal mode, no checkpoint on close."""
    uri = uri_to_read(path, "ro")
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000, factory=_Counted)
    try:
        return use_names(connection)
    except BaseException:
        connection.close()
        raise


def uri_to_read(path: Path, mode: str = "rw") -> str:
    """Return a reader's URI of the file: on a read-only medium without shared memory."""
    return f"{path.resolve().as_uri()}?{'mode=ro&immutable=1' if _is_at_rest(path) else f'mode={mode}'}"


def _is_at_rest(path: Path) -> bool:
    """Return whether no process can write the file: it is on a read-only medium, where SQLite cannot create shared
    memory.

    The content of a log next to it cannot be read there.
    """
    try:
        if not is_read_only(path):
            return False
        log = path.with_name(path.name + "-wal")
        log_bytes = log.stat().st_size if log.exists() else 0
    except OSError:
        return False
    if log_bytes:
        raise errors.StoreUnavailable(
            f"{path} is on a read-only medium, with a log next to it; copy both to another folder to open the store"
        )
    return True


def undo_first_write(path: Path) -> None:
    """Roll back the first write to a file if the power failed during it: before that the file was empty.

    A database being created has a rollback journal for a moment, which a read-only process cannot roll back.
    """
    journal = path.with_name(path.name + "-journal")
    try:
        with journal.open("rb") as file:
            header = file.read(20)
    except OSError:
        return
    if header[:8] == _JOURNAL and header[16:20] == bytes(4):
        uri = f"{path.resolve().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None, factory=_Counted)) as connection:
            connection.execute("PRAGMA user_version")


class _Counted(sqlite3.Connection):
    """A connection that registers its use of the file for this process."""

    def __init__(self, database: str, *args: Any, **kwargs: Any) -> None:
        self._file = use(Path(unquote(urlsplit(database).path)))
        try:
            super().__init__(database, *args, **kwargs)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        super().close()
        self._leave()

    def _leave(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            leave(file)


def empty_log(connection: sqlite3.Connection) -> bool:
    """Move all of the WAL into the database and empty it, without waiting: what a reader needs stays.

    Return whether all of it was moved, and so synced.
    """
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one transaction, rolled back on an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def scratch() -> sqlite3.Connection:
    """Open an in-memory database for experiments."""
    return sqlite3.connect(":memory:")


@functools.cache
def has_fts5() -> bool:
    """Return whether this SQLite was built with full-text search."""
    with contextlib.closing(scratch()) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
        except sqlite3.OperationalError:
            return False
        return True


def _contains_text(text: object, wanted: object) -> bool:
    return isinstance(text, str) and isinstance(wanted, str) and wanted.casefold() in text.casefold()


class SqliteStatements:
    """Named statements on one connection."""

    def __init__(self, connection: sqlite3.Connection, tails: Tails | None = None) -> None:
        self._connection = connection
        self.tails = tails

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    def run(self, name: str, params: Mapping[str, Any]) -> int:
        return self._connection.execute(QUERIES[name], params).rowcount

    def many(self, name: str, params: Iterable[Mapping[str, Any]]) -> int:
        return self._connection.executemany(QUERIES[name], params).rowcount

    def first(self, name: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._connection.execute(QUERIES[name], params).fetchone()
        return row

    def rows(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        return self._connection.execute(QUERIES[name], params).fetchall()

    def each(self, name: str, params: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
        return self._connection.execute(QUERIES[name], params)


def _primary(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    return _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_broken(error: BaseException) -> bool:
    return _primary(error) in _BROKEN


def is_undecodable(error: BaseException) -> bool:
    """Return whether a text in the file is not valid UTF-8; SQLite itself does not check."""
    return isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error)


def translate(error: BaseException, path: Path | None = None) -> BaseException:
    """Translate an error of SQLite; return anything else unchanged."""
    where = path or "the store"
    if isinstance(error, UnicodeDecodeError):
        # SQLite quoted the damaged schema in its message, which Python could not decode.
        return errors.StoreUnavailable(f"{where} is damaged ({error.object!r}); restore a backup")
    if not isinstance(error, sqlite3.Error) or isinstance(error, errors.ClewError):
        return error
    match _primary(error):
        case sqlite3.SQLITE_FULL:
            return errors.StorageFull(f"no room left to write {where} ({error}); make room and try again")
        case sqlite3.SQLITE_IOERR:
            if path is not None and not _has_room(path):
                return errors.StorageFull(f"no room left to write {where} ({error}); make room and try again")
            what = f"{where} could not be read or written: an I/O error ({error})"
            return errors.StoreUnavailable(f"{what}; check the disk, and have a backup ready")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return errors.StoreBusy(f"another process has locked {where} ({error}); close it and try again")
        case sqlite3.SQLITE_NOTADB:
            return errors.StoreUnavailable(f"{where} is not a clew store ({error}); choose another file")
        case sqlite3.SQLITE_CORRUPT:
            return errors.StoreUnavailable(f"{where} is damaged ({error}); run `clew check`, and restore a backup")
        case sqlite3.SQLITE_READONLY:
            return errors.StoreReadOnly(f"{where} cannot be written ({error})")
        case sqlite3.SQLITE_CANTOPEN:
            return errors.StoreUnavailable(
                f"{where} cannot be opened ({error}); check that its folder exists and belongs to you"
            )
    if isinstance(error, sqlite3.IntegrityError):
        return errors.InternalError(f"a unit broke a constraint of the schema: {error}")
    if isinstance(error, sqlite3.NotSupportedError):
        return errors.NotSupported(str(error))
    return errors.StoreError(f"{where}: {error}")


def _has_room(path: Path) -> bool:
    """Return whether SQLite failed for another reason than lack of space. It reports a full disk as such, but a quota
    or file size limit as an I/O error; so the write is tried with an unnamed file."""
    wal = path.with_name(path.name + "-wal")
    try:
        at = wal.stat().st_size if wal.exists() else 0
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            pwrite(probe.fileno(), bytes(_PROBE), at)
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return True


def protect(path: Path) -> None:
    """Make the store's files private to their owner, before SQLite writes to them.

    An existing file is never opened here: closing any descriptor of it would drop SQLite's locks in this process.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | CLOEXEC, 0o600))
    for name in (path.name, path.name + "-wal", path.name + "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(name).chmod(0o600)


def remove_files(path: Path) -> None:
    """Remove an unfinished database and the files SQLite puts next to it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
