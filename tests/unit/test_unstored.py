"""What is stored of an answer that a full disk does not take whole."""

from __future__ import annotations

from typing import Any

from clew.session.turn.unstored import LOST_RESULT, shortened


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def call(output: str) -> dict[str, Any]:
    return {"type": "tool-read", "toolCallId": "c", "state": "output-available", "input": {}, "output": output}


def test_the_newest_text_goes_first_and_what_is_stored_never() -> None:
    """Whole first, then less each time, at last nothing that is new."""
    parts = [text("stored"), text("a" * 100), text("b" * 100, state="streaming")]
    tries = list(shortened(parts, (6,)))
    assert tries[0] == [text("stored"), text("a" * 100), text("b" * 100, state="done")]
    sizes = [tuple(len(part["text"]) for part in one) for one in tries]
    assert sizes == [(6, 100, 100), (6, 100, 50), (6, 100, 12), (6, 84, 0), (6, 63, 0), (6, 0, 0)]


def test_of_a_result_there_is_all_or_nothing() -> None:
    """The call stays, and says what became of its result."""
    *_, last = shortened([call("x" * 500), {"type": "step-start"}])
    lost = {"type": "tool-read", "toolCallId": "c", "state": "output-error", "input": {}, "errorText": LOST_RESULT}
    assert last == [lost, {"type": "step-start"}]
    assert next(shortened([call("x" * 500)])) == [call("x" * 500)]


def test_an_answer_without_text_is_tried_once() -> None:
    assert list(shortened([{"type": "step-start"}])) == [[{"type": "step-start"}]]
    assert list(shortened([])) == [[]]
