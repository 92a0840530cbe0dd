"""Runs, told as transcripts: what was said, what was asked, what came of it."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

import clew
from clew.errors import SessionBusy
from clew.testing.scenario import reduced, transcript
from clew.testing.scripted import Gate, call, fail, hang, say, then, think, wait
from clew.transcript.usage import Usage
from tests.acceptance.errands import allow
from tests.acceptance.triggered import asked

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


@pytest.mark.rule("SR-2")
async def test_viewers_come_and_go_and_the_run_does_not_notice(open_scenario: Open) -> None:
    """One leaves early, one joins late, one sees it all; each that stays reduces what is stored."""
    gate = Gate()
    async with open_scenario([[say("one two three "), wait(gate), say("four five")]]) as s:
        await s.begin()
        async for _ in s.engine.run(s.id, "count"):
            break
        first = s.engine.attach(s.id)
        seen = [[await anext(first)]]
        await gate.reached.wait()
        late = s.engine.attach(s.id)
        seen.append([await anext(late)])
        gate.set()
        for viewer, chunks in zip((first, late), seen, strict=True):
            chunks += [chunk async for chunk in viewer]
        stored = (await s.engine.messages(s.id))[1]
        for message in map(reduced, seen):
            assert (message["id"], message["parts"]) == (stored.id, stored.parts)
        assert await s.follow() == []


@pytest.mark.rule("SR-6")
async def test_one_run_at_a_time(open_scenario: Open) -> None:
    """Reject is a conflict; a hundred that ask at once get one run between them."""
    async with open_scenario([[say("a"), hang()], say("b")]) as s:
        await s.begin()
        tries = await asyncio.gather(*(s.send("hi", on_busy="reject") for _ in range(100)), return_exceptions=True)
        assert sum(isinstance(result, SessionBusy) for result in tries) == 99
        await asked(s.model, 1)
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
async def test_a_file_is_kept_once_and_the_model_is_given_its_bytes(open_scenario: Open) -> None:
    """The stored message names the blob; the request carries it by value."""
    body = b"%PDF-1.7 hello %%EOF"
    url = f"data:application/pdf;base64,{base64.b64encode(body).decode()}"
    parts = [{"type": "text", "text": "read this"}, {"type": "file", "mediaType": "application/pdf", "url": url}]
    async with open_scenario([say("hello indeed")]) as s:
        await s.begin()
        submission = await s.engine.submit(s.id, parts)
        assert (await submission.wait()).status == "completed"
        stored = (await s.engine.messages(s.id))[0].parts[1]["url"]
        assert stored.startswith("/api/blobs/")
        blob = await s.engine.store.find_blob(stored.removeprefix("/api/blobs/"))
        assert blob is not None
        assert blob.data == body
        assert s.model.requests[0].messages[-1].parts[-1]["url"] == url
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
        held = s.engine._runtime.runner.tool_storage
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
                s.engine.mint.session(s.engine.store.capabilities.session_ids), huge, model="nobody/x"
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
