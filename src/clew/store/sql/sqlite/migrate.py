"""Migrations: how a file of any earlier version becomes one of this version, and how a newer one is left alone.

Each numbered file runs in one transaction together with the new version number, so a kill between two of them
leaves a whole version behind, and the next start goes on from there.
"""

from __future__ import annotations

import sqlite3
from importlib import resources
from pathlib import Path
from typing import Final

from clew.errors import SchemaTooNew, StoreUnavailable
from clew.failpoints import failpoint
from clew.store.sql.queries import read_sql
from clew.store.sql.sqlite.connection import transaction

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SCHEMA_VERSION", "check_version", "migrate", "statements"]

APPLICATION_ID: Final = 0x636C6577  # "clew" in ASCII, where file(1) and SQLite look for it

_FOLDER: Final = resources.files("clew.store.sql").joinpath("sqlite/migrations")
MIGRATIONS: Final = tuple(sorted(file.name for file in _FOLDER.iterdir() if file.name.endswith(".sql")))
SCHEMA_VERSION: Final = len(MIGRATIONS)


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file; raises when it is newer than this program, or no store of clew's at all."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
    if version and owner != APPLICATION_ID:
        raise StoreUnavailable(f"{path} is a database of another program; choose another file for the store")
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"{path} was written by a newer clew (format {version}, this one knows {SCHEMA_VERSION}); "
            "upgrade clew. The file was not changed"
        )
    if version == 0 and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StoreUnavailable(f"{path} is a database of another program; choose another file for the store")
    return version


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to this version."""
    version = check_version(connection, path)
    if version == 0:
        _run(connection, read_sql("sqlite/schema.sql"), SCHEMA_VERSION)
        return
    for number, name in enumerate(MIGRATIONS, start=1):
        if number > version:
            failpoint("migrate.before_step")
            _run(connection, read_sql(f"sqlite/migrations/{name}"), number)


def _run(connection: sqlite3.Connection, script: str, version: int) -> None:
    with transaction(connection):
        for statement in statements(script):
            connection.execute(statement)
        failpoint("migrate.before_commit")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")


def statements(script: str) -> list[str]:
    """The statements of a script; ``executescript`` would commit the transaction it is meant to run in."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines():
        if line.strip().startswith("--"):
            continue
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            found.append(pending.strip())
            pending = ""
    return [statement for statement in found if statement.strip(" ;\n")]
