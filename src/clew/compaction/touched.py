"""The files a line of turns has touched: by which calls, how often, and when last."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

import msgspec

from clew.compaction.tool_part import READING, file_path, tool_name
from clew.transcript.line import LineTurn

__all__ = ["TouchedFile", "touched_files"]


class TouchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that completed calls of the file tools read or changed. ``count`` is how many of them there were."""

    path: str
    read: bool
    modified: bool
    count: int
    last_turn_id: str
    last_at: int


def touched_files(line: Iterable[LineTurn], workspace_root: str | None = None) -> list[TouchedFile]:
    """The files of a line, the one touched last first. A path below the workspace is shown from there on."""
    found: dict[str, TouchedFile] = {}
    for entry in line:
        for row in entry.messages:
            for part in row.parts:
                given = file_path(part.data)
                if given is None:
                    continue
                path = _below(given, workspace_root)
                reading = tool_name(part.data) in READING
                known = found.pop(path, None)
                # Put in again: the order is that of the last touch.
                found[path] = TouchedFile(
                    path=path,
                    read=reading or (known is not None and known.read),
                    modified=not reading or (known is not None and known.modified),
                    count=1 + (known.count if known is not None else 0),
                    last_turn_id=entry.turn.id,
                    last_at=part.updated_at,
                )
    return list(reversed(found.values()))


def _below(path: str, root: str | None) -> str:
    if root is None or not path.startswith(posixpath.join(root, "")):
        return path
    return path[len(posixpath.join(root, "")) :]
