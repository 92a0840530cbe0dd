"""What a call makes of a text file, line by line: for people, before it runs and after. A model is never told."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Any, Final

import msgspec

from clew.errors import ClewError
from clew.tools.base import Change, ToolContext
from clew.tools.files.access import read_all
from clew.tools.files.paths import ResolvedPath

__all__ = ["change_between", "may_show", "text_at", "told_of"]

_MAX_CHARS: Final = 512 * 1024
"""Longer texts are not compared: that takes longer than anybody waits."""
_MAX_PAIRS: Final = 500_000
"""Nor are those of which more lines are the same as others: each pair is looked at, more than once."""
_MAX_SHOWN: Final = 32 * 1024


def change_between(before: str, after: str, note: str = "") -> Change | None:
    """The lines that differ, with three around them; None where that is too much to be shown."""
    if len(before) + len(after) > _MAX_CHARS:
        return None
    old, new = before.splitlines(), after.splitlines()
    # What stands on more than one line of a hundred is passed over by difflib itself.
    counted, often = Counter(new), len(new) // 100 + 1 if len(new) >= 200 else len(new)
    if sum(counted[line] for line in old if counted[line] <= often) > _MAX_PAIRS:
        return None
    lines = list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]
    diff = "\n".join(lines)
    if len(diff) > _MAX_SHOWN:
        return None
    if old == new and before != after:
        note = "; ".join(filter(None, (note, "only line ends change")))
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return Change(diff=diff, added=added, removed=removed, note=note)


def told_of(change: Change | None) -> dict[str, Any] | None:
    """What people are told of an output beside its value."""
    return None if change is None else {"change": msgspec.to_builtins(change)}


def text_at(place: ResolvedPath) -> str | None:
    """What a file says now; None where there is none, or no text that can be compared."""
    try:
        return read_all(place.path, _MAX_CHARS)[0].decode()
    except (ClewError, OSError, ValueError):
        return None


async def may_show(place: ResolvedPath, context: ToolContext) -> bool:
    """Whether lines of a file that a call changes may be kept with it: not of one that nobody may read here."""
    try:
        await context.permit(place.target("read"))
    except ClewError:
        return False
    return True
