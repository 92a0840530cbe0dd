"""Files by their descriptors: flags, positions, modes."""

from __future__ import annotations

import os
import stat
import sys
import threading
from typing import Final

__all__ = [
    "CLOEXEC",
    "DIRECTORY",
    "NOCTTY",
    "NOFOLLOW",
    "NONBLOCK",
    "is_private",
    "is_read_only",
    "make_private",
    "pread",
    "pwrite",
    "set_mode",
]

if sys.platform == "win32":
    # Without O_BINARY the system rewrites line ends. Files there belong to the user by the rights of their folder, a
    # pipe has no name in a folder, and a link needs a privilege; so the other flags have no counterpart.
    CLOEXEC: Final[int] = os.O_NOINHERIT | os.O_BINARY
    NOFOLLOW: Final[int] = 0
    NONBLOCK: Final[int] = 0
    NOCTTY: Final[int] = 0
    DIRECTORY: Final[int] = 0

    _position = threading.Lock()

    def pread(fd: int, size: int, offset: int) -> bytes:
        """Read at an offset. The position of the descriptor changes, so all such calls are made one at a time."""
        with _position:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, size)

    def pwrite(fd: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Write at an offset; return the number of bytes written."""
        with _position:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.write(fd, data)

    def set_mode(fd: int, mode: int) -> None:
        """Do nothing: the folder's rights apply to the file."""

    def is_read_only(path: str | os.PathLike[str]) -> bool:
        """Return False: the system does not say it of a path."""
        return False

    def is_private(found: os.stat_result) -> bool:
        """Return whether it is a regular file; who may read it is decided by its folder."""
        return stat.S_ISREG(found.st_mode)

else:
    CLOEXEC: Final[int] = os.O_CLOEXEC
    NOFOLLOW: Final[int] = os.O_NOFOLLOW
    NONBLOCK: Final[int] = os.O_NONBLOCK
    NOCTTY: Final[int] = os.O_NOCTTY
    DIRECTORY: Final[int] = os.O_DIRECTORY

    def pread(fd: int, size: int, offset: int) -> bytes:
        """Read at an offset."""
        return os.pread(fd, size, offset)

    def pwrite(fd: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Write at an offset; return the number of bytes written."""
        return os.pwrite(fd, data, offset)

    set_mode = os.fchmod

    def is_read_only(path: str | os.PathLike[str]) -> bool:
        """Return whether the file system of a path cannot be written."""
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)

    def is_private(found: os.stat_result) -> bool:
        """Return whether it is a regular file of this user that no one else can access."""
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def make_private(fd: int) -> None:
    """Make an open file accessible to this user alone, if it is not."""
    if os.fstat(fd).st_mode & 0o077:
        set_mode(fd, 0o600)
