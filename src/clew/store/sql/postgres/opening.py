"""Opening a PostgreSQL database: checking that the server is reliable and the tables have this version."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from clew.clock import Clock, SystemClock
from clew.errors import NotSupported, StoreUnavailable
from clew.ids import Mint
from clew.store.sql.postgres.connection import Connection, connect, shown_url, translate
from clew.store.sql.postgres.migrate import check_version, migrate
from clew.store.sql.postgres.pool import ReaderPool
from clew.store.sql.postgres.store import PostgresStore
from clew.store.sql.postgres.writer import Writers

__all__ = ["PostgresOptions", "open_postgres"]

OLDEST: Final = 15
"""The oldest supported PostgreSQL version."""


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
            check_version(connection, url)
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
