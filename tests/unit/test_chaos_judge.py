"""The judge of the chaos campaign, with histories written by hand: it minds each thing that may not happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.rig.chaos_history import History, Prompt, View, judge


def message(id_: str, role: str, text: str) -> dict[str, Any]:
    return {"id": id_, "role": role, "parts": [{"type": "text", "text": text}]}


def whole() -> tuple[History, dict[str, list[dict[str, Any]]]]:
    """A prompt with its answer, watched to its end and up to its middle, and one that was cut off."""
    history = History()
    history.prompts = [
        Prompt("s", "first", "one two three", acknowledged=True),
        Prompt("s", "second", "four five six", acknowledged=True),
        Prompt("s", "third", "seven", acknowledged=False),
    ]
    history.views = [
        View("s", 0, "a1", "one two three", 3, done=True),
        View("s", 1, "a1", "one ", 1),
        View("s", 2, "a2", "four ", 1, done=True),
    ]
    history.operations["prompt"] = 10
    history.failures["prompt: TimeoutError"] = 1
    history.recoveries = [("kill", 1.9)]
    history.settled = {"a1": "one two three", "a2": "four "}
    stored = [
        message("u1", "user", "first"),
        message("a1", "assistant", "one two three"),
        message("u2", "user", "second"),
        message("a2", "assistant", "four "),
    ]
    return history, {"s": stored}


def test_a_history_in_which_nothing_was_lost_is_found_good() -> None:
    """A prompt nobody acknowledged may be missing, an answer may be cut off, a tenth of the calls may fail."""
    history, stored = whole()
    assert judge(history, stored, {}, 2.0) == []


def lose_a_prompt(history: History, stored: list[dict[str, Any]]) -> None:
    del stored[2:]
    del history.views[2:]
    del history.settled["a2"]


def send_a_prompt_twice(history: History, stored: list[dict[str, Any]]) -> None:
    stored += [message("u3", "user", "second")]


def answer_twice(history: History, stored: list[dict[str, Any]]) -> None:
    stored.insert(2, message("a3", "assistant", "one two"))


def lose_a_chunk(history: History, stored: list[dict[str, Any]]) -> None:
    stored[1] = message("a1", "assistant", "one two ")
    history.settled["a1"] = "one two "


def show_a_gap(history: History, stored: list[dict[str, Any]]) -> None:
    history.views[1].text = "two "


def show_a_repeat(history: History, stored: list[dict[str, Any]]) -> None:
    history.views[1].text = "one one "


def end_too_early(history: History, stored: list[dict[str, Any]]) -> None:
    history.views[1].done = True


def lose_a_message(history: History, stored: list[dict[str, Any]]) -> None:
    history.views.append(View("s", 0, "a9", "hm", 1))


def write_into_what_was_settled(history: History, stored: list[dict[str, Any]]) -> None:
    stored[3] = message("a2", "assistant", "four five six")
    del history.views[2]


def mix_two_answers(history: History, stored: list[dict[str, Any]]) -> None:
    stored[3] = message("a2", "assistant", "four four five ")
    history.settled["a2"] = "four four five "
    del history.views[2]


def run_twice(history: History, stored: list[dict[str, Any]]) -> None:
    history.twice.add(("s", frozenset({"t1", "t2"})))


def recover_late(history: History, stored: list[dict[str, Any]]) -> None:
    history.recoveries.append(("zombie", 2.1))


def fail_at_everything(history: History, stored: list[dict[str, Any]]) -> None:
    history.failures["look: 503"] = 1


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lose_a_prompt, "is stored 0 times"),
        (send_a_prompt_twice, "is stored 2 times"),
        (answer_twice, "was answered 2 times"),
        (lose_a_chunk, "'one two three' where 'one two ' is stored"),
        (show_a_gap, "shown"),
        (show_a_repeat, "shown"),
        (end_too_early, "ended for a viewer"),
        (lose_a_message, "is not stored"),
        (write_into_what_was_settled, "changed afterwards"),
        (mix_two_answers, "is not the expected one"),
        (run_twice, "had 2 runs at once"),
        (recover_late, "released after 2.1 s"),
        (fail_at_everything, "2 of 10 operations failed"),
    ],
)
def test_the_judge_minds_what_may_not_happen(spoil: Callable[[History, list[dict[str, Any]]], None], said: str) -> None:
    """One thing is spoilt, and one thing is found."""
    history, stored = whole()
    spoil(history, stored["s"])
    found = judge(history, stored, {}, 2.0)
    assert len(found) == 1, found
    assert said in found[0]
