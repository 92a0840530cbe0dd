"""A small share of each campaign, run as a person runs it; `make campaign` runs them for as long as one likes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rig.__main__ import run_campaign
from tests.rig.budget import Budget, Outcome

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def campaign(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rig", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.rule("SV-3", "FS-2", "ST-13", "ST-14", "FS-5")
@pytest.mark.parametrize(
    ("name", "rounds", "seed"), [("kill", 6, 0), ("power", 120, 0), ("flip", 2, 5), ("fuzz", 500, 0), ("share", 100, 0)]
)
def test_a_small_share_of_the_campaign_keeps_every_promise(
    name: str, rounds: int, seed: int, record_property: Any
) -> None:
    """The controls included: whoever acknowledges too early, or syncs nothing, is found out."""
    code, said = campaign(name, "--rounds", str(rounds), "--seed", str(seed))
    assert code == 0, said
    (line,) = said.splitlines()
    assert re.match(rf"{name}: {rounds} ", line), line
    record_property("figure", f"campaign share, {line}")


def test_a_campaign_goes_on_where_the_last_one_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a tally: the seeds follow one another, the figure is of all of them, and a broken promise is told."""
    stub = SimpleNamespace(ROUNDS=50, run=_count, figure=lambda counts: f"stub: {counts['rounds']} rounds")
    monkeypatch.setitem(sys.modules, "tests.rig.stub", stub)
    kept = [run_campaign("stub", rounds, None, 0, tmp_path / "tally.json") for rounds in (20, None)]
    assert kept == [True, False]
    assert re.sub(r"\d+ s\b", "n s", capsys.readouterr().out).splitlines() == [
        "stub: 20 rounds; seeds 0 to 19, n s",
        "BROKEN: seed 42: on purpose",
        "stub: 50 rounds; seeds 20 to 49, n s",
    ]


def _count(budget: Budget) -> Outcome:
    seeds = list(budget.rounds())
    return Outcome(Counter(rounds=len(seeds)), ["seed 42: on purpose"] if 42 in seeds else [])
