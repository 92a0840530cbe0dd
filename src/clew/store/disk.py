"""The disk under a store: translating its errors, and checking its free space."""

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
"""Free space a store needs to accept prompts: with less, the next message may not fit."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise system errors as clew's errors."""
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
    """Raise when nothing can be written into the folder of a store now: it is full, read-only, or over its quota.

    The space is allocated in an unnamed file and freed again, because space reported as free may not be available to
    this user.
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
