"""Files and folders: made for their owner alone, appended to in one go, replaced whole, and synced when asked.

Every failure of the system leaves as an error of clew's, by :func:`clew.store.disk.translated`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from zlib import crc32

from clew.failpoints import failpoint

_TEMPORARY = ".new-"
_END = 4096
_sync = os.fsync


def make_folder(path: Path) -> None:
    """A folder for its owner alone. Folders above it that are missing are made the same way."""
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


_UNREADABLE = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EIO})


def is_unreadable(error: OSError) -> bool:
    """Whether it is the file that cannot be read, and not the moment."""
    return error.errno in _UNREADABLE


Footprint = tuple[int, int, int]
"""What is seen of a file without reading it: which one it is, its size, and when it was written."""


def footprint(path: Path | str) -> Footprint:
    """Of a file; zeros when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def remove_temporary(place: Path) -> None:
    """Remove from a folder what a process that died had begun."""
    for name in names_in(place):
        if name.startswith(_TEMPORARY):
            (place / name).unlink(missing_ok=True)


def names_in(place: Path) -> list[str]:
    """The names in a folder; none when it is not there."""
    try:
        return sorted(os.listdir(place))
    except FileNotFoundError:
        return []


def read(path: Path | str) -> bytes | None:
    """What a file holds; None when there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def ends_of(path: str) -> bytes:
    """How a file begins and how it ends; nothing when there is none."""
    try:
        with open(path, "rb") as file:
            begun = file.read(_END)
            file.seek(max(file.seek(0, os.SEEK_END) - _END, len(begun)))
            return begun + file.read()
    except FileNotFoundError:
        return b""


def append(path: Path, data: bytes, *, sync: bool) -> None:
    """Add to the end of a file, all of it or nothing. Bytes that a failure left are taken back."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
            # When even this fails, what is left is a unit without its end, which every load drops.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def cut_torn(path: Path, into: Path | None = None) -> None:
    """Cut off a last line that has no end: a process died over it, or an append failed. It was never acknowledged.

    ``into``: where a copy goes first, if what is cut off may hold something that was acknowledged.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        size = end = os.fstat(fd).st_size
        tail = b""
        while end and b"\n" not in tail:
            start = max(end - _END, 0)
            tail, end = os.pread(fd, end - start, start) + tail, start
        torn = tail[tail.rfind(b"\n") + 1 :]
        if torn and into is not None:
            make_folder(into.parent)
            write_whole(into.with_name(f"{into.name}-{crc32(torn):08x}"), torn, sync=True)
        if torn:
            os.ftruncate(fd, size - len(torn))
    finally:
        os.close(fd)


def write_whole(path: Path, data: bytes, *, sync: bool) -> None:
    """Put a file in the place of another, in one step: whoever reads finds the old one or the new one, whole."""
    making = temporary(path)
    fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
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
    """Keep what a file holds now under another name, before it changes: it may hold what nobody could read."""
    data = read(path)
    if data:
        make_folder(into)
        with contextlib.suppress(FileExistsError):
            os.link(path, into / f"{name}-{crc32(data):08x}")


def temporary(path: Path) -> Path:
    """A name beside this one that nobody has, and that the next owner removes."""
    return path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}-{path.name}"[:200])


def is_temporary(path: Path) -> bool:
    """Whether a process that died has left this."""
    return path.name.startswith(_TEMPORARY)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
