"""Glob patterns over relative paths: ``*``, ``?``, ``[…]``, ``{a,b}``, and ``**`` for any number of folders.

Matching is a walk over the pattern's segments that keeps every position it could be at, so it takes time in the
length of the path however the stars are arranged. Hidden names are names like any other. The file system is not
touched here.
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
    """One pattern, compiled. A pattern that ends in ``/`` means folders only. Without ``braces`` those stand for
    themselves."""

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
        """Whether the relative path, as a whole, is meant."""
        return any(len(one) in self._reached(one, path) for one in self._alternatives)

    def may_hold(self, folder: str) -> bool:
        """Whether something below the folder could be meant."""
        return any(at < len(one) for one in self._alternatives for at in self._reached(one, folder))

    def _reached(self, pattern: list[str], path: str) -> set[int]:
        """The positions in the pattern that the names of the path can lead to."""

        def passing_stars(positions: set[int]) -> set[int]:
            # ``**`` may stand for no folder at all.
            for at in sorted(positions):
                while at < len(pattern) and pattern[at] == "**":
                    at += 1
                    positions.add(at)
            return positions

        reached = passing_stars({0})
        for name in path.split("/"):
            here = [at for at in reached if at < len(pattern)]
            stay = {at for at in here if pattern[at] == "**"}
            step = {at + 1 for at in here if pattern[at] != "**" and self._names[pattern[at]].match(name)}
            reached = passing_stars(stay | step)
        return reached


def _expand(pattern: str) -> list[str]:
    """``{a,b}`` written out, innermost first; braces without a comma are plain characters."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        if len(todo) + len(done) > MAX_ALTERNATIVES:
            raise ToolFailed(f"the pattern stands for more than {MAX_ALTERNATIVES} alternatives")
        one = todo.pop()
        found = next((match for match in _BRACES.finditer(one) if "," in match[1]), None)
        if found is None:
            done.append(one)
            continue
        todo += [one[: found.start()] + choice + one[found.end() :] for choice in found[1].split(",")]
    return done
