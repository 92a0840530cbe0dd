"""The files of a session: which its calls read and changed, carried from one compaction to the next, and by turn."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from clew.compaction.budget import estimate_tokens
from clew.transcript.line import LineTurn
from clew.transcript.message import Message
from clew.transcript.part import MOST_FILES, Part, input_of, state_of, tool_name

__all__ = ["FILE_TAGS", "Files", "TouchedFile", "file_path", "file_tags", "files_of", "name_of", "touched_files"]

_READING: Final = frozenset({"read", "read_file"})
_WRITING: Final = frozenset({"write", "edit", "write_file"})
_PATH_KEYS: Final = ("path", "file_path", "filePath")

FILE_TAGS: Final = re.compile(
    r"^[ \t]*<(read-files|modified-files)>[ \t]*$.*?(?:^[ \t]*</\1>[ \t]*$|\Z)\s*", re.DOTALL | re.MULTILINE
)
"""The lists as they stand behind a summary. A tag in the middle of a line is talked about, and no list."""


class TouchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that completed calls of the file tools read or changed. ``count`` is how many of them there were,
    ``changes`` how many of these changed it."""

    path: str
    read: bool
    modified: bool
    count: int
    changes: int
    last_turn_id: str
    last_at: int


class Files(msgspec.Struct, frozen=True):
    """Paths in order; where there were more than are kept, the newest in the order of their last touch, and of the
    others about how many they are. One that was changed is not listed as read."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    more_read: int = 0
    more_modified: int = 0


def file_path(part: Part) -> str | None:
    """The file a completed call of a file tool read or wrote."""
    if tool_name(part) not in _READING | _WRITING or state_of(part) != "output-available":
        return None
    given = input_of(part)
    named = (given.get(key) for key in _PATH_KEYS) if isinstance(given, Mapping) else ()
    path = next((path for path in named if isinstance(path, str) and path), None)
    return None if path is None else posixpath.normpath(path)


def name_of(path: str, workspace_root: str | None) -> str:
    """One name for each file: from the workspace on where it lies in there, else its whole path."""
    if workspace_root is None:
        return path
    whole = posixpath.normpath(posixpath.join(workspace_root, path))
    return whole.removeprefix(posixpath.join(posixpath.normpath(workspace_root), ""))


def files_of(messages: Iterable[Message], previous: Files, workspace_root: str | None = None) -> Files:
    """The files that completed calls in these messages read and changed, with those known before."""
    read, modified = (
        dict.fromkeys(name_of(path, workspace_root) for path in known) for known in (previous.read, previous.modified)
    )
    for message in messages:
        for part in message.parts:
            path = file_path(part)
            if path is not None:
                touched, name = (read if tool_name(part) in _READING else modified), name_of(path, workspace_root)
                # Put in again: the order is that of the last touch.
                touched.pop(name, None)
                touched[name] = None
    kept, more = _newest([name for name in read if name not in modified], previous.more_read)
    changed, more_changed = _newest(list(modified), previous.more_modified)
    return Files(kept, changed, more, more_changed)


def _newest(names: Sequence[str], more: int) -> tuple[tuple[str, ...], int]:
    """The newest of these names, and how many there are beside them."""
    if len(names) <= MOST_FILES and not more:
        return tuple(sorted(names)), 0
    return tuple(names[-MOST_FILES:]), more + max(len(names) - MOST_FILES, 0)


def file_tags(files: Files, limit_tokens: int | None = None) -> str:
    """The lists as tags behind a summary; empty without files.

    With a limit as many names as fit, those that were changed first, and how many more there are.
    """
    for most in (len(files.modified) + len(files.read), 200, 100, 50, 20, 10, 5, 2, 1):
        modified = _first(files.modified, most, files.more_modified)
        read = _first(files.read, max(most - len(files.modified), 0), files.more_read)
        tags = _tags(read, modified)
        if limit_tokens is None or estimate_tokens(len(tags)) <= limit_tokens:
            return tags
    return ""


def _tags(read: Sequence[str], modified: Sequence[str]) -> str:
    tags = ""
    for tag, paths in (("read-files", read), ("modified-files", modified)):
        # A name may hold anything; here it must stay on its line and inside its tag.
        lines = [" ".join(path.splitlines()).replace("</", "< /") for path in paths]
        tags += "\n".join((f"\n<{tag}>", *lines, f"</{tag}>\n")) if lines else ""
    return tags


def _first(paths: Sequence[str], most: int, more: int) -> tuple[str, ...]:
    if len(paths) <= most and not more:
        return tuple(paths)
    # Where some were left out before, the newest come last.
    named = sorted(paths[-most:]) if more else paths[:most]
    return (*named, f"… and {more + max(len(paths) - most, 0)} more") if most else ()


def touched_files(line: Iterable[LineTurn], workspace_root: str | None = None) -> list[TouchedFile]:
    """The files of a line, the one touched last first. A path below the workspace is shown from there on."""
    found: dict[str, TouchedFile] = {}
    for entry in line:
        for row in entry.messages:
            for part in row.parts:
                given = file_path(part.data)
                if given is None:
                    continue
                path = name_of(given, workspace_root)
                reading = tool_name(part.data) in _READING
                known = found.pop(path, None)
                # Put in again: the order is that of the last touch.
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
