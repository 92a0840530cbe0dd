"""Doom loops: a model that makes the same call over and over. Pure.

Three identical calls in a row bring a warning into the conversation; the next one after it ends the turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["REPEATS", "WARNING", "identical_tail"]

REPEATS: Final = 3
WARNING: Final = (
    "The last three tool calls were identical, and so were their results. Do something else: change the arguments, "
    "use another tool, or say what is in the way."
)


def last_call(parts: Iterable[Mapping[str, Any]]) -> tuple[Any, Any] | None:
    """The tool and the arguments of the last call in these parts."""
    calls = [part for part in parts if "toolCallId" in part]
    return (calls[-1].get("toolName") or calls[-1].get("type"), calls[-1].get("input")) if calls else None


def identical_tail(parts: Iterable[Mapping[str, Any]]) -> int:
    """How many calls at the end of these parts are the same tool with the same arguments."""
    count = 0
    last: tuple[Any, Any] | None = None
    for part in parts:
        if "toolCallId" not in part:
            continue
        call = (part.get("toolName") or part.get("type"), part.get("input"))
        count = count + 1 if call == last else 1
        last = call
    return count
