"""A lock on a file or a folder itself, whatever name led to it, and whether its name still leads there.

Closing any descriptor of a database drops the locks that SQLite has on it in this process. So there is one descriptor
per file, kept until no connection of this process is open on it; whoever makes one says so with :func:`use`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from clew.errors import StoreGone, StoreUnavailable

__all__ = ["FileId", "FileLock", "find_file", "id_of", "is_file", "leave", "use"]

_APART: Final = sys.platform == "linux"
"""Whether ``flock`` and SQLite's own locks do not see each other. Elsewhere the lock on the owner file has to do."""


class FileId(NamedTuple):
    """What the system knows a file by."""

    device: int
    inode: int


_guard = threading.Lock()
_used: Counter[FileId] = Counter()
_descriptors: dict[FileId, int] = {}
_locked: set[FileId] = set()


def id_of(found: os.stat_result) -> FileId:
    return FileId(found.st_dev, found.st_ino)


def is_file(found: os.stat_result, file: FileId) -> bool:
    """Whether this is that file. Asked several times around every commit."""
    return found.st_ino == file.inode and found.st_dev == file.device


def use(path: Path) -> FileId | None:
    """A connection to this file begins; None when there is no such file."""
    try:
        file = id_of(path.stat())
    except OSError:
        return None
    with _guard:
        _used[file] += 1
    return file


def leave(file: FileId) -> None:
    """A connection to this file has ended."""
    with _guard:
        _used[file] -= 1
        _close_unused(file)


def _close_unused(file: FileId) -> None:
    if _used[file] <= 0:
        del _used[file]
        if file not in _locked and file in _descriptors:
            os.close(_descriptors.pop(file))


def find_file(path: Path) -> Path:
    """The path without links. A link that leads nowhere is no place for a new store: there was one behind it."""
    try:
        for step in (path, *path.parents):
            if step.is_symlink() and not step.exists():
                raise StoreGone(
                    f"{step} is a link to {step.readlink()}, which is not there; bring it back, or remove the link"
                )
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise StoreUnavailable(f"{path} cannot be found: {error}") from error


class FileLock:
    """Held from construction until ``release``. ``BlockingIOError`` when it is somebody else's, here or elsewhere.

    With ``make`` a file that is not there is begun, for its owner alone, and ``made`` says so.
    """

    def __init__(self, path: Path, *, make: bool = False) -> None:
        self.path = path
        self._name = str(path)  # looked up around every commit: a Path costs more than the system does
        self.made = False
        self._gone: StoreGone | None = None
        with _guard:
            self.file = self._take(make)
            _locked.add(self.file)

    def _take(self, make: bool) -> FileId:
        """The file the name leads to, once it is locked; a name that was given away meanwhile is followed again."""
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
                raise StoreUnavailable(f"{self.path} is neither a file nor a folder; name another")
            try:
                fd = _descriptors.get(file) or self._open()
                if _APART or stat.S_ISDIR(found.st_mode):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with contextlib.suppress(FileNotFoundError):
                    if id_of(self.path.stat()) == file == id_of(os.fstat(fd)):
                        return file
                fcntl.flock(fd, fcntl.LOCK_UN)
            except BaseException:
                _close_unused(file)
                raise
            _close_unused(file)

    def _open(self, how: int = 0) -> int:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | how, 0o600)
        _descriptors.setdefault(id_of(os.fstat(fd)), fd)
        return fd

    @property
    def is_alone(self) -> bool:
        """Whether nobody else can have this file as long as this lock is held."""
        return _APART or stat.S_ISDIR(os.fstat(_descriptors[self.file]).st_mode)

    def check(self) -> os.stat_result:
        """The file, as long as its name leads to it. Once it did not, it never does again: nobody knows what was
        written elsewhere meanwhile."""
        if self._gone is None:
            try:
                found = os.stat(self._name)
            except OSError as error:
                raise self.gone(f"{self.path} is gone ({error.strerror})") from error
            if is_file(found, self.file):
                return found
            raise self.gone(f"{self.path} was replaced by another one")
        raise self._gone

    def gone(self, what: str) -> StoreGone:
        """The error for a store that is not what was opened any more, now and from here on."""
        self._gone = self._gone or StoreGone(
            f"{what}; it was open here, and nothing more is written. Bring the store back as it was, and open it "
            "again; a server is to be restarted for that"
        )
        return self._gone

    def release(self) -> None:
        with _guard:
            if self.file in _locked:
                _locked.discard(self.file)
                # Said, not left to the closing: a child that is just being started has a copy of the handle.
                with contextlib.suppress(OSError):
                    fcntl.flock(_descriptors[self.file], fcntl.LOCK_UN)
                _close_unused(self.file)
