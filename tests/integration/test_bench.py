"""The bench measures what it says, in its smallest sizes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench import turns
from bench.__main__ import ALL, main
from bench.grow_side import measure_session
from bench.many import ask_many
from bench.measure import Bench, Goal, Line
from bench.table import markdown, write_page
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


def test_the_table_takes_its_section_of_a_page_and_leaves_the_others(tmp_path: Path) -> None:
    """As often as it is written; a file that is not there yet is made."""
    line = Line("P1", "a turn", "ms", [1, 1], [1.5, 2], [1.5, 2], Goal("≤", 2))
    page = tmp_path / "page.md"
    page.write_text("# Speed\n\nwords\n\n## All lines\n\nold\n\n| a |\n\n## What they mean\n\nmore\n")
    for _ in range(2):
        write_page(page, [line], [("P2", "it failed")], {"load": 0.1})
    told = page.read_text()
    row = "| P1 | a turn | ms | 1.00 | 1.75 (1.50–2.00) | 1.75 (1.50–2.00) | ≤ 2 | ok |"
    assert (told.count("## All lines"), told.count(row), "old" in told) == (1, 1, False)
    assert told.startswith("# Speed\n\nwords\n\n## All lines\n\nload 0.1.\n\n| id | what |")
    assert told.endswith("| not yet |\n\n## What they mean\n\nmore\n")
    write_page(tmp_path / "new.md", [line], (), {"load": 0.1})
    assert row in (tmp_path / "new.md").read_text()


def test_what_fails_is_told_and_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody waits eight minutes for it."""

    async def fails(_: Bench) -> list[Line]:
        raise RuntimeError("no such luck")

    async def works(_: Bench) -> list[Line]:
        return [Line("P2", "a load", "ms", [1], [1])]

    monkeypatch.setitem(ALL, "P1", fails)
    monkeypatch.setitem(ALL, "P2", works)
    assert main(["P1", "P2", "--out", str(tmp_path / "out.md"), "--json", str(tmp_path / "out.json")]) == 1
    assert "RuntimeError: no such luck" in capsys.readouterr().out
    assert "a load" in (tmp_path / "out.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("side", ["hand", "journal", "clew"])
async def test_each_side_of_whole_turns_measures_the_same_things(side: str, tmp_path: Path) -> None:
    """With a history before it; every figure is there, and is one."""
    told = await measure_side(side, 2, 1, tmp_path / "turns.db")
    assert told.keys() == turns.METRICS.keys()
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
    assert {"list by a title that does not exist", "search, a word in every session"} <= told.keys()
