"""The files a session has read and changed, carried from one compaction to the next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from clew.compaction.budget import estimate_tokens
from clew.compaction.tool_part import READING, file_path, tool_name
from clew.transcript.message import Message

__all__ = ["FILE_TAGS", "Files", "file_tags", "files_of"]

FILE_TAGS: Final = re.compile(
    r"^[ \t]*<(read-files|modified-files)>[ \t]*$.*?(?:^[ \t]*</\1>[ \t]*$|\Z)\s*", re.DOTALL | re.MULTILINE
)
"""The lists as they stand behind a summary. A tag in the middle of a line is talked about, and no list."""


class Files(msgspec.Struct, frozen=True):
    """Paths in order. One that was changed is not listed as read."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


def files_of(messages: Iterable[Message], previous: Files) -> Files:
    """The files that completed calls in these messages read and changed, with those known before."""
    read, modified = set(previous.read), set(previous.modified)
    for message in messages:
        for part in message.parts:
            path = file_path(part)
            if path is not None:
                (read if tool_name(part) in READING else modified).add(path)
    return Files(tuple(sorted(read - modified)), tuple(sorted(modified)))


def file_tags(files: Files, limit_tokens: int | None = None) -> str:
    """The lists as tags behind a summary; empty without files.

    With a limit as many names as fit, those that were changed first, and how many more there are.
    """
    tags = _tags(files.read, files.modified)
    if limit_tokens is None or estimate_tokens(len(tags)) <= limit_tokens:
        return tags
    for most in (len(files.modified) + len(files.read), 200, 100, 50, 20, 10, 5, 2, 1):
        modified = _first(files.modified, most)
        read = _first(files.read, max(most - len(files.modified), 0))
        tags = _tags(read, modified)
        if estimate_tokens(len(tags)) <= limit_tokens:
            return tags
    return ""


def _tags(read: Sequence[str], modified: Sequence[str]) -> str:
    lists = (("read-files", read), ("modified-files", modified))
    return "".join(f"\n<{tag}>\n{_lines(paths)}\n</{tag}>\n" for tag, paths in lists if paths)


def _first(paths: Sequence[str], most: int) -> tuple[str, ...]:
    if len(paths) <= most:
        return tuple(paths)
    return (*paths[:most], f"… and {len(paths) - most} more") if most else ()


def _lines(paths: Iterable[str]) -> str:
    # A name may hold anything; here it must stay on its line and inside its tag.
    return "\n".join(" ".join(path.splitlines()).replace("</", "< /") for path in paths)
