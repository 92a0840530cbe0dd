"""External writers: detecting commits by other programs to the open file before anything is read.

SQLite shows a connection that another one has committed. Only the writer's connection can tell its own commits from
those of others, but readers must not wait for a busy writer. So a separate connection, the sentinel, is checked
instead: it is updated after each of the writer's commits, and any later change it sees was made by another program.
While the writer is writing no check is needed: it holds the write lock and knows of all earlier commits.
"""

from __future__ import annotations

import sqlite3
import threading

__all__ = ["ExternalWriters"]


class ExternalWriters:
    """The state of external writes since the store was checked. ``is_known`` may be called in any thread."""

    def __init__(self, sentinel: sqlite3.Connection) -> None:
        self._sentinel = sentinel
        self._lock = threading.Lock()
        self._writing = False
        self._version = self._data_version()
        self._checked: set[str | None] = set()

    def is_known(self, session_id: str | None) -> bool:
        """Return whether no other program has committed since this session, or with None the whole store, was
        checked."""
        with self._lock:
            try:
                return (self._writing or self._data_version() == self._version) and session_id in self._checked
            except sqlite3.Error:
                return True  # the read itself will report what is wrong with the file

    def invalidate_all(self) -> None:
        """Record that other programs have committed: everything must be checked again."""
        self._checked.clear()

    def invalidate(self, session_id: str | None) -> None:
        self._checked.discard(session_id)

    def mark_checked(self, session_id: str | None) -> None:
        self._checked.add(session_id)

    def begin(self) -> None:
        """Record that the writer has the write lock, so no other program can commit."""
        with self._lock:
            self._writing = True

    def end(self) -> None:
        """Record that the writer is done: what the sentinel sees now is its own, or already noticed by it."""
        with self._lock:
            self._version = self._data_version()
            self._writing = False

    def close(self) -> None:
        with self._lock:
            self._sentinel.close()

    def _data_version(self) -> int:
        version: int = self._sentinel.execute("PRAGMA data_version").fetchone()[0]
        return version
