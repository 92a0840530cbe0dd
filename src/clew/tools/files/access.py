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
from typing import Final

import msgspec

from clew.errors import ToolFailed
from clew.tools.files.paths import show_name

__all__ = ["Version", "explained", "open_folder", "open_plain", "read_all", "replace", "version_of"]

# Folders on the way need only be passed through, for which O_PATH asks no right to list them.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the open of a pipe that was swapped in would wait for a writer.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link, which it was not when it was judged",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Version(msgspec.Struct, frozen=True):
    """Which state of which file was read."""

    inode: int
    size: int
    changed_ns: int


def version_of(status: os.stat_result) -> Version:
    return Version(status.st_ino, status.st_size, status.st_mtime_ns)


@contextmanager
def explained(shown: str) -> Iterator[None]:
    """Turns what the operating system says about ``shown`` into a sentence for the model."""
    try:
        yield
    except OSError as error:
        raise ToolFailed(f"{shown} {_sentence(error)}") from error


def open_folder(path: Path) -> int:
    """A handle of the folder that can be listed; the caller closes it."""
    if path == path.parent:
        return os.open(path, _LIST)
    parent = _pass_to(path.parent)
    try:
        return os.open(path.name, _LIST, dir_fd=parent)
    except NotADirectoryError:
        _refuse_special(path, parent, folder=True)
        raise
    finally:
        os.close(parent)


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """A plain file, open for reading."""
    _refuse_root(path)
    parent = _pass_to(path.parent)
    try:
        _refuse_special(path, parent)
        handle = os.open(path.name, _READ, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ToolFailed(f"{_name(path)} is {_kind(status)} now; nothing was done")
        yield handle, status
    finally:
        os.close(handle)


def read_all(path: Path, max_bytes: int) -> tuple[bytes, Version]:
    """The whole file and which state of it that is."""
    with open_plain(path) as (handle, status):
        if status.st_size > max_bytes:
            raise ToolFailed(
                f"{_name(path)} has {status.st_size:,} bytes; at most {max_bytes:,} can be worked on at once"
            )
        pieces = []
        left = max_bytes + 1
        while left > 0 and (piece := os.read(handle, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
        if left <= 0:
            raise ToolFailed(f"{_name(path)} grew past {max_bytes:,} bytes while it was read")
        return b"".join(pieces), version_of(status)


def replace(path: Path, data: bytes, *, expected: Version | None = None, make_folders: bool = False) -> int | None:
    """Put ``data`` in the place of the file. Returns the former size, None for a file that was not there.

    All or nothing: a reader sees the old file or the new one. With ``expected`` the file must still be in that
    state, else ``ToolFailed``. Missing folders are made when asked for.
    """
    _refuse_root(path)
    parent = _pass_to(path.parent, make=make_folders)
    try:
        before = _refuse_special(path, parent, missing_ok=True)
        if expected is not None and (before is None or version_of(before) != expected):
            raise ToolFailed(f"{_name(path)} was changed by something else meanwhile; read it again")
        # Short whatever the file's own name: a name of the greatest length has no room for more.
        temporary = f".clew-{secrets.token_hex(8)}"
        # A new file gets what the umask leaves; one that takes another's place is nobody's until it has its mode.
        handle = os.open(temporary, _MAKE, 0o666 if before is None else 0o600, dir_fd=parent)
        try:
            try:
                _write_all(handle, data)
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
    finally:
        os.close(parent)


def _pass_to(folder: Path, *, make: bool = False) -> int:
    """A handle of ``folder``, reached from the root step by step, no step through a link."""
    handle = os.open(folder.anchor, _PASS)
    walked = Path(folder.anchor)
    try:
        for name in folder.parts[1:]:
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
        return handle
    except BaseException:
        os.close(handle)
        raise


def _refuse_root(path: Path) -> None:
    if not path.name:
        raise ToolFailed(f"{_name(path)} is a folder; nothing was done")


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
        raise ToolFailed(f"{_name(path)} is a file, not a folder")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{_name(path)} is {_kind(status)}; nothing was done")
    return status


def _name(path: Path) -> str:
    return show_name(str(path))


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "not a plain file")


def _write_all(handle: int, data: bytes) -> None:
    # A full disk shows as a short write first; going on brings out the error.
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _sentence(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "does not exist"
        case errno.EACCES | errno.EPERM:
            return "may not be touched: the operating system denies it"
        case errno.EISDIR:
            return "is a folder"
        case errno.ENOTDIR:
            return "does not exist: a part of it is not a folder"
        case errno.ELOOP:
            return "turned into a link after it was judged; nothing was done"
        case errno.ENAMETOOLONG:
            return "is too long a name"
        case errno.ENOSPC | errno.EDQUOT:
            return "could not be written: the disk is full"
        case errno.EROFS:
            return "could not be written: the file system is read-only"
        case _:
            return f"could not be used: {error.strerror or error}"
