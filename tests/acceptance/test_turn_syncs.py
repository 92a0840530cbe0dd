"""How often a turn waits for the disk: when it is asked, before its tools run, and when it ends."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import clew
from clew.providers.base import ModelRequest
from clew.store.sql.sqlite import opening as sqlite_opening
from clew.store.sql.sqlite.owned_file import OwnedFile
from clew.store.sql.sqlite.transactions import Transactions
from clew.testing.scripted import ScriptedModel, call, fail, say
from tests.acceptance.test_spend import begin, open_text, opened
from tests.rig.disk import Disk, Sync
from tests.rig.recording import recording_connections

pytestmark = pytest.mark.rule("ST-3", "US-1")
TOLD: Final = ("OpenTurn", "RecordStep", "FinishStep", "SetTurn")


@clew.tool
async def look() -> str:
    """Look."""
    return "seen"


@clew.tool
async def reach() -> str:
    """Reach."""
    return "there"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk that notes what is synced to it. Nothing is moved out of the log meanwhile, which syncs too."""
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = Disk(folder, names_last=True)
    monkeypatch.setattr(OwnedFile, "_checkpoint", lambda *_, **__: None)
    with recording_connections(disk) as connect:
        recorded = functools.partial(sqlite_opening.open_sqlite, connect=connect)
        monkeypatch.setattr(sqlite_opening, "open_sqlite", recorded)
        yield disk


def watched(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], bool]]:
    """Every commit from now on that says something of a turn, or is synced: what it says, and whether it is."""
    commits: list[tuple[list[str], bool]] = []
    transact = Transactions._transact

    def noted(self: Transactions, units: Any, work: Any) -> Any:
        before = sum(isinstance(event, Sync) for event in disk.events)
        done = transact(self, units, work)
        synced = sum(isinstance(event, Sync) for event in disk.events) - before
        assert synced == any(unit.sync == "power" for unit in units)
        told = [name for unit in units for write in unit.writes if (name := type(write).__name__) in TOLD]
        if told or synced:
            commits.append((told, bool(synced)))
        return done

    monkeypatch.setattr(Transactions, "_transact", noted)
    return commits


async def test_a_turn_without_tools_is_synced_twice(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the prompt is there, and when the turn ends: its last step ends in the same unit, with what it cost."""
    async with opened(disk.root, ScriptedModel([say("hello")])) as engine:
        session_id = await begin(engine)
        units = watched(disk, monkeypatch)
        await (await engine.submit(session_id, "go")).wait()
    assert units == [(["OpenTurn"], True), (["RecordStep", "FinishStep", "SetTurn"], True)]


async def test_each_step_with_tools_is_synced_once_more_before_they_run(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its call cost is on the disk by then. That its tools are done need not be before the next call is asked."""
    async with opened(disk.root, ScriptedModel([call("look", {}), call("look", {}), say("ok")]), look) as engine:
        session_id, saved = await begin(engine), []

        async def save(session: str) -> None:
            saved.append(session)

        engine.hook("session_save", save)
        units = watched(disk, monkeypatch)
        await (await engine.submit(session_id, "go")).wait()
        await engine.host.hooks.drain()
    # Whoever keeps a copy is told of each: the prompt, what each step cost, its end, and that of the turn.
    assert set(saved) == {session_id}
    assert len(saved) >= 6
    step = [(["RecordStep"], True), (["FinishStep"], False)]
    assert units == [(["OpenTurn"], True), *step, *step, (["RecordStep", "FinishStep", "SetTurn"], True)]


async def test_a_turn_is_two_commits_and_each_step_with_tools_is_two_more(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer begins with its prompt, and what a model says at one moment goes with the unit that somebody waits for:
    the booking, the next call, the end."""
    async with opened(disk.root, ScriptedModel([say("hello"), call("look", {}), say("ok")]), look) as engine:
        session_id = await begin(engine)
        commits: list[list[str]] = []
        transact = Transactions._transact

        def noted(self: Transactions, units: Any, work: Any) -> Any:
            commits.append([type(write).__name__ for unit in units for write in unit.writes])
            return transact(self, units, work)

        monkeypatch.setattr(Transactions, "_transact", noted)
        await (await engine.submit(session_id, "go")).wait()
        plain, commits[:] = [*commits], []
        await (await engine.submit(session_id, "and again")).wait()
    asked = ["InsertMessage", "LinkMessage", "MarkFolded", "PutCall"]
    said = ["PutParts", "PatchMessage", "MarkFolded", "SealMessage", "RecordStep", "PutCall"]
    assert [one[0][-len(asked) :] for one in (plain, commits)] == [asked, asked]
    assert plain[1:] == [[*said, "PutPrompt", "PutPrompt", "FinishStep", "SetTurn", "MoveHead"]]
    assert commits[1:] == [
        ["PutParts", "MarkFolded", "RecordStep", "PutCall", "PutPrompt", "PutPrompt"],
        ["PutParts", "MarkFolded", "PutCall", "PutCall", "FinishStep"],
        [*said, "FinishStep", "SetTurn", "MoveHead"],
    ]


async def test_a_turn_that_asks_is_synced_before_it_asks_and_when_it_waits(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that ends in a question is over with the unit that lets the turn wait."""
    async with opened(disk.root, ScriptedModel([call("reach", {})]), reach) as engine:
        session_id = await begin(engine, allowed=False)
        units = watched(disk, monkeypatch)
        assert [chunk async for chunk in engine.run(session_id, "go")][-1]["finishReason"] == "tool-calls"
    assert units == [(["OpenTurn"], True), (["RecordStep"], True), (["FinishStep", "SetTurn"], True)]


async def test_what_was_said_last_is_shown_though_it_is_stored_with_the_end(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what ends the message waits until everybody was told; and a turn that fails is two syncs as well."""
    async with opened(disk.root, ScriptedModel([say("one two"), [open_text("half"), fail()]])) as engine:
        session_id = await begin(engine)
        seen = [chunk["type"] async for chunk in engine.run(session_id, "go")]
        assert seen[-4:] == ["text-delta", "text-end", "finish-step", "finish"]
        units = watched(disk, monkeypatch)
        await (await engine.submit(session_id, "again")).wait()
    assert units == [(["OpenTurn"], True), (["SetTurn"], True)]


async def test_a_call_that_asked_only_for_what_makes_no_sense_is_booked_before_the_next(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tool runs there, and still it was answered: whoever has a word before the next call finds what it cost."""
    async with opened(disk.root, ScriptedModel([call("nowhere", {}), say("ok")]), look) as engine:
        session_id, booked = await begin(engine), []

        async def look_up(request: ModelRequest) -> ModelRequest:
            booked.append((await engine.get_session(session_id)).usage.output > 0)
            return request

        engine.hook("before_model_call", look_up)
        units = watched(disk, monkeypatch)
        await (await engine.submit(session_id, "go")).wait()
    assert booked == [False, True]
    step = [(["RecordStep"], True), (["FinishStep"], False)]
    assert units == [(["OpenTurn"], True), *step, (["RecordStep", "FinishStep", "SetTurn"], True)]
