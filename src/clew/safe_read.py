"""Safe reading of text files inside a folder, with a size limit.

The folder may belong to an untrusted project. Links that lead out of it, devices, pipes and files that are not text
are refused; a file is opened component by component below the folder without following links, so that nothing can be
swapped between the check and the use.

:class:`FileCache` caches values made from such files until one of them, or a listed folder, changes.
"""

from __future__ import annotations

import codecs
import contextlib
import heapq
import os
import stat
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from clew.platform import WINDOWS
from clew.platform.files import CLOEXEC, DIRECTORY, NOFOLLOW, NONBLOCK

__all__ = [
    "ContainedText",
    "FileCache",
    "FolderListing",
    "Unreadable",
    "confined",
    "leads_elsewhere",
    "list_contained",
    "read_contained",
    "record_dependency",
    "resolve_folder",
    "resolved",
    "shown",
]

T = TypeVar("T")
_SETTLED_NS: Final = 2_000_000_000
"""Minimum age of a file's last change to detect the next one by its times: some file systems have a resolution of two
seconds."""
_MAX_BYTES: Final = 8 * 1024 * 1024
_MAX_KEYS: Final = 1_000
"""Limit for entries: a value made from missing files has no bytes, and any number of folders may have none."""

FileIdentity = tuple[int, ...]
"""A file's device, inode, mode, size, and the times of its last change of content and of status."""
_dependencies: ContextVar[dict[Path, FileIdentity | None] | None] = ContextVar("noted", default=None)
_resolved: ContextVar[Path | None] = ContextVar("resolved", default=None)
_confined: ContextVar[Path | None] = ContextVar("confined", default=None)


class Unreadable(Exception):
    """The reason why a file was not read, as the end of a sentence that begins with its path."""


class ContainedText(msgspec.Struct, frozen=True):
    """Text with ``\\n`` line ends. ``size`` is the whole file's in bytes; with ``cut``, ``text`` is only its start.

    ``real`` is the file's path with links resolved.
    """

    text: str
    size: int
    cut: bool
    real: Path


class FolderListing(msgspec.Struct, frozen=True):
    """Names in a folder, sorted. With ``more``, others were left out; ``real`` is its path with links resolved."""

    real: Path
    names: tuple[str, ...]
    more: bool


class FileCache(Generic[T]):
    """A cache of values made from files and folders, by key; a value is made again after one of them has changed.
    Thread-safe.

    A value from a file that has just changed is not cached: the next change could leave its times the same. The least
    recently used values are dropped when their files together have too many bytes, or there are too many entries.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes_total = max_bytes
        self._bytes = 0
        self._entries: dict[Hashable, tuple[dict[Path, FileIdentity | None], int, T]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key. ``make`` reads files by the functions of this module, or records them.
        Blocking."""
        if (confinement := _confined.get()) is not None:
            key = key, confinement
        entry = self._entries.get(key)
        if entry is not None and all(_identify(path) == identity for path, identity in entry[0].items()):
            with self._lock:
                if key in self._entries:
                    self._entries[key] = self._entries.pop(key)
            return entry[2]
        dependencies: dict[Path, FileIdentity | None] = {}
        started_at, outer = time.time_ns(), _dependencies.set(dependencies)
        try:
            value = make()
        finally:
            _dependencies.reset(outer)
        identities = [identity for identity in dependencies.values() if identity is not None]
        size = sum(identity[3] for identity in identities)
        with self._lock:
            self._drop(key)
            if all(max(identity[4:]) < started_at - _SETTLED_NS for identity in identities):
                self._entries[key] = (dependencies, size, value)
                self._bytes += size
            while self._bytes > self._max_bytes_total or len(self._entries) > _MAX_KEYS:
                self._drop(next(iter(self._entries)))
        return value

    def _drop(self, key: Hashable) -> None:
        removed = self._entries.pop(key, None)
        self._bytes -= removed[1] if removed is not None else 0


def record_dependency(path: Path) -> None:
    """Record that the value being made depends on this file or folder, also if it does not exist. Call before
    reading."""
    dependencies = _dependencies.get()
    if dependencies is not None:
        dependencies.setdefault(path, _identify(path))


def _identify(path: Path) -> FileIdentity | None:
    for follow in (True, False):
        # A dangling link has an identity, too.
        try:
            found = os.stat(path, follow_symlinks=follow)
        except (OSError, ValueError):
            continue
        return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None


def shown(path: Path | str) -> str:
    """Return a path for use in a message on a terminal: file names may contain control characters."""
    return "".join(character if character.isprintable() else "\ufffd" for character in str(path))


@contextlib.contextmanager
def resolved(folder: Path) -> Iterator[None]:
    """Do not follow the links of this folder again: they were followed and checked, and may have been changed since."""
    outer = _resolved.set(folder)
    try:
        yield
    finally:
        _resolved.reset(outer)


@contextlib.contextmanager
def confined(folder: Path | None) -> Iterator[None]:
    """Read for an owner's session in this folder: as :func:`resolved`, and no file of it that has a second name, which
    may be outside, of a file that the owner must not read. None changes nothing."""
    outer = _confined.set(folder)
    try:
        with resolved(folder) if folder is not None else contextlib.nullcontext():
            yield
    finally:
        _confined.reset(outer)


def resolve_folder(folder: Path) -> Path:
    """Return where a folder lies. Raises ``OSError`` or :class:`Unreadable`."""
    fixed = _resolved.get()
    if folder == fixed:
        return folder
    real = Path(os.path.realpath(folder, strict=True))
    if fixed is not None and folder.is_relative_to(fixed) and not real.is_relative_to(fixed):
        raise Unreadable(f"leads out of {shown(fixed)}")
    return real


def leads_elsewhere(folder: str | Path) -> bool:
    """Return whether the path of a folder, which had no link in it, leads to another one now."""
    try:
        return os.path.realpath(folder) != str(folder)
    except OSError:
        return True  # changed while it was resolved


def list_contained(folder: Path, inside: Path, limit: int, suffix: str = "") -> FolderListing:
    """Return the names in a folder below ``inside`` that end in ``suffix``. Raises :class:`Unreadable`."""
    record_dependency(folder)
    try:
        base = resolve_folder(inside)
        real = Path(os.path.realpath(folder, strict=True))
        if not real.is_relative_to(base):
            raise Unreadable(f"leads out of {shown(inside)}")
        names = _list(base, real, limit, suffix)
    except (FileNotFoundError, NotADirectoryError):
        return FolderListing(folder, (), False)
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be read: {_reason(error)}") from error
    return FolderListing(real, tuple(names[:limit]), len(names) > limit)


def read_contained(path: Path, inside: Path, limit: int) -> ContainedText | None:
    """Return at most ``limit`` bytes of a file below ``inside``; None if it does not exist. Raises
    :class:`Unreadable`."""
    record_dependency(path)
    try:
        base = resolve_folder(inside)
        real = Path(os.path.realpath(path, strict=True))
        if not real.is_relative_to(base):
            raise Unreadable(f"leads out of {shown(inside)}")
        descriptor = _open(base, real)
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise Unreadable("is a link that leads nowhere") from error
        return None
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be read: {_reason(error)}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("is not a regular file")
        fixed = _confined.get()
        if fixed is not None and status.st_nlink > 1 and real.is_relative_to(fixed):
            raise Unreadable("has a second name (a hard link), which may be outside the workspace")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read: {_reason(error)}") from error
    finally:
        os.close(descriptor)
    cut = len(data) > limit
    return ContainedText(_decode(data[:limit], cut), max(status.st_size, len(data)), cut, real)


def _list(base: Path, real: Path, limit: int, suffix: str) -> list[str]:
    with contextlib.ExitStack() as leaving:
        listed: int | Path = real
        if not WINDOWS:
            listed = _open(base, real, DIRECTORY)
            leaving.callback(os.close, listed)
        entries = leaving.enter_context(os.scandir(listed))
        return heapq.nsmallest(limit + 1, (entry.name for entry in entries if entry.name.endswith(suffix)))


def _open(base: Path, real: Path, last: int = 0) -> int:
    """Return a descriptor for a path below ``base``. No link is followed: the path has none, and where the links above
    ``base`` may have changed, those are not followed either."""
    flags = os.O_RDONLY | CLOEXEC | NOFOLLOW
    if WINDOWS:
        # A folder cannot be opened there, so a link made since the check would be followed.
        return os.open(real, flags)
    start = base if _resolved.get() is None else Path(real.anchor)
    parts = real.relative_to(start).parts
    descriptor = os.open(start, flags | DIRECTORY)
    for depth, part in enumerate(parts, 1):
        # Without O_NONBLOCK the open of a pipe would wait for a writer.
        kind = NONBLOCK | last if depth == len(parts) else DIRECTORY
        try:
            below = os.open(part, flags | kind, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _decode(data: bytes, cut: bool) -> str:
    """Decode UTF-8, with invalid bytes replaced. A character that was cut in two is left out."""
    if b"\x00" in data:
        raise Unreadable("is not text; save it as UTF-8")
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=not cut)
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
