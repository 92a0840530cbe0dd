"""Marks: how a turn ended and what is pruned, as a view tells it."""

from __future__ import annotations

from typing import Any

import pytest

from clew.transcript.message import Message, Role
from clew.transcript.metadata import from_stream
from clew.transcript.pruned import Pruned
from clew.transcript.turn import Turn
from clew.transcript.turn_state import OPEN, TurnStatus
from clew.transcript.view import annotate, ending_of


def turn(status: TurnStatus, name: str = "t", **data: Any) -> Turn:
    return Turn(id=name, session_id="s", parent_turn_id=None, created_at=0, status=status, data=data)


def message(name: str, role: Role = "assistant", turn_id: str | None = "t", *parts: dict[str, Any]) -> Message:
    return Message(name, role, list(parts), {} if turn_id is None else {"turn_id": turn_id})


def test_a_turn_that_ended_well_or_is_open_has_nothing_to_say() -> None:
    """Nor has one that nobody has answered yet."""
    for status in (*sorted(OPEN), "completed", "unanswered"):
        assert ending_of(turn(status)) is None  # type: ignore[arg-type]
    assert ending_of(turn("completed", stopped=None)) is None


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (
            turn("failed", error={"code": "x", "message": "no", "branch": {}}),
            {"status": "failed", "error": {"code": "x", "message": "no"}},
        ),
        (turn("failed"), {"status": "failed"}),
        (turn("aborted", stopped="aborted"), {"status": "aborted", "stopped": "aborted"}),
        (turn("completed", stopped="step_limit"), {"status": "completed", "stopped": "step_limit"}),
        (turn("refused", error="?"), {"status": "refused"}),
        (
            turn("unanswered", error={"code": "c", "message": "m"}),
            {"status": "unanswered", "error": {"code": "c", "message": "m"}},
        ),
    ],
)
def test_any_other_end_is_told_in_plain_words(ended: Turn, told: dict[str, Any]) -> None:
    """Status, what stopped it, and of an error its code and sentence alone."""
    assert ending_of(ended) == told


def test_the_end_stands_on_the_last_answer_or_on_the_question() -> None:
    """One turn each: with two answers and a warning between them, with none, with a good end, in no turn."""
    turns = {
        "t": turn("failed"),
        "u": turn("aborted", "u"),
        "v": turn("completed", "v"),
    }
    told = annotate(
        [
            message("q1", "user"),
            message("a1"),
            message("warning", "user"),
            message("a2"),
            message("q2", "user", "u"),
            message("q3", "user", "v"),
            message("queued", "user", None),
        ],
        turns,
        (),
    )
    assert {one.id: one.metadata.get("turn") for one in told if "turn" in one.metadata} == {
        "a2": {"status": "failed"},
        "q2": {"status": "aborted"},
    }


def test_outputs_that_are_stubs_for_the_model_are_named() -> None:
    """By the id of their call; a record of a part that is no output any more names nothing."""
    call = {"type": "tool-read", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "long"}
    open_ = {**call, "toolCallId": "c2", "state": "input-available"}
    given = [message("a", "assistant", "t", {"type": "step-start"}, call, open_), message("b", "assistant", "t", call)]
    prunes = [Pruned(1, "a", 1, 9, 0, 0), Pruned(1, "a", 2, 9, 0, 0), Pruned(2, "a", 0, 9, 0, 0)]
    told = annotate(given, {}, prunes)
    assert [one.metadata for one in told] == [{"turn_id": "t", "pruned": ["c1"]}, {"turn_id": "t"}]
    assert [one.parts for one in told] == [one.parts for one in given]


def test_a_stream_cannot_set_them() -> None:
    """What it says of them is not stored."""
    assert from_stream({"turn": {"status": "failed"}, "pruned": ["c"], "mine": 1}) == {"mine": 1}
