"""Opening a SQLite file: for reading here, for writing in :mod:`clew.store.sql.sqlite.owning`."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from clew.clock import Clock, SystemClock
from clew.errors import ClewError, StoreUnavailable
from clew.ids import Mint
from clew.store.file_lock import find_file
from clew.store.owner import read_owner, refuse_lost, refuse_network_file_system
from clew.store.sql.adopt import any_unadopted
from clew.store.sql.sqlite import connection as c
from clew.store.sql.sqlite.connection import Connect, connect
from clew.store.sql.sqlite.indexes import check_indexes, has_damaged_index
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION, check_version, is_plain, refuse_foreign
from clew.store.sql.sqlite.pool import ReaderPool
from clew.store.sql.sqlite.store import SqliteOptions, SqliteStore

__all__ = ["SqliteOptions", "needs_writing", "open_sqlite"]


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
    try:
        if options.read_only:
            _check_readable(path)
            return SqliteStore(path, ReaderPool(path, options.reader_threads, connect), None, None)
        # Reading needs none of what writes, which takes twice as long to import.
        from clew.store.sql.sqlite.owning import open_owned

        return open_owned(path, options, clock, mint, connect)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise c.translate(error, path) from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be opened: {error.strerror or error}") from error


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


def _check_readable(path: Path) -> None:
    if not path.is_file():
        refuse_lost(path)
        raise StoreUnavailable(f"no store at {path}")
    refuse_foreign(path)
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
