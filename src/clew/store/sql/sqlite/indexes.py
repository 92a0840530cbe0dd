"""Damaged indexes: an index holds nothing that its table does not, so one that hides rows is built again.

Lists, sums and trees are read by indexes and could not tell that a row is missing. The tables they are read from are
small and looked over at every opening. Messages, parts and what turns hold are not: those reads compare ids.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from pathlib import Path
from typing import Final

__all__ = ["mend_indexes"]

log = logging.getLogger("clew.store")

_TABLES: Final = (
    *("chat_sessions", "session_state", "chat_turns", "head_moves", "turn_steps", "message_queue"),
    *("model_calls", "blob_links", "project_rules", "schedules", "webhooks"),
)
_MISSING: Final = re.compile(r"row \d+ missing from index (\w+)")
_COUNTED: Final = re.compile(r"wrong # of entries in index (\w+)")


def mend_indexes(connection: sqlite3.Connection, path: Path) -> None:
    """Build again each index of these tables that misses a row, where nothing else is wrong with its table.

    A table that lost rows of its own has an index that knows more than it: that is left for ``clew check`` to name.
    """
    for table in _TABLES:
        try:
            found = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({table})")]
            missing = {match[1] for one in found if (match := _MISSING.fullmatch(one))}
            counted = {match[1] for one in found if (match := _COUNTED.fullmatch(one))}
            others = [one for one in found if not _MISSING.fullmatch(one) and not _COUNTED.fullmatch(one)]
            if not missing or not counted <= missing or others:
                continue
            for name in sorted(missing):
                log.warning("%s: the index %s does not hold all rows of %s; it is built again", path, name, table)
                connection.execute(f'REINDEX "{name}"')
        except sqlite3.Error as error:
            log.warning("%s: the indexes of %s are damaged: %s", path, table, error)
