"""Damaged indexes: an index only duplicates its table, so a damaged one is rebuilt.

Lists, sums, trees, the ledger and the checks for duplicate prompts and events are read through indexes and could not
detect a missing row. Their tables are small and checked each time the store is opened. Parts are compared with the seal
of their message instead. The parts of an open turn have no seal yet, so their indexes are compared with each other.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from clew.store.sql.sqlite.connection import QUERIES, transaction

__all__ = ["repair_indexes"]

_Check: TypeAlias = Callable[[sqlite3.Connection, str], list[str]]

log = logging.getLogger("clew.store")

_TABLES: Final = (
    *("chat_sessions", "session_state", "chat_messages", "chat_turns", "head_moves", "turn_steps", "message_queue"),
    *("model_calls", "ledger_events", "blob_links", "project_rules", "schedules", "webhooks", "journal_marks"),
    *("turn_messages", "search_docs", "pruned_outputs", "adopted_messages"),
)
_MISSING: Final = re.compile(r"row \d+ missing from index (\w+)")
_COUNTED: Final = re.compile(r"wrong # of entries in index (\w+)")


class _StillDamaged(Exception):
    """The damage is not in the indexes alone."""


def repair_indexes(connection: sqlite3.Connection, path: Path) -> None:
    """Rebuild the indexes of each damaged table, unless that leaves the table damaged.

    When a table has lost rows, its index has more entries than it: that is left for ``clew check`` to report.
    """
    for table in _TABLES:
        found = _problems(connection, table)
        missing = {match[1] for one in found if (match := _MISSING.fullmatch(one))}
        counted = {match[1] for one in found if (match := _COUNTED.fullmatch(one))}
        others = [one for one in found if not _MISSING.fullmatch(one) and not _COUNTED.fullmatch(one)]
        if others:
            # Damage to the pages of an index need not name it, so all of the table's are tried.
            _rebuild(connection, path, table, _indexes_of(connection, table), _problems)
        elif missing and counted <= missing:
            _rebuild(connection, path, table, sorted(missing), _problems)
    if _lost_open_parts(connection, "chat_parts"):
        _rebuild(connection, path, "chat_parts", _indexes_of(connection, "chat_parts"), _lost_open_parts)


def _rebuild(connection: sqlite3.Connection, path: Path, table: str, names: Sequence[str], check: _Check) -> None:
    try:
        with transaction(connection):
            for name in names:
                connection.execute(f'REINDEX "{name}"')
            if left := check(connection, table):
                raise _StillDamaged("; ".join(left[:3]))
    except (sqlite3.Error, _StillDamaged) as error:
        log.warning("%s: %s is damaged: %s", path, table, error)
    else:
        which = f"the index {names[0]}" if len(names) == 1 else f"one of the indexes {', '.join(names)}"
        log.warning("%s: %s of %s did not hold all rows and was rebuilt", path, which, table)


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


def _indexes_of(connection: sqlite3.Connection, table: str) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ?"
    return [row[0] for row in connection.execute(query, (table,))]
