"""A lock on a file or folder itself, whatever path led to it, and a check that its path still leads there.

Closing any descriptor of a database drops SQLite's locks on it in this process. So there is one descriptor per file,
open until no connection of this process uses the file; every new connection is registered with :func:`use`.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from clew.errors import StoreGone, StoreUnavailable
from clew.platform.files import CLOEXEC, NONBLOCK
from clew.platform.locks import lock, unlock

__all__ = ["FileId", "FileLock", "find_file", "id_of", "is_file", "leave", "use"]

_FLOCK_IS_SEPARATE: Final = sys.platform == "linux"
"""Whether ``flock`` and SQLite's own locks are independent. Elsewhere only the owner file is locked."""


class FileId(NamedTuple):
    """The system's identity of a file."""

    device: int
    inode: int


_guard = threading.Lock()
_used: Counter[FileId] = Counter()
_descriptors: dict[FileId, int] = {}
_locked: set[FileId] = set()


def id_of(found: os.stat_result) -> FileId:
    return FileId(found.st_dev, found.st_ino)


def is_file(found: os.stat_result, file: FileId) -> bool:
    """Return whether this is that file. Called several times around every commit."""
    return found.st_ino == file.inode and found.st_dev == file.device


def use(path: Path) -> FileId | None:
    """Register a new connection to this file; return None when the file does not exist."""
    try:
        file = id_of(path.stat())
    except OSError:
        return None
    with _guard:
        _used[file] += 1
    return file


def leave(file: FileId) -> None:
    """Unregister a closed connection to this file."""
    with _guard:
        _used[file] -= 1
        _close_unused(file)


def _close_unused(file: FileId) -> None:
    if _used[file] <= 0:
        del _used[file]
        if file not in _locked and file in _descriptors:
            os.close(_descriptors.pop(file))


def find_file(path: Path) -> Path:
    """Return the path with links resolved. A dangling link raises: there was a store behind it, so no new one is
    created."""
    try:
        for step in (path, *path.parents):
            if step.is_symlink() and not step.exists():
                raise StoreGone(
                    f"{step} is a link to {step.readlink()}, which does not exist; restore it, or remove the link"
                )
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise StoreUnavailable(f"{path} cannot be found: {error}") from error


class FileLock:
    """A lock held from construction until ``release``. Raises ``BlockingIOError`` when another holder has it, here or
    in another process.

    With ``make`` a missing file is created, accessible to its owner alone, and ``made`` is set.
    """

    def __init__(self, path: Path, *, make: bool = False) -> None:
        self.path = path
        self._name = str(path)  # used around every commit: a Path costs more than the system call
        self.made = False
        self._gone: StoreGone | None = None
        with _guard:
            self.file = self._acquire(make)
            _locked.add(self.file)

    def _acquire(self, make: bool) -> FileId:
        """Lock the file at this path and return its id; if the path changes meanwhile, start over."""
        while True:
            try:
                found = self.path.stat()
            except FileNotFoundError:
                if not make:
                    raise
                with contextlib.suppress(FileExistsError):
                    self._open(os.O_CREAT | os.O_EXCL)
                    self.made = True
                continue
            file = id_of(found)
            if file in _locked:
                raise BlockingIOError(f"{self.path} is locked in this process")
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise StoreUnavailable(f"{self.path} is neither a file nor a folder; choose another path")
            try:
                fd = _descriptors.get(file) or self._open()
                if _FLOCK_IS_SEPARATE or stat.S_ISDIR(found.st_mode):
                    lock(fd)
                with contextlib.suppress(FileNotFoundError):
                    if id_of(self.path.stat()) == file == id_of(os.fstat(fd)):
                        return file
                unlock(fd)
            except BaseException:
                _close_unused(file)
                raise
            _close_unused(file)

    def _open(self, flags: int = 0) -> int:
        fd = os.open(self.path, os.O_RDONLY | CLOEXEC | NONBLOCK | flags, 0o600)
        _descriptors.setdefault(id_of(os.fstat(fd)), fd)
        return fd

    @property
    def is_alone(self) -> bool:
        """Return whether no other process can lock this file while this lock is held."""
        return _FLOCK_IS_SEPARATE or stat.S_ISDIR(os.fstat(_descriptors[self.file]).st_mode)

    def check(self) -> os.stat_result:
        """Return the file's status while its path leads to it. After one failure it always raises: other processes may
        have written to another file meanwhile."""
        if self._gone is None:
            try:
                found = os.stat(self._name)
            except OSError as error:
                raise self.gone(f"{self.path} is gone ({error.strerror})") from error
            if is_file(found, self.file):
                return found
            raise self.gone(f"{self.path} was replaced by another file")
        raise self._gone

    def gone(self, what: str) -> StoreGone:
        """Return the error for a store that is no longer the one that was opened; it is permanent."""
        self._gone = self._gone or StoreGone(
            f"{what}; it was open here, and nothing more is written. Restore the store as it was and reopen it; "
            "a running server must be restarted"
        )
        return self._gone

    def release(self) -> None:
        with _guard:
            if self.file in _locked:
                _locked.discard(self.file)
                # Unlock explicitly: a child process that is just starting has a copy of the descriptor.
                with contextlib.suppress(OSError):
                    unlock(_descriptors[self.file])
                _close_unused(self.file)
