"""The files a session read and changed: by turn, and carried over from one compaction to the next."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from clew.compaction.budget import estimate_tokens
from clew.transcript.line import LineTurn
from clew.transcript.message import Message
from clew.transcript.part import MAX_LISTED_FILES, Part, input_of, state_of, tool_name

__all__ = ["FILE_TAGS", "Files", "TouchedFile", "file_path", "file_tags", "files_of", "name_of", "touched_files"]

_READING: Final = frozenset({"read", "read_file"})
_WRITING: Final = frozenset({"write", "edit", "write_file"})
_PATH_KEYS: Final = ("path", "file_path", "filePath")

FILE_TAGS: Final = re.compile(
    r"^[ \t]*<(read-files|modified-files)>[ \t]*$.*?(?:^[ \t]*</\1>[ \t]*$|\Z)\s*", re.DOTALL | re.MULTILINE
)
"""The file lists after a summary. A tag in the middle of a line is part of the text."""


class TouchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that completed calls of the file tools read or changed. ``count`` counts all these calls, ``changes``
    those that changed it."""

    path: str
    read: bool
    modified: bool
    count: int
    changes: int
    last_turn_id: str
    last_at: int


class Files(msgspec.Struct, frozen=True):
    """Sorted paths. If there were too many, the most recently touched ones in that order, and a count of the others.

    A changed file is not listed as read. Counts of the others are approximate.
    """

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    more_read: int = 0
    more_modified: int = 0


def file_path(part: Part) -> str | None:
    """Return the file that a completed call of a file tool read or wrote."""
    if tool_name(part) not in _READING | _WRITING or state_of(part) != "output-available":
        return None
    arguments = input_of(part)
    paths = (arguments.get(key) for key in _PATH_KEYS) if isinstance(arguments, Mapping) else ()
    path = next((path for path in paths if isinstance(path, str) and path), None)
    return None if path is None else posixpath.normpath(path)


def name_of(path: str, workspace_root: str | None) -> str:
    """Return a unique name for a file: relative to the workspace if inside it, else its full path."""
    if workspace_root is None:
        return path
    whole = posixpath.normpath(posixpath.join(workspace_root, path))
    return whole.removeprefix(posixpath.join(posixpath.normpath(workspace_root), ""))


def files_of(messages: Iterable[Message], previous: Files, workspace_root: str | None = None) -> Files:
    """Return the files that completed calls in these messages read and changed, merged with earlier ones."""
    read, modified = (
        dict.fromkeys(name_of(path, workspace_root) for path in known) for known in (previous.read, previous.modified)
    )
    for message in messages:
        for part in message.parts:
            path = file_path(part)
            if path is not None:
                touched, name = (read if tool_name(part) in _READING else modified), name_of(path, workspace_root)
                # Insert again to keep the order of the last touch.
                touched.pop(name, None)
                touched[name] = None
    read_names, more = _newest([name for name in read if name not in modified], previous.more_read)
    changed, more_changed = _newest(list(modified), previous.more_modified)
    return Files(read_names, changed, more, more_changed)


def _newest(names: Sequence[str], more: int) -> tuple[tuple[str, ...], int]:
    """Return the newest of these names, and the number of the others."""
    if len(names) <= MAX_LISTED_FILES and not more:
        return tuple(sorted(names)), 0
    return tuple(names[-MAX_LISTED_FILES:]), more + max(len(names) - MAX_LISTED_FILES, 0)


def file_tags(files: Files, limit_tokens: int | None = None) -> str:
    """Return the lists as tags that follow a summary; empty without files.

    With a limit, as many names as fit, changed files first, and the number of the others.
    """
    for limit in (len(files.modified) + len(files.read), 200, 100, 50, 20, 10, 5, 2, 1):
        modified = _first(files.modified, limit, files.more_modified)
        read = _first(files.read, max(limit - len(files.modified), 0), files.more_read)
        tags = _tags(read, modified)
        if limit_tokens is None or estimate_tokens(len(tags)) <= limit_tokens:
            return tags
    return ""


def _tags(read: Sequence[str], modified: Sequence[str]) -> str:
    tags = ""
    for tag, paths in (("read-files", read), ("modified-files", modified)):
        # A name may contain anything; it must stay on its line and inside its tag.
        lines = [" ".join(path.splitlines()).replace("</", "< /") for path in paths]
        tags += "\n".join((f"\n<{tag}>", *lines, f"</{tag}>\n")) if lines else ""
    return tags


def _first(paths: Sequence[str], limit: int, more: int) -> tuple[str, ...]:
    if len(paths) <= limit and not more:
        return tuple(paths)
    # If some were left out earlier, the newest are last.
    named = sorted(paths[-limit:]) if more else paths[:limit]
    return (*named, f"… and {more + max(len(paths) - limit, 0)} more") if limit else ()


def touched_files(line: Iterable[LineTurn], workspace_root: str | None = None) -> list[TouchedFile]:
    """Return the files of a line, most recently touched first. Paths in the workspace are relative to it."""
    found: dict[str, TouchedFile] = {}
    for entry in line:
        for row in entry.messages:
            for part in row.parts:
                raw_path = file_path(part.data)
                if raw_path is None:
                    continue
                path = name_of(raw_path, workspace_root)
                reading = tool_name(part.data) in _READING
                known = found.pop(path, None)
                # Insert again to keep the order of the last touch.
                found[path] = TouchedFile(
                    path=path,
                    read=reading or (known is not None and known.read),
                    modified=not reading or (known is not None and known.modified),
                    count=1 + (known.count if known is not None else 0),
                    changes=(not reading) + (known.changes if known is not None else 0),
                    last_turn_id=entry.turn.id,
                    last_at=part.updated_at,
                )
    return list(reversed(found.values()))
