"""Repetition: detects a model that makes the same calls over and over, with the same results. Pure.

A pattern is one call, or a cycle of two or three, made three times in a row with the same results each time. It adds a
warning to the conversation; another repetition after that ends the turn. Any other call resets the count. A result that
changes is progress, so polling until something happens is not a repetition, unless a preset compares calls alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from clew.transcript.part import error_text, input_of, is_call, output_of, state_of, tool_name

__all__ = ["WARNING", "Pattern", "find_pattern", "made_calls", "repetition_of"]

_REPEATS: Final = 3
_MAX_LENGTH: Final = 3
WARNING: Final = (
    "The last tool calls only repeat what was done before. Do something else: change the arguments, "
    "use another tool, or say what is in the way."
)

Pattern = tuple[str, ...]
"""The calls of one round, each as the digest of :func:`made_calls`."""


def made_calls(parts: Iterable[Mapping[str, Any]], *, by_result: bool = True) -> list[str]:
    """Return the digest of each call in these parts, in order; with its result unless ``by_result`` is False."""
    calls = []
    for part in parts:
        if is_call(part):
            content: tuple[Any, ...] = (tool_name(part), input_of(part))
            if by_result:
                content += (state_of(part), output_of(part), error_text(part))
            calls.append(hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:32])
    return calls


def find_pattern(calls: Sequence[str]) -> Pattern | None:
    """Return what the last calls repeat three times, shortest pattern first."""
    for length in range(1, _MAX_LENGTH + 1):
        tail = calls[-length * _REPEATS :]
        if len(tail) == length * _REPEATS and list(tail) == list(tail[:length]) * _REPEATS:
            return tuple(tail[:length])
    return None


def repetition_of(calls: Sequence[str], warned: Pattern | None) -> Literal["fine", "warn", "doom"]:
    """Return what to do after these calls of a message, if ``warned`` was warned about directly before it."""
    if warned and all(call in warned for call in calls):
        return "doom" if len(calls) >= len(warned) else "fine"
    return "fine" if find_pattern(calls) is None else "warn"
