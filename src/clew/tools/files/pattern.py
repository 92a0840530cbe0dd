"""Glob patterns over relative paths: ``*``, ``?``, ``[…]``, ``{a,b}``, and ``**`` for any number of folders.

Matching walks over the pattern's segments and tracks every possible position, so its time is linear in the length of
the path, however the stars are arranged. Hidden names are names like any other. The file system is not accessed.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Final

from clew.errors import ToolFailed

__all__ = ["Glob"]

MAX_ALTERNATIVES: Final = 64
_BRACES: Final = re.compile(r"\{([^{}]*)\}")


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
        one = todo.pop()
        found = next((match for match in _BRACES.finditer(one) if "," in match[1]), None)
        if found is None:
            done.append(one)
            continue
        todo += [one[: found.start()] + choice + one[found.end() :] for choice in found[1].split(",")]
    return done
