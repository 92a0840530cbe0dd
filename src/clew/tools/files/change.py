"""The change a call makes to a text file, line by line: for people, before it runs and after; models never see it."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Any, Final

import msgspec

from clew.errors import ClewError
from clew.tools.base import Change, ToolContext
from clew.tools.files.access import read_all
from clew.tools.files.paths import ResolvedPath

__all__ = ["change_between", "change_details", "may_show", "text_at"]

_MAX_CHARS: Final = 512 * 1024
"""Longer texts are not compared: it would take too long."""
_MAX_EQUAL_PAIRS: Final = 500_000
"""Texts with more pairs of equal lines are not compared either: difflib visits each pair more than once."""
_MAX_SHOWN: Final = 32 * 1024


def change_between(before: str, after: str, note: str = "") -> Change | None:
    """Return the lines that differ, with three around them; None if that is too much to show."""
    if len(before) + len(after) > _MAX_CHARS:
        return None
    old, new = before.splitlines(), after.splitlines()
    # difflib itself ignores lines that make up more than one percent of a long text.
    line_counts, max_repeats = Counter(new), len(new) // 100 + 1 if len(new) >= 200 else len(new)
    if sum(line_counts[line] for line in old if line_counts[line] <= max_repeats) > _MAX_EQUAL_PAIRS:
        return None
    lines = list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]
    diff = "\n".join(lines)
    if len(diff) > _MAX_SHOWN:
        return None
    if old == new and before != after:
        note = "; ".join(filter(None, (note, "only line ends change")))
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return Change(diff=diff, added=added, removed=removed, note=note)


def change_details(change: Change | None) -> dict[str, Any] | None:
    """Return the part of an output that is for people only."""
    return None if change is None else {"change": msgspec.to_builtins(change)}


def text_at(resolved: ResolvedPath) -> str | None:
    """Return a file's current text; None if it does not exist or cannot be compared."""
    try:
        return read_all(resolved.path, _MAX_CHARS)[0].decode()
    except (ClewError, OSError, ValueError):
        return None


async def may_show(resolved: ResolvedPath, context: ToolContext) -> bool:
    """Return whether lines of a changed file may be stored with the call: only if the session may read the file."""
    try:
        await context.permit(resolved.target("read"))
    except ClewError:
        return False
    return True
