"""Files below a folder, opened component by component without following links, and their names as text."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from typing import Final

import msgspec

from clew.platform.files import CLOEXEC, DIRECTORY, NOFOLLOW, NONBLOCK

__all__ = [
    "EXECUTABLE",
    "LINK",
    "PLAIN",
    "Folders",
    "NotCovered",
    "SavedFile",
    "escape_name",
    "is_safe",
    "unescape_name",
]

LINK: Final = 0o120000
PLAIN: Final = 0o100644
EXECUTABLE: Final = 0o100755

_FOLDER: Final = os.O_RDONLY | CLOEXEC | DIRECTORY | NOFOLLOW
_FILE: Final = os.O_RDONLY | CLOEXEC | NOFOLLOW | NONBLOCK
_SETTLED_NS: Final = 2_000_000_000
"""A file that changed so shortly before it was read may change again without a difference in its times."""
_ATTEMPTS: Final = 3


class NotCovered(Exception):
    """The reason why a file is not part of a snapshot."""


class SavedFile(msgspec.Struct, frozen=True):
    """A file as it was read. ``status`` is None if it may change without a difference in its times."""

    mode: int
    data: bytes
    status: os.stat_result | None


def escape_name(path: bytes) -> str:
    """Return a path as text. A byte that is not UTF-8 is shown as ``\\xff``, and so is the backslash of a name that
    has such a sequence itself."""
    text = path.replace(b"\\x", b"\\x5cx").decode(errors="surrogateescape")
    return re.sub("[\udc80-\udcff]", lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)


def unescape_name(text: str) -> bytes:
    """Return the path that a text stands for."""
    data = text.encode(errors="surrogateescape")
    return re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), data)


def is_safe(path: bytes) -> bool:
    """Whether a path leads below its folder, and not into a ``.git``."""
    parts = path.split(b"/")
    return b"\0" not in path and not any(part in (b"", b".", b"..") or part.lower() == b".git" for part in parts)


class Folders:
    """The folder of one path at a time, open, with those above it."""

    def __init__(self, root: bytes) -> None:
        self._root = os.open(root, _FOLDER)
        self._open: list[tuple[bytes, int]] = []

    def __enter__(self) -> Folders:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()
        os.close(self._root)

    def forget(self) -> None:
        """Close all but the root: the folders may be others now."""
        while self._open:
            os.close(self._open.pop()[1])

    def open(self, folder: bytes, *, make: bool = False) -> int:
        """Return a descriptor of a folder, valid until the next call. A link on the way is an error."""
        parts = folder.split(b"/") if folder else []
        same = 0
        while same < min(len(parts), len(self._open)) and self._open[same][0] == parts[same]:
            same += 1
        while len(self._open) > same:
            os.close(self._open.pop()[1])
        for part in parts[same:]:
            above = self._open[-1][1] if self._open else self._root
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=above)
            self._open.append((part, os.open(part, _FOLDER, dir_fd=above)))
        return self._open[-1][1] if self._open else self._root

    def status(self, path: bytes) -> os.stat_result | None:
        """Return the status of a path, None if nothing is there."""
        folder, _, name = path.rpartition(b"/")
        try:
            return os.stat(name, dir_fd=self.open(folder), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if _is_link_on_the_way(error):
                return None
            raise

    def read(self, path: bytes, max_bytes: int) -> SavedFile | None:
        """Return what is there: a file or a link, or None. Raises :class:`NotCovered`."""
        try:
            return self._read(path, max_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if _is_link_on_the_way(error):
                return None
            raise NotCovered(f"cannot be read: {error.strerror}") from error

    def _read(self, path: bytes, max_bytes: int) -> SavedFile | None:
        folder, _, name = path.rpartition(b"/")
        above = self.open(folder)
        mode, data = 0, b""
        for _ in range(_ATTEMPTS):
            started_at = time.time_ns()
            before = os.stat(name, dir_fd=above, follow_symlinks=False)
            if stat.S_ISDIR(before.st_mode):
                return None
            if stat.S_ISLNK(before.st_mode):
                mode, data = LINK, os.readlink(name, dir_fd=above)
                after = os.stat(name, dir_fd=above, follow_symlinks=False)
            elif stat.S_ISREG(before.st_mode):
                mode, data, after = _read_regular(name, above, max_bytes)
            else:
                raise NotCovered("is a special file")
            if _identity(before) == _identity(after):
                settled = max(after.st_mtime_ns, after.st_ctime_ns) < started_at - _SETTLED_NS
                return SavedFile(mode, data, after if settled else None)
        return SavedFile(mode, data, None)


def _read_regular(name: bytes, folder: int, max_bytes: int) -> tuple[int, bytes, os.stat_result]:
    with open(os.open(name, _FILE, dir_fd=folder), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotCovered("is a special file")
        data = b""
        if status.st_size <= max_bytes:
            pieces: list[bytes] = []
            remaining = max_bytes + 1
            while remaining and (piece := file.read(min(remaining, status.st_size + 1 if not pieces else 1 << 20))):
                pieces.append(piece)
                remaining -= len(piece)
            data = b"".join(pieces)
        if max(status.st_size, len(data)) > max_bytes:
            raise NotCovered(f"is larger than {max_bytes:,} bytes")
        return EXECUTABLE if status.st_mode & 0o100 else PLAIN, data, os.fstat(file.fileno())


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _is_link_on_the_way(error: OSError) -> bool:
    return error.errno == errno.ELOOP
