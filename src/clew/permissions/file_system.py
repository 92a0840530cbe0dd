"""The file system as an evaluation sees it: the workspace, and functions that look things up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

__all__ = ["FileSystem"]


class FileSystem(msgspec.Struct, frozen=True):
    """The known facts about the file system; all are optional.

    ``workspace`` is the resolved root. ``resolve`` turns a path into one without links. ``home`` is the value of a
    tilde in a shell. ``aliases`` returns the other names of a file, by which rules may know it: a second hard link, a
    folder that is mounted twice. ``finds`` returns the paths that a shell's glob finds behind links and under second
    names, with ``**`` for every depth, and only folders for a slash at the end; None if there are too many.
    """

    workspace: str | None = None
    resolve: Callable[[str], str] | None = None
    home: str | None = None
    aliases: Callable[[str], Sequence[str]] | None = None
    finds: Callable[[str], Sequence[str] | None] | None = None
