"""The kill matrix: clew in all of its scenarios, and a side that stores nothing, which is found out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.kill_matrix.kills import SCENARIOS, Kills, Process, Start
from bench.kill_matrix.report import page_with, tables
from tests.rig.fork_server import Forked


def starter(side: str) -> Start:
    def start(arguments: Sequence[str], environ: dict[str, str], log: Path) -> Process:
        with log.open("ab") as errors:
            child = Forked("tests.rig.matrix_side", side, *arguments, env=environ, errors=errors)
        child.stdin.close()
        return child

    return start


def kill(side: str, folder: Path) -> dict[str, dict[str, Any]]:
    kills = Kills(starter(side), folder, timeout=20)
    return {scenario: kills.run(scenario) for scenario in SCENARIOS}


def test_clew_keeps_what_was_shown_and_runs_no_tool_twice_wherever_it_is_killed(tmp_path: Path) -> None:
    """What `make kill-matrix` finds of it, judged by its files and the recorded requests."""
    sent = {"next_request": True, "next_prompt": True, "refused": 0}
    prompted = {**sent, "asked_by_itself": 0, "stored": 20, "read": 20, "next_words": 20}
    call = {**sent, "submitted": True, "ran": 1, "as_shown": True, "next_call": True}
    answer = {"ran_before_answer": 0, "answered": True, "ran_after_answer": 1}
    of_compaction = {"next_prompt": False, "submitted": False, "asked_by_itself": 0}
    of_compaction |= {"stored": 8, "read": 8, "next_questions": 8, "next_summary": False}
    unknown = "aborted by host restart; its effects are unknown"
    assert kill("clew", tmp_path) == {
        "text": {
            **prompted,
            "submitted": True,
            "shown": 20,
            "prompted": prompted,
            "asked_by_itself": 1,
            "next_words": 0,
        },
        "tool": {**call, "asked_by_itself": 1, "next_result": unknown, "next_released": False},
        "approval": {**call, **answer, "asked_by_itself": 0, "next_result": "released blue-7", "next_released": True},
        "compaction": {**sent, **of_compaction},
    }


def test_a_side_that_stores_nothing_is_found_out(tmp_path: Path) -> None:
    """The control: the same judge, and a program that begins again. Its row says so in every table."""
    found = kill("forgets", tmp_path)
    rows = [line for line in tables({"forgets": found}).splitlines() if line.startswith("| forgets")]
    assert rows == [
        "| forgets | 0 of 20 | **no** | 0 | not offered |",
        "| forgets | **twice** | **nothing** | **no** |",
        "| forgets | yes | yes | **twice** | **no** |",
        "| forgets | 0 of 8 | 0 of 8 turns | none was sent |",
    ]


def test_the_tables_take_their_place_in_the_page_and_leave_the_rest() -> None:
    """As often as they are written."""
    facts = {"no_such_feature": "none"}
    text = tables({"peer": dict.fromkeys(SCENARIOS, facts)})
    page = "# Kills\n\n<!-- kill-matrix -->\nearlier\n<!-- /kill-matrix -->\n\nmore\n"
    once = page_with(page, text)
    assert (once, once.count("| peer | none |"), "earlier" in once) == (page_with(once, text), 4, False)
    assert once.startswith("# Kills\n\n<!-- kill-matrix -->\n\n### ")
    assert once.endswith("<!-- /kill-matrix -->\n\nmore\n")
