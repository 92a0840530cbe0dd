"""Opening and replacing files by a resolved path, without following a link.

A resolved path holds no link, so every component is opened by its parent's handle and refused if it has become one:
what is read or written is what was judged, whoever renames things meanwhile. A file is replaced as a whole, by a
temporary one beside it and a rename, and keeps its mode. Only plain files are read and written; a device or a pipe
is refused before it is opened. Nothing here knows workspaces or permissions.
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
from clew.tools.files.paths import show_name

__all__ = ["KINDS", "LIST", "Version", "file_errors", "open_folder", "open_plain", "read_all", "replace"]

# Folders on the way need only be passed through, for which O_PATH asks no right to list them.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the open of a pipe that was swapped in would wait for a writer.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

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
    errno.EACCES: "may not be touched: the operating system denies it",
    errno.EPERM: "may not be touched: the operating system denies it",
    errno.EISDIR: "is a folder",
    errno.ENOTDIR: "does not exist: a part of it is not a folder",
    errno.ELOOP: "turned into a link after it was judged; nothing was done",
    errno.ENAMETOOLONG: "is too long a name",
    errno.ENOSPC: "could not be written: the disk is full",
    errno.EDQUOT: "could not be written: the disk is full",
    errno.EROFS: "could not be written: the file system is read-only",
}

Version: TypeAlias = tuple[int, int, int]
"""Which state of which file was read: its inode, its size, and when it was changed."""


@contextmanager
def file_errors(shown: str) -> Iterator[None]:
    """Turns what the operating system says about ``shown`` into a sentence for the model."""
    try:
        yield
    except OSError as error:
        sentence = _ERRORS.get(error.errno or 0, f"could not be used: {error.strerror or error}")
        raise ToolFailed(f"{shown} {sentence}") from error


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """A handle of the folder that can be listed."""
    if path == path.parent:
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
    """A plain file, open for reading."""
    with _parent_of(path) as parent:
        _refuse_special(path, parent)
        handle = os.open(path.name, _READ, dir_fd=parent)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ToolFailed(f"{show_name(path)} is {_kind(status)} now; nothing was done")
        yield handle, status
    finally:
        os.close(handle)


def read_all(path: Path, max_bytes: int) -> tuple[bytes, Version]:
    """The whole file and which state of it that is."""
    with open_plain(path) as (handle, status):
        if status.st_size > max_bytes:
            size = f"{status.st_size:,} bytes; at most {max_bytes:,}"
            raise ToolFailed(f"{show_name(path)} has {size} can be worked on at once")
        data = bytearray()
        while len(data) <= max_bytes and (piece := os.read(handle, 1 << 20)):
            data += piece
        if len(data) > max_bytes:
            raise ToolFailed(f"{show_name(path)} grew past {max_bytes:,} bytes while it was read")
        return bytes(data), _version(status)


def replace(path: Path, data: bytes, *, expected: Version | None = None, make_folders: bool = False) -> int | None:
    """Put ``data`` in the place of the file. Returns the former size, None for a file that was not there.

    All or nothing: a reader sees the old file or the new one. With ``expected`` the file must still be in that
    state, else ``ToolFailed``. Missing folders are made when asked for.
    """
    with _parent_of(path, make=make_folders) as parent:
        before = _refuse_special(path, parent, missing_ok=True)
        if expected is not None and (before is None or _version(before) != expected):
            raise ToolFailed(f"{show_name(path)} was changed by something else meanwhile; read it again")
        # Short whatever the file's own name: a name of the greatest length has no room for more.
        temporary = f".clew-{secrets.token_hex(8)}"
        # A new file gets what the umask leaves; one that takes another's place is nobody's until it has its mode.
        handle = os.open(temporary, _MAKE, 0o666 if before is None else 0o600, dir_fd=parent)
        try:
            try:
                # A full disk shows as a short write first; going on brings out the error.
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
                if before is not None:
                    os.fchmod(handle, stat.S_IMODE(before.st_mode))
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
    """A handle of the folder ``path`` lies in, reached from the root step by step, no step through a link."""
    if not path.name:
        raise ToolFailed(f"{show_name(path)} is a folder; nothing was done")
    walked = Path(path.anchor)
    handle = os.open(walked, _PASS)
    try:
        for name in path.parent.parts[1:]:
            walked /= name
            try:
                below = os.open(name, _PASS, dir_fd=handle)
            except FileNotFoundError:
                if not make:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
                below = os.open(name, _PASS, dir_fd=handle)
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
    """What stands at ``path``, refused unless it is a plain file (or, for ``folder``, whatever was in the way)."""
    try:
        status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if missing_ok:
            return None
        raise
    if folder and stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{show_name(path)} is a file, not a folder")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{show_name(path)} is {_kind(status)}; nothing was done")
    return status


def _kind(status: os.stat_result) -> str:
    return KINDS.get(stat.S_IFMT(status.st_mode), "not a plain file")


def _version(status: os.stat_result) -> Version:
    return status.st_ino, status.st_size, status.st_mtime_ns
