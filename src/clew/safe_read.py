"""Reading a text file that must lie inside a folder, and no more of it than is wanted.

The folder may belong to a project somebody else wrote. A link that leads out of it, a device, a pipe and what is
not text are refused; the file is opened step by step below the folder without following links, so that nothing can
be swapped between the check and the use.

What is made of such files is kept for as long as each of them, and each folder that was listed, is what it was
(:class:`Kept`).
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

__all__ = [
    "ContainedText",
    "FolderListing",
    "Kept",
    "Unreadable",
    "confined",
    "leads_elsewhere",
    "list_contained",
    "note",
    "read_contained",
    "resolve_folder",
    "resolved",
    "shown",
]

T = TypeVar("T")
_SETTLED_NS: Final = 2_000_000_000
"""How long ago a file must have changed before its times tell of the next change: some systems count in twos of
seconds, and all of them in ticks."""
_MAX_BYTES: Final = 8 * 1024 * 1024
_MAX_KEYS: Final = 1_000
"""What was made of files that are not there has no bytes, and there may be any number of folders without them."""

Trace = tuple[int, ...]
"""What a file is known by: device, inode, kind, length, when its content and when anything about it changed last."""
_noted: ContextVar[dict[Path, Trace | None] | None] = ContextVar("noted", default=None)
_resolved: ContextVar[Path | None] = ContextVar("resolved", default=None)
_confined: ContextVar[Path | None] = ContextVar("confined", default=None)


class Unreadable(Exception):
    """Why something was not read, as the end of a sentence that begins with its path."""


class ContainedText(msgspec.Struct, frozen=True):
    """Text with plain line ends. ``size`` is the whole file's in bytes; ``cut`` says that ``text`` is only its start.

    ``real`` is where the file lies once links are resolved.
    """

    text: str
    size: int
    cut: bool
    real: Path


class FolderListing(msgspec.Struct, frozen=True):
    """Names in a folder, sorted. ``more`` says that others were left out; ``real`` is where the folder lies."""

    real: Path
    names: tuple[str, ...]
    more: bool


class Kept(Generic[T]):
    """What was made of files and folders by key, made anew when one of these has changed. For any thread.

    Of a file that has changed just now nothing is kept: it could change again and look the same. What is kept longest
    without being asked for goes when the files together have too many bytes, or there is too much of it.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._most = max_bytes
        self._bytes = 0
        self._kept: dict[Hashable, tuple[dict[Path, Trace | None], int, T]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of this key. What ``make`` reads, it reads by the functions of this module, or notes. Blocking."""
        if (confinement := _confined.get()) is not None:
            key = key, confinement
        known = self._kept.get(key)
        if known is not None and all(_trace(path) == trace for path, trace in known[0].items()):
            with self._lock:
                if key in self._kept:
                    self._kept[key] = self._kept.pop(key)
            return known[2]
        noted: dict[Path, Trace | None] = {}
        began, outer = time.time_ns(), _noted.set(noted)
        try:
            value = make()
        finally:
            _noted.reset(outer)
        traces = [trace for trace in noted.values() if trace is not None]
        size = sum(trace[3] for trace in traces)
        with self._lock:
            self._drop(key)
            if all(max(trace[4:]) < began - _SETTLED_NS for trace in traces):
                self._kept[key] = (noted, size, value)
                self._bytes += size
            while self._bytes > self._most or len(self._kept) > _MAX_KEYS:
                self._drop(next(iter(self._kept)))
        return value

    def _drop(self, key: Hashable) -> None:
        gone = self._kept.pop(key, None)
        self._bytes -= gone[1] if gone is not None else 0


def note(path: Path) -> None:
    """What is being made goes by this file or folder, as it is before it is looked at; also by its not being there."""
    noted = _noted.get()
    if noted is not None:
        noted.setdefault(path, _trace(path))


def _trace(path: Path) -> Trace | None:
    for follow in (True, False):
        # A link that leads nowhere is something too.
        try:
            found = os.stat(path, follow_symlinks=follow)
        except (OSError, ValueError):
            continue
        return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None


def shown(path: Path | str) -> str:
    """A path as a sentence can carry it to a terminal: whoever names files chooses their characters."""
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
    """The names in a folder below ``inside`` that end in ``suffix``. Raises :class:`Unreadable`."""
    note(folder)
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
    """At most ``limit`` bytes of a file below ``inside``; None when there is none. Raises :class:`Unreadable`."""
    note(path)
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
    descriptor = _open(base, real, os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            return heapq.nsmallest(limit + 1, (entry.name for entry in entries if entry.name.endswith(suffix)))
    finally:
        os.close(descriptor)


def _open(base: Path, real: Path, last: int = 0) -> int:
    """Return a descriptor for a path below ``base``. No link is followed: the path is known to hold none, and where the
    links above ``base`` may have changed, not by the way to it either."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    start = base if _resolved.get() is None else Path(real.anchor)
    parts = real.relative_to(start).parts
    descriptor = os.open(start, flags | os.O_DIRECTORY)
    for place, part in enumerate(parts, 1):
        # Without O_NONBLOCK a pipe would hold us until somebody wrote into it.
        kind = os.O_NONBLOCK | last if place == len(parts) else os.O_DIRECTORY
        try:
            below = os.open(part, flags | kind, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _decode(data: bytes, cut: bool) -> str:
    """Text with what is not UTF-8 replaced. A character that the cut went through is left out."""
    if b"\x00" in data:
        raise Unreadable("is not text; save it as UTF-8")
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=not cut)
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
