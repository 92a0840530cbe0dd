"""Doom loops: a model that does the same over and over, with the same results. Pure.

A pattern is one call, or a cycle of two or three, that was made three times in a row with the same results each time.
It brings a warning into the conversation; once more of the same after it ends the turn. A call outside of the pattern
forgives: from there on it counts anew. A result that changes is progress, so polling until something happens is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from clew.transcript.part import error_text, input_of, is_call, output_of, state_of, tool_name

__all__ = ["WARNING", "Pattern", "find_pattern", "made_calls", "repetition_of"]

_REPEATS: Final = 3
_LONGEST: Final = 3
WARNING: Final = (
    "The last tool calls repeat what was done before, with the same results. Do something else: change the arguments, "
    "use another tool, or say what is in the way."
)

Pattern = tuple[str, ...]
"""The calls of one round, each by the digest of its tool, its arguments and its result."""


def made_calls(parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """The calls in these parts, in order."""
    calls = []
    for part in parts:
        if is_call(part):
            said = (tool_name(part), input_of(part), state_of(part), output_of(part), error_text(part))
            calls.append(hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()[:32])
    return calls


def find_pattern(calls: Sequence[str]) -> Pattern | None:
    """What the last calls repeat three times over, the shortest round first."""
    for length in range(1, _LONGEST + 1):
        tail = calls[-length * _REPEATS :]
        if len(tail) == length * _REPEATS and list(tail) == list(tail[:length]) * _REPEATS:
            return tuple(tail[:length])
    return None


def repetition_of(calls: Sequence[str], warned: Pattern | None) -> Literal["fine", "warn", "doom"]:
    """What to do after these calls of a message, when ``warned`` was warned about right before it."""
    if warned and all(call in warned for call in calls):
        return "doom" if len(calls) >= len(warned) else "fine"
    return "fine" if find_pattern(calls) is None else "warn"
