"""Others: programs that commit to the same file while it is open, noticed before anything is read.

SQLite tells a connection that another one has committed. The writer's own connection thus knows of others, and only it
does; but whoever reads must not wait for a writer that is busy. So a connection of its own, the sentinel, is asked
instead: after each commit of the writer's it is brought up to date, and whatever it sees beyond that is not clew's.
While the writer is at it, nothing has to be asked: it has the write lock, and knows what others committed before.
"""

from __future__ import annotations

import sqlite3
import threading

__all__ = ["Others"]


class Others:
    """What others may have written since the store was looked at. ``is_known`` may be asked in any thread."""

    def __init__(self, sentinel: sqlite3.Connection) -> None:
        self._sentinel = sentinel
        self._lock = threading.Lock()
        self._writing = False
        self._version = self._data_version()
        self._looked: set[str | None] = set()

    def is_known(self, session_id: str | None) -> bool:
        """Whether nobody else has committed since this session was looked at, or all were (None)."""
        with self._lock:
            try:
                return (self._writing or self._data_version() == self._version) and session_id in self._looked
            except sqlite3.Error:
                return True  # what is wrong with the file, whoever reads it says

    def came(self) -> None:
        """Others have committed: everything has to be looked at again."""
        self._looked.clear()

    def look_again(self, session_id: str | None) -> None:
        self._looked.discard(session_id)

    def looked_at(self, session_id: str | None) -> None:
        self._looked.add(session_id)

    def begin(self) -> None:
        """The writer begins to change the file, which nobody else can now."""
        with self._lock:
            self._writing = True

    def end(self) -> None:
        """It has: what the sentinel sees now is clew's, or the writer knows of it."""
        with self._lock:
            self._version = self._data_version()
            self._writing = False

    def close(self) -> None:
        with self._lock:
            self._sentinel.close()

    def _data_version(self) -> int:
        version: int = self._sentinel.execute("PRAGMA data_version").fetchone()[0]
        return version
