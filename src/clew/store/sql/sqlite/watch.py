"""Watching an open store's files: checking around every commit that they still are as the writer left them.

SQLite continues writing to a file that was removed, renamed or replaced, without an error. Such writes are lost to the
next process that opens the store, so they must not be acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from clew.errors import StoreGone
from clew.store.file_lock import FileId, id_of, is_file
from clew.store.owner import OwnerLock

__all__ = ["Watch"]


class Watch:
    """Tracks the identity of the database and its write-ahead log, and their sizes after the last write."""

    def __init__(self, connection: sqlite3.Connection, path: Path, lock: OwnerLock) -> None:
        self._connection = connection
        self._wal = str(path) + "-wal"
        self._lock = lock
        self._version = self._data_version()
        self._others = False
        self._wal_file: FileId | None = None
        self.learn()

    def idle(self) -> None:
        """Check the files while nothing is written, so that the owner file is restored and a loss noticed."""
        self._lock.check()

    def before(self) -> None:
        """Check before a transaction that both files exist and are not shorter than before."""
        if self._lock.check().st_size < self._size and not self.sees_others():
            raise self._lock.gone(f"{self._lock.path} was truncated")
        wal = self._wal_now()
        if wal is not None and wal.st_size < self.wal_size and not (wal.st_size == 0 and self._is_checkpointed()):
            raise self._lock.gone(f"{self._wal} was truncated")

    def after(self) -> None:
        """Check after a commit, before it is acknowledged."""
        self._lock.stays()
        wal = self._wal_now()
        self.wal_size = wal.st_size if wal is not None else 0

    def learn(self) -> None:
        """Record the current sizes after the writer itself has changed them."""
        self._size = self._lock.check().st_size
        wal = self._wal_now()
        self.wal_size = wal.st_size if wal is not None else 0

    def others_wrote(self) -> bool:
        """Return whether another connection has committed since the last call."""
        self.sees_others()
        others, self._others = self._others, False
        return others

    def sees_others(self) -> bool:
        """Return whether another connection has committed since the last check; ``others_wrote`` will still report
        it."""
        before, self._version = self._version, self._data_version()
        if before != self._version:
            self._size = 0
            self._others = True
        return before != self._version

    def _data_version(self) -> int:
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _wal_now(self) -> os.stat_result | None:
        try:
            found = os.stat(self._wal)
        except OSError as error:
            if self._wal_file is None:
                return None
            raise self._lost_wal() from error
        if self._wal_file is None:
            self._wal_file = id_of(found)
        elif not is_file(found, self._wal_file):
            raise self._lost_wal()
        return found

    def _lost_wal(self) -> StoreGone:
        """Return the error for a lost WAL. SQLite still has the file open, so its content is moved into the
        database."""
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            return self._lock.gone(f"{self._wal} was removed ({error})")
        return self._lock.gone(f"{self._wal} was removed")

    def _is_checkpointed(self) -> bool:
        """Return whether an empty log was moved into the database, which another program may do."""
        try:
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error:
            return False
        if not busy:
            self.learn()
        return not busy
