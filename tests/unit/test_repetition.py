"""When a model goes round in circles: patterns of calls and results, and what forgives."""

from __future__ import annotations

from typing import Any

import pytest

from clew.transcript.repetition import find_pattern, made_calls, repetition_of


def made(words: str) -> list[str]:
    """Calls by one letter each."""
    return made_calls({"toolCallId": f"c{n}", "type": f"tool-{word}", "input": {}} for n, word in enumerate(words))


@pytest.mark.parametrize(
    ("calls", "pattern"),
    [
        ("aa", None),
        ("aaa", "a"),
        ("baaa", "a"),
        ("ababab", "ab"),
        ("xababab", "ab"),
        ("ababa", None),
        ("abcabcabc", "abc"),
        ("abcabcab", None),
        ("abcdabcdabcd", None),
        ("aaab", None),
    ],
)
def test_a_pattern_is_up_to_three_calls_made_three_times(calls: str, pattern: str | None) -> None:
    """At the end of what was done; longer rounds are work."""
    assert find_pattern(made(calls)) == (None if pattern is None else tuple(made(pattern)))


@pytest.mark.rule("RN-2")
@pytest.mark.parametrize(
    ("calls", "warned", "verdict"),
    [
        ("", "", "fine"),
        ("aaa", "", "warn"),
        ("a", "a", "doom"),
        ("b", "a", "fine"),
        ("ba", "a", "fine"),
        ("baaa", "a", "warn"),
        ("a", "ab", "fine"),
        ("ab", "ab", "doom"),
        ("ba", "ab", "doom"),
        ("ca", "ab", "fine"),
    ],
)
def test_once_more_of_the_same_ends_a_turn_and_anything_else_forgives(calls: str, warned: str, verdict: str) -> None:
    """What was warned about is the whole round."""
    assert repetition_of(made(calls), tuple(made(warned)) or None) == verdict


@pytest.mark.parametrize("change", [{"output": "2"}, {"input": {"n": 1}}, {"state": "output-error", "errorText": "x"}])
def test_a_call_with_another_result_is_another_call(change: dict[str, Any]) -> None:
    """Who waits for something asks the same question until the answer changes."""
    part = {"toolCallId": "c", "type": "tool-poll", "input": {"n": 0}, "state": "output-available", "output": "1"}
    one, again, other = made_calls([part, {**part, "toolCallId": "d"}, {**part, **change}])
    assert (one == again, one == other) == (True, False)
