"""Runs that end early, told as transcripts: aborts, failures, limits and what is left of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import clew
from clew.errors import NothingToContinue
from clew.testing.scripted import Gate, call, chunks, cut_after, fail, say, wait
from clew.transcript import chunk as c
from clew.transcript.repetition import WARNING
from tests.acceptance.errands import allow, ask_once

from .conftest import Open


async def passing(clock: Any, awaitable: Any) -> Any:
    """Let fake time pass until something is done."""
    task = asyncio.ensure_future(awaitable)
    while not task.done():
        clock.advance(500)
        await asyncio.sleep(0.001)
    return task.result()


@pytest.mark.rule("SR-3")
async def test_abort_while_streaming_keeps_what_was_said(open_scenario: Open) -> None:
    """The text stays where it stopped; the provider's stream is closed; the next prompt works."""
    gate = Gate()
    async with open_scenario([[say("one two "), wait(gate), say("never")], say("again")]) as s:
        await s.begin()
        submission = await s.send("count")
        await gate.reached.wait()
        viewer = s.engine.attach(s.id)
        seen = [await anext(viewer)]
        assert await s.engine.abort(s.id)
        assert (await submission.wait()).status == "aborted"
        seen += [chunk async for chunk in viewer]
        assert seen[-1]["type"] == "abort"
        assert s.model.closed_early == 1
        assert await s.transcript() == ["user: count", "assistant: one two "]
        assert not await s.engine.abort(s.id)
        await s.prompt("once more")
        assert (await s.transcript())[-1] == "assistant: again"
        assert await s.check() == []


@pytest.mark.rule("SR-3")
@pytest.mark.parametrize("how", ["async", "thread", "fails"])
async def test_a_tool_that_is_not_cancelled_finishes_and_its_result_is_stored_as_late(
    open_scenario: Open, how: str
) -> None:
    """Source 000:313. The abort stops the rest at once; the next prompt waits for the result and is sent it."""
    started, may_end, hung = asyncio.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> str:
        """Pay."""
        loop.call_soon_threadsafe(started.set)
        may_end.wait(10)
        if how == "fails":
            raise ValueError("no money")
        return "paid"

    async def work_async() -> str:
        """Pay."""
        return await asyncio.to_thread(work)

    pay = clew.tool(name="pay", cancel=False)(work if how == "thread" else work_async)

    @clew.tool
    async def idle() -> None:
        """Wait."""
        try:
            await asyncio.Event().wait()
        finally:
            hung.set()

    async with open_scenario([[call("pay", {}), call("idle", {})], say("fine")], tools=[pay, idle]) as s:
        await s.begin()
        await allow(s, "pay", "idle")
        submission = await s.send("buy")
        await started.wait()
        await s.engine.abort(s.id, queue="go_on")
        await hung.wait()
        async for status in s.engine.watch_status(s.id):
            if status.message == "waiting for pay, which cannot be cancelled":
                break
        following = await s.send("and?")
        may_end.set()
        assert ((await submission.wait()).status, (await following.wait()).status) == ("aborted", "completed")
        paid = "error: pay failed: ValueError: no money" if how == "fails" else '"paid"'
        assert (await s.transcript())[1] == f"pay {{}} → {paid}"
        [part] = [part for one in await s.engine.messages(s.id) for part in one.parts if part["type"] == "tool-pay"]
        assert part["resultProviderMetadata"]["clew"]["late"] is True
        assert "paid" in str(s.model.requests[1].messages) or how == "fails"
        assert await s.check() == []


@pytest.mark.rule("SR-3")
async def test_an_aborted_run_ends_after_its_subagents(open_scenario: Open) -> None:
    """Source 000:319, 320. Nothing follows, and nothing is deleted, while a subagent may still have effects."""
    started, may_end = asyncio.Event(), asyncio.Event()

    @clew.tool(cancel=False)
    async def pay() -> str:
        """Pay."""
        started.set()
        await may_end.wait()
        return "paid"

    script = [call("task", {"prompt": "pay"}), call("pay", {}), say("fine"), say("fine")]
    async with open_scenario(script, tools=[pay], rules=[clew.Rule("pay", "*", "allow")]) as s:
        await s.begin()
        await allow(s, "task")
        submission = await s.send("buy")
        await started.wait()
        (child,) = (await s.engine.list_sessions(kind="subagent")).sessions
        await s.engine.abort(s.id, queue="go_on")
        async for status in s.engine.watch_status(s.id):
            if status.state == "idle" or status.message == "waiting for its subagents to stop":
                break
        following = await s.send("and?")
        assert (s.engine.is_idle(s.id), s.engine.is_idle(child.id), len(s.model.requests)) == (False, False, 2)
        may_end.set()
        assert (await submission.wait()).status == "aborted"
        assert s.engine.is_idle(child.id)
        assert (await following.wait()).status == "completed"
        await s.engine.delete_session(s.id)


@pytest.mark.rule("SR-3", "SR-4")
async def test_abort_in_a_tool_leaves_its_effects_unknown(open_scenario: Open) -> None:
    """The tool gets the signal; the call is settled as an error at the start of the next run."""
    started, heard = asyncio.Event(), asyncio.Event()

    @clew.tool
    async def dig(context: clew.ToolContext) -> str:
        """Dig until told not to."""
        started.set()
        try:
            await context.signal.wait()
        finally:
            heard.set()
        return "late"

    async with open_scenario([call("dig", {}), say("fine")], tools=[dig]) as s:
        await s.begin()
        await allow(s, "dig")
        submission = await s.send("dig")
        await started.wait()
        await s.engine.abort(s.id)
        assert (await submission.wait()).status == "aborted"
        await heard.wait()
        assert await s.transcript() == ["user: dig", "dig {} → input-available"]
        await s.prompt("go on")
        assert (await s.transcript())[1] == "dig {} → error: aborted by the user; its effects are unknown"
        sent = s.model.requests[1].messages
        assert all(part.get("state", "").startswith("output") for m in sent for part in m.parts if "toolCallId" in part)
        assert await s.check() == []


@pytest.mark.rule("RN-3")
async def test_a_passing_failure_is_tried_again_and_shown(open_scenario: Open) -> None:
    """Each attempt is in the status; the stream has no trace of it."""
    from clew.testing.clock import FakeClock

    clock = FakeClock()
    async with open_scenario([fail(500), fail(429, retry_after_ms=7_000), say("at last")], clock=clock) as s:
        await s.begin()
        seen: list[Any] = []
        begun = clock.now_ms()
        events = s.engine.subscribe()

        async def note() -> None:
            async for event in events:
                if event.type == "status" and event.data["status"]["state"] == "retrying":
                    told = event.data["status"]
                    assert told["started_at"] == begun
                    seen.append((told["attempt"], told["message"], told["problem"]["cause"], told["retry_at"]))

        noting = asyncio.create_task(note())
        await asyncio.sleep(0)
        submission = await s.send("hi")
        assert (await passing(clock, submission.wait())).status == "completed"
        noting.cancel()
        assert [(attempt, cause) for attempt, _, cause, _ in seen] == [(2, "provider_down"), (3, "rate_limit")]
        assert "7 s" in seen[1][1]
        first, second = [retry_at for *_, retry_at in seen]
        assert begun < first <= second - 7_000 < second <= clock.now_ms()
        assert await s.transcript() == ["user: hi", "assistant: at last"]
        assert len(s.model.requests) == 3
        assert await s.check() == []


@pytest.mark.rule("RN-3", "SR-5")
async def test_a_failure_after_content_is_not_tried_again(open_scenario: Open) -> None:
    """The partial text is kept, the status says what went wrong, and the next submit clears it."""
    broken = cut_after(2, say("one two three"), by=fail(500))
    async with open_scenario([broken, say("better")]) as s:
        await s.begin()
        chunks = await s.prompt("hi")
        assert [chunk["type"] for chunk in chunks][-2:] == ["error", "finish"]
        assert len(s.model.requests) == 1
        status = await s.engine.get_status(s.id)
        assert status.state == "error"
        assert (await s.transcript())[1].startswith("assistant: one")
        await s.prompt("again")
        assert (await s.engine.get_status(s.id)).state == "idle"
        assert await s.check() == []


@pytest.mark.rule("RN-3")
async def test_five_attempts_are_all(open_scenario: Open) -> None:
    """Then the turn fails, and continue tries once more in it."""
    from clew.testing.clock import FakeClock

    clock = FakeClock()
    async with open_scenario([*[fail(503)] * 5, say("back")], clock=clock) as s:
        await s.begin()
        submission = await s.send("hi")
        assert (await passing(clock, submission.wait())).status == "failed"
        assert len(s.model.requests) == 5
        again = await s.engine.continue_turn(s.id)
        assert (await again.wait()).status == "completed"
        assert await s.transcript() == ["user: hi", "assistant: back"]
        assert await s.check() == []


@pytest.mark.rule("SR-3")
async def test_abort_in_a_retry_wait(open_scenario: Open) -> None:
    """It does not have to be sat out."""
    from clew.testing.clock import FakeClock

    clock = FakeClock()
    async with open_scenario([fail(429, retry_after_ms=60_000), say("x")], clock=clock) as s:
        await s.begin()
        submission = await s.send("hi")
        async for status in s.engine.watch_status(s.id):
            if status.state == "retrying":
                # The moment of the next attempt is there for whoever counts down to it.
                assert status.retry_at == clock.now_ms() + 60_000
                break
        await s.engine.abort(s.id)
        assert (await submission.wait()).status == "aborted"
        assert await s.check() == []


@pytest.mark.rule("RN-1")
async def test_the_step_limit_ends_the_turn_and_continue_goes_on(open_scenario: Open) -> None:
    """After 100 steps, which the turn says; with a new budget, in the same turn."""
    script = [*(call("ls", {"path": f"d{n}"}) for n in range(100)), say("finally")]
    async with open_scenario(script) as s:
        await s.begin(metadata={"compaction": {"preset": "guide"}})
        for n in range(100):
            (s.workspace / f"d{n}").mkdir()
        chunks = await s.prompt("look everywhere")
        assert chunks[-1] == {"type": "finish", "finishReason": "other"}
        assert len(s.model.requests) == 100
        ending = {"status": "completed", "stopped": "step_limit", "max_steps": 100}
        assert (await s.engine.messages(s.id))[-1].metadata["turn"] == ending
        again = await s.engine.continue_turn(s.id)
        assert (await again.wait()).status == "completed"
        messages = await s.engine.messages(s.id)
        assert len({message.metadata["turn_id"] for message in messages}) == 1
        assert (await s.transcript())[-1] == "assistant: finally"
        with pytest.raises(NothingToContinue):
            await s.engine.continue_turn(s.id)
        assert await s.check() == []


@pytest.mark.rule("RN-1")
async def test_the_preset_checkpoint_stops_after_ten_steps(open_scenario: Open) -> None:
    """Unless an agent's file says another number."""
    async with open_scenario([call("ls", {"path": f"d{n}"}) for n in range(10)]) as s:
        await s.begin(metadata={"compaction": {"preset": "checkpoint"}})
        await s.prompt("look everywhere")
        ending = {"status": "completed", "stopped": "step_limit", "max_steps": 10}
        assert (await s.engine.messages(s.id))[-1].metadata["turn"] == ending


@pytest.mark.rule("RN-2")
async def test_going_round_in_circles_is_warned_about_and_then_ended(open_scenario: Open) -> None:
    """Three identical calls bring a warning that model and page see; the next one ends the turn."""
    async with open_scenario([call("ls", {})] * 4) as s:
        await s.begin()
        submission = await s.send("look")
        assert (await submission.wait()).stopped == "doom_loop"
        lines = await s.transcript()
        assert [line.split(" → ")[0] for line in lines] == ["user: look", *["ls {}"] * 3, f"user: {WARNING}", "ls {}"]
        assert s.model.requests[3].messages[-1].parts[0]["text"] == WARNING
        assert await s.check() == []


@pytest.mark.rule("RN-2")
async def test_three_reads_a_warning_a_write_and_one_more_read_are_no_circle(open_scenario: Open) -> None:
    """What lies outside of the pattern forgives."""
    script = [call("ls", {})] * 3 + [call("glob", {"pattern": "*"}), call("ls", {}), say("done")]
    async with open_scenario(script) as s:
        await s.begin()
        submission = await s.send("look")
        assert (await submission.wait()).stopped is None
        assert (await s.transcript())[-1] == "assistant: done"


@pytest.mark.rule("RN-2")
async def test_a_cycle_of_two_calls_is_a_circle_too_and_can_be_continued(open_scenario: Open) -> None:
    """Three rounds bring a warning, one more ends the turn; going on counts anew."""
    pair = [call("ls", {}), call("glob", {"pattern": "*"})]
    async with open_scenario([*pair * 4, *pair, say("done")]) as s:
        await s.begin()
        submission = await s.send("look")
        assert (await submission.wait()).stopped == "doom_loop"
        assert [line for line in await s.transcript() if line.startswith("user")] == ["user: look", f"user: {WARNING}"]
        outcome = await (await s.engine.continue_turn(s.id)).wait()
        assert (outcome.status, outcome.stopped) == ("completed", None)
        assert (await s.transcript())[-1] == "assistant: done"
        assert await s.check() == []


@pytest.mark.rule("SR-4")
async def test_after_a_restart_every_session_reads_idle_and_says_what_is_unknown(open_scenario: Open) -> None:
    """What ran is settled as interrupted, by the exit itself or by the next start."""
    gate = Gate()
    async with open_scenario([[say("partial "), wait(gate)]]) as s:
        await s.begin()
        await s.send("hi")
        await gate.reached.wait()
    async with open_scenario([say("hello again")]) as s:
        await s.begin()
        assert (await s.engine.get_status(s.id)).state == "idle"
        assert await s.transcript() == ["user: hi", "assistant: partial "]
        await s.prompt("still there?")
        assert (await s.transcript())[-1] == "assistant: hello again"
        assert await s.check() == []


@pytest.mark.rule("RN-4")
async def test_a_prompt_that_cannot_fit_is_refused_and_nothing_is_stored(open_scenario: Open) -> None:
    """Too large for an empty window, too many files, files too large, not files at all."""
    async with open_scenario([say("1")]) as s:
        await s.begin()
        bad: list[Any] = [
            "x" * 1_000_000,
            [{"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,QQ=="}] * 11,
            [{"type": "file", "mediaType": "text/plain", "url": "https://example.com/x"}],
            [{"type": "file", "mediaType": "text/plain", "url": "workspace:../../etc/passwd"}],
            [{"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,!!"}],
            [{"type": "text", "text": "\ud800"}],
            [{"type": "image"}],
            [],
            "",
        ]
        for prompt in bad:
            with pytest.raises(clew.Invalid):
                await s.send(prompt)
        assert await s.engine.messages(s.id, view="all") == []
        assert await s.check() == []


async def test_a_tool_that_is_cancelled_from_inside_is_an_error_of_that_tool(open_scenario: Open) -> None:
    """Not the end of the session."""

    @clew.tool
    async def trip() -> str:
        """Fall over."""
        raise asyncio.CancelledError

    async with open_scenario([call("trip", {}), say("carry on")], tools=[trip]) as s:
        await s.begin()
        await allow(s, "trip")
        await s.prompt("go")
        lines = await s.transcript()
        assert "error" in lines[1]
        assert lines[2] == "assistant: carry on"
        assert s.engine.is_idle(s.id)


@pytest.mark.rule("SR-4")
async def test_a_run_that_could_not_store_its_end_does_not_poison_the_session(
    open_scenario: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it left in the journal is folded before anything is settled; the next prompt and a restart work."""
    from clew.errors import StoreUnavailable
    from clew.testing.clock import FakeClock

    begun, gate = Gate(), Gate()
    arguments = chunks(
        c.ToolInputStart("c1", "write"), c.ToolInputDelta("c1", '{"path": "a'), c.ToolInputDelta("c1", '.txt", "con')
    )
    clock = FakeClock()  # time stands still, so nothing is folded for having waited
    async with open_scenario([[wait(begun), arguments, wait(gate), say("x")], say("fine")], clock=clock) as s:
        await s.begin()
        submission = await s.send("go")
        store: Any = s.engine.store
        stream = s.engine.attach(s.id)
        await first_match(stream, "start-step")
        begun.set()
        await first_match(stream, "tool-input-delta")
        assert len(await store.pending_streams(s.id)) == store.capabilities.chunk_durable
        with monkeypatch.context() as gone:
            gone.setattr(store, "submit", _refusing(StoreUnavailable("gone")))
            gone.setattr(store.hub, "_submit_all", _refusing(StoreUnavailable("gone")))
            gate.set()
            assert (await submission.wait()).status == "failed"
        await s.prompt("again")
        assert (await s.transcript())[-1] == "assistant: fine"
        assert await s.check() == []
    async with open_scenario([]) as s:
        assert await s.check() == []


async def first_match(stream: Any, kind: str) -> None:
    async for chunk in stream:
        if chunk["type"] == kind:
            return


def _refusing(error: Exception) -> Any:
    def submit(*units: Any, awaited: bool = True) -> Any:
        raise error

    return submit


@pytest.mark.rule("RN-2", "PM-6")
async def test_a_warning_is_forgiven_across_an_approval_and_given_again(open_scenario: Open) -> None:
    """Another call forgives, and counting begins anew, also in the run that goes on after an answer."""
    script = [
        *[call("ls", {})] * 3,
        call("write", {"path": "a", "content": "x"}),
        call("glob", {"pattern": "*"}),
        *[call("ls", {})] * 4,
    ]
    async with open_scenario(script) as s:
        await s.begin()
        submission = await s.send("look")
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        await s.engine.answer(s.id, await ask_once(s), "once")
        assert (await submission.wait()).stopped == "doom_loop"
        assert len(s.model.requests) == 9
        assert await s.check() == []
