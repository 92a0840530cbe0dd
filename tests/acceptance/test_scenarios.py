"""Runs, told as transcripts: what was said, what was asked, what came of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import clew
from clew.errors import AlreadyAnswered, ApprovalNotFound, NothingToContinue, SessionBusy, WaitingForHuman
from clew.runtime.doom import WARNING
from clew.testing.scenario import reduced, transcript
from clew.testing.scripted import Gate, call, chunks, cut_after, fail, hang, say, then, think, wait
from clew.transcript import chunk as c
from clew.transcript.usage import Usage

from .conftest import Open


async def test_a_prompt_is_answered(open_scenario: Open) -> None:
    """The stream is a legal one and reduces to what is stored."""
    async with open_scenario([then(think("hm"), say("Hello there."), usage=Usage(7, 3, 1))]) as s:
        await s.begin()
        chunks = await s.prompt("hi")
        assert [chunk["type"] for chunk in chunks if "delta" not in chunk["type"]] == [
            "start",
            "start-step",
            "reasoning-start",
            "reasoning-end",
            "text-start",
            "text-end",
            "finish-step",
            "finish",
        ]
        assert await s.transcript() == ["user: hi", "assistant thinks: hm", "assistant: Hello there."]
        stored = (await s.engine.messages(s.id))[1]
        assert reduced(chunks)["parts"] == stored.parts
        assert stored.metadata["usage"] == {"input": 7, "output": 3, "reasoning": 1, "cache_read": 0, "cache_write": 0}
        assert stored.metadata["system_prompt_digest"]
        assert (await s.engine.get_status(s.id)).state == "idle"
        assert await s.check() == []


@pytest.mark.rule("SR-5", "SR-6")
@pytest.mark.parametrize("script", [[say("ok")], [fail(400)]], ids=["answered", "failed"])
async def test_whoever_sees_the_end_of_a_turn_may_send_the_next(open_scenario: Open, script: Any) -> None:
    """The last chunks are shown when the session is free, not a moment before."""
    async with open_scenario(script) as s:
        await s.begin()
        last = [
            (chunk["type"], s.engine.is_idle(s.id))
            async for chunk in s.engine.run(s.id, "hi")
            if chunk["type"] in ("error", "finish")
        ]
        assert last
        assert all(idle for _, idle in last)


@pytest.mark.rule("SV-1")
async def test_the_user_message_is_stored_before_the_model_is_called(open_scenario: Open) -> None:
    """The model, at its first breath, finds it in the store."""
    seen: list[list[str]] = []
    async with open_scenario() as s:

        async def look(request: Any) -> None:
            seen.append(await s.transcript())

        s.engine.hook("before_model_call", look)
        s.model.add(say("ok"))
        await s.begin()
        await s.prompt("remember me")
        assert seen == [["user: remember me"]]


@pytest.mark.rule("RN-1")
async def test_parallel_calls_run_side_by_side_and_land_in_order(open_scenario: Open) -> None:
    """The second call ends first and still comes second; the loop ends when nothing is asked for."""
    order: list[str] = []
    first, second = asyncio.Event(), asyncio.Event()

    @clew.tool
    async def slow() -> str:
        """Ends last."""
        await second.wait()
        order.append("slow")
        first.set()
        return "s"

    @clew.tool
    async def fast() -> str:
        """Ends first."""
        order.append("fast")
        second.set()
        await first.wait()
        return "f"

    async with open_scenario([[call("slow", {}), call("fast", {})], say("both done")], tools=[slow, fast]) as s:
        await s.begin()
        await allow(s, "slow", "fast")
        chunks = await s.prompt("go")
        outputs = [chunk["output"] for chunk in chunks if chunk["type"] == "tool-output-available"]
        assert (order, outputs) == (["fast", "slow"], ["s", "f"])
        assert await s.transcript() == ["user: go", 'slow {} → "s"', 'fast {} → "f"', "assistant: both done"]
        assert len(s.model.requests) == 2
        assert await s.check() == []


async def allow(s: Any, *tools: str) -> None:
    """Let the session run these tools without asking."""
    from clew.store.unit import PatchSession, Unit

    rules = tuple({"permission": tool, "pattern": "*", "action": "allow"} for tool in tools)
    await s.engine.store.commit(Unit(s.id, (PatchSession(permissions=rules),)))


@pytest.mark.rule("RN-1")
async def test_a_tool_that_fails_and_arguments_that_do_not_fit_are_told_to_the_model(open_scenario: Open) -> None:
    """Neither ends the turn; unknown tools are answered the same way."""

    @clew.tool
    async def divide(a: int, b: int) -> float:
        """Divide."""
        return a / b

    script = [call("divide", {"a": 1, "b": 0}), call("divide", {"a": "x"}), call("nothing", {}), say("sorry")]
    async with open_scenario(script, tools=[divide]) as s:
        await s.begin()
        await allow(s, "divide")
        await s.prompt("go")
        lines = await s.transcript()
        assert lines[0] == "user: go"
        assert lines[1].startswith('divide {"a":1,"b":0} → error: divide failed: ZeroDivisionError')
        assert lines[2].startswith('divide {"a":"x"} → error: ')
        assert lines[3].startswith("nothing {} → error: there is no tool 'nothing' here")
        assert lines[4] == "assistant: sorry"
        assert await s.check() == []


async def passing(clock: Any, awaitable: Any) -> Any:
    """Let fake time pass until something is done."""
    task = asyncio.ensure_future(awaitable)
    while not task.done():
        clock.advance(500)
        await asyncio.sleep(0.001)
    return task.result()


async def ask_once(s: Any) -> str:
    status = await s.engine.get_status(s.id)
    assert status.state == "idle"
    return str(status.waiting[0].approval_id)


@pytest.mark.rule("PM-6")
async def test_a_call_that_needs_a_word_waits_for_it_and_goes_on_when_it_is_given(open_scenario: Open) -> None:
    """The stream ends at the request; the answer starts a new one on the same message, with only what is new."""
    async with open_scenario(
        [[say("Let me write."), call("write", {"path": "a.txt", "content": "x"})], say("Done.")]
    ) as s:
        await s.begin()
        first = await s.prompt("write it")
        assert [chunk["type"] for chunk in first][-3:] == ["tool-approval-request", "finish-step", "finish"]
        assert first[-1]["finishReason"] == "tool-calls"
        approval_id = await ask_once(s)
        assert not (s.workspace / "a.txt").exists()
        with pytest.raises(WaitingForHuman):
            await s.prompt("hello?")
        assert await s.engine.answer(s.id, approval_id, "once") == 0
        second = await s.follow()
        await s.settled()
        assert (s.workspace / "a.txt").read_text() == "x"
        message = (await s.engine.messages(s.id))[1]
        assert {chunk["messageId"] for chunk in (first[0], second[0])} == {message.id}
        assert (await s.transcript())[-1] == "assistant: Done."
        assert message.parts[2]["approval"]["approved"] is True
        with pytest.raises(AlreadyAnswered):
            await s.engine.answer(s.id, approval_id, "deny")
        with pytest.raises(ApprovalNotFound):
            await s.engine.answer(s.id, "apr_nothing", "deny")
        assert (await s.engine.get_session(s.id)).permissions == []
        assert await s.check() == []


@pytest.mark.rule("PM-6")
async def test_a_denied_call_is_told_to_the_model_and_never_runs(open_scenario: Open) -> None:
    """With the reason; the turn goes on."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("As you wish.")]) as s:
        await s.begin()
        await s.prompt("write it")
        await s.engine.answer(s.id, await ask_once(s), "deny", "not there")
        await s.settled()
        part = (await s.engine.messages(s.id))[1].parts[1]
        assert (part["state"], part["approval"]["approved"], part["approval"]["reason"]) == (
            "output-denied",
            False,
            "not there",
        )
        assert not (s.workspace / "a.txt").exists()
        assert (await s.transcript())[-1] == "assistant: As you wish."


@pytest.mark.rule("PM-3")
async def test_an_answer_for_the_session_covers_the_same_thing_again(open_scenario: Open) -> None:
    """Once stores nothing, "for this session" a rule, "always" one for the project; others are reconsidered."""
    write = {"path": "a.txt", "content": "x"}
    script = [
        [call("write", write), call("write", {**write, "content": "y"})],
        say("1"),
        call("write", write),
        say("2"),
    ]
    async with open_scenario(script) as s:
        await s.begin()
        await s.prompt("write")
        assert len((await s.engine.get_status(s.id)).waiting) == 2
        assert await s.engine.answer(s.id, await ask_once(s), "session") == 0
        await s.settled()
        assert len((await s.engine.get_session(s.id)).permissions) == 1
        await s.prompt("write again")
        assert (await s.transcript())[-1] == "assistant: 2"
        assert await s.check() == []


@pytest.mark.rule("PM-3", "PM-1")
async def test_always_is_remembered_for_the_project_and_not_offered_without_one(open_scenario: Open) -> None:
    """Another session of the same workspace is not asked again."""
    write = {"path": "a.txt", "content": "x"}
    async with open_scenario([call("write", write), say("1"), call("write", write), say("2")]) as s:
        await s.begin()
        await s.prompt("write")
        await s.engine.answer(s.id, await ask_once(s), "project")
        await s.settled()
        assert (await s.engine.get_session(s.id)).permissions == []
        other = await s.engine.create_session(workspace_root=str(s.workspace))
        chunks = [chunk async for chunk in s.engine.run(other.id, "write")]
        assert chunks[-1]["finishReason"] == "stop"


@pytest.mark.rule("PM-6")
async def test_two_requests_are_answered_one_by_one(open_scenario: Open) -> None:
    """Allowed calls of the step have run already; the run starts with the last answer."""
    (
        calls := [
            call("ls", {}),
            call("write", {"path": "a", "content": "1"}),
            call("write", {"path": "b", "content": "2"}),
        ]
    )
    async with open_scenario([calls, say("ok")]) as s:
        await s.begin()
        chunks = await s.prompt("go")
        kinds = [chunk["type"] for chunk in chunks]
        assert kinds.index("tool-output-available") < kinds.index("tool-approval-request")
        first, second = (wait.approval_id for wait in (await s.engine.get_status(s.id)).waiting)
        assert await s.engine.answer(s.id, str(second), "deny") == 1
        assert len(s.model.requests) == 1
        assert await s.engine.answer(s.id, str(first), "once") == 0
        await s.settled()
        assert ((s.workspace / "a").exists(), (s.workspace / "b").exists()) == (True, False)
        assert len(await s.engine.store.load_steps((await s.engine.messages(s.id))[1].metadata["turn_id"])) == 2
        assert await s.check() == []


@pytest.mark.rule("PM-6", "SR-4", "SR-5")
async def test_a_request_survives_a_restart(open_scenario: Open) -> None:
    """Waiting is durable and is not an orphan; the answer after the restart starts the run."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"})]) as s:
        await s.begin()
        await s.prompt("write")
        approval_id = await ask_once(s)
    async with open_scenario([say("Done.")]) as s:
        await s.begin()
        assert await ask_once(s) == approval_id
        assert await s.engine.answer(s.id, approval_id, "once") == 0
        await s.settled()
        assert (s.workspace / "a.txt").read_text() == "x"
        assert (await s.transcript())[-1] == "assistant: Done."
        assert await s.check() == []


@pytest.mark.rule("PM-6", "SR-7")
async def test_a_prompt_meanwhile_is_queued_and_an_abort_denies_what_is_open(open_scenario: Open) -> None:
    """After the abort the queue goes on."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("Next.")]) as s:
        await s.begin()
        await s.prompt("write")
        queued = await s.send("and then?")
        assert queued.queued
        assert await s.engine.abort(s.id)
        assert (await queued.wait()).status == "completed"
        lines = await s.transcript()
        assert lines[1].endswith("→ output-denied")
        assert lines[2:] == ["user: and then?", "assistant: Next."]
        assert not (s.workspace / "a.txt").exists()
        assert await s.check() == []


async def test_a_question_waits_for_its_answer(open_scenario: Open) -> None:
    """Its output is what the human says."""
    async with open_scenario([call("question", {"question": "Which?"}), say("Blue it is.")]) as s:
        await s.begin()
        await s.prompt("ask me")
        waiting = (await s.engine.get_status(s.id)).waiting
        assert (waiting[0].approval_id, waiting[0].tool) == (None, "question")
        assert await s.engine.answer_question(s.id, waiting[0].tool_call_id, "blue") == 0
        await s.settled()
        assert (await s.transcript())[1:] == ['question {"question":"Which?"} → "blue"', "assistant: Blue it is."]


@pytest.mark.rule("SR-3")
async def test_abort_while_streaming_keeps_what_was_said(open_scenario: Open) -> None:
    """The text stays where it stopped; the provider's stream is closed; the next prompt works."""
    gate = Gate()
    async with open_scenario([[say("one two "), wait(gate), say("never")], say("again")]) as s:
        await s.begin()
        submission = await s.send("count")
        await gate.reached.wait()
        viewer = asyncio.create_task(s.follow())
        await asyncio.sleep(0)
        assert await s.engine.abort(s.id)
        assert (await submission.wait()).status == "aborted"
        assert (await viewer)[-1]["type"] == "abort"
        assert s.model.closed_early == 1
        assert await s.transcript() == ["user: count", "assistant: one two "]
        assert not await s.engine.abort(s.id)
        await s.prompt("once more")
        assert (await s.transcript())[-1] == "assistant: again"
        assert await s.check() == []


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
        assert (await s.transcript())[1] == "dig {} → error: aborted; its effects are unknown"
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
        events = s.engine.subscribe()

        async def note() -> None:
            async for event in events:
                if event.type == "status" and event.data["status"]["state"] == "retrying":
                    seen.append((event.data["status"]["attempt"], event.data["status"]["message"]))  # noqa: PERF401 - the task is cancelled

        noting = asyncio.create_task(note())
        await asyncio.sleep(0)
        submission = await s.send("hi")
        assert (await passing(clock, submission.wait())).status == "completed"
        noting.cancel()
        assert [attempt for attempt, _ in seen] == [2, 3]
        assert "7 s" in seen[1][1]
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
    """Then the turn fails, and continue tries once more as a sibling turn."""
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


@pytest.mark.rule("SR-2")
async def test_viewers_come_and_go_and_the_run_does_not_notice(open_scenario: Open) -> None:
    """One leaves early, one joins late, one sees it all; each that stays reduces what is stored."""
    gate = Gate()
    async with open_scenario([[say("one two three "), wait(gate), say("four five")]]) as s:
        await s.begin()
        async for _ in s.engine.run(s.id, "count"):
            break
        first = asyncio.create_task(s.follow())
        await gate.reached.wait()
        late = asyncio.create_task(s.follow())
        await asyncio.sleep(0)
        gate.set()
        stored = None
        for viewer in (first, late):
            chunks = await viewer
            stored = stored or (await s.engine.messages(s.id))[1]
            message = reduced(chunks)
            assert (message["id"], message["parts"]) == (stored.id, stored.parts)
        assert await s.follow() == []


@pytest.mark.rule("SR-6")
async def test_one_run_at_a_time(open_scenario: Open) -> None:
    """Reject is a conflict; a hundred that ask at once get one run between them."""
    async with open_scenario([[say("a"), hang()], say("b")]) as s:
        await s.begin()
        tries = await asyncio.gather(*(s.send("hi", on_busy="reject") for _ in range(100)), return_exceptions=True)
        assert sum(isinstance(result, SessionBusy) for result in tries) == 99
        await s.engine.abort(s.id)
        await s.settled()
        assert len(s.model.requests) == 1


@pytest.mark.rule("SR-7")
async def test_a_queue_of_five_with_a_cancel(open_scenario: Open) -> None:
    """Fired one per turn in their order; the cancelled one never runs; the order is that of the line."""
    gate = Gate()
    async with open_scenario([[wait(gate), say("0")], *(say(str(n)) for n in (1, 2, 4, 5))]) as s:
        await s.begin()
        await s.send("p0")
        sent = [await s.send(f"p{n}", message_id=f"client-{n}") for n in range(1, 6)]
        assert all(submission.queued for submission in sent)
        assert transcript(await s.engine.queue(s.id)) == [f"user: p{n}" for n in range(1, 6)]
        again = await s.send("p2", message_id="client-2")
        assert (again.message_id, again.queued) == (sent[1].message_id, True)
        with pytest.raises(clew.Conflict):
            await s.send("other", message_id="client-2")
        await s.engine.cancel_queued(s.id, "client-3")
        with pytest.raises(clew.Conflict):
            await s.engine.cancel_queued(s.id, sent[2].message_id)
        gate.set()
        assert (await sent[4].wait()).status == "completed"
        assert await s.transcript() == [line for n in (0, 1, 2, 4, 5) for line in (f"user: p{n}", f"assistant: {n}")]
        every = await s.engine.messages(s.id, view="all")
        stamps = [message.metadata["created_at"] for message in every if message.id != sent[2].message_id]
        assert stamps == sorted(stamps)
        assert await s.check() == []


@pytest.mark.rule("SR-7", "SR-6")
async def test_an_interrupting_prompt_goes_first(open_scenario: Open) -> None:
    """What runs is aborted, then the interrupting one, then the queue."""
    gate = Gate()
    async with open_scenario([[say("working "), wait(gate)], say("now"), say("later")]) as s:
        await s.begin()
        await s.send("first")
        await gate.reached.wait()
        last = await s.send("later")
        urgent = await s.send("now!", on_busy="interrupt")
        assert (await urgent.wait()).status == "completed"
        assert (await last.wait()).status == "completed"
        assert await s.transcript() == [
            "user: first",
            "assistant: working ",
            "user: now!",
            "assistant: now",
            "user: later",
            "assistant: later",
        ]
        assert await s.check() == []


@pytest.mark.rule("SR-7")
async def test_a_queue_survives_a_restart_paused(open_scenario: Open) -> None:
    """A prompt to the idle session runs at once; then the queue goes on."""
    async with open_scenario([[say("x"), hang()]]) as s:
        await s.begin()
        await s.send("one")
        await s.send("two")
    async with open_scenario([say("3"), say("2")]) as s:
        await s.begin()
        assert transcript(await s.engine.queue(s.id)) == ["user: two"]
        assert s.model.requests == []
        await s.prompt("three")
        async for status in s.engine.watch_status(s.id):
            if status.state == "idle" and not await s.engine.queue(s.id) and s.engine.is_idle(s.id):
                break
        assert (await s.transcript())[-4:] == ["user: three", "assistant: 3", "user: two", "assistant: 2"]
        assert await s.check() == []


@pytest.mark.rule("RN-1")
async def test_the_step_limit_ends_the_turn_and_continue_goes_on(open_scenario: Open) -> None:
    """With a new budget, in the same turn."""
    script = [*(call("ls", {"path": f"d{n}"}) for n in range(10)), say("finally")]
    async with open_scenario(script) as s:
        await s.begin()
        for n in range(10):
            (s.workspace / f"d{n}").mkdir()
        chunks = await s.prompt("look everywhere")
        assert chunks[-1] == {"type": "finish", "finishReason": "other"}
        assert len(s.model.requests) == 10
        again = await s.engine.continue_turn(s.id)
        assert (await again.wait()).status == "completed"
        messages = await s.engine.messages(s.id)
        assert len({message.metadata["turn_id"] for message in messages}) == 1
        assert (await s.transcript())[-1] == "assistant: finally"
        with pytest.raises(NothingToContinue):
            await s.engine.continue_turn(s.id)
        assert await s.check() == []


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


@pytest.mark.rule("RN-6")
async def test_hooks_may_change_or_refuse_and_observers_touch_nothing(open_scenario: Open) -> None:
    """A refusal before the row stores nothing; a failing observer is not noticed."""
    finished = asyncio.Event()

    async def shout(row: Any) -> Any:
        import msgspec

        text = row.parts[0].data["text"]
        if text == "no":
            raise ValueError("not today")
        part = msgspec.structs.replace(row.parts[0], data={"type": "text", "text": text.upper()})
        return msgspec.structs.replace(row, parts=(part,))

    async def broken(value: Any) -> None:
        finished.set()
        raise RuntimeError("observer")

    async with open_scenario([say("ok")]) as s:
        await s.begin()
        s.engine.hook("message.user", shout)
        s.engine.hook("turn_finished", broken)
        with pytest.raises(clew.ClewError, match="not today"):
            await s.prompt("no")
        assert await s.transcript() == []
        await s.prompt("yes")
        await finished.wait()
        assert await s.transcript() == ["user: YES", "assistant: ok"]
        assert await s.check() == []


@pytest.mark.rule("US-4")
async def test_cost_comes_from_the_catalogue_and_stays(open_scenario: Open, tmp_path: Any) -> None:
    """The recorder computes none; what the hook says is summed on the session."""
    from clew.testing.scripted import FakeProviders, ScriptedModel

    model = ScriptedModel([then(say("a"), usage=Usage(10, 5)), then(say("b"), usage=Usage(1, 1))])
    providers = FakeProviders(model, cost=lambda _, usage: usage.total / 100)
    async with clew.open("memory:", config=clew.Config(), providers=providers) as engine:
        session = await engine.create_session()
        for prompt in ("one", "two"):
            async for _ in engine.run(session.id, prompt):
                pass
        assert (await engine.get_session(session.id)).cost_usd == pytest.approx(0.17)
    async with open_scenario([say("a")]) as s:
        await s.begin()
        await s.prompt("free")
        assert (await s.engine.get_session(s.id)).cost_usd == 0


@pytest.mark.rule("SR-3", "PM-2")
async def test_a_subagent_is_a_session_of_its_own_and_ends_with_its_parent(open_scenario: Open) -> None:
    """Unattended: what it would ask is denied. An abort of the parent reaches it."""
    script = [
        call("task", {"prompt": "look around"}),
        [call("write", {"path": "x", "content": "1"}), call("ls", {})],
        say("nothing here"),
        say("The helper found nothing."),
    ]
    async with open_scenario(script) as s:
        await s.begin()
        await allow(s, "task")
        await s.prompt("delegate")
        lines = await s.transcript()
        assert "nothing here" in lines[1]
        assert lines[2] == "assistant: The helper found nothing."
        (child,) = (await s.engine.list_sessions(kind="subagent")).sessions
        assert child.parent_id == s.id
        assert "denied" in transcript(await s.engine.messages(child.id))[1]
        assert not (s.workspace / "x").exists()
        assert await s.check() == []


@pytest.mark.rule("SR-3")
async def test_abort_in_a_subagent(open_scenario: Open) -> None:
    """The child's turn is aborted with its parent's."""
    gate = Gate()
    async with open_scenario([call("task", {"prompt": "think"}), [say("hm "), wait(gate)]]) as s:
        await s.begin()
        await allow(s, "task")
        submission = await s.send("delegate")
        await gate.reached.wait()
        (child,) = (await s.engine.list_sessions(kind="subagent")).sessions
        await s.engine.abort(s.id)
        assert (await submission.wait()).status == "aborted"
        async for status in s.engine.watch_status(child.id):
            if status.state == "idle":
                break
        tree = await s.engine.store.load_tree(child.id)
        assert [turn.status for turn in tree.turns.values()] == ["aborted"]
        assert await s.check() == []


@pytest.mark.rule("MS-1", "MS-3", "MS-4")
async def test_the_model_and_the_agent_of_a_turn(open_scenario: Open) -> None:
    """A prompt's model stays for the session, its variant does not; a swapped agent is noted on the messages."""
    async with open_scenario([say("1"), say("2"), say("3")]) as s:
        await s.begin()
        await s.prompt("one", model={"provider_id": "test", "model_id": "big", "variant": "slow"})
        await s.prompt("two")
        await s.prompt("three", agent="explore")
        models = [request.model for request in s.model.requests]
        assert models == [clew.Model("test", "big", "slow"), clew.Model("test", "big"), clew.Model("test", "big")]
        session = await s.engine.get_session(s.id)
        assert (session.agent, session.model) == ("assistant", clew.Model("test", "big"))
        messages = await s.engine.messages(s.id)
        assert [message.metadata["model"].get("variant") for message in messages] == ["slow", "slow", *[None] * 4]
        assert [message.metadata.get("agent") for message in messages] == [*[None] * 4, "explore", "explore"]


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


@pytest.mark.rule("RN-4")
async def test_a_file_is_kept_once_and_the_model_is_given_its_bytes(open_scenario: Open) -> None:
    """The stored message names the blob; the request carries it by value."""
    url = "data:text/plain;base64,aGVsbG8="
    parts = [{"type": "text", "text": "read this"}, {"type": "file", "mediaType": "text/plain", "url": url}]
    async with open_scenario([say("hello indeed")]) as s:
        await s.begin()
        submission = await s.engine.submit(s.id, parts)
        assert (await submission.wait()).status == "completed"
        stored = (await s.engine.messages(s.id))[0].parts[1]["url"]
        assert stored.startswith("/api/blobs/")
        blob = await s.engine.store.find_blob(stored.removeprefix("/api/blobs/"))
        assert blob is not None
        assert blob.data == b"hello"
        assert s.model.requests[0].messages[-1].parts[1]["url"] == url
        assert await s.check() == []


@pytest.mark.rule("RN-5")
async def test_what_tools_hold_is_let_go_of_after_half_an_hour(open_scenario: Open) -> None:
    """Counted from the end of the last run; a run meanwhile starts the count again."""
    from clew.testing.clock import FakeClock

    clock = FakeClock()
    todo = {"items": [{"text": "x", "status": "pending"}]}
    async with open_scenario([call("todo", todo), say("noted"), say("still")], clock=clock) as s:
        await s.begin()
        await allow(s, "todo")
        await s.prompt("note it")
        held = s.engine._desk.belongings
        assert s.id in held
        clock.advance(29 * 60_000)
        await s.prompt("and?")
        clock.advance(29 * 60_000)
        assert s.id in held
        clock.advance(60_000)
        assert s.id not in held


@pytest.mark.rule("RN-7")
async def test_a_prompt_goes_through_its_gates_in_order(open_scenario: Open) -> None:
    """Session, model, size, message, run, answer: the first that fails is the one that is told."""
    gate = Gate()
    async with open_scenario([[wait(gate), say("late")]]) as s:
        await s.begin()
        huge = "x" * 1_000_000
        with pytest.raises(clew.SessionNotFound):
            await s.engine.submit(
                s.engine._mint.session(s.engine.store.capabilities.session_ids), huge, model="nobody/x"
            )
        with pytest.raises(clew.InvalidInput, match="nobody"):
            await s.send(huge, model="nobody/x")
        with pytest.raises(clew.Invalid, match="tokens"):
            await s.send(huge)
        assert await s.engine.messages(s.id, view="all") == []
        submission = await s.send("hello")
        assert await s.transcript() == ["user: hello"]
        assert not s.engine.is_idle(s.id)
        gate.set()
        assert (await submission.wait()).status == "completed"


@pytest.mark.rule("PM-5", "PM-6")
async def test_an_approved_search_reads_below_what_was_approved_and_no_denied_file(
    open_scenario: Open, tmp_path: Any
) -> None:
    """A human's word on a folder covers the files in it, but never one that a rule denies."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("needle")
    (outside / "b.txt").write_text("needle")
    async with open_scenario([call("grep", {"pattern": "needle", "path": str(outside)}), say("found")]) as s:
        await s.begin()
        from clew.store.unit import PatchSession, Unit

        deny = {"permission": "read", "pattern": str(outside / "b.txt"), "action": "deny"}
        await s.engine.store.commit(Unit(s.id, (PatchSession(permissions=(deny,)),)))
        await s.prompt("search")
        await s.engine.answer(s.id, await ask_once(s), "once")
        await s.settled()
        found = (await s.transcript())[1]
        assert "a.txt" in found
        assert "b.txt:1" not in found


@pytest.mark.rule("PM-6")
async def test_an_answer_is_void_when_what_was_asked_has_changed(open_scenario: Open) -> None:
    """It is bound to the tool, its arguments and the folder; nothing runs on an answer to something else."""
    import msgspec

    from clew.store.unit import PutParts, Unit

    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("never")]) as s:
        await s.begin()
        await s.prompt("write")
        approval_id = await ask_once(s)
        message = (await s.engine.store.load_messages(s.id))[1]
        part = message.parts[1]
        forged = msgspec.structs.replace(part, data={**part.data, "input": {"path": "b.txt", "content": "evil"}})
        await s.engine.store.commit(Unit(s.id, (PutParts(message.id, (forged,)),)))
        with pytest.raises(clew.Conflict, match="changed"):
            await s.engine.answer(s.id, approval_id, "once")
        assert list(s.workspace.iterdir()) == []


@pytest.mark.rule("PM-1", "PM-3")
async def test_without_a_workspace_there_is_no_project_to_remember_for(open_scenario: Open) -> None:
    """ "Always" is refused, and the request still waits."""

    @clew.tool
    async def ping() -> str:
        """Ping."""
        return "pong"

    async with open_scenario([call("ping", {}), say("done")], tools=[ping]) as s:
        await s.begin(workspace_root=None)
        await s.prompt("ping")
        approval_id = await ask_once(s)
        with pytest.raises(clew.InvalidInput, match="workspace"):
            await s.engine.answer(s.id, approval_id, "project")
        assert await s.engine.answer(s.id, approval_id, "once") == 0
        assert await s.settled() == "idle"


@pytest.mark.rule("SR-7")
async def test_a_fired_message_comes_after_everything_before_it(open_scenario: Open) -> None:
    """Also when the clock was set back meanwhile: its stamp is later than the newest in the session."""
    from clew.testing.clock import FakeClock

    clock, gate = FakeClock(), Gate()
    async with open_scenario([[wait(gate), say("one")], say("two")], clock=clock) as s:
        await s.begin()
        await s.send("first")
        queued = await s.send("second")
        await gate.reached.wait()
        newest = max(message.metadata["created_at"] for message in await s.engine.messages(s.id, view="all"))
        clock.set_wall(clock.now_ms() - 3_600_000)
        gate.set()
        assert (await queued.wait()).status == "completed"
        fired = await s.engine.store.find_message(s.id, queued.message_id)
        assert fired is not None
        assert fired.created_at > newest


@pytest.mark.rule("PM-2")
async def test_a_subagent_is_never_freer_than_its_parent(open_scenario: Open) -> None:
    """What the parent's rules deny, a child's own rules cannot allow, nor when somebody goes on with it."""
    script = [call("task", {"prompt": "look"}), call("ls", {}), say("no"), say("ok"), call("ls", {}), say("still no")]
    async with open_scenario(script) as s:
        await s.begin()
        from clew.store.unit import PatchSession, Unit

        rules = (
            {"permission": "task", "pattern": "*", "action": "allow"},
            {"permission": "ls", "pattern": "*", "action": "deny"},
            {"permission": "ls", "pattern": "/**", "action": "deny"},
        )
        await s.engine.store.commit(Unit(s.id, (PatchSession(permissions=rules),)))
        await s.prompt("delegate")
        (child,) = (await s.engine.list_sessions(kind="subagent")).sessions
        assert "denied" in transcript(await s.engine.messages(child.id))[1]
        allow_all = ({"permission": "*", "pattern": "*", "action": "allow"},)
        await s.engine.store.commit(Unit(child.id, (PatchSession(permissions=allow_all),)))
        assert (await (await s.engine.submit(child.id, "again")).wait()).status == "completed"
        assert "denied" in transcript(await s.engine.messages(child.id))[-2]


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
async def test_a_run_that_could_not_store_its_end_does_not_poison_the_session(open_scenario: Open) -> None:
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
        submit, store.submit = store.submit, _refusing(StoreUnavailable("gone"))
        gate.set()
        assert (await submission.wait()).status == "failed"
        store.submit = submit
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
    def submit(unit: Any) -> Any:
        raise error

    return submit


async def test_an_answer_given_as_soon_as_the_request_is_seen_counts(open_scenario: Open) -> None:
    """The run that asked is not over yet when a viewer sees its question."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("Done.")]) as s:
        await s.begin()
        answering: asyncio.Task[int] | None = None
        async for chunk in s.engine.run(s.id, "write"):
            if chunk["type"] == "tool-approval-request":
                answering = asyncio.create_task(s.engine.answer(s.id, chunk["approvalId"], "once"))
                await asyncio.sleep(0)
        assert answering is not None
        assert await answering == 0
        await s.settled()
        assert (await s.transcript())[-1] == "assistant: Done."
        assert await s.check() == []


@pytest.mark.rule("RN-2", "PM-6")
async def test_a_warning_holds_for_the_turn_and_leaves_other_calls_alone(open_scenario: Open) -> None:
    """Another call after it is fine, an approval in between changes nothing, the same call again ends the turn."""
    script = [
        *[call("ls", {})] * 3,
        call("write", {"path": "a", "content": "x"}),
        call("glob", {"pattern": "*"}),
        call("ls", {}),
    ]
    async with open_scenario(script) as s:
        await s.begin()
        submission = await s.send("look")
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        await s.engine.answer(s.id, await ask_once(s), "once")
        assert (await submission.wait()).stopped == "doom_loop"
        assert len(s.model.requests) == 6
        assert await s.check() == []
