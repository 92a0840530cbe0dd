"""The table of a turn: the moves in it are the only ones."""

from __future__ import annotations

import re
from itertools import product
from typing import cast, get_args

import pytest

from clew.errors import IllegalTransition
from clew.transcript.turn_state import OPEN, SETTLED, START, TRANSITIONS, TurnStatus, check_transition
from tests.unit.state_diagrams import turn_diagram

# From which state (a row) to which (a column). A dot is a refusal, an equals sign is no move at all.
TABLE = """
             running retrying compacting waiting completed aborted failed refused unanswered
nothing      x       .        .          .       x         x       x      .       x
running      =       x        x          x       x         x       x      x       x
retrying     x       =        .          .       .         x       x      .       .
compacting   x       .        =          .       .         x       x      x       x
waiting      x       .        .          =       .         x       x      .       .
completed    x       .        .          .       =         .       .      .       .
aborted      x       .        .          .       .         =       .      .       .
failed       x       .        .          .       .         .       =      .       .
refused      .       .        .          .       .         .       .      =       .
unanswered   x       .        .          .       .         .       .      .       =
"""
HEADER, *ROWS = TABLE.strip().splitlines()
STATES = HEADER.split()
CELLS = [
    (None if row.split()[0] == "nothing" else row.split()[0], after, cell)
    for row in ROWS
    for after, cell in zip(STATES, row.split()[1:], strict=True)
]


def test_a_turn_is_open_or_settled() -> None:
    """Nine states, each one of the two."""
    assert {"running", "retrying", "compacting", "waiting"} == OPEN
    assert {"completed", "aborted", "failed", "refused", "unanswered"} == SETTLED
    assert set(get_args(TurnStatus)) == OPEN | SETTLED


def test_the_table_above_names_every_pair() -> None:
    """Otherwise the test below would pass over one."""
    assert {(before, after) for before, after, _ in CELLS} == set(product((None, *STATES), STATES))
    assert set(STATES) == OPEN | SETTLED


@pytest.mark.parametrize(("before", "after", "cell"), CELLS)
def test_a_turn_moves_as_the_table_says_and_no_other_way(before: str | None, after: str, cell: str) -> None:
    """All 90 pairs; a turn that stays where it is does not move."""
    move = (cast("TurnStatus | None", before), cast(TurnStatus, after))
    if cell == ".":
        with pytest.raises(IllegalTransition) as refusal:
            check_transition(*move)
        assert str(refusal.value) == f"a turn cannot change from {before or 'nothing'} to {after}"
        return
    check_transition(*move)
    assert (after in START) if before is None else (move in TRANSITIONS) == (cell == "x")


def test_no_open_turn_is_stuck() -> None:
    """From every open state there is a way to one that is settled."""
    reached = set(SETTLED)
    while wider := {before for before, after in TRANSITIONS if after in reached} - reached:
        reached |= wider
    assert reached >= OPEN


def test_the_diagram_is_drawn_from_the_table() -> None:
    """Every entry is an arrow with its reason, every arrow an entry, and every state is there."""
    arrows = re.findall(r"^    (\S+) --> (\S+?)(?:: (.+))?$", turn_diagram(), re.MULTILINE)
    assert len(arrows) == turn_diagram().count("-->")
    expected: dict[tuple[str, str], str] = {("[*]", state): "" for state in START}
    expected |= {(state, "[*]"): "" for state in SETTLED}
    expected |= {(before, after): why for (before, after), why in TRANSITIONS.items()}
    assert {(before, after): why for before, after, why in arrows} == expected
    assert {name for arrow in arrows for name in arrow[:2]} == OPEN | SETTLED | {"[*]"}
