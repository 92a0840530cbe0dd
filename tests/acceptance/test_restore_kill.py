"""A restore, killed at every point: at the next opening it is finished, or it never began."""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL
from unittest.mock import AsyncMock

import pytest

from clew.session.history import restore
from clew.snapshots.base import SnapshotsOff
from tests.acceptance.workspaces import contents
from tests.rig.fork_server import run_forked
from tests.rig.restore_child import BEFORE, NAMES, open_at

pytestmark = [pytest.mark.kill, pytest.mark.rule("WR-3")]
AFTER = dict.fromkeys(NAMES, "new")
BEGUN = (
    "writer.after_commit_before_ack=kill",
    "restore.before_files=kill",
    "restore.after_files=kill",
    "restore.before_done=kill",
)
NOT_BEGUN = ("history.before_rewind=kill", "writer.before_commit=kill")


def do(folder: Path, deed: str, failpoints: str = "") -> int:
    done = run_forked("tests.rig.restore_child", str(folder), deed, failpoints)
    assert done.returncode in (0, -SIGKILL), done.stderr.decode()[-4000:]
    return done.returncode


@pytest.mark.parametrize("point", [*BEGUN, *NOT_BEGUN])
async def test_a_killed_restore_is_whole_at_the_next_opening(point: str, tmp_path: Path) -> None:
    """Conversation and files go together: both went back, or neither; and a restore can be undone."""
    assert do(tmp_path, "talk") == 0
    assert contents(tmp_path / "workspace") == AFTER
    assert do(tmp_path, "rewind", point) == -SIGKILL
    if point in BEGUN:
        assert do(tmp_path, "open", "restore.before_recovery=kill") == -SIGKILL
    async with open_at(tmp_path) as engine:
        [session] = (await engine.list_sessions()).sessions
        went_back = await engine.messages(session.id) == []
        assert went_back == (point in BEGUN)
        assert contents(tmp_path / "workspace") == (BEFORE if went_back else AFTER)
        rows = await engine.store.load_snapshots(session.id)
        assert [row.state for row in rows if row.point == "restored"] == (["ready"] if went_back else [])
        if went_back:
            await engine.unrewind(session.id, files="restore")
            assert contents(tmp_path / "workspace") == AFTER
            assert len(await engine.messages(session.id)) == 2


@pytest.mark.parametrize("point", ["restore.before_commit=kill", "restore.before_files=kill"])
async def test_a_killed_restore_of_files_alone_is_whole_at_the_next_opening(point: str, tmp_path: Path) -> None:
    """The conversation stays; the files went back if the restore was stored."""
    assert do(tmp_path, "talk") == 0
    assert do(tmp_path, "only", point) == -SIGKILL
    async with open_at(tmp_path) as engine:
        [session] = (await engine.list_sessions()).sessions
        assert len(await engine.messages(session.id)) == 2
        assert contents(tmp_path / "workspace") == (AFTER if "before_commit" in point else BEFORE)


async def test_a_file_that_was_changed_after_the_kill_is_left_alone(tmp_path: Path) -> None:
    """It is named in the row of the restore; the others are restored."""
    assert do(tmp_path, "talk") == 0
    assert do(tmp_path, "rewind", "restore.before_files=kill") == -SIGKILL
    (tmp_path / "workspace" / "b.txt").write_text("by hand")
    async with open_at(tmp_path) as engine:
        assert contents(tmp_path / "workspace") == {**BEFORE, "b.txt": "by hand"}
        [session] = (await engine.list_sessions()).sessions
        row = (await engine.store.load_snapshots(session.id))[-1]
        assert row.restore is not None
        assert (row.point, row.state, row.restore.left) == ("restored", "ready", ("b.txt",))


async def test_a_killed_restore_waits_for_git_and_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An opening that cannot finish it leaves it to a later one: it is never half."""
    assert do(tmp_path, "talk") == 0
    assert do(tmp_path, "rewind", "restore.before_files=kill") == -SIGKILL
    for error in (SnapshotsOff("there is no git program"), OSError("no space left")):
        with monkeypatch.context() as patch:
            patch.setattr(restore, "write_files", AsyncMock(side_effect=error))
            async with open_at(tmp_path):
                assert contents(tmp_path / "workspace") == AFTER
    async with open_at(tmp_path) as engine:
        assert contents(tmp_path / "workspace") == BEFORE
        [session] = (await engine.list_sessions()).sessions
        assert (await engine.store.load_snapshots(session.id))[-1].state == "ready"
