"""Snapshots that are killed on the way: the next one is exact, and a restore that is repeated completes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import pytest

from clew.snapshots.base import SnapshotPoint
from clew.snapshots.layer import GitSnapshots
from tests.rig.fork_server import run_forked
from tests.rig.workspace_edits import observe
from tests.rounds import rounds

pytestmark = [pytest.mark.rule("WR-1", "WR-3"), pytest.mark.kill]
TAKES = (
    "snapshots.before_tree=kill",
    "snapshots.after_tree=kill",
    "snapshots.before_index=kill",
    "snapshots.before_pack_removal=kill",
)
RESTORES = ("snapshots.before_delete=kill", "snapshots.before_rename=kill@2", "snapshots.after_rename=kill")


def run_killed(point: str, *arguments: str) -> None:
    killed = run_forked("tests.rig.snapshots", *arguments, env={**os.environ, "CLEW_FAILPOINTS": point})
    assert killed.returncode == -SIGKILL, killed.stderr


@pytest.mark.parametrize("point", TAKES)
async def test_a_snapshot_after_a_killed_one_is_exact(tmp_path: Path, point: str) -> None:
    """Nothing of the killed one is in the way."""
    root, data = tmp_path / "workspace", tmp_path / "data"
    root.mkdir()
    layer, place = GitSnapshots(data), SnapshotPoint(session_id="ses_x", workspace=str(root))
    for number in range(2):
        (root / f"{number}").write_bytes(b"1")
        await layer.take(place)
    (root / "2").write_bytes(b"2")
    (root / "0").unlink()
    run_killed(point, str(data), str(root))
    (root / "3").write_bytes(b"3")
    taken = await layer.take(place)
    assert taken is not None
    for name, content in {"0": None, "1": b"1", "2": b"2", "3": b"3"}.items():
        assert await layer.read(place, taken.tree, name) == content


@pytest.mark.parametrize("point", RESTORES)
async def test_a_killed_restore_is_completed_by_the_next_one(tmp_path: Path, point: str) -> None:
    """Its temporary files are no part of a snapshot, and go."""
    root, data = tmp_path / "workspace", tmp_path / "data"
    root.mkdir()
    layer, place = GitSnapshots(data), SnapshotPoint(session_id="ses_x", workspace=str(root))
    for name in ("a", "b", "c"):
        (root / name).write_bytes(b"1")
    first, seen = await layer.take(place), observe(os.fsencode(root))
    (root / "a").write_bytes(b"2")
    (root / "b").unlink()
    (root / "new").mkdir()
    (root / "new/d").write_bytes(b"2")
    second = await layer.take(place)
    assert first is not None
    assert second is not None
    paths = ["a", "b", "new/d"]
    run_killed(point, str(data), str(root), first.tree, second.tree, *paths)
    half = await layer.take(place)
    assert half is not None
    assert {one.path for one in await layer.compare(place, first.tree, half.tree)} <= set(paths)
    assert [path.name for path in root.rglob(".clew-*")] == []
    assert await layer.restore(place, first.tree, second.tree, paths) == []
    assert observe(os.fsencode(root)) == seen


@pytest.mark.rule("WR-6")
async def test_collecting_everything_takes_the_temporary_files_along(tmp_path: Path) -> None:
    """Nothing would know of them afterwards."""
    root, data = tmp_path / "workspace", tmp_path / "data"
    root.mkdir()
    layer, place = GitSnapshots(data, grace_s=0), SnapshotPoint(session_id="ses_x", workspace=str(root))
    (root / "a").write_bytes(b"1")
    first = await layer.take(place)
    (root / "a").write_bytes(b"2")
    second = await layer.take(place)
    assert first is not None
    assert second is not None
    run_killed("snapshots.before_rename=kill", str(data), str(root), first.tree, second.tree, "a")
    assert len(list(root.iterdir())) == 2
    await layer.collect({})
    assert [path.name for path in root.iterdir()] == ["a"]


@pytest.mark.rule("WR-2", "WR-7")
def test_random_sequences_of_edits_snapshots_and_restores_are_exact(
    record_property: Callable[[str, object], None],
) -> None:
    """A share of the campaign, in a process without threads, which can be forked."""
    command = [sys.executable, "-m", "tests.rig", "snapshots", "--rounds", str(rounds(12))]
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (ran.returncode, "BROKEN" in ran.stdout) == (0, False), ran.stdout + ran.stderr
    assert re.match(r"snapshots: \d+ sequences, 0 broken", ran.stdout)
    record_property("figure", ran.stdout.strip())
