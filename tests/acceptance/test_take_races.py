"""Taking, closing and deleting at an awkward moment: nothing is left behind, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import SessionNotFound, StoreUnavailable
from clew.session.acquire.live_sessions import LiveSessions, Occupancy
from clew.session.turn import runner
from clew.session.turn.recorder import Recorder
from clew.testing.scripted import Gate, call, chunks, say, wait
from clew.transcript import chunk as c
from tests.acceptance.errands import allow
from tests.acceptance.triggered import ended

from .conftest import Open


@clew.tool
async def fetch(name: str) -> str:
    """Fetch something."""
    return f"here is {name}"


@pytest.mark.rule("SR-9")
async def test_a_message_that_goes_on_after_an_answer_is_not_sealed_by_the_taking(open_scenario: Open) -> None:
    """A call of the step that nobody was asked about is settled, and readers still see the message as it grows."""
    gate = Gate()
    elsewhere = chunks(
        c.ToolInputAvailable(tool_call_id="own", tool_name="web_search", input={}, provider_executed=True)
    )
    script = [[elsewhere, call("fetch", {"name": "a"})], [say("so "), wait(gate), say("it is")]]
    async with open_scenario(script, tools=[fetch]) as s:
        await s.begin()
        await s.prompt("fetch it")
        (asked,) = (await s.engine.get_status(s.id)).waiting
        assert asked.approval_id is not None
        await s.engine.answer(s.id, asked.approval_id, "once")
        await gate.reached.wait()
        rows = await s.engine.store.load_messages(s.id, keep_damaged=True)
        assert [row.damage for row in rows] == [None, None]
        gate.set()
        await ended(s.engine)
        assert await s.check() == []


@pytest.mark.rule("SR-9")
async def test_a_damaged_turn_beside_the_line_keeps_no_call_open(open_scenario: Open, tmp_path: Path) -> None:
    """Whose words the call's end should be in cannot be told then; that it ended can."""
    started = asyncio.Event()

    @clew.tool
    async def dig(context: clew.ToolContext) -> str:
        """Dig until told not to."""
        started.set()
        await context.signal.wait()
        return "late"

    script = [say("one"), call("dig", {}), say("fine")]
    async with open_scenario(script, tools=[dig]) as s:
        await s.begin()
        await allow(s, "dig")
        await s.prompt("hello")
        left = (await s.engine.store.load_tree(s.id)).head_turn_id
        await s.engine.rewind(s.id, (await s.engine.messages(s.id))[0].id)
        submission = await s.send("dig")
        await started.wait()
        await s.engine.abort(s.id)
        await submission.wait()
        with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
            assert other.execute("UPDATE chat_turns SET messages = 7 WHERE id = ?", (left,)).rowcount == 1
        other.close()
        await s.prompt("go on")
        assert (await s.transcript())[-3:] == [
            "dig {} → error: aborted; its effects are unknown",
            "user: go on",
            "assistant: fine",
        ]


async def test_who_waits_for_a_turn_learns_its_end_also_when_it_cannot_be_told_to_all(
    open_scenario: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> Any:
        raise StoreUnavailable("not now")

    async with open_scenario([say("fine")]) as s:
        await s.begin()
        monkeypatch.setattr(runner, "idle_status", fails)
        submission = await s.send("hello")
        assert (await asyncio.wait_for(submission.wait(), 60)).status == "completed"


class _Ending:
    """A run that has settled, and holds its session before it is over."""

    def __init__(self, sessions: LiveSessions, session_id: str) -> None:
        self.session_id = session_id
        self._sessions = sessions
        self.occupancy: Occupancy | None = None
        self.begun = asyncio.Event()

    async def wait(self) -> None:
        if self.occupancy is None:
            self.occupancy = await self._sessions.occupy(self.session_id, "making room", after_turn=False)
            self._sessions.forget_run(self)  # type: ignore[arg-type]
            self.begun.set()


@pytest.mark.parametrize("end", ["close", "delete"])
async def test_what_takes_hold_of_a_session_at_its_end_is_stopped_too(open_scenario: Open, end: str) -> None:
    async with open_scenario() as s:
        await s.begin()
        sessions = LiveSessions(s.engine.host)
        run = _Ending(sessions, s.id)
        sessions.remove_run(run)  # type: ignore[arg-type]
        closing = end == "close"
        ending = asyncio.create_task(sessions.close("over", 0) if closing else sessions.begin_deletion(s.id, "over"))
        async with asyncio.timeout(60):
            await run.begun.wait()
            assert run.occupancy is not None
            await run.occupancy.signal.wait()
            await sessions.release(run.occupancy)
            await ending


async def test_nothing_begins_on_a_session_that_is_being_deleted(open_scenario: Open) -> None:
    """Neither an answer nor a continue nor the queue: its run would work on for a session that is gone."""
    async with open_scenario([call("fetch", {"name": "a"}), say("late")], tools=[fetch]) as s:
        await s.begin()
        await s.prompt("fetch it")
        await s.send("and then")
        (asked,) = (await s.engine.get_status(s.id)).waiting
        assert asked.approval_id is not None
        await s.engine._runtime.begin_deletion(s.id)
        with pytest.raises(SessionNotFound):
            await s.engine.answer(s.id, asked.approval_id, "once")
        with pytest.raises(SessionNotFound):
            await s.engine.continue_turn(s.id)
        assert await s.engine.abort(s.id)
        assert s.engine.is_idle(s.id)
        assert len(s.model.requests) == 1
        assert len(await s.engine.queue(s.id)) == 1


async def test_viewers_are_told_of_an_abort_that_comes_while_a_run_asks(
    open_scenario: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was seen, and is denied by the abort: the stream says both, whoever follows it."""

    send = Recorder.send

    async def takes_long(self: Recorder, chunk: c.Chunk) -> None:
        if isinstance(chunk, c.FinishStep):
            await asyncio.Event().wait()
        await send(self, chunk)

    # The step has asked, and is not stored as a whole yet.
    monkeypatch.setattr(Recorder, "send", takes_long)
    async with open_scenario([call("fetch", {"name": "a"})], tools=[fetch]) as s:
        await s.begin()
        seen: list[str] = []
        async for chunk in s.engine.run(s.id, "fetch it"):
            seen.append(chunk["type"])
            if chunk["type"] == "tool-approval-request":
                assert await s.engine.abort(s.id)
        assert seen[-2:] == ["tool-output-denied", "abort"]
        assert await s.transcript() == ["user: fetch it", 'fetch {"name":"a"} → output-denied']
        assert await s.check() == []


async def test_who_waits_for_a_prompt_of_a_session_that_was_deleted_is_told(open_scenario: Open) -> None:
    """Both for the turn that waited for a human, and for what waited behind it."""
    async with open_scenario([call("fetch", {"name": "a"})], tools=[fetch]) as s:
        await s.begin()
        asking = await s.send("fetch it")
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        behind = await s.send("and then")
        ends = [asyncio.ensure_future(one.wait()) for one in (asking, behind)]
        await s.engine.delete_session(s.id)
        await asyncio.wait(ends, timeout=60)
        assert all(end.cancelled() for end in ends)


@pytest.mark.rule("SR-9", "PM-6")
async def test_a_waiting_message_is_not_sealed_by_a_restart_either(open_scenario: Open) -> None:
    """What nobody was asked about is settled when the store is opened; the message still grows after the answer."""
    gate = Gate()
    elsewhere = chunks(
        c.ToolInputAvailable(tool_call_id="own", tool_name="web_search", input={}, provider_executed=True)
    )
    async with open_scenario([[elsewhere, call("fetch", {"name": "a"})]], tools=[fetch]) as s:
        await s.begin()
        await s.prompt("fetch it")
    async with open_scenario([[say("so "), wait(gate), say("it is")]], tools=[fetch]) as s:
        await s.begin()
        (asked,) = (await s.engine.get_status(s.id)).waiting
        assert asked.approval_id is not None
        await s.engine.answer(s.id, asked.approval_id, "once")
        await gate.reached.wait()
        rows = await s.engine.store.load_messages(s.id, keep_damaged=True)
        assert [row.damage for row in rows] == [None, None]
        gate.set()
        await ended(s.engine)
        assert await s.check() == []
