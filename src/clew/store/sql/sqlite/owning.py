"""Opening a SQLite file for writing: its owner's lock, its schema, and that no acknowledged commit is missing.

Triggers keep both in step, whichever program writes, also while clew is not running. Other columns stay as they are.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from clew.clock import Clock
from clew.errors import StoreUnavailable
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.store.owner import OwnerLock, refuse_lost, take_ownership
from clew.store.sql.inbox import Inbox
from clew.store.sql.line_cache import LineCache
from clew.store.sql.log import EventLog, is_log_complete
from clew.store.sql.sqlite import connection as c
from clew.store.sql.sqlite.commit_counter import (
    LOSS_CAUSE,
    CommitCounter,
    damage_of,
    find_loss,
    newest_commit,
    notes_of,
    read_notes,
    record_loss,
)
from clew.store.sql.sqlite.connection import Connect, transaction
from clew.store.sql.sqlite.indexes import repair_indexes
from clew.store.sql.sqlite.migrate import check_version, is_plain, migrate, refuse_foreign
from clew.store.sql.sqlite.owned_file import ExternalWriters, OwnedFile
from clew.store.sql.sqlite.pool import ReaderPool
from clew.store.sql.sqlite.store import SqliteOptions, SqliteStore
from clew.store.sql.sqlite.transactions import Transactions
from clew.store.sql.sqlite.writer import ThreadedWriter
from clew.store.sql.statements import load_queries

__all__ = ["open_owned"]

logger = logging.getLogger("clew.store")
_SQL: Final = load_queries("sqlite/columns.sql")
_TRIGGERS: Final = ("column_changed", "metadata_changed", "column_inserted", "metadata_inserted")


def open_owned(path: Path, options: SqliteOptions, clock: Clock, mint: Mint, connect: Connect) -> SqliteStore:
    """Open a store as the owner of its file, creating or upgrading it; everything is released if that fails."""
    with contextlib.ExitStack() as undo:
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
            _keep_columns_in_step(connection)
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
        readers.lines = LineCache(others.is_known)
        transactions = Transactions(connection, path, mint, readers.lines, log, lock_wait_s=options.lock_wait_ms / 1000)
        inbox = Inbox(options.window_ms, options.gap_ms)
        guard = OwnedFile(transactions, path, mint, options, lock, acknowledged, others, inbox, readers.backfill)
        transactions.guard = guard
        readers.wait_for_adoption = guard.wait_for_adoption
        readers.tails = transactions.journal.tails
        writer = ThreadedWriter(transactions, inbox)
        undo.pop_all()
        return SqliteStore(path, readers, writer, lock)


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
        refuse_foreign(path)

    return take_ownership(path, path, clock.now_ms(), make=True, check=check)


class _Column(NamedTuple):
    table: str
    name: str
    key: str
    is_number: bool
    also: tuple[str, ...] = ()


_COLUMNS: Final = (
    _Column("chat_sessions", "title", "title", False, ("naming",)),
    _Column("chat_sessions", "workspace_id", "workspaceId", False),
    _Column("chat_messages", "hidden_at", "hidden_at", True, ("hidden_by",)),
)


def _keep_columns_in_step(connection: sqlite3.Connection) -> None:
    """Create the triggers for these columns, where the file has them, and bring rows of before in step."""
    made = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    for column in _COLUMNS:
        none = _find_empty(connection, column)
        if none is None:
            continue
        triggers = dict(_triggers(column, none))
        if all(made.get(name) == statement for name, statement in triggers.items()):
            continue
        with transaction(connection):
            for name in triggers:
                connection.execute(f"DROP TRIGGER IF EXISTS {name}")
            for name in ("bring_metadata", "bring_column"):
                connection.execute(_fill(_SQL[name], column, none))
            for statement in triggers.values():
                connection.execute(statement)


def _triggers(column: _Column, none: str) -> Iterator[tuple[str, str]]:
    for statement in (_fill(_SQL[name], column, none) for name in _TRIGGERS):
        yield statement.split()[2], statement


def _find_empty(connection: sqlite3.Connection, column: _Column) -> str | None:
    """Return what the column holds without a value; None if the file has no such column of this kind."""
    # PRAGMA table_info leaves out generated columns, which follow by themselves.
    columns = connection.execute(f"PRAGMA table_info({column.table})")
    found = next(((kind, required) for _, name, kind, required, *_ in columns if name == column.name), None)
    if found is None or ("INT" in found[0].upper()) is not column.is_number:
        return None
    if not column.is_number and not any(kind in found[0].upper() for kind in ("TEXT", "CHAR", "CLOB")):
        return None
    return _empty(column) if found[1] else "NULL"


def _empty(column: _Column) -> str:
    return "0" if column.is_number else "''"


def _fill(statement: str, column: _Column, none: str) -> str:
    values = {
        "table": column.table,
        "column": column.name,
        "key": column.key,
        "type": "integer" if column.is_number else "text",
        "empty": _empty(column),
        "none": none,
        "also": "".join(f", '$.{key}'" for key in column.also),
    }
    for name, value in values.items():
        statement = statement.replace("{" + name + "}", value)
    return statement
