"""The kill matrix: clew in all of its scenarios, and a side that stores nothing, which is found out."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    found = kill("clew", tmp_path)
    print(found)


def test_a_side_that_stores_nothing_is_found_out(tmp_path: Path) -> None:
    """The control: the same judge, and a program that begins again."""
    found = kill("forgets", tmp_path)
    print(found)
