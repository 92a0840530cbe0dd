"""Creates store files of earlier versions of clew, from the migrations of those versions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from clew.store.sql.sqlite.migrate import APPLICATION_ID, MIGRATIONS, statements
from clew.store.sql.statements import read_sql

__all__ = ["make_old_store"]


def make_old_store(path: Path, version: int) -> None:
    """Create an empty store of schema ``version``, in WAL mode, and close it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        for name in MIGRATIONS[:version]:
            for statement in statements(read_sql(f"sqlite/migrations/{name}")):
                connection.execute(statement)
        if version >= 23:  # the first one with a table for it
            connection.execute("INSERT INTO clew_schema (version) VALUES (?)", (version,))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
