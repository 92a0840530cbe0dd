"""Files and folders: private to their owner, with atomic append and replace, and sync on request.

:func:`clew.store.disk.translated` converts the errors of the system to clew's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from zlib import crc32

from clew.failpoints import failpoint
from clew.platform.files import CLOEXEC, pread

_TEMPORARY = ".new-"
_END = 4096
_sync = os.fsync


def make_folder(path: Path) -> None:
    """Create a folder that is private to its owner, with missing folders above it."""
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


_UNREADABLE = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EIO})


def is_unreadable(error: OSError) -> bool:
    """Return whether an error is permanent for this file, not temporary."""
    return error.errno in _UNREADABLE


Footprint = tuple[int, int, int]
"""A file's inode, size and modification time."""


def footprint(path: Path | str) -> Footprint:
    """Return the footprint of a file; zeros if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def remove_temporary(place: Path) -> None:
    """Remove the temporary files of a process that died."""
    for name in names_in(place):
        if name.startswith(_TEMPORARY):
            (place / name).unlink(missing_ok=True)


def names_in(place: Path) -> list[str]:
    """Return the names in a folder; none if it does not exist."""
    try:
        return sorted(os.listdir(place))
    except FileNotFoundError:
        return []


def read(path: Path | str) -> bytes | None:
    """Return the bytes of a file; None if it does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def ends_of(path: str) -> bytes:
    """Return the beginning and the end of a file; nothing if it does not exist."""
    try:
        with open(path, "rb") as file:
            begun = file.read(_END)
            file.seek(max(file.seek(0, os.SEEK_END) - _END, len(begun)))
            return begun + file.read()
    except FileNotFoundError:
        return b""


def append(path: Path, data: bytes, *, sync: bool) -> None:
    """Append to a file, all of the data or nothing: after a failure the file is as it was, but for its time."""
    is_new = not os.path.exists(path)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        try:
            failpoint("files.before_append")
            _write_all(fd, data)
            if sync:
                _sync(fd)
                if size == 0:
                    sync_folder(path.parent)
            failpoint("files.after_append")
        except OSError:
            # If even this fails, the file ends with an incomplete unit, which every load drops.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
                if is_new:
                    path.unlink()
            raise
    finally:
        os.close(fd)


def cut_torn(path: Path, into: Path | None = None) -> None:
    """Truncate an incomplete last line, left by a process that died or a failed append. It was never acknowledged.

    ``into``: the path of a copy of the line, if it may have been acknowledged.
    """
    try:
        fd = os.open(path, os.O_RDWR | CLOEXEC)
    except FileNotFoundError:
        return
    try:
        size = end = os.fstat(fd).st_size
        tail = b""
        while end and b"\n" not in tail:
            start = max(end - _END, 0)
            tail, end = pread(fd, end - start, start) + tail, start
        torn = tail[tail.rfind(b"\n") + 1 :]
        if torn and into is not None:
            make_folder(into.parent)
            write_whole(into.with_name(f"{into.name}-{crc32(torn):08x}"), torn, sync=True)
        if torn:
            os.ftruncate(fd, size - len(torn))
    finally:
        os.close(fd)


def write_whole(path: Path, data: bytes, *, sync: bool) -> None:
    """Replace a file atomically: a reader finds the complete old or new one."""
    making = temporary(path)
    fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOEXEC, 0o600)
    try:
        try:
            _write_all(fd, data)
            if sync:
                _sync(fd)
        finally:
            os.close(fd)
        failpoint("files.before_rename")
        making.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            making.unlink()
        raise
    if sync:
        sync_folder(path.parent)


def keep_aside(path: Path, into: Path, name: str) -> None:
    """Back up a file under another name before it changes, since it may have contents that clew could not read."""
    data = read(path)
    if data:
        make_folder(into)
        with contextlib.suppress(FileExistsError):
            os.link(path, into / f"{name}-{crc32(data):08x}")


def temporary(path: Path) -> Path:
    """Return an unused name next to this one, which the next owner removes."""
    return path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}-{path.name}"[:200])


def is_temporary(path: Path) -> bool:
    """Return whether a process that died has left this file."""
    return path.name.startswith(_TEMPORARY)


def sync_folder(path: Path) -> None:
    """Sync a folder, so that its names survive a loss of power."""
    fd = os.open(path, os.O_RDONLY | CLOEXEC)
    try:
        _sync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
