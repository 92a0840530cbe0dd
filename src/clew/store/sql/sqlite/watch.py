"""The watch over an open store's files: whether they still are what the writer left, looked at around every commit.

SQLite writes on into a file that was removed, renamed or replaced, and says nothing. What went there is lost to
whoever opens the store next, so it must not be acknowledged.
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
    """Knows the database and its write-ahead log by what they are, and how long the writer left them."""

    def __init__(self, connection: sqlite3.Connection, path: Path, lock: OwnerLock) -> None:
        self._connection = connection
        self._wal = str(path) + "-wal"
        self._lock = lock
        self._version = self._data_version()
        self._others = False
        self._wal_file: FileId | None = None
        self.learn()

    def idle(self) -> None:
        """Nothing is written now; all the same whoever comes second finds the owner named, and a loss is noticed."""
        self._lock.check()

    def before(self) -> None:
        """Before a transaction: both files are there, and as long as they were."""
        if self._lock.check().st_size < self._size and not self.sees_others():
            raise self._lock.gone(f"{self._lock.path} was cut short")
        wal = self._wal_now()
        if wal is not None and wal.st_size < self.wal_size and not (wal.st_size == 0 and self._is_moved()):
            raise self._lock.gone(f"{self._wal} was cut short")

    def after(self) -> None:
        """After a commit, before anybody is told of it."""
        self._lock.stays()
        wal = self._wal_now()
        self.wal_size = wal.st_size if wal is not None else 0

    def learn(self) -> None:
        """The lengths as they are now, after the writer itself has changed them."""
        self._size = self._lock.check().st_size
        wal = self._wal_now()
        self.wal_size = wal.st_size if wal is not None else 0

    def others_wrote(self) -> bool:
        """Whether another connection has committed since this was last asked."""
        self.sees_others()
        others, self._others = self._others, False
        return others

    def sees_others(self) -> bool:
        """Whether another connection has committed since the last look; ``others_wrote`` tells of it still."""
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
        """Its name leads elsewhere; SQLite still has the file itself, so what it holds is brought into the database."""
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            return self._lock.gone(f"{self._wal} was taken away ({error})")
        return self._lock.gone(f"{self._wal} was taken away")

    def _is_moved(self) -> bool:
        """Whether all of an empty log is in the database: then another program has moved it there, as it may."""
        try:
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error:
            return False
        if not busy:
            self.learn()
        return not busy
