"""Reading a text file that must lie inside a folder, and no more of it than is wanted.

The folder may belong to a project somebody else wrote. A link that leads out of it, a device, a pipe and what is
not text are refused; the file is opened step by step below the folder without following links, so that nothing can
be swapped between the check and the use.
"""

from __future__ import annotations

import codecs
import heapq
import os
import stat
from pathlib import Path

import msgspec

__all__ = ["ContainedText", "FolderListing", "Unreadable", "list_contained", "read_contained", "shown"]


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


def shown(path: Path | str) -> str:
    """A path as a sentence can carry it to a terminal: whoever names files chooses their characters."""
    return "".join(character if character.isprintable() else "\ufffd" for character in str(path))


def list_contained(folder: Path, inside: Path, limit: int, suffix: str = "") -> FolderListing:
    """The names in a folder below ``inside`` that end in ``suffix``. Raises :class:`Unreadable`."""
    try:
        real = Path(os.path.realpath(folder, strict=True))
        if not real.is_relative_to(os.path.realpath(inside, strict=True)):
            raise Unreadable(f"leads out of {shown(inside)}")
        with os.scandir(real) as entries:
            names = heapq.nsmallest(limit + 1, (entry.name for entry in entries if entry.name.endswith(suffix)))
    except (FileNotFoundError, NotADirectoryError):
        return FolderListing(folder, (), False)
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be read: {_reason(error)}") from error
    return FolderListing(real, tuple(names[:limit]), len(names) > limit)


def read_contained(path: Path, inside: Path, limit: int) -> ContainedText | None:
    """At most ``limit`` bytes of a file below ``inside``; None when there is none. Raises :class:`Unreadable`."""
    try:
        base = Path(os.path.realpath(inside, strict=True))
        real = Path(os.path.realpath(path, strict=True))
        if not real.is_relative_to(base):
            raise Unreadable(f"leads out of {shown(inside)}")
        descriptor = _open_below(base, real.relative_to(base).parts)
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
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read: {_reason(error)}") from error
    finally:
        os.close(descriptor)
    cut = len(data) > limit
    return ContainedText(_decode(data[:limit], cut), max(status.st_size, len(data)), cut, real)


def _open_below(base: Path, parts: tuple[str, ...]) -> int:
    """A descriptor for a path below ``base``. No link is followed: the path is known to hold none."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(base, flags | os.O_DIRECTORY)
    for place, part in enumerate(parts, 1):
        # Without O_NONBLOCK a pipe would hold us until somebody wrote into it.
        kind = os.O_NONBLOCK if place == len(parts) else os.O_DIRECTORY
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
