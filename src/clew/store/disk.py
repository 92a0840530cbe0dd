"""The disk under a store: what its failures are called, and whether there is room on it."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from clew.errors import StorageFull, StoreReadOnly, StoreUnavailable

__all__ = ["MIN_FREE_BYTES", "check_room", "translated"]

MIN_FREE_BYTES: Final = 1 << 20
"""Room that a store needs to take prompts: with less, the next message may not fit."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise errors of the system as clew's."""
    try:
        yield
    except OSError as error:
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else path
        if error.errno in _FULL:
            raise StorageFull(f"{path} could not be written: the disk is full") from error
        if error.errno in _READ_ONLY:
            raise StoreReadOnly(f"{path} may not be written: {error.strerror}") from error
        raise StoreUnavailable(f"{path} cannot be used: {error.strerror or error}") from error


def check_room(store: Path, folder: Path) -> None:
    """Raise when nothing can be written into the folder of a store now: it is full or read-only, or over its quota.

    An unnamed file takes the room and gives it back: space that is counted as free may not be free to this user.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, MIN_FREE_BYTES)
            else:
                file.write(bytes(MIN_FREE_BYTES))
                file.flush()
    except OSError as error:
        with translated(store):
            raise OSError(error.errno, error.strerror) from error
