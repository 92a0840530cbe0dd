"""Migrations: bringing a file of any earlier version to this one, and refusing a newer one.

Each numbered file runs in one transaction together with the new version number, so a kill between two of them leaves a
complete version, from which the next start continues.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Final

from clew.errors import SchemaTooNew, StoreUnavailable
from clew.failpoints import failpoint
from clew.store.sql.sqlite.connection import connect_to_inspect, scratch, transaction
from clew.store.sql.sqlite.names import APPLICATION_ID, FORMAT_TABLES, MADE, PREFIX, find_prefixed, names_in, use_names
from clew.store.sql.statements import read_sql

__all__ = [
    "APPLICATION_ID",
    "MIGRATIONS",
    "SCHEMA_VERSION",
    "check_version",
    "is_plain",
    "migrate",
    "refuse_foreign",
    "statements",
]

_FOLDER: Final = resources.files("clew.store.sql").joinpath("sqlite/migrations")
MIGRATIONS: Final = tuple(sorted(file.name for file in _FOLDER.iterdir() if file.name.endswith(".sql")))
SCHEMA_VERSION: Final = len(MIGRATIONS)
_OWN_VERSION_SINCE: Final = 23  # the table clew_schema


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of clew's tables, 0 without any; raise when it is newer than this program, or no store."""
    version = _read_version(connection, path)
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"{path} was written by a newer clew (format {version}, this one knows {SCHEMA_VERSION}); "
            "upgrade clew. The file was not changed"
        )
    if version == 0 and not _is_new(connection):
        if not is_plain(connection):
            raise StoreUnavailable(f"{path} is a database of another program; choose another file for the store")
        _check_plain(connection, path)
    return version


def is_plain(connection: sqlite3.Connection) -> bool:
    """Return whether the file holds the format's three tables and has never been clew's: another program made it."""
    count = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN (?, ?, ?)"
    is_shared: bool = connection.execute(count, FORMAT_TABLES).fetchone()[0] == len(FORMAT_TABLES)
    return is_shared and not _is_stamped(connection) and not _has_own_version(connection)


def _read_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of clew's tables: from clew's own row, or the header of a file older than that row.

    ``user_version`` alone says nothing: a program that shares the file may use it for its own migrations.
    """
    if not _has_own_version(connection):
        return _read_header(connection)[1] if _is_stamped(connection) else 0
    if "version" not in _columns(connection, "clew_schema"):
        raise StoreUnavailable(f"{path} has a table clew_schema of another program; clew needs that name for itself")
    row = connection.execute("SELECT max(version) FROM clew_schema").fetchone()
    version: int | None = row[0] if isinstance(row[0], int) and row[0] > 0 else None
    if version is None:
        raise StoreUnavailable(f"{path}: the version in its table clew_schema is invalid; restore a backup")
    return version


def _has_own_version(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'clew_schema'")
    return found.fetchone() is not None


def _read_header(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return ``application_id`` and ``user_version``."""
    owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return owner, version


def _is_stamped(connection: sqlite3.Connection) -> bool:
    return _read_header(connection)[0] == APPLICATION_ID


def _is_new(connection: sqlite3.Connection) -> bool:
    """Return whether the file holds nothing and no program has given it a version."""
    is_empty = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
    return is_empty and _read_header(connection)[1] == 0


def _check_plain(connection: sqlite3.Connection, path: Path) -> None:
    """Raise for a file in which clew could not store sessions alongside those of the program that made it."""
    with contextlib.closing(scratch()) as own:
        for statement in statements(read_sql("sqlite/schema.sql")):
            own.execute(statement)
        for table in FORMAT_TABLES:
            needed, found = _columns(own, table), _columns(connection, table)
            missing = sorted(needed.keys() - found.keys())
            required_columns = sorted(
                name for name, must_be_given in found.items() if must_be_given and name not in needed
            )
            keys = 'SELECT "table", "from", on_delete FROM pragma_foreign_key_list(?)'
            missing_keys = set(own.execute(keys, (table,))) - set(connection.execute(keys, (table,)))
            why = f"it has no column {', '.join(missing)}" if missing else ""
            why = why or (f"its column {', '.join(required_columns)} requires a value" if required_columns else "")
            cascade = "its foreign keys do not delete rows with their parents (ON DELETE CASCADE)"
            why = why or (cascade if missing_keys else "")
            why = why or ("" if _has_rowid(connection, table) else "it is WITHOUT ROWID")
            if why:
                raise StoreUnavailable(f"{path} cannot be shared with the program that made it: {table}: {why}")
        _check_names(connection, path, _taken_names(connection, read_sql("sqlite/schema.sql")))


def _has_rowid(connection: sqlite3.Connection, table: str) -> bool:
    try:
        connection.execute(f"SELECT rowid FROM {table} LIMIT 0")
    except sqlite3.OperationalError:
        return False
    return True


def _check_names(connection: sqlite3.Connection, path: Path, taken: Iterable[str]) -> None:
    """Raise if another program uses a name of clew's and the same name with a prefix."""
    names = names_in(connection)
    if twice := sorted(PREFIX + name for name in taken if PREFIX + name in names):
        why = f"clew needs the name {', '.join(twice)} for itself"
        raise StoreUnavailable(f"{path} cannot be shared with the program that made it: {why}")


def _taken_names(connection: sqlite3.Connection, script: str, version: int = 0) -> set[str]:
    """Return the names that a script creates and another program has taken; ``version`` is that of clew's tables.

    Indexes of the format's tables are shared if they are the same.
    """
    existing = names_in(connection)
    made = {found[1]: statement for statement in statements(script) if (found := MADE.match(statement))}
    taken = (made.keys() & existing.keys()) - set(FORMAT_TABLES) - find_prefixed(connection)
    taken = {name for name in taken if not _is_shared_index(made[name], existing[name])}
    if not taken or version == 0:
        return taken
    with contextlib.closing(scratch()) as own:
        for name in MIGRATIONS[:version]:
            own.executescript(read_sql(f"sqlite/migrations/{name}"))
        return taken - {row[0] for row in own.execute("SELECT name FROM sqlite_master")}


def _is_shared_index(own: str, other: str | None) -> bool:
    if not any(f" ON {table} " in own for table in FORMAT_TABLES) or "INDEX" not in own.split("(")[0]:
        return False
    spelling = re.compile(r'IF NOT EXISTS|["`\s;]', re.IGNORECASE)
    return spelling.sub("", own).lower() == spelling.sub("", other or "").lower()


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, bool]:
    """Return the columns of a table, and for each whether a value is required."""
    rows = connection.execute('SELECT name, "notnull", dflt_value, pk FROM pragma_table_info(?)', (table,))
    return {name: bool(required and default is None and not key) for name, required, default, key in rows}


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to this version."""
    version = check_version(connection, path)
    if version == 0:
        # Tables and indexes of another program stay as they are.
        existing = names_in(connection)
        script = read_sql("sqlite/schema.sql")
        taken = _taken_names(connection, script)
        use_names(connection, taken)
        named_statements = ((statement, MADE.match(statement)) for statement in statements(script))
        missing = [one for one, name in named_statements if name is None or name[1] in taken or name[1] not in existing]
        _run(connection, missing, SCHEMA_VERSION, stamp=not existing)
        return
    for number, name in enumerate(MIGRATIONS, start=1):
        if number > version:
            failpoint("migrate.before_step")
            # A different version in the header belongs to another program.
            stamp = _read_header(connection) == (APPLICATION_ID, number - 1)
            script = read_sql(f"sqlite/migrations/{name}")
            taken = _taken_names(connection, script, number - 1)
            _check_names(connection, path, taken)
            use_names(connection, taken)
            _run(connection, statements(script), number, stamp=stamp)


def _run(connection: sqlite3.Connection, script: Iterable[str], version: int, *, stamp: bool) -> None:
    """Run a script and store the version it leads to; ``stamp``: in the header, too."""
    with transaction(connection):
        for statement in script:
            connection.execute(statement)
        failpoint("migrate.before_commit")
        if version >= _OWN_VERSION_SINCE:
            connection.execute("DELETE FROM clew_schema")
            connection.execute("INSERT INTO clew_schema (version) VALUES (?)", (version,))
        if stamp:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version}")


def statements(script: str) -> list[str]:
    """Split a script into statements; ``executescript`` would commit the open transaction."""
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


def refuse_foreign(path: Path) -> None:
    """Refuse a newer or foreign file before anything in it is changed, even its journal mode."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    if path.stat().st_nlink > 1:
        raise StoreUnavailable(
            f"{path} has a second name (a hard link), but SQLite keeps the newest data under one name only; remove the "
            "other name, or copy the file"
        )
    with contextlib.closing(connect_to_inspect(path)) as connection:
        check_version(connection, path)
