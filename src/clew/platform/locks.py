"""Locks on open files, which the system releases when the process dies.

On POSIX it is ``flock`` on the descriptor, so that locks of two descriptors exclude one another in one process, too.
On Windows ``msvcrt`` of the standard library does that. A package for locks would open a lock file by its path, and
rule ST-9 needs the lock on the file that is open already.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clew.platform.files import CLOEXEC

__all__ = ["lock", "locked_folder", "unlock"]

if sys.platform == "win32":
    import msvcrt

    _AT: Final = 1 << 30
    """A lock of Windows keeps others from reading the locked bytes, so it is on a byte that no locked file has."""
    _POLL_S: Final = 0.02

    def lock(fd: int, *, shared: bool = False, wait: bool = False) -> None:
        """Lock an open file. Raises ``BlockingIOError`` when another descriptor has the lock, unless ``wait``.

        There are no ``shared`` locks: they exclude one another, too, so they are only held for a moment.
        """
        while True:
            os.lseek(fd, _AT, os.SEEK_SET)
            try:
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                    raise
                if not wait:
                    raise BlockingIOError(error.errno, "locked by another process") from error
                time.sleep(_POLL_S)
            else:
                return

    def unlock(fd: int) -> None:
        """Release the lock of an open file, if there is one."""
        os.lseek(fd, _AT, os.SEEK_SET)
        with contextlib.suppress(PermissionError):
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

    @contextlib.contextmanager
    def locked_folder(folder: Path) -> Iterator[None]:
        """Hold a lock for changes in a folder, which cannot be opened itself: on a file in it."""
        fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | CLOEXEC, 0o600)
        try:
            lock(fd, wait=True)
            yield
        finally:
            unlock(fd)
            os.close(fd)

else:
    import fcntl

    def lock(fd: int, *, shared: bool = False, wait: bool = False) -> None:
        """Lock an open file or folder. Raises ``BlockingIOError`` when another descriptor has the lock, unless
        ``wait``."""
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))

    def unlock(fd: int) -> None:
        """Release the lock of an open file or folder, if there is one."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def locked_folder(folder: Path) -> Iterator[None]:
        """Hold a lock on a folder for changes in it."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | CLOEXEC)
        try:
            lock(fd, wait=True)
            yield
        finally:
            os.close(fd)
