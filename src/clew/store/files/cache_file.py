"""The file of the cache: where it is, whether it can be believed, and its removal where it cannot.

It is ``clew/cache.db`` in the folder; where nothing can be written there, a temporary file. Nothing is synced: after a
loss of power it is made again, and after a clean close its checksum says whether it is still what was written.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import sqlite3
import tempfile
import time
import zlib
from pathlib import Path
from typing import Final

import msgspec

from clew.convert import convert_json
from clew.errors import StoreError, StoreUnavailable
from clew.platform.files import CLOEXEC, DIRECTORY
from clew.platform.locks import lock
from clew.store.boot_id import boot_id
from clew.store.files import folder
from clew.store.files.cache import Cache
from clew.store.sql.sqlite.connection import connect, protect, remove_files
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION, check_version, migrate

__all__ = ["CacheFile"]

log = logging.getLogger("clew.files")

_CHUNK: Final = 1 << 20
_RESERVED: Final = 1 << 18
_MAX_CHECKED: Final = 1 << 27
"""A larger cache is not read again before it is believed, unless the machine has stopped since."""
_WAIT_S: Final = 10.0


class _State(msgspec.Struct):
    """Written beside the cache. While it is in use, ``crc`` is None, and it is valid until the machine stops."""

    boot: str
    crc: int | None = None
    size: int = 0


class CacheFile:
    """The open cache of a folder. ``owned``: no other process writes to the folder's files.
    ``elsewhere``: it is a temporary file."""

    def __init__(self, root: Path, kind: str, *, owned: bool, elsewhere: bool = False) -> None:
        self._root, self._kind, self._owned = root, kind, owned
        self._temporary: str | None = None
        self._is_used = self._is_distrusted = False
        self._share: int | None = None
        self.left_by_kill = True
        self.path = root / "clew" / "cache.db"
        self._state = root / "clew" / "cache.state"
        self._reserve = root / "clew" / "cache.reserve"
        try:
            if elsewhere or not os.access(root / "clew", os.W_OK):
                raise PermissionError(errno.EACCES, "read-only", str(root))
            self._open(alone=self._take_share())
            self._lock(shared=True)
        except (OSError, sqlite3.Error, StoreError) as error:
            log.info("the cache of %s is a temporary file: %r", root, error)
            self._leave()
            self._open_temporary()

    def _take_share(self) -> bool:
        """Take a share of the cache; return whether no other process has one. Then others wait until this one has
        opened it, so that it can be removed: a cache that is in use never is."""
        self._share = os.open(self.path.parent, os.O_RDONLY | DIRECTORY | CLOEXEC)
        deadline = time.monotonic() + _WAIT_S
        while not (alone := self._lock()) and not self._lock(shared=True):
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process is opening the cache", str(self.path))
            time.sleep(0.01)
        return alone

    def _lock(self, *, shared: bool = False) -> bool:
        """Change the lock on the folder of the cache, which outlives it; return whether that succeeded."""
        try:
            if self._share is not None:
                lock(self._share, shared=shared)
        except BlockingIOError:
            return False
        return self._share is not None

    def _leave(self) -> None:
        if self._share is not None:
            os.close(self._share)
            self._share = None

    def _open_temporary(self) -> None:
        """Open a cache elsewhere, a copy of this one if that is whole."""
        known, path, state = self._read_state(), self.path, self._state
        self._temporary = tempfile.mkdtemp(prefix="clew-cache-")
        self.path = Path(self._temporary) / path.name
        self._state = Path(self._temporary) / state.name
        if known is not None and known.crc is not None:
            with contextlib.suppress(OSError):
                shutil.copyfile(path, self.path)
                shutil.copyfile(state, self._state)
        self._open(alone=True)

    def _open(self, *, alone: bool) -> None:
        known = self._believed(alone=alone)
        if known is None:
            if not alone:
                raise StoreUnavailable(f"{self.path} is not what the processes that have it open use")
            self._remove()
        self.left_by_kill = known is None or known.crc is None
        try:
            self.cache = self._connect()
        except (sqlite3.Error, StoreError) as error:
            if known is None or not alone:
                raise
            log.warning("the cache of %s cannot be used and is made again: %s", self._root, error)
            self.left_by_kill = True
            self._remove()
            self.cache = self._connect()

    def _read_state(self) -> _State | None:
        try:
            return convert_json(folder.read(self._state) or b"", _State)
        except (OSError, msgspec.MsgspecError):
            return None

    def _believed(self, *, alone: bool) -> _State | None:
        """Return the state of the cache; None where it may not be what was written. One that other processes have open
        was checked by them, and its file is not read: that would end locks of this process."""
        state = self._read_state()
        try:
            size = self.path.stat().st_size
        except OSError:
            return None
        is_of_boot = state is not None and state.boot == boot_id() != ""
        if state is None or state.crc is None or not alone or (is_of_boot and size > _MAX_CHECKED):
            return state if is_of_boot else None
        if size != state.size or _crc(self.path) != state.crc:
            return None
        if not is_of_boot:
            self._write_state(_State(boot_id(), state.crc, size))
        return state

    def _connect(self) -> Cache:
        """Open the cache, or create it, and record that it is in use."""
        folder.make_folder(self.path.parent)
        is_new = not self.path.exists()
        protect(self.path)
        connection = connect(self.path, writer=True)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            # Nothing is synced, so a checkpoint costs little, and a short log leaves the disk to the files.
            connection.execute("PRAGMA wal_autocheckpoint = 32")
            cache = Cache(connection)
            if is_new or check_version(connection, self.path) == 0:
                migrate(connection, self.path)
                cache.create(self._kind)
            elif check_version(connection, self.path) != SCHEMA_VERSION or not cache.is_of(self._kind):
                raise StoreUnavailable(f"{self.path} is of another version")
            if self._owned or is_new:
                self.use()
        except BaseException:
            connection.close()
            raise
        return cache

    def keep_reserve(self) -> None:
        """Reserve room on the disk for the end of a turn, which is written last when the disk is full."""
        with contextlib.suppress(OSError):
            fd = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | CLOEXEC, 0o600)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, _RESERVED)
            finally:
                os.close(fd)

    def give_room(self) -> bool:
        """Give back the reserved room; return whether there was any."""
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True

    def use(self) -> None:
        """Record, before anything is written to the cache, that its checksum is not valid any more."""
        if not self._is_used:
            self._is_used = True
            self._write_state(_State(boot_id()))

    def _write_state(self, state: _State) -> None:
        try:
            folder.write_whole(self._state, msgspec.json.encode(state), sync=False)
        except OSError:
            self._state.unlink(missing_ok=True)  # without it the cache is made again

    def _remove(self) -> None:
        self._state.unlink(missing_ok=True)
        remove_files(self.path)

    def distrust(self) -> None:
        """Have the cache made again by the next process that opens it alone."""
        with contextlib.suppress(OSError):
            self._state.unlink(missing_ok=True)
        self._is_distrusted = True

    def close(self) -> None:
        """Record the checksum of the cache, if no process has a connection to it any more."""
        with contextlib.suppress(sqlite3.Error):
            self.cache.connection.close()
        log_file = self.path.with_name(self.path.name + "-wal")
        with contextlib.suppress(OSError):
            # A reader that made the cache records what it made, too.
            is_recorded = self._is_used and not self._is_distrusted
            if is_recorded and self._lock() and not (log_file.exists() and log_file.stat().st_size):
                self._write_state(_State(boot_id(), _crc(self.path), self.path.stat().st_size))
        self._leave()
        if self._owned:
            self.give_room()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _crc(path: Path) -> int:
    found = 0
    with open(path, "rb") as file:
        while data := file.read(_CHUNK):
            found = zlib.crc32(data, found)
    return found
