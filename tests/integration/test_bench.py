"""The bench measures what it says, in its smallest sizes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench import turns
from bench.grow_side import measure_session
from bench.many import ask_many
from bench.measure import Bench, Goal, Line
from bench.table import markdown
from bench.turn_side import measure_side
from bench.turn_work import turn_work

pytestmark = pytest.mark.anyio


def test_a_turn_of_the_bench_has_eight_argument_deltas_two_kilobytes_back_and_two_hundred_deltas() -> None:
    """What every side and every peer is given, the same each time."""
    work = turn_work(3)
    sizes = len(work.prompt), len(work.arguments), len(work.output), len(work.deltas), len(work.reply)
    assert (sizes, work == turn_work(3), work == turn_work(4)) == ((200, 8, 2_000, 200, 800), True, False)


def test_a_line_is_judged_by_the_median_of_its_rounds() -> None:
    """One round on a busy machine does not decide."""
    line = Line("TURN", "a turn", "ms", [1, 1, 1], [1.5, 9, 1.7], [1.5, 9, 1.7], Goal("≤", 2))
    assert (line.value, line.ok, markdown([line], ()).count("MISS")) == (1.7, True, 0)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["hand", "journal", "clew"])
async def test_each_side_of_whole_turns_measures_the_same_things(side: str, tmp_path: Path) -> None:
    """With a history before it; every figure is there, and is one."""
    told = await measure_side(side, 2, 1, tmp_path / "turns.db")
    assert told.keys() == turns.FIGURES.keys()
    assert all(math.isfinite(figure) and figure > 0 for figure in told.values())


@pytest.mark.slow
async def test_a_long_session_is_measured_before_and_after_it_is_compacted(tmp_path: Path) -> None:
    """The calls of the growth table, each with its time."""
    told = await measure_session(tmp_path / "grow.db", 52, 1)
    assert {"page in the middle", "rewind by 10", "branch at turn 50", "head back 2 turns, compacted"} <= told[
        "ms"
    ].keys()
    assert all(math.isfinite(figure) and figure > 0 for figure in told["ms"].values())


@pytest.mark.slow
async def test_many_sessions_are_listed_and_searched(tmp_path: Path) -> None:
    """The search index is waited for, so that what is measured after it is a search."""
    told = await ask_many(Bench(tmp_path, quick=True), tmp_path / "many.db", 20)
    assert {"list by a title that nobody has", "search, a word in all of them"} <= told.keys()
