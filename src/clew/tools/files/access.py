"""Opening and replacing files by a resolved path, without following a link.

A resolved path has no link, so every component is opened by its parent's handle and refused if it has become one: the
file that is read or written is the one that was judged, even if another process renames things meanwhile. A file is
replaced as a whole, by a temporary file next to it and a rename, and keeps its mode. Only regular files are read and
written; a device or a pipe is refused before it is opened.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from clew.errors import ToolFailed
from clew.platform import NO_FILE_TOOLS, WINDOWS
from clew.platform.files import CLOEXEC, DIRECTORY, NOCTTY, NOFOLLOW, NONBLOCK, set_mode
from clew.tools.files.paths import show_name

__all__ = ["KINDS", "LIST", "Version", "file_errors", "open_folder", "open_plain", "read_all", "replace"]

# Parent folders are only traversed; O_PATH needs no permission to list them.
_TRAVERSE: Final = getattr(os, "O_PATH", os.O_RDONLY) | DIRECTORY | NOFOLLOW | CLOEXEC
LIST: Final = os.O_RDONLY | DIRECTORY | NOFOLLOW | CLOEXEC
# Without O_NONBLOCK the open of a pipe that was swapped in would wait for a writer.
_READ: Final = os.O_RDONLY | NOFOLLOW | NONBLOCK | NOCTTY | CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC

KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link, which it was not when it was judged",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_ERRORS: Final = {
    errno.ENOENT: "does not exist",
    errno.EACCES: "cannot be accessed: the operating system denies it",
    errno.EPERM: "cannot be accessed: the operating system denies it",
    errno.EISDIR: "is a folder",
    errno.ENOTDIR: "does not exist: a part of it is not a folder",
    errno.ELOOP: "turned into a link after it was judged; no change made",
    errno.ENAMETOOLONG: "is too long",
    errno.ENOSPC: "could not be written: the disk is full",
    errno.EDQUOT: "could not be written: the disk is full",
    errno.EROFS: "could not be written: the file system is read-only",
}

Version: TypeAlias = tuple[int, int, int]
"""The state of a file that was read: its inode, its size, and its modification time."""


@contextmanager
def file_errors(shown: str) -> Iterator[None]:
    """Turn an ``OSError`` about ``shown`` into a sentence for the model."""
    try:
        yield
    except OSError as error:
        sentence = _ERRORS.get(error.errno or 0, f"could not be used: {error.strerror or error}")
        raise ToolFailed(f"{shown} {sentence}") from error


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Open a folder for listing."""
    if path == path.parent and not WINDOWS:
        handle = os.open(path, LIST)
    else:
        with _parent_of(path) as parent:
            try:
                handle = os.open(path.name, LIST, dir_fd=parent)
            except NotADirectoryError:
                _refuse_special(path, parent, folder=True)
                raise
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file for reading."""
    with _parent_of(path) as parent:
        _refuse_special(path, parent)
        handle = os.open(path.name, _READ, dir_fd=parent)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ToolFailed(f"{show_name(path)} is {_kind(status)} now; no change made")
        yield handle, status
    finally:
        os.close(handle)


def read_all(path: Path, max_bytes: int) -> tuple[bytes, Version]:
    """Return the content of a file, and its version."""
    with open_plain(path) as (handle, status):
        if status.st_size > max_bytes:
            size = f"{status.st_size:,} bytes; at most {max_bytes:,}"
            raise ToolFailed(f"{show_name(path)} has {size} are supported")
        data = bytearray()
        while len(data) <= max_bytes and (piece := os.read(handle, 1 << 20)):
            data += piece
        if len(data) > max_bytes:
            raise ToolFailed(f"{show_name(path)} grew past {max_bytes:,} bytes while it was read")
        return bytes(data), _version(status)


def replace(path: Path, data: bytes, *, expected: Version | None = None, make_folders: bool = False) -> int | None:
    """Replace the file by ``data``. Return the former size, None for a new file.

    The change is atomic: a reader sees the old file or the new one. With ``expected``, raises ``ToolFailed`` if the
    file has another version. Missing folders are created with ``make_folders``.
    """
    with _parent_of(path, make=make_folders) as parent:
        before = _refuse_special(path, parent, missing_ok=True)
        if expected is not None and (before is None or _version(before) != expected):
            raise ToolFailed(f"{show_name(path)} was changed by another program meanwhile; read it again")
        # Not derived from the file's own name, which may have the maximum length.
        temporary = f".clew-{secrets.token_hex(8)}"
        # A new file gets the default mode; a replacement stays private until it has the old file's mode.
        handle = os.open(temporary, _CREATE, 0o666 if before is None else 0o600, dir_fd=parent)
        try:
            try:
                # On a full disk the first write is short; the next one raises the error.
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
                if before is not None:
                    set_mode(handle, stat.S_IMODE(before.st_mode))
                os.fsync(handle)
            finally:
                os.close(handle)
            os.rename(temporary, path.name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
        return None if before is None else before.st_size


@contextmanager
def _parent_of(path: Path, *, make: bool = False) -> Iterator[int]:
    """Open the parent folder of ``path``, component by component from the root, without following a link."""
    if WINDOWS:
        raise OSError(errno.EOPNOTSUPP, NO_FILE_TOOLS)
    if not path.name:
        raise ToolFailed(f"{show_name(path)} is a folder; no change made")
    walked = Path(path.anchor)
    handle = os.open(walked, _TRAVERSE)
    try:
        for name in path.parent.parts[1:]:
            walked /= name
            try:
                below = os.open(name, _TRAVERSE, dir_fd=handle)
            except FileNotFoundError:
                if not make:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
                below = os.open(name, _TRAVERSE, dir_fd=handle)
            except NotADirectoryError:
                _refuse_special(walked, handle, folder=True)
                raise
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _refuse_special(
    path: Path, parent: int, *, folder: bool = False, missing_ok: bool = False
) -> os.stat_result | None:
    """Return the status of ``path``. Raises ``ToolFailed`` unless it is a regular file (or, for ``folder``, with what
    is there instead of a folder)."""
    try:
        status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if missing_ok:
            return None
        raise
    if folder and stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{show_name(path)} is a file, not a folder")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{show_name(path)} is {_kind(status)}; no change made")
    return status


def _kind(status: os.stat_result) -> str:
    return KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")


def _version(status: os.stat_result) -> Version:
    return status.st_ino, status.st_size, status.st_mtime_ns
