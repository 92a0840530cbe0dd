"""What a project does not count as its own: the lines of its ``.gitignore`` files, read as git reads them.

Only for what is offered to a person: no rule of what may be touched goes by it.
"""

from __future__ import annotations

from typing import Final

from clew.errors import ToolFailed
from clew.tools.files.pattern import Glob

__all__ = ["IGNORE_FILE", "IgnoredPaths"]

IGNORE_FILE: Final = ".gitignore"
_MAX_LINES: Final = 1_000


class IgnoredPaths:
    """The lines of one folder's file. The last line that fits a path decides, and ``!`` takes it back."""

    def __init__(self, text: str) -> None:
        self._lines: list[tuple[Glob, bool]] = []
        for line in text.splitlines()[:_MAX_LINES]:
            body = line.strip()
            if not body or body.startswith("#"):
                continue
            back, body = body.startswith("!"), body.removeprefix("!")
            # A slash before the end ties the line to this folder; without one it is a name at any depth.
            name = body if "/" in body.rstrip("/") else f"**/{body}"
            try:
                self._lines.append((Glob(name.lstrip("/"), braces=False), back))
            except ToolFailed:
                continue  # What is no pattern here, such as one of a thousand characters, leaves nothing out.

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Whether a path below this folder is left out; None where no line says anything about it."""
        said = [not back for glob, back in self._lines if (is_folder or not glob.folders_only) and glob.matches(path)]
        return said[-1] if said else None
