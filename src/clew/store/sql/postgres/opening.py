"""Opening a PostgreSQL database: checking that the server is reliable, and migrating the tables to this version.

Versions have SQLite's numbers and only add to the schema, so that two versions of clew can run on one database. A
migration that an older clew cannot write alongside has a name ending in ``_closed``; older versions then refuse the
database.
"""

from __future__ import annotations

import asyncio
import re
import time
from importlib import resources
from typing import Final

import msgspec
import psycopg

from clew.clock import Clock, SystemClock
from clew.errors import NotSupported, SchemaTooNew, StoreUnavailable
from clew.ids import Mint
from clew.store.sql.postgres.connection import Connection, connect, is_conflict, shown_url, translate
from clew.store.sql.postgres.pool import ReaderPool
from clew.store.sql.postgres.store import PostgresStore
from clew.store.sql.postgres.writer import Writers
from clew.store.sql.statements import read_sql

__all__ = ["FIRST_VERSION", "MIGRATIONS", "SCHEMA_VERSION", "PostgresOptions", "migrate", "open_postgres"]

OLDEST: Final = 15
"""The oldest supported PostgreSQL version."""
FIRST_VERSION: Final = 20
"""The version of ``schema.sql`` when PostgreSQL support was added."""
_LOCK_TIMEOUT_S: Final = 2
"""How long a migration waits for a table in use: meanwhile all other users of that table wait behind it."""
_LOCK: Final = 0x636C6577_00
_FOLDER: Final = resources.files("clew.store.sql").joinpath("postgres/migrations")
_FILE: Final = re.compile(r"(\d{4})_\w+\.sql")
MIGRATIONS: Final = {
    int(name[:4]): name for name in sorted(file.name for file in _FOLDER.iterdir()) if _FILE.match(name)
}
SCHEMA_VERSION: Final = max(MIGRATIONS, default=FIRST_VERSION)
_NAMES: Final = re.findall(r"^CREATE (?:UNIQUE )?(?:TABLE|INDEX) (\w+)", read_sql("postgres/schema.sql"), re.MULTILINE)
_FIND_NAMES: Final = """
    SELECT name FROM unnest($1::text[]) WITH ORDINALITY n (name, at) WHERE to_regclass(name) IS NOT NULL ORDER BY at
"""
_FIND_COLUMNS: Final = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass('schema_versions') AND attnum > 0"


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a store. ``lossy`` accepts a server whose acknowledged commits may be lost in a crash."""

    read_only: bool = False
    lossy: bool = False
    writers: int = 4
    readers: int = 4
    gap_ms: float = 1.0
    wait_ms: float = 30_000.0
    """How long units and reads wait for an unreachable server."""


async def open_postgres(
    url: str, options: PostgresOptions | None = None, *, clock: Clock | None = None, mint: Mint | None = None
) -> PostgresStore:
    """Open a store, creating or upgrading its tables if it is opened for writing."""
    options, mint = options or PostgresOptions(), mint or Mint(clock or SystemClock())
    await asyncio.to_thread(_prepare, url, options)
    wait_s = options.wait_ms / 1000
    readers = ReaderPool(url, options.readers, wait_s)
    if options.read_only:
        return PostgresStore(url, readers, None)

    def connected() -> Connection:
        connection = connect(url)
        # Checked for each connection: the server may have been reconfigured or replaced.
        try:
            _check_server(connection, url, options)
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        return connection

    return PostgresStore(url, readers, Writers(url, connected, mint, options.writers, options.gap_ms, wait_s))


def _prepare(url: str, options: PostgresOptions) -> None:
    connection = connect(url)
    try:
        _check_server(connection, url, options)
        if options.read_only:
            _check_version(connection, url)
        else:
            migrate(connection, url, options.wait_ms / 1000)
        connection.commit()
    except Exception as error:
        raise translate(error, url) from error
    finally:
        connection.close()


def _check_server(connection: Connection, url: str, options: PostgresOptions) -> None:
    where, version = shown_url(url), connection.info.server_version // 10_000
    if version < OLDEST:
        raise NotSupported(f"{where} is PostgreSQL {version}; clew needs {OLDEST} or newer")
    row = connection.execute(
        "SELECT current_setting('synchronous_commit'), current_setting('server_encoding'), pg_is_in_recovery(), "
        "current_schema()"
    ).fetchone()
    sync, encoding, is_standby, schema = row or ("", "", False, None)
    if encoding != "UTF8":
        raise StoreUnavailable(f"{where} stores text as {encoding}; recreate the database with ENCODING 'UTF8'")
    if schema is None:
        raise StoreUnavailable(
            f"{where} has no schema for tables (search_path names none that exists); set one: "
            "ALTER DATABASE … SET search_path = public"
        )
    if options.read_only:
        return
    if is_standby:
        raise StoreUnavailable(f"{where} is a standby and read-only; use the URL of the primary server")
    if sync == "off" and not options.lossy:
        raise StoreUnavailable(
            f"{where} may lose acknowledged commits in a crash (synchronous_commit = off); turn it on: "
            "ALTER DATABASE … SET synchronous_commit = on"
        )


def _check_version(connection: Connection, url: str) -> int:
    """Return the version of the database; raise where this clew cannot read it, or it contains no store."""
    version = _version(connection, url)
    if version == 0:
        raise StoreUnavailable(f"{shown_url(url)} contains no store yet; run `clew serve` to create one")
    if version < SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{shown_url(url)} was written by an older clew (format {version} of {SCHEMA_VERSION}); "
            "open it once for writing, which upgrades it"
        )
    return version


def _version(connection: Connection, url: str) -> int:
    """Return the version; 0 for an empty database."""
    found = [name for (name,) in connection.execute(_FIND_NAMES, (_NAMES,)).fetchall()]
    columns = {name for (name,) in connection.execute(_FIND_COLUMNS).fetchall()}
    if found and not {"number", "additive"} <= columns:
        raise StoreUnavailable(
            f"{shown_url(url)} contains tables of another program ({', '.join(found[:3])}); choose another database"
        )
    if not found:
        return 0
    versions = connection.execute("SELECT number, additive FROM schema_versions ORDER BY number").fetchall()
    if not versions:
        raise StoreUnavailable(
            f"{shown_url(url)} does not record its version of clew (schema_versions is empty); restore a dump "
            "into an empty database, or choose another one"
        )
    closed = [number for number, additive in versions if number > SCHEMA_VERSION and not additive]
    if closed:
        raise SchemaTooNew(
            f"{shown_url(url)} was written by a newer clew (format {closed[-1]}, this one knows {SCHEMA_VERSION}); "
            "upgrade clew. Nothing was changed"
        )
    return int(versions[-1][0])


def migrate(connection: Connection, url: str, wait_s: float = 30.0) -> None:
    """Bring the database to this version, in one transaction and one process at a time.

    Other processes may be using it: on a conflict the migration aborts and starts over.
    """
    give_up = time.monotonic() + wait_s
    while True:
        try:
            with connection.transaction():
                return _migrate(connection, url)
        except psycopg.OperationalError as error:
            is_blocked = is_conflict(error) or isinstance(error, psycopg.errors.LockNotAvailable)
            if not is_blocked or time.monotonic() > give_up:
                raise


def _migrate(connection: Connection, url: str) -> None:
    if _version(connection, url) >= SCHEMA_VERSION:
        return
    connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_S}s'")
    connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
    version = _version(connection, url)
    if version == 0:
        connection.execute(read_sql("postgres/schema.sql").encode())
        _note(connection, SCHEMA_VERSION, additive=True)
        return
    # Every unit of a session locks this table first: with the lock held, no unit is in progress.
    connection.execute("LOCK TABLE session_state IN ACCESS EXCLUSIVE MODE")
    for number, name in MIGRATIONS.items():
        if number > version:
            connection.execute(read_sql(f"postgres/migrations/{name}").encode())
            _note(connection, number, additive=not name.endswith("_closed.sql"))


def _note(connection: Connection, number: int, *, additive: bool) -> None:
    connection.execute("INSERT INTO schema_versions (number, additive) VALUES ($1, $2)", (number, additive))
