"""The table of a tool call: the moves in it are the only ones."""

from __future__ import annotations

import re

import pytest

from clew.errors import IllegalChunk
from clew.transcript.tool_state import TOOL_EVENTS, TOOL_STATES, TRANSITIONS, next_state
from tests.unit.state_diagrams import tool_diagram

# Which event (a column) leads from which state (a row) to which. A dot is a refusal, a tilde one unless preliminary.
STATES = {
    "i": "input-streaming",
    "I": "input-available",
    "q": "approval-requested",
    "r": "approval-responded",
    "O": "output-available",
    "E": "output-error",
    "D": "output-denied",
}
TABLE = """
                     start delta available input-error request response output error denied
nothing              i     .     I         E           .       .        .      .     .
input-streaming      .     i     I         E           .       .        .      E     .
input-available      .     .     .         .           q       .        O      E     D
approval-requested   .     .     .         .           .       r        .      .     .
approval-responded   .     .     .         .           .       .        O      E     D
output-available     .     .     .         .           .       .        O~     E~    .
output-error         .     .     .         .           .       .        .      .     .
output-denied        .     .     .         .           .       .        .      .     .
"""
EVENTS = (
    "tool-input-start",
    "tool-input-delta",
    "tool-input-available",
    "tool-input-error",
    "tool-approval-request",
    "approval-response",
    "tool-output-available",
    "tool-output-error",
    "tool-output-denied",
)
CELLS = [
    (None if row.split()[0] == "nothing" else row.split()[0], event, cell)
    for row in TABLE.strip().splitlines()[1:]
    for event, cell in zip(EVENTS, row.split()[1:], strict=True)
]


def test_the_table_above_names_every_state_and_event() -> None:
    """Otherwise the tests below would pass over one."""
    assert set(EVENTS) == set(TOOL_EVENTS)
    assert {state for state, _, _ in CELLS} == {None, *TOOL_STATES}


@pytest.mark.rule("SV-2")
@pytest.mark.parametrize(("state", "event", "cell"), CELLS)
def test_a_call_moves_as_the_table_says_and_no_other_way(state: str | None, event: str, cell: str) -> None:
    """All 72 pairs of a state and an event, with a last output and with a preliminary one."""
    for preliminary in (False, True):
        if cell == "." or (cell.endswith("~") and not preliminary):
            with pytest.raises(IllegalChunk):
                next_state(state, event, preliminary=preliminary)
        else:
            assert next_state(state, event, preliminary=preliminary) == STATES[cell[0]]


def test_a_refusal_says_what_could_not_follow_what() -> None:
    """The sentence is for people, the ids are for logs."""
    with pytest.raises(IllegalChunk) as refusal:
        next_state("output-denied", "tool-output-available")
    assert str(refusal.value) == "tool-output-available cannot follow output-denied of a tool call"
    assert refusal.value.ids == {"state": "output-denied", "chunk_type": "tool-output-available"}


def test_the_diagram_is_drawn_from_the_table() -> None:
    """Every entry is an arrow, and every arrow is an entry."""
    boxes = {state.replace("-", "_"): state for state in TOOL_STATES}
    drawn = {
        (boxes.get(before), label.removesuffix(" while preliminary"), boxes[after])
        for before, after, labels in re.findall(r"^ +(\S+) --> (\S+): (.+)$", tool_diagram(), re.MULTILINE)
        for label in labels.split(", ")
    }
    assert drawn == {(before, event, after) for (before, event), after in TRANSITIONS.items()}
