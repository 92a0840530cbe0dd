"""Files that go back with the conversation: what is restored, what is left alone, and how it is undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.errors import InvalidInput, NotSupported, RewindTargetInvalid, SessionBusy, SnapshotFailed
from clew.session.history.file_values import FileEffect
from clew.testing.scripted import Gate, call, say, wait
from clew.transcript.rule import Rule
from examples.own_snapshots import CopyLayer
from tests.acceptance.conftest import Open
from tests.acceptance.conversations import echo, is_sound, rows_of, talk, tree_of
from tests.acceptance.workspaces import HeldLayer, contents, put, rows, writes

pytestmark = pytest.mark.rule("WR-2", "RW-6")
ALLOWED = [Rule("*", "*", "allow")]
TWO = [*writes("a.txt", "one"), *writes("b.txt", "two")]


@pytest.mark.parametrize("mode", ["resend", "edit"])
async def test_rewind_and_unrewind_bring_the_files_along(open_both: Open, tmp_path: Path, mode: str) -> None:
    """Added, changed and deleted ones; un-rewind brings back what was there before the rewind."""
    script = [
        *writes("a.txt", "one"),
        [call("write", {"path": "b.txt", "content": "two"}), call("bash", {"command": "mv a.txt c.txt"})],
        say("done"),
    ]
    async with open_both(script, snapshots=CopyLayer(tmp_path / "kept"), rules=ALLOWED) as s:
        await s.begin()
        put(s.workspace, a_txt="zero")
        one, two = await talk(s, "1", "2")
        after = {"b.txt": "two", "c.txt": "one"}
        assert contents(s.workspace) == after
        done = await s.engine.rewind(s.id, two, mode=mode, files="restore")  # type: ignore[arg-type]
        assert done.files is not None
        assert (done.files.restored, done.files.conflicts) == (("a.txt", "b.txt", "c.txt"), ())
        assert contents(s.workspace) == {"a.txt": "one"}
        await s.engine.unrewind(s.id, files="restore")
        assert contents(s.workspace) == after
        await s.engine.rewind(s.id, one, mode=mode, restore_files=True)  # type: ignore[arg-type]
        assert contents(s.workspace) == {"a.txt": "zero"}
        await s.engine.unrewind(s.id)
        assert contents(s.workspace) == {"a.txt": "zero"}
        await is_sound(s)


async def test_files_alone_go_back_and_that_is_undone(open_both: Open, tmp_path: Path) -> None:
    """The conversation stays where it is."""
    async with open_both(TWO, snapshots=CopyLayer(tmp_path / "kept"), rules=ALLOWED) as s:
        await s.begin()
        _, two = await talk(s, "1", "2")
        before = await tree_of(s)
        done = await s.engine.rewind(s.id, two, files="only")
        assert (done.hidden, done.head_turn_id) == ((), before.head_turn_id)
        assert contents(s.workspace) == {"a.txt": "one"}
        await s.engine.unrewind(s.id, files="only")
        assert contents(s.workspace) == {"a.txt": "one", "b.txt": "two"}
        assert await tree_of(s) == before


async def test_goto_takes_the_files_to_the_end_of_a_turn(open_both: Open, tmp_path: Path) -> None:
    """The empty start is the first state; the way forth is the same."""
    async with open_both(TWO, snapshots=CopyLayer(tmp_path / "kept"), rules=ALLOWED) as s:
        await s.begin()
        put(s.workspace, z_txt="z")
        await talk(s, "1", "2")
        first, second = (turn.id for turn in (await s.engine.tree(s.id)).turns)
        states = {
            None: {"z.txt": "z"},
            first: {"z.txt": "z", "a.txt": "one"},
            second: {"z.txt": "z", "a.txt": "one", "b.txt": "two"},
        }
        for turn_id in (first, None, second, first):
            await s.engine.set_head(s.id, turn_id, files="restore")
            assert contents(s.workspace) == states[turn_id]
        await is_sound(s)


async def test_a_run_that_follows_finds_the_files_restored(open_both: Open, tmp_path: Path) -> None:
    """Of an edited message and of one that is sent again."""
    script = [*writes("a.txt", "one"), *([call("read", {"path": "a.txt"}), say("read")] * 2)]
    async with open_both(script, snapshots=CopyLayer(tmp_path / "kept"), rules=ALLOWED) as s:
        await s.begin()
        put(s.workspace, a_txt="zero")
        (one,) = await talk(s, "1")
        sent = await s.engine.rewind(s.id, one, run=True, files="restore")
        assert sent.submission is not None
        await sent.submission.wait()
        assert "zero" in (await s.transcript())[1]
        await s.settled()
        put(s.workspace, a_txt="again")
        edited = await s.engine.rewind(s.id, one, mode="edit", text="other", run=True, files="restore", paths=["a.txt"])
        assert edited.submission is not None
        assert edited.files is not None
        await edited.submission.wait()
        assert contents(s.workspace) == {"a.txt": "zero"}
        assert "zero" in (await s.transcript())[1]


async def test_what_another_hand_changed_is_a_conflict(open_both: Open, tmp_path: Path) -> None:
    """Since the last snapshot, or in a gap between the session's own calls; overwritten where named, or forced."""
    async with open_both(TWO * 2, snapshots=CopyLayer(tmp_path / "kept"), rules=ALLOWED) as s:
        await s.begin()
        (one,) = await talk(s, "1")
        put(s.workspace, gap_txt="in a gap")
        await talk(s, "2")
        put(s.workspace, a_txt="by hand")
        preview = await s.engine.preview_restore(s.id, message_id=one)
        assert preview.files == (
            FileEffect(path="a.txt", kind="deleted", conflict=True),
            FileEffect(path="b.txt", kind="deleted"),
            FileEffect(path="gap.txt", kind="deleted", conflict=True),
        )
        done = await s.engine.rewind(s.id, one, files="only")
        assert done.files is not None
        assert (done.files.restored, done.files.conflicts) == (("b.txt",), ("a.txt", "gap.txt"))
        assert contents(s.workspace) == {"a.txt": "by hand", "gap.txt": "in a gap"}
        done = await s.engine.rewind(s.id, one, files="only", paths=["a.txt"])
        assert contents(s.workspace) == {"gap.txt": "in a gap"}
        await s.engine.unrewind(s.id, files="only")
        assert contents(s.workspace) == {"a.txt": "by hand", "gap.txt": "in a gap"}
        await s.engine.rewind(s.id, one, files="only", force=True)
        assert contents(s.workspace) == {}


async def test_no_restore_while_another_run_works_in_the_workspace(open_both: Open, tmp_path: Path) -> None:
    """Nor in a folder of it; once it has ended, there is one."""
    gate = Gate()
    script = [*writes("a.txt", "one"), [say("wait"), wait(gate)]]
    async with open_both(script, snapshots=CopyLayer(tmp_path / "kept"), rules=ALLOWED) as s:
        await s.begin()
        (one,) = await talk(s, "1")
        (s.workspace / "below").mkdir()
        other = await s.engine.create_session(workspace_root=str(s.workspace / "below"))
        sent = await s.engine.submit(other.id, "go")
        await gate.reached.wait()
        with pytest.raises(SessionBusy, match="another session works in this workspace"):
            await s.engine.rewind(s.id, one, files="restore")
        assert contents(s.workspace) == {"a.txt": "one"}
        gate.set()
        await sent.wait()
        async for status in s.engine.watch_status(other.id):
            if status.state == "idle":
                break
        await s.engine.rewind(s.id, one, files="restore")
        assert contents(s.workspace) == {}


async def test_a_restore_that_fails_changes_nothing(open_both: Open, tmp_path: Path) -> None:
    """Files that were written are written back, and the conversation is where it was."""
    layer = HeldLayer(tmp_path / "kept")
    async with open_both(TWO, snapshots=layer, rules=ALLOWED) as s:
        await s.begin()
        put(s.workspace, a_txt="zero", b_txt="zero")
        one, _ = await talk(s, "1", "2")
        before = (await tree_of(s)).head_turn_id, await rows_of(s)
        layer.broken = OSError("the disk is on fire")
        with pytest.raises(SnapshotFailed, match="the disk is on fire"):
            await s.engine.rewind(s.id, one, files="restore")
        after = await rows_of(s)
        assert ((await tree_of(s)).head_turn_id, {id_: row.parts for id_, row in after.items()}) == (
            before[0],
            {id_: row.parts for id_, row in before[1].items()},
        )
        assert contents(s.workspace) == {"a.txt": "one", "b.txt": "two"}
        assert (await rows(s))[-2:] == [("saved", "ready"), ("restored", "failed")]
        await s.engine.rewind(s.id, one, files="restore")
        assert contents(s.workspace) == {"a.txt": "zero", "b.txt": "zero"}
        await is_sound(s)


async def test_a_branch_restores_what_its_ancestor_saved(open_both: Open, tmp_path: Path) -> None:
    """Up to the branch point the changes are its own; what the ancestor did after it is another hand's."""
    async with open_both(TWO, snapshots=CopyLayer(tmp_path / "kept"), rules=ALLOWED) as s:
        await s.begin()
        await talk(s, "1")
        answer = (await s.engine.messages(s.id))[-1].id
        branch = await s.engine.branch(s.id, answer)
        copied = (await s.engine.messages(branch.id))[0]
        assert "snapshot_id" not in copied.metadata
        await talk(s, "2")
        done = await s.engine.rewind(branch.id, copied.id, files="only")
        assert done.files is not None
        assert (done.files.restored, done.files.conflicts) == (("a.txt",), ("b.txt",))
        assert contents(s.workspace) == {"b.txt": "two"}


@pytest.mark.rule("WR-7")
async def test_a_branch_of_another_workspace_or_owner_restores_nothing_of_it(open_both: Open, tmp_path: Path) -> None:
    """Its snapshots are named by their own session alone."""
    async with open_both(TWO, snapshots=CopyLayer(tmp_path / "kept"), rules=ALLOWED) as s:
        await s.begin()
        (one,) = await talk(s, "1")
        found = await s.engine.store.load_snapshots(s.id)
        other = await s.engine.create_session(workspace_root=str(s.workspace))
        submission = await s.engine.submit(other.id, "mine", metadata={"snapshot_id": found[0].id})
        await submission.wait()
        row = await s.engine.store.find_message(other.id, submission.message_id)
        assert row is not None
        assert row.snapshot_id != found[0].id
        with pytest.raises(Exception, match="there is no message"):
            await s.engine.rewind(other.id, one, files="only")


async def test_without_a_snapshot_there_are_no_files_to_bring_back(open_both: Open, tmp_path: Path) -> None:
    """No layer: not supported. A message from before there was one: not a target for that."""
    async with open_both(echo()) as s:
        await s.begin()
        (one,) = await talk(s, "one")
        with pytest.raises(NotSupported):
            await s.engine.rewind(s.id, one, restore_files=True)
        with pytest.raises(InvalidInput, match="force and paths"):
            await s.engine.rewind(s.id, one, force=True)
        with pytest.raises(InvalidInput, match="files must be"):
            await s.engine.rewind(s.id, one, files="all")  # type: ignore[arg-type]
    layer = HeldLayer(tmp_path / "kept")
    layer.failure = OSError("no space")
    async with open_both(echo(), snapshots=layer) as s:
        s.session = await s.engine.create_session(workspace_root=str(s.workspace))
        (one,) = await talk(s, "one")
        with pytest.raises(RewindTargetInvalid, match="no space"):
            await s.engine.rewind(s.id, one, files="restore")
        with pytest.raises(InvalidInput, match="only restores files"):
            await s.engine.rewind(s.id, one, files="only", run=True)
        with pytest.raises(InvalidInput, match="name a message"):
            await s.engine.preview_restore(s.id)
