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
    """One pattern, compiled. A pattern that ends in ``/`` means folders only."""

    def __init__(self, pattern: str) -> None:
        if not pattern or "\x00" in pattern or len(pattern) > 1000:
            raise ToolFailed("the pattern must have 1 to 1,000 characters and no NUL")
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise ToolFailed("the pattern is relative and goes downwards only; name another folder in path")
        self.folders_only = pattern.endswith("/")
        self._alternatives = [_Segments(one) for one in _expand(pattern)]

    def matches(self, path: str) -> bool:
        """Whether the relative path, as a whole, is meant."""
        names = path.split("/")
        return any(one.end in one.after(names) for one in self._alternatives)

    def may_hold(self, folder: str) -> bool:
        """Whether something below the folder could be meant."""
        names = folder.split("/")
        return any(min(one.after(names), default=one.end) < one.end for one in self._alternatives)


class _Segments:
    def __init__(self, pattern: str) -> None:
        names = [name for name in pattern.split("/") if name not in ("", ".")]
        self.end = len(names)
        # None stands for "**".
        self._segments = [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]

    def after(self, names: list[str]) -> set[int]:
        """The positions in the pattern that can be reached by these names."""
        reached = self._passing_stars({0})
        for name in names:
            following: set[int] = set()
            for at in reached:
                if at == self.end:
                    continue
                segment = self._segments[at]
                if segment is None:
                    following.add(at)
                elif segment.match(name):
                    following.add(at + 1)
            reached = self._passing_stars(following)
        return reached

    def _passing_stars(self, positions: set[int]) -> set[int]:
        """``**`` may stand for no folder at all."""
        reached = set(positions)
        for at in sorted(positions):
            while at < self.end and self._segments[at] is None:
                at += 1
                reached.add(at)
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
