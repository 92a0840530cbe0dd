"""Stop means stop: an abort pauses the queue, durably, until a person speaks; whatever else pauses it is told alike."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from clew.errors import NothingToContinue
from clew.testing.scenario import Scenario, transcript
from clew.testing.scripted import Gate, ScriptedModel, call, fail, hang, say, wait
from clew.triggers.values.routing import Routing
from tests.acceptance.triggered import answered, asked, ended, napping
from tests.rounds import ON_POSTGRESQL

from .compacting import opened, summary
from .conftest import Open
from .large_talks import talk

STORES = {"sqlite": "sqlite:///{}/store.db", "jsonl": "jsonl:{}/store", "json": "json:{}/store"}


async def paused(s: Scenario) -> tuple[list[str], bool, str | None]:
    """What waits, and what the status says of it."""
    status = await s.engine.get_status(s.id)
    return transcript(await s.engine.queue(s.id)), status.paused, status.paused_by


async def stopped(s: Scenario, *queued: str) -> None:
    """A turn that the user stopped while its model was at it, with prompts behind it."""
    before = len(s.model.requests)
    first = await s.send("first")
    await asked(s.model, before + 1)
    for text in queued:
        assert (await s.send(text)).queued
    assert await s.engine.abort(s.id)
    assert (await first.wait()).status == "aborted"
    await ended(s.engine)


async def event(s: Scenario, name: str) -> None:
    await s.engine.events.receive("test", name, Routing(session_id=s.id), text=name)


@pytest.mark.rule("SR-10", "SR-7")
@pytest.mark.parametrize("kind", STORES)
async def test_an_abort_pauses_the_queue_and_a_restart_does_not_end_that(
    open_scenario: Open, tmp_path: Path, kind: str
) -> None:
    """What waits stays in its place; a person's next prompt runs at once, and ends the pause when it has ended well."""
    url = STORES[kind].format(tmp_path)
    async with open_scenario([hang()], url=url) as s:
        await s.begin()
        await stopped(s, "second", "third")
        assert await paused(s) == (["user: second", "user: third"], True, "abort")
        assert len(s.model.requests) == 1
    async with open_scenario([say("4"), say("2"), say("3")], url=url) as s:
        await s.begin()
        assert await paused(s) == (["user: second", "user: third"], True, "abort")
        assert s.model.requests == []
        await s.send("fourth")
        await ended(s.engine)
        lines = ["user: fourth", "assistant: 4", "user: second", "assistant: 2", "user: third", "assistant: 3"]
        assert (await s.transcript())[1:] == lines
        assert await paused(s) == ([], False, None)
        assert await s.check() == []


@pytest.mark.rule("SR-10")
async def test_continue_with_queue_starts_the_queue_and_nothing_else(open_scenario: Open) -> None:
    """The aborted turn stays as it is; where nothing waits there is nothing to continue."""
    async with open_scenario([hang(), say("2"), say("3")]) as s:
        await s.begin()
        first = await s.send("first")
        await asked(s.model, 1)
        await s.send("second")
        third = await s.send("third")
        await s.engine.abort(s.id)
        await first.wait()
        await ended(s.engine)
        assert (await s.engine.continue_turn(s.id, queue=True)).message_id != third.message_id
        assert (await third.wait()).status == "completed"
        assert await s.transcript() == [
            "user: first",
            "user: second",
            "assistant: 2",
            "user: third",
            "assistant: 3",
        ]
        assert await paused(s) == ([], False, None)
        with pytest.raises(NothingToContinue):
            await s.engine.continue_turn(s.id, queue=True)


@pytest.mark.rule("SR-10")
@pytest.mark.parametrize("mode", ["on", "again"])
async def test_going_on_with_the_stopped_turn_leaves_the_queue_stopped(
    open_scenario: Open, mode: Literal["on", "again"]
) -> None:
    """That is a word about the turn; the queue goes on with a prompt, or a word about itself."""
    async with open_scenario([hang(), say("1"), say("2")]) as s:
        await s.begin()
        await stopped(s, "second")
        assert (await (await s.engine.continue_turn(s.id, mode=mode)).wait()).status == "completed"
        await ended(s.engine)
        assert await s.transcript() == ["user: first", "assistant: 1"]
        assert await paused(s) == (["user: second"], True, "abort")
        await (await s.engine.continue_turn(s.id, queue=True)).wait()
        assert (await s.transcript())[-2:] == ["user: second", "assistant: 2"]


@pytest.mark.rule("SR-10")
async def test_a_prompt_that_is_queued_ends_the_pause_too(open_scenario: Open) -> None:
    """Sent while a trigger's turn runs beside the paused queue: all of it goes on behind that."""
    gate = Gate()
    async with open_scenario([hang(), [wait(gate), say("e")], say("2"), say("3")]) as s:
        await s.begin()
        await stopped(s, "second")
        await event(s, "one")
        await gate.reached.wait()
        status = await s.engine.get_status(s.id)
        assert (status.state, status.paused_by) == ("busy", "abort")
        last = await s.send("third")
        assert await paused(s) == (["user: second", "user: third"], False, None)
        gate.set()
        assert (await last.wait()).status == "completed"
        assert (await s.transcript())[-4:] == ["user: second", "assistant: 2", "user: third", "assistant: 3"]


@pytest.mark.rule("SR-10")
async def test_a_triggers_turn_fires_what_triggers_sent_and_nothing_else(open_scenario: Open) -> None:
    """The abort holds back what a trigger had sent, too: it goes on with the next of its kind."""
    async with open_scenario([hang(), say("e2"), say("e1"), say("2")]) as s:
        await s.begin()
        first = await s.send("first")
        await asked(s.model, 1)
        await s.send("second")
        await event(s, "e1")
        await s.engine.abort(s.id)
        await first.wait()
        await ended(s.engine)
        assert len(s.model.requests) == 1
        assert len(await s.engine.queue(s.id)) == 2
        await event(s, "e2")
        await ended(s.engine)
        assert [line for line in await s.transcript() if line.startswith("assistant")] == [
            "assistant: e2",
            "assistant: e1",
        ]
        assert await paused(s) == (["user: second"], True, "abort")
        assert (await (await s.engine.continue_turn(s.id, queue=True)).wait()).status == "completed"
        assert await s.check() == []


@pytest.mark.rule("SR-10")
async def test_a_restart_does_not_go_on_with_what_a_trigger_sent_before_an_abort(open_scenario: Open) -> None:
    """The abort holds it back over the restart, too; the next of its kind goes on with it."""
    async with open_scenario([hang()]) as s:
        await s.begin()
        first = await s.send("first")
        await event(s, "e1")
        await s.engine.abort(s.id)
        await first.wait()
    async with open_scenario([say("e2"), say("e1")]) as s:
        await s.begin()
        await napping(s.engine)
        await ended(s.engine)
        assert (s.model.requests, len(await s.engine.queue(s.id))) == ([], 1)
        await event(s, "e2")
        await answered(s.engine, 2)
        await ended(s.engine)
        assert (await s.transcript())[-1] == "assistant: e1"
        assert await paused(s) == ([], False, None)


@pytest.mark.rule("SR-10")
@pytest.mark.parametrize("queue", ["go_on", "interrupt"])
async def test_who_says_go_on_or_interrupts_does_not_pause(open_scenario: Open, queue: str) -> None:
    """Also where the queue was paused before: both are a person's word."""
    gate = Gate()
    async with open_scenario([hang(), [wait(gate), say("e")], say("x"), say("y")]) as s:
        await s.begin()
        await stopped(s, "second")
        await event(s, "one")
        await gate.reached.wait()
        if queue == "go_on":
            assert await s.engine.abort(s.id, queue="go_on")
            await s.send("now")
        else:
            await s.send("now", on_busy="interrupt")
        await ended(s.engine)
        assert await paused(s) == ([], False, None)
        order = ["second", "now"] if queue == "go_on" else ["now", "second"]
        assert [line for line in await s.transcript() if line.startswith("user")][-2:] == [f"user: {n}" for n in order]


@pytest.mark.rule("SR-10", "PM-6")
async def test_an_abort_of_what_waits_pauses_the_queue(open_scenario: Open) -> None:
    """While it waits the queue is held up by that; the abort denies, and holds it up from then on."""
    async with open_scenario([call("write", {"path": "a.txt", "content": "x"}), say("2")]) as s:
        await s.begin()
        await s.prompt("write")
        assert (await s.send("second")).queued
        assert await paused(s) == (["user: second"], True, "waiting")
        assert await s.engine.abort(s.id)
        assert await paused(s) == (["user: second"], True, "abort")
        assert (await s.transcript())[1].endswith("output-denied")
        assert len(s.model.requests) == 1


@pytest.mark.rule("SR-10")
async def test_an_abort_of_a_compaction_pauses_the_queue(tmp_path: Path) -> None:
    """What was queued behind it does not begin in its place."""
    gate = Gate()
    async with opened(tmp_path, summaries=[[wait(gate), say(summary("x"))]]) as s:
        await s.begin()
        await talk(s, 4, used=500)
        compacting = s.engine._runtime.sessions.work(s.engine.compact(s.id))
        await gate.reached.wait()
        assert (await s.send("next")).queued
        before = len(s.model.requests)
        assert await s.engine.abort(s.id)
        await ended(s.engine)
        assert compacting.exception() is not None
        assert (await paused(s), len(s.model.requests)) == ((["user: next"], True, "abort"), before)


@pytest.mark.rule("SR-7")
async def test_a_failure_and_a_restart_pause_alike_and_say_so(open_scenario: Open) -> None:
    """Each in its own word, until the last message is taken out of the queue: then nothing is paused."""
    gate = Gate()
    async with open_scenario([[wait(gate), fail(400)], say("more")]) as s:
        await s.begin()
        failing = await s.send("first")
        await s.send("second")
        gate.set()
        assert (await failing.wait()).status == "failed"
        assert await paused(s) == (["user: second"], True, "error")
        [waiting] = await s.engine.queue(s.id)
        await s.engine.cancel_queued(s.id, waiting.id)
        assert await paused(s) == ([], False, None)
    async with open_scenario([hang()]) as s:
        await s.begin()
        await s.send("third")
        await s.send("fourth")
        assert await paused(s) == (["user: fourth"], False, None)
    async with open_scenario([say("on")]) as s:
        await s.begin()
        # On a shared store whoever is there next goes on with a queue (RP-4).
        assert await paused(s) == (([], False, None) if ON_POSTGRESQL else (["user: fourth"], True, "restart"))


@pytest.mark.rule("SR-10")
async def test_whoever_watches_is_told_of_the_pause_and_of_its_end(open_scenario: Open) -> None:
    """By each status, that of a trigger's turn beside the paused queue included; by events, and in a list."""
    gate = Gate()
    async with open_scenario([hang(), [wait(gate), say("e")], say("2")]) as s:
        await s.begin()
        watched = s.engine.watch_status(s.id)
        events = s.engine.subscribe()

        async def until(state: str, paused_by: str | None) -> None:
            """Both tell it, sooner or later; a slow reader is shown how it is now."""
            async with asyncio.timeout(60):
                async for status in watched:
                    if (status.state, status.paused_by, status.paused) == (state, paused_by, paused_by is not None):
                        break
                async for one in events:
                    told = one.data.get("status", {})
                    if (told.get("state"), told.get("paused_by")) == (state, paused_by):
                        break

        await stopped(s, "second")
        await until("idle", "abort")
        await event(s, "one")
        await gate.reached.wait()
        await until("busy", "abort")
        assert (await s.engine.statuses([s.id]))[s.id] == await s.engine.get_status(s.id)
        gate.set()
        await until("idle", "abort")
        await s.engine.continue_turn(s.id, queue=True)
        await until("idle", None)


@pytest.mark.slow
@pytest.mark.rule("SR-10", "SR-7")
async def test_an_abort_at_the_moment_the_last_message_is_fired_leaves_no_pause_behind(open_scenario: Open) -> None:
    """Whichever comes first: a queue that is empty is not paused, and one that is not is."""
    for moment in range(40):
        async with open_scenario(ScriptedModel(otherwise=say("done")), url="memory:") as s:
            await s.begin()
            for words in ("one", "two", "three"):
                await s.send(words)
            for _ in range(moment):
                await asyncio.sleep(0)
            await s.engine.abort(s.id)
            await ended(s.engine)
            waits, is_paused, by = await paused(s)
            assert (moment, is_paused, by) == (moment, bool(waits), "abort" if waits else None)
