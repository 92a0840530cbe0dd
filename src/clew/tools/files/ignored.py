"""Ignored paths of a project: the lines of its ``.gitignore`` files, read as git reads them.

Only for lists shown to people: no permission depends on it.
"""

from __future__ import annotations

from typing import Final

from clew.errors import ToolFailed
from clew.tools.files.pattern import Glob

__all__ = ["IGNORE_FILE", "IgnoredPaths"]

IGNORE_FILE: Final = ".gitignore"
_MAX_LINES: Final = 1_000


class IgnoredPaths:
    """The lines of one folder's file. The last line that matches a path decides; ``!`` negates it."""

    def __init__(self, text: str) -> None:
        self._lines: list[tuple[Glob, bool]] = []
        for line in text.splitlines()[:_MAX_LINES]:
            body = line.strip()
            if not body or body.startswith("#"):
                continue
            negated, body = body.startswith("!"), body.removeprefix("!")
            # A slash before the end anchors the line to this folder; without one it matches at any depth.
            name = body if "/" in body.rstrip("/") else f"**/{body}"
            try:
                self._lines.append((Glob(name.lstrip("/"), braces=False), negated))
            except ToolFailed:
                continue  # An invalid pattern, such as one of a thousand characters, ignores nothing.

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Return whether a path below this folder is ignored; None if no line matches it."""
        verdicts = [
            not negated for glob, negated in self._lines if (is_folder or not glob.folders_only) and glob.matches(path)
        ]
        return verdicts[-1] if verdicts else None
