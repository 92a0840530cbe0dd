"""Damaged indexes: an index only duplicates its table, so a damaged one is rebuilt.

Lists, sums, trees, the ledger and the checks for duplicate prompts and events are read through indexes and could not
detect a missing row. Their tables are small and checked each time the store is opened. Parts are compared with the seal
of their message instead. The parts of an open turn have no seal yet, so their indexes are compared with each other.
A store that is opened for reading cannot be repaired: it is refused, or its damage is logged.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from clew.errors import StoreUnavailable
from clew.store.sql.sqlite.connection import QUERIES, transaction

__all__ = ["check_indexes", "has_damaged_index", "indexes_of", "rebuild", "repair_indexes"]

_Check: TypeAlias = Callable[[sqlite3.Connection, str], list[str]]

log = logging.getLogger("clew.store")

_TABLES: Final = (
    *("chat_sessions", "session_state", "chat_messages", "chat_turns", "head_moves", "turn_steps", "message_queue"),
    *("model_calls", "ledger_events", "blob_links", "project_rules", "schedules", "webhooks", "journal_marks"),
    *("turn_messages", "search_docs", "pruned_outputs", "adopted_messages", "workspace_snapshots"),
)
_MISSING: Final = re.compile(r"row \d+ missing from index (\w+)")
_UNUSED: Final = re.compile(r"\*\*\* in database \w+ \*\*\*|Page \d+ is never used|Page \d+: never used")
_CREATE: Final = re.compile(r"^(CREATE\s+(?:UNIQUE\s+)?INDEX\s+)(?:\"[^\"]+\"|\S+)\s+ON\s+", re.IGNORECASE)
_NEW: Final = "clew_rebuilt_index"
_COUNTED: Final = re.compile(r"wrong # of entries in index (\w+)")


class _StillDamaged(Exception):
    """The damage is not in the indexes alone."""


def has_damaged_index(connection: sqlite3.Connection) -> bool:
    """Return whether :func:`repair_indexes` would rebuild an index, or try to. Only reads."""
    found = (_sorted_problems(_problems(connection, table)) for table in _TABLES)
    lost = any(others or (missing and counted <= missing) for missing, counted, others in found)
    return lost or bool(_lost_open_parts(connection, "chat_parts"))


def check_indexes(connection: sqlite3.Connection, path: Path, *, refuse: bool) -> None:
    """Check what a reader cannot repair. Log damaged tables; with ``refuse``, raise if only an index misses rows.

    Opening the store for writing rebuilds such an index; until then, what is left would be shown as all there is.
    """
    for table in (*_TABLES, "chat_parts"):
        found = _lost_open_parts(connection, table) if table == "chat_parts" else _problems(connection, table)
        missing, counted, others = _sorted_problems(found)
        if refuse and missing and counted <= missing and not others:
            raise StoreUnavailable(
                f"{path}: an index of {table} misses rows; open the store once for writing, which rebuilds it"
            )
        if found:
            log.warning("%s: %s is damaged: %s", path, table, "; ".join(found[:3]))


def repair_indexes(connection: sqlite3.Connection, path: Path) -> None:
    """Rebuild the indexes of each damaged table, unless that leaves the table damaged.

    When a table has lost rows, its index has more entries than it: that is left for ``clew check`` to report.
    """
    rebuilt = False
    for table in _TABLES:
        missing, counted, others = _sorted_problems(_problems(connection, table))
        if others:
            # Damage to the pages of an index need not name it, so all of the table's are tried.
            rebuilt |= _rebuild(connection, path, table, indexes_of(connection, table), _problems)
        elif missing and counted <= missing:
            rebuilt |= _rebuild(connection, path, table, sorted(missing), _problems)
    if _lost_open_parts(connection, "chat_parts"):
        rebuilt |= _rebuild(connection, path, "chat_parts", indexes_of(connection, "chat_parts"), _lost_open_parts)
    if rebuilt:
        _free_unused(connection, path)


def rebuild(connection: sqlite3.Connection, table: str, names: Sequence[str]) -> None:
    """Rebuild indexes of a table inside the open transaction.

    SQLite's own ``REINDEX`` frees the pages of the old index. A damaged index may lead to pages of other tables, so
    unless all pages of the file are in order, the new index gets other pages and the old ones stay unused.
    """
    sound = _unsound_pages(connection) == []
    for name in names:
        if sound:
            connection.execute(f'REINDEX "{name}"')
        else:
            _replace(connection, table, name)


def _replace(connection: sqlite3.Connection, table: str, name: str) -> None:
    """Build an index in new pages and put it in place of the old one, whose pages are not touched."""
    query = "SELECT sql FROM sqlite_master WHERE type = 'index' AND name = ?"
    found = connection.execute(query, (name,)).fetchone()
    if found is None:
        return  # the key of a table without rowid is the table itself
    if found[0] is None:
        columns = connection.execute("SELECT name FROM pragma_index_info(?) ORDER BY seqno", (name,))
        named = ", ".join(f'"{column}"' for (column,) in columns)
        made = f'CREATE UNIQUE INDEX "{_NEW}" ON "{table}" ({named})'
    else:
        made = _CREATE.sub(lambda match: f'{match[1]}"{_NEW}" ON ', found[0], count=1)
    connection.execute(made)
    connection.execute("PRAGMA writable_schema = ON")
    try:
        connection.execute(
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = ?) "
            "WHERE type = 'index' AND name = ?",
            (_NEW, name),
        )
        connection.execute("DELETE FROM sqlite_master WHERE type = 'index' AND name = ?", (_NEW,))
    finally:
        # Also reads the schema again.
        connection.execute("PRAGMA writable_schema = RESET")


def _unsound_pages(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the pages of the file, whatever their rows say."""
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check")]
    except sqlite3.Error as error:
        return [str(error)]
    return [] if found == ["ok"] else found


def _free_unused(connection: sqlite3.Connection, path: Path) -> None:
    """Give back the pages of replaced indexes. Not while anything else is damaged: that would be copied as it is."""
    found = [line for one in _unsound_pages(connection) for line in one.splitlines()]
    if not found or not all(_UNUSED.fullmatch(line) for line in found):
        return
    try:
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        log.warning("%s: unused pages could not be freed: %s", path, error)


def _rebuild(connection: sqlite3.Connection, path: Path, table: str, names: Sequence[str], check: _Check) -> bool:
    """Rebuild indexes and return whether the table is undamaged now."""
    try:
        with transaction(connection):
            rebuild(connection, table, names)
            if left := check(connection, table):
                raise _StillDamaged("; ".join(left[:3]))
    except (sqlite3.Error, _StillDamaged) as error:
        log.warning("%s: %s is damaged: %s", path, table, error)
        return False
    which = f"the index {names[0]}" if len(names) == 1 else f"one of the indexes {', '.join(names)}"
    log.warning("%s: %s of %s did not hold all rows and was rebuilt", path, which, table)
    return True


def _sorted_problems(found: Sequence[str]) -> tuple[set[str], set[str], list[str]]:
    """Return the indexes that miss rows, those with another number of entries than rows, and all other problems."""
    missing = {match[1] for one in found if (match := _MISSING.fullmatch(one))}
    counted = {match[1] for one in found if (match := _COUNTED.fullmatch(one))}
    return missing, counted, [one for one in found if not _MISSING.fullmatch(one) and not _COUNTED.fullmatch(one)]


def _problems(connection: sqlite3.Connection, table: str) -> list[str]:
    try:
        found = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({table})")]
    except sqlite3.Error as error:
        return [str(error)]
    return [] if found == ["ok"] else found


def _lost_open_parts(connection: sqlite3.Connection, table: str) -> list[str]:
    try:
        found = connection.execute(QUERIES["lost_open_parts"]).fetchall()
    except sqlite3.Error as error:
        return [str(error)]
    return [f"an index of {table} misses parts of {message_id}" for (message_id,) in found]


def indexes_of(connection: sqlite3.Connection, table: str) -> list[str]:
    # The table is part of the text, so that it has the name that it has in this file.
    query = f"SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = '{table}'"
    return [row[0] for row in connection.execute(query)]
