"""Glob patterns over relative paths: ``*``, ``?``, ``[…]``, ``{a,b}``, and ``**`` for any number of folders.

Matching walks over the pattern's segments and tracks every possible position, so its time is linear in the length of
the path, however the stars are arranged. Hidden names are names like any other. The file system is not accessed.

The lines of a ``.gitignore`` are such patterns, read as git reads them. Only lists shown to people leave out what they
match: no permission depends on them.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Final

from clew.errors import ToolFailed

__all__ = ["IGNORE_FILE", "Glob", "IgnoredPaths"]

MAX_ALTERNATIVES: Final = 64
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
IGNORE_FILE: Final = ".gitignore"
_MAX_IGNORE_LINES: Final = 1_000


class Glob:
    """One compiled pattern. A pattern that ends in ``/`` matches folders only. Without ``braces`` they are plain
    characters."""

    def __init__(self, pattern: str, *, braces: bool = True) -> None:
        if not pattern or "\x00" in pattern or len(pattern) > 1000:
            raise ToolFailed("the pattern must have 1 to 1,000 characters and no NUL")
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise ToolFailed("the pattern is relative and goes downwards only; name another folder in path")
        self.folders_only = pattern.endswith("/")
        self._alternatives = [
            [name for name in one.split("/") if name not in ("", ".")]
            for one in (_expand(pattern) if braces else [pattern])
        ]
        self._names = {
            name: re.compile(fnmatch.translate(name)) for names in self._alternatives for name in names if name != "**"
        }

    def matches(self, path: str) -> bool:
        """Return whether the whole relative path matches."""
        return any(len(one) in self._positions_after(one, path) for one in self._alternatives)

    def may_hold(self, folder: str) -> bool:
        """Return whether something below the folder could match."""
        return any(at < len(one) for one in self._alternatives for at in self._positions_after(one, folder))

    def _positions_after(self, pattern: list[str], path: str) -> set[int]:
        """Return the possible positions in the pattern after the names of the path."""

        def skip_stars(positions: set[int]) -> set[int]:
            # ``**`` may stand for no folder at all.
            for at in sorted(positions):
                while at < len(pattern) and pattern[at] == "**":
                    at += 1
                    positions.add(at)
            return positions

        positions = skip_stars({0})
        for name in path.split("/"):
            here = [at for at in positions if at < len(pattern)]
            stay = {at for at in here if pattern[at] == "**"}
            step = {at + 1 for at in here if pattern[at] != "**" and self._names[pattern[at]].match(name)}
            positions = skip_stars(stay | step)
        return positions


def _expand(pattern: str) -> list[str]:
    """Return the alternatives of ``{a,b}``, innermost first; braces without a comma are plain characters."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        if len(todo) + len(done) > MAX_ALTERNATIVES:
            raise ToolFailed(f"the pattern expands to more than {MAX_ALTERNATIVES} alternatives")
        alternative = todo.pop()
        found = next((match for match in _BRACES.finditer(alternative) if "," in match[1]), None)
        if found is None:
            done.append(alternative)
            continue
        todo += [alternative[: found.start()] + choice + alternative[found.end() :] for choice in found[1].split(",")]
    return done


class IgnoredPaths:
    """The lines of one folder's ``.gitignore``. The last line that matches a path decides; ``!`` negates it."""

    def __init__(self, text: str) -> None:
        self._lines: list[tuple[Glob, bool]] = []
        for line in text.splitlines()[:_MAX_IGNORE_LINES]:
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
