"""What an evaluation may know of the file system: where targets lie, and functions that look things up there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

__all__ = ["FileSystem"]


class FileSystem(msgspec.Struct, frozen=True):
    """Where targets lie, and what is known of the file system; nothing of it needs to be known.

    ``workspace`` is the resolved root. ``resolve`` turns a path into one without links. ``home`` is what a tilde
    stands for in a shell. ``aliases`` are the names by which rules know the file that a path leads to, where it has
    others: a second hard link, a folder that is mounted twice. ``finds`` gives the paths that a glob of a shell finds
    behind links and under second names, with ``**`` for every depth and folders only behind a slash at the end; None
    when there is too much to look at.
    """

    workspace: str | None = None
    resolve: Callable[[str], str] | None = None
    home: str | None = None
    aliases: Callable[[str], Sequence[str]] | None = None
    finds: Callable[[str], Sequence[str] | None] | None = None
