"""Columns that another program has added to the three tables and whose values clew keeps in metadata.

Triggers keep both in step, whichever program writes, also while clew is not running. Other columns stay as they are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final, NamedTuple

from clew.store.sql.queries import load_queries
from clew.store.sql.sqlite.connection import transaction

__all__ = ["keep_columns_in_step"]

_SQL: Final = load_queries("sqlite/columns.sql")
_TRIGGERS: Final = ("column_changed", "metadata_changed", "column_inserted", "metadata_inserted")


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


def keep_columns_in_step(connection: sqlite3.Connection) -> None:
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
