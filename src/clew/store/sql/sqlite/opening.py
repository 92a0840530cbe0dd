"""Opening a SQLite file: checking its ownership, its readability, and that no acknowledged commit is missing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from pathlib import Path

from clew.clock import Clock, SystemClock
from clew.errors import ClewError, StoreUnavailable
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.store.file_lock import find_file
from clew.store.owner import OwnerLock, read_owner, refuse_lost, refuse_network_file_system, take_ownership
from clew.store.sql.adopt import any_unadopted
from clew.store.sql.kept_lines import KeptLines
from clew.store.sql.log import EventLog, is_log_complete
from clew.store.sql.lost_commits import damage_of, newest_commit, record_loss
from clew.store.sql.sqlite import connection as c
from clew.store.sql.sqlite.commit_counter import LOSS_CAUSE, CommitCounter, find_loss, notes_of, read_notes
from clew.store.sql.sqlite.connection import Connect, connect
from clew.store.sql.sqlite.external_writers import ExternalWriters
from clew.store.sql.sqlite.indexes import check_indexes, has_damaged_index, repair_indexes
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION, check_version, is_plain, migrate
from clew.store.sql.sqlite.pool import ReaderPool
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.sql.sqlite.writer import SqliteOptions, Writer

__all__ = ["SqliteOptions", "needs_writing", "open_sqlite"]

logger = logging.getLogger("clew.store")


async def open_sqlite(
    path: Path,
    options: SqliteOptions | None = None,
    *,
    clock: Clock | None = None,
    mint: Mint | None = None,
    connect: Connect = connect,
) -> SqliteStore:
    """Open a store, creating or upgrading the file if it is opened for writing.

    All its connections are made by ``connect``: two SQLite libraries in one process would break each other's locks.
    """
    clock = clock or SystemClock()
    return await asyncio.to_thread(_open, path, options or SqliteOptions(), clock, mint or Mint(clock), connect)


def _open(path: Path, options: SqliteOptions, clock: Clock, mint: Mint, connect: Connect) -> SqliteStore:
    path = find_file(path)
    if path.is_dir():
        raise StoreUnavailable(f"{path} is a folder; use a file in it, such as sqlite:///{path / 'clew.db'}")
    refuse_network_file_system(path)
    with contextlib.ExitStack() as undo:
        try:
            if options.read_only:
                _check_readable(path)
                return SqliteStore(path, ReaderPool(path, options.reader_threads, connect), None, None)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _acquire_lock(path, clock)
            undo.callback(lock.release)
            files = (path, path.with_name(path.name + "-wal"))
            had_content = any(file.exists() and file.stat().st_size for file in files)
            c.protect(path)
            connection = connect(path, writer=True)
            undo.callback(connection.close)
            if had_content:
                _refuse_emptied(connection, path)
            migrate(connection, path)
            if had_content:
                repair_indexes(connection, path)
            if options.max_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {options.max_pages}")
            c.protect(path)
            lock.keep()
            log = _open_log(connection, clock, wanted=options.event_log)
            acknowledged = _check_acknowledged(connection, path, clock)
            undo.callback(acknowledged.close)
            # Move everything in the log into the database before anything is added, if there is space.
            with contextlib.suppress(sqlite3.Error):
                if c.empty_log(connection):
                    acknowledged.synced = acknowledged.commit
            readers = ReaderPool(path, options.reader_threads, connect)
            undo.callback(readers.close)
            lock.stays()  # the readers are connected to the same file as the writer
            others = ExternalWriters(connect(path, writer=False))
            undo.callback(others.close)
            readers.lines = KeptLines(others.is_known)
            writer = Writer(
                connection, path, mint, options, log, lock, acknowledged, others, readers.lines, readers.backfill
            )
            readers.wait_for_adoption, readers.is_known = writer.wait_for_adoption, others.is_known
            readers.tails = writer.tails
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise c.translate(error, path) from error
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error.strerror or error}") from error
        undo.pop_all()
        return SqliteStore(path, readers, writer, lock)


def needs_writing(path: Path) -> bool:
    """Return whether opening the store for writing would rebuild an index or adopt another program's changes.

    Only reads.
    """
    try:
        with contextlib.closing(c.connect_to_inspect(path)) as connection:
            version, plain = check_version(connection, path), is_plain(connection)
            if plain or version != SCHEMA_VERSION:
                return plain
            return has_damaged_index(connection) or any_unadopted(c.SqliteStatements(connection))
    except (sqlite3.Error, ClewError, OSError):
        return False  # opening it reports the reason


def _open_log(connection: sqlite3.Connection, clock: Clock, *, wanted: bool) -> EventLog | None:
    """Start or stop the event log as configured; record sessions that another program deleted meanwhile."""
    sql = c.SqliteStatements(connection)
    log = EventLog(sql, clock)
    if is_log_complete(sql) is not wanted:
        with c.transaction(connection):
            (log.start if wanted else log.stop)()
            failpoint("log.before_switch")
    elif wanted and (gone := log.gone()):
        with c.transaction(connection):
            log.record_deleted(gone)
    return log if wanted else None


def _refuse_emptied(connection: sqlite3.Connection, path: Path) -> None:
    """Raise if the files no longer contain a store but notes show that they did: no new store is created over it."""
    if check_version(connection, path) != 0 or is_plain(connection):
        return
    newest = max((note.commit for note in read_notes(path)), default=0)
    if newest:
        raise StoreUnavailable(
            f"{path} cannot be read, although {newest} commits were acknowledged here; restore a backup, "
            f"or move its files away to create a new store"
        )


def _check_acknowledged(connection: sqlite3.Connection, path: Path, clock: Clock) -> CommitCounter:
    """Compare the file's commits with the acknowledged ones, record a loss, and start new notes."""
    sql = c.SqliteStatements(connection)
    store_id, held = newest_commit(sql)
    notes = read_notes(path)
    loss = find_loss(notes, store_id, held)
    if loss is not None:
        logger.error("%s: %s", path, damage_of(loss, LOSS_CAUSE).what)
        connection.execute("PRAGMA synchronous = FULL")
        with c.transaction(connection):
            record_loss(sql, loss, clock.now_ms())
        connection.execute("PRAGMA synchronous = NORMAL")
        held = loss.acknowledged
    acknowledged = CommitCounter(path, store_id)
    synced = max((note.synced for note in notes_of(notes, store_id)), default=0)
    acknowledged.begin(held, min(held, synced))
    return acknowledged


def _acquire_lock(path: Path, clock: Clock) -> OwnerLock:
    """Acquire the owner's lock on a file that is clew's or does not exist yet.

    Nothing is left next to another program's file, and no new store replaces a lost one.
    """
    refuse_lost(path)

    def check() -> None:
        c.undo_first_write(path)
        _refuse_foreign(path)

    return take_ownership(path, path, clock.now_ms(), make=True, check=check)


def _refuse_foreign(path: Path) -> None:
    """Refuse a newer or foreign file before anything in it is changed, even its journal mode."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    if path.stat().st_nlink > 1:
        raise StoreUnavailable(
            f"{path} has a second name (a hard link), but SQLite keeps the newest data under one name only; remove the "
            "other name, or copy the file"
        )
    with contextlib.closing(c.connect_to_inspect(path)) as connection:
        check_version(connection, path)


def _check_readable(path: Path) -> None:
    if not path.is_file():
        refuse_lost(path)
        raise StoreUnavailable(f"no store at {path}")
    _refuse_foreign(path)
    with contextlib.closing(connect(path, writer=False)) as connection:
        version, plain = check_version(connection, path), is_plain(connection)
        if version == SCHEMA_VERSION:
            check_indexes(connection, path, refuse=read_owner(path) is None)
    if plain:
        raise StoreUnavailable(f"another program made {path}; open it once for writing to import it")
    if version == 0:
        raise StoreUnavailable(f"{path} contains no store yet")
    if version < SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{path} was written by an older clew (format {version} of {SCHEMA_VERSION}); "
            "open it once for writing, which upgrades it"
        )
