"""Taking snapshots: which points have one, what waits for it, and what a failure does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from clew.live.base import Event
from clew.session.acquire.recovery import recover
from clew.session.history.convert import convert
from clew.session.history.restore import recover_snapshots
from clew.snapshots.base import SnapshotPoint
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.unit import PutSnapshot, Unit
from clew.testing.clock import FakeClock
from clew.testing.scripted import Gate, call, say, wait
from clew.tools.decorator import tool
from clew.transcript.message import MessageRow
from clew.transcript.rule import Rule
from clew.transcript.workspace_snapshot import WorkspaceSnapshot
from clew.triggers.values.routing import Routing
from examples.own_snapshots import CopyLayer
from tests.acceptance.conftest import Open
from tests.acceptance.conversations import talk
from tests.acceptance.workspaces import HeldLayer, contents, off, put, rows, snapshots, writes

pytestmark = pytest.mark.rule("WR-1")
ALLOWED = [Rule("*", "*", "allow")]


async def test_each_point_of_a_turn_has_a_snapshot(open_both: Open, tmp_path: Path) -> None:
    """The message names the row; a step that only reads has none of its own."""
    script = [[call("write", {"path": "a.txt", "content": "new"}), call("ls", {})], call("ls", {}), say("done")]
    async with open_both(script, snapshots=CopyLayer(tmp_path / "kept"), rules=ALLOWED) as s:
        await s.begin()
        put(s.workspace, a_txt="old")
        (one,) = await talk(s, "go")
        found = await snapshots(s)
        turn_id = (await s.engine.store.load_state(s.id)).head_turn_id
        assert [(row.point, row.state, row.turn_id, row.step, row.message_id) for row in found] == [
            ("message", "ready", turn_id, None, one),
            ("before", "ready", turn_id, 0, None),
            ("after", "ready", turn_id, 0, None),
            ("end", "ready", turn_id, None, None),
        ]
        message = await s.engine.store.find_message(s.id, one)
        assert message is not None
        assert message.snapshot_id == found[0].id
        assert found[0].id.startswith("snp_")
        trees = [row.tree for row in found]
        assert trees[0] == trees[1] != trees[2] == trees[3]


async def test_the_first_token_does_not_wait_but_a_writing_call_does(open_both: Open, tmp_path: Path) -> None:
    """While the snapshot is being taken, the answer is shown; the file is written once it is ready."""
    layer, spoken = HeldLayer(tmp_path / "kept"), Gate()
    layer.gate = asyncio.Event()
    script = [[say("soon"), wait(spoken), call("write", {"path": "a.txt", "content": "new"})], say("done")]
    async with open_both(script, snapshots=layer, rules=ALLOWED) as s:
        await s.begin()
        put(s.workspace, a_txt="old")
        service = s.engine._runtime.snapshots
        waiting, original = asyncio.Event(), service.wait

        async def wait_here(session_id: str) -> bool:
            waiting.set()
            return await original(session_id)

        service.wait = wait_here  # type: ignore[method-assign]
        sent = await s.send("go")
        await spoken.reached.wait()
        assert [row.state for row in await s.engine.store.load_snapshots(s.id)] == ["taking"]
        spoken.set()
        ended = asyncio.ensure_future(sent.wait())
        await asyncio.wait({asyncio.ensure_future(waiting.wait()), ended}, return_when=asyncio.FIRST_COMPLETED)
        assert (ended.done(), contents(s.workspace)) == (False, {"a.txt": "old"})
        layer.gate.set()
        await ended
        assert contents(s.workspace) == {"a.txt": "new"}
        (message, *_) = await snapshots(s)
        assert message.state == "ready"
        await s.engine.rewind(s.id, sent.message_id, files="only")
        assert contents(s.workspace) == {"a.txt": "old"}


async def test_a_call_that_has_waited_long_enough_runs_and_the_snapshot_is_late(
    open_scenario: Open, tmp_path: Path
) -> None:
    """By the clock; a later step does not wait again, and a restore names what it does not vouch for."""
    clock, layer, waiting = FakeClock(1_750_000_000_000), HeldLayer(tmp_path / "kept"), asyncio.Event()
    layer.gate = asyncio.Event()
    script = [
        call("write", {"path": "a.txt", "content": "new"}),
        call("write", {"path": "b.txt", "content": "new"}),
        say("done"),
    ]
    async with open_scenario(script, snapshots=layer, rules=ALLOWED, clock=clock, url="memory:") as s:
        await s.begin()
        put(s.workspace, a_txt="old")
        service = s.engine._runtime.snapshots
        waits, original = [], service.wait

        async def wait_here(session_id: str) -> bool:
            waits.append(session_id)
            waiting.set()
            return await original(session_id)

        service.wait = wait_here  # type: ignore[method-assign]
        events: list[Event] = []
        publish = s.engine.host.live.publish
        s.engine.host.live.publish = lambda event: (events.append(event), publish(event))[1]  # type: ignore[method-assign, func-returns-value]
        sent = await s.send("go")
        await waiting.wait()
        await asyncio.sleep(0)
        clock.advance(10_000)
        await sent.wait()
        assert contents(s.workspace) == {"a.txt": "new", "b.txt": "new"}
        assert waits == [s.id]
        layer.gate.set()
        assert [(row.point, row.state) for row in await snapshots(s)] == [("message", "late"), ("before", "late")]
        assert [event.data["state"] for event in events if event.type == "snapshot_failed"] == ["late", "late"]
        preview = await s.engine.preview_restore(s.id, message_id=sent.message_id)
        assert (preview.state, preview.unsure) == ("late", ())


async def test_a_queued_message_has_its_snapshot_when_it_is_sent(open_both: Open, tmp_path: Path) -> None:
    """Of the files as they are then."""
    gate = Gate()
    async with open_both([[wait(gate), say("one")], say("two")], snapshots=CopyLayer(tmp_path / "kept")) as s:
        await s.begin()
        await s.send("1")
        queued = await s.send("2")
        await gate.reached.wait()
        message = await s.engine.store.find_message(s.id, queued.message_id)
        assert message is not None
        assert message.snapshot_id is None
        put(s.workspace, late_txt="x")
        gate.set()
        await queued.wait()
        assert await rows(s) == [("message", "ready"), ("end", "ready"), ("message", "ready"), ("end", "ready")]
        (s.workspace / "late.txt").unlink()
        preview = await s.engine.preview_restore(s.id, message_id=queued.message_id)
        assert [(one.path, one.kind) for one in preview.files] == [("late.txt", "added")]


async def test_an_event_that_creates_its_session_has_a_snapshot(open_both: Open, tmp_path: Path) -> None:
    """Its row is in the unit that stores the session."""
    async with open_both([say("done")], snapshots=CopyLayer(tmp_path / "kept")) as s:
        routing = Routing(key="k", model="test/model", workspace_root=str(s.workspace))
        got = await s.engine.events.receive("test", "1", routing, text="one")
        assert got.session_id is not None
        await s.engine._runtime.snapshots.wait(got.session_id)
        found = await s.engine.store.load_snapshots(got.session_id)
        assert found[0].point == "message"
        assert found[0].state == "ready"


@pytest.mark.parametrize("reason", ["failure", "off"])
async def test_a_snapshot_that_fails_is_shown_and_fails_no_turn(open_both: Open, tmp_path: Path, reason: str) -> None:
    """One that is off says so once; the calls run all the same."""
    layer = HeldLayer(tmp_path / "kept")
    layer.failure = off("too many files; set snapshots.max_files") if reason == "off" else OSError("no space")
    async with open_both([*writes("a.txt", "new"), say("two")], snapshots=layer, rules=ALLOWED) as s:
        await s.begin()
        one, _ = await talk(s, "go", "on")
        found = await snapshots(s)
        assert contents(s.workspace) == {"a.txt": "new"}
        if reason == "off":
            assert [(row.point, row.problem) for row in found] == [("message", str(layer.failure))]
        else:
            assert {row.problem for row in found} == {"the workspace could not be saved: no space"}
            assert [row.point for row in found] == ["message", "before", "after", "end", "message", "end"]
        with pytest.raises(Exception, match="too many files" if reason == "off" else "no space"):
            await s.engine.rewind(s.id, one, files="restore")


async def test_no_snapshot_without_a_workspace_and_none_where_it_is_switched_off(
    open_both: Open, tmp_path: Path
) -> None:
    """Nothing is named that does not exist; a folder that is gone has none either."""
    async with open_both([say("1"), say("2"), say("3")], snapshots=CopyLayer(tmp_path / "kept")) as s:
        gone = tmp_path / "gone"
        gone.mkdir()
        choices: list[dict[str, Any]] = [
            {"workspace_root": None},
            {"metadata": {"snapshots": "off"}},
            {"workspace_root": str(gone)},
        ]
        for fields in choices:
            s.session = await s.engine.create_session(**{"workspace_root": str(s.workspace), **fields})
            if s.session.workspace_root == str(gone):
                gone.rmdir()
            (one,) = await talk(s, "go")
            message = await s.engine.store.find_message(s.id, one)
            assert message is not None
            assert message.snapshot_id is None
            assert await snapshots(s) == ()


async def test_a_hook_may_name_a_finished_snapshot(open_both: Open, tmp_path: Path) -> None:
    """It stays in the message, and is what a restore gives to the layer."""
    layer = CopyLayer(tmp_path / "kept")
    async with open_both([say("one")], snapshots=layer) as s:
        await s.begin()
        put(s.workspace, a_txt="old")
        saved = await layer.take(SnapshotPoint(session_id=s.id, workspace=str(s.workspace)))
        assert saved is not None
        tree = saved.tree

        async def name(row: MessageRow) -> MessageRow:
            return replace(row, metadata={**row.metadata, "snapshot_id": tree})

        s.engine.hook("message.user", name)
        put(s.workspace, a_txt="new")
        (one,) = await talk(s, "go")
        message = await s.engine.store.find_message(s.id, one)
        assert message is not None
        assert message.snapshot_id == saved.tree
        await s.engine.rewind(s.id, one, files="only", force=True)
        assert contents(s.workspace) == {"a.txt": "old"}


async def test_recovery_closes_what_a_dead_process_was_taking(open_both: Open, tmp_path: Path) -> None:
    """A row of a kill says so; a finished one stays."""
    async with open_both([say("one")], snapshots=CopyLayer(tmp_path / "kept")) as s:
        await s.begin()
        await talk(s, "go")
        before = await snapshots(s)
        for state in ("taking", "late"):
            row = WorkspaceSnapshot(
                id=s.engine.mint.snapshot(),
                session_id=s.id,
                workspace=str(s.workspace),
                point="message",
                state=state,
                created_at=s.engine.clock.now_ms() + 1_000,
            )
            await s.engine.store.commit(Unit(s.id, (PutSnapshot(row),)))
        await recover(s.engine.store, s.engine.mint, 1)
        await recover_snapshots(s.engine.host)
        after = await snapshots(s)
        assert after[: len(before)] == before
        ended = "the process ended while it was being taken"
        assert [(row.state, row.problem) for row in after[len(before) :]] == [("failed", ended)] * 2


async def test_a_conversion_leaves_snapshots_behind_and_says_so(open_scenario: Open, tmp_path: Path) -> None:
    """They name saved states of the source; an export does not have them either."""
    async with open_scenario([say("one")], snapshots=CopyLayer(tmp_path / "kept")) as s:
        await s.begin()
        await talk(s, "go")
        count = len(await snapshots(s))
        assert b"snp_" not in await s.engine.export(s.id, "json")
        target = MemoryStore()
        done = await convert(s.engine.store, target, s.engine.mint, 1)
        why = "they name saved states of the source"
        assert [(left.kind, left.count, left.why) for left in done.left] == [("snapshots of workspaces", count, why)]
        assert await target.load_snapshots(s.id) == ()
        await target.close()


async def test_a_tool_that_declares_nothing_may_change_files(open_both: Open, tmp_path: Path) -> None:
    """One that declares that it only reads, or nothing at all that concerns files, waits for nothing."""

    @tool
    async def unknown() -> str:
        """Do something."""
        return "x"

    @tool(capabilities=["net.fetch"])
    async def fetching() -> str:
        """Fetch something."""
        return "x"

    script = [call("fetching", {}), call("unknown", {}), say("done")]
    async with open_both(script, snapshots=CopyLayer(tmp_path / "kept"), tools=[unknown, fetching], rules=ALLOWED) as s:
        await s.begin()
        await talk(s, "go")
        assert [(row.point, row.step) for row in await snapshots(s)] == [
            ("message", None),
            ("before", 1),
            ("after", 1),
            ("end", None),
        ]
