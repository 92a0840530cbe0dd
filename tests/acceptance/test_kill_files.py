"""Kill -9 on the file stores: each keeps what it says it keeps, and what it keeps is whole.

``jsonl:`` keeps every chunk that was shown. ``json:`` says that it keeps what had come to the end of a step.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.rig.child import Child, Orders, random_plan
from tests.rig.witness import FileWitness, life
from tests.rounds import rounds

pytestmark = [pytest.mark.kill, pytest.mark.rule("FS-2", "FS-4")]

KILLS = rounds(4)
POINTS = [
    ("jsonl", "files.before_append=kill@9"),
    ("jsonl", "files.after_append=kill@30"),
    ("jsonl", "files.before_rename=kill@12"),
    ("json", "files.before_rename=kill@12"),
]


@pytest.fixture(params=["jsonl", "json"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileWitness:
    return FileWitness(tmp_path / "store", request.param)


async def test_nothing_that_is_kept_is_lost_at_random_kills(files: FileWitness, record_property: Any) -> None:
    """One store lives through all kills: each start is a recovery, each judgement covers all lives."""
    random = Random(7)
    for number in range(KILLS):
        with Child(Orders(store=files.url, seed=number, size=60, streams=3)) as child:
            child.kill_by(random_plan(random))
        files.add(child)
        assert await files.judge() == [], f"after kill {number}"
    record_property("figure", f"random kills, {files.url.partition(':')[0]}: {files.figure}")


@pytest.mark.parametrize(("kind", "point"), POINTS)
async def test_nothing_that_is_kept_is_lost_at_a_failpoint(tmp_path: Path, kind: str, point: str) -> None:
    """Killed before and after bytes reach a file; judged, gone on with, judged again."""
    files = FileWitness(tmp_path / "store", kind)
    life(files, 3, point, size=40, streams=2)
    assert await files.judge() == []
    after = life(files, 1003, turns=1, size=20, streams=2)
    assert len(after.settled) == 2
    assert await files.judge() == []


async def test_a_child_that_shows_too_early_is_found_out(tmp_path: Path) -> None:
    """The control: chunks that were said to be shown, and were not stored, are missed."""
    # A batch may have no chunk, such as that of a prompt, and a turn has few under load: consecutive ones are tried.
    for nth in range(12, 24):
        files = FileWitness(tmp_path / f"store-{nth}", "jsonl")
        life(files, 4, f"files.before_append=kill@{nth}", ack_early=True, streams=1, size=2000)
        if any("shown" in problem or "chunks" in problem for problem in await files.judge()):
            return
    pytest.fail("nothing was missed")
