"""The queue by hand: what waits is said in other words, put in another order, sent now, held back and let go."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from clew.errors import Conflict, InvalidInput
from clew.testing.scenario import Scenario
from clew.testing.scripted import Gate, call, hang, say, wait
from tests.acceptance.triggered import asked, ended

from .conftest import Open
from .test_stop import STORES, event, paused

NOTE = {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": "data:text/plain;base64,"}


async def queued(s: Scenario, *texts: str) -> list[str]:
    """Prompts behind the one that runs, by their ids."""
    return [(await s.send(text)).message_id for text in texts]


@pytest.mark.rule("SR-7")
@pytest.mark.parametrize("kind", STORES)
async def test_what_waits_is_edited_and_reordered_and_that_survives_a_restart(
    open_scenario: Open, tmp_path: Path, kind: str
) -> None:
    """Each by its own words: the files of a message stay with it, and the store is sound."""
    url = STORES[kind].format(tmp_path)
    async with open_scenario([hang()], url=url) as s:
        await s.begin()
        await s.send("first")
        note = {**NOTE, "url": NOTE["url"] + base64.b64encode(b"a note").decode()}
        two = await s.engine.submit(s.id, [{"type": "text", "text": "second"}, note], message_id="mine")
        three, four = await queued(s, "third", "fourth")
        await s.engine.edit_queued(s.id, "mine", "second, in other words")
        await s.engine.move_queued(s.id, four, before="mine")
        await s.engine.move_queued(s.id, two.message_id)
        order = ["user: fourth", "user: third", "user: second, in other words"]
        waiting = await s.engine.queue(s.id)
        assert [part["type"] for part in waiting[-1].parts] == ["text", "file"]
        # Who sends it again means the message that was: it is not queued twice.
        with pytest.raises(Conflict):
            await s.engine.submit(s.id, [{"type": "text", "text": "second"}, note], message_id="mine")
        with pytest.raises(InvalidInput):
            await s.engine.edit_queued(s.id, three, "")
        assert (await paused(s))[0][:2] == order[:2]
        assert await s.check() == []
    async with open_scenario([say("4"), say("3"), say("2")], url=url) as s:
        await s.begin()
        assert (await paused(s))[0][:2] == order[:2]
        await s.engine.continue_turn(s.id, queue=True)
        await ended(s.engine)
        said = [line for line in await s.transcript() if line.startswith("user: ") and "file" not in line]
        assert said[1:] == order
        for gone in (three, four):
            for change in (
                s.engine.edit_queued(s.id, gone, "x"),
                s.engine.move_queued(s.id, gone),
                s.engine.send_queued(s.id, gone),
            ):
                with pytest.raises(Conflict):
                    await change
        assert await s.check() == []


@pytest.mark.rule("SR-6", "SR-7")
async def test_a_message_sent_now_goes_before_all_and_what_runs_makes_way(open_scenario: Open) -> None:
    """As a prompt that interrupts does: stored as the first of the queue, then what runs, or asks, is ended."""
    asks = call("write", {"path": "a.txt", "content": "x"})
    async with open_scenario([hang(), say("3"), asks, say("4")]) as s:
        await s.begin()
        first = await s.send("first")
        await asked(s.model, 1)
        [two, three, four] = await queued(s, "second", "third", "fourth")
        assert (await s.engine.send_queued(s.id, three)).queued
        outcome = await first.wait()
        assert (outcome.status, outcome.stopped) == ("aborted", "interrupted by a new prompt")
        async for status in s.engine.watch_status(s.id):
            if status.waiting:
                break
        assert (await paused(s))[0] == ["user: fourth"]
        await s.engine.send_queued(s.id, four)
        await ended(s.engine)
        said = [line for line in await s.transcript() if line.startswith("user: ")]
        assert said == ["user: first", "user: third", "user: second", "user: fourth"]
        assert (await paused(s), two != three) == (([], False, None), True)
        assert await s.check() == []


@pytest.mark.rule("SR-10", "SR-7")
async def test_what_a_person_has_paused_waits_until_a_person_says_go_on(open_scenario: Open) -> None:
    """Neither the end of the turn, nor a trigger, nor another prompt fires it; what is sent now alone runs."""
    gate = Gate()
    async with open_scenario([[wait(gate), say("1")], say("4"), say("3"), say("2"), say("e")]) as s:
        await s.begin()
        first = await s.send("first")
        [_, three] = await queued(s, "second", "third")
        await s.engine.pause_queue(s.id)
        await event(s, "event")
        gate.set()
        await first.wait()
        await ended(s.engine)
        held = ["user: second", "user: third", "user: event"]
        assert await paused(s) == (held, True, "person")
        await (await s.send("fourth")).wait()
        await (await s.engine.send_queued(s.id, three)).wait()
        await s.engine.abort(s.id)
        await ended(s.engine)
        assert await paused(s) == (["user: second", "user: event"], True, "person")
        await s.engine.pause_queue(s.id, paused=False)
        await ended(s.engine)
        said = [line for line in await s.transcript() if line.startswith("user: ")]
        assert said[:4] == ["user: first", "user: fourth", "user: third", "user: second"]
        assert (await paused(s), len(said)) == (([], False, None), 5)
        await s.engine.pause_queue(s.id)
        assert await paused(s) == ([], False, None)


@pytest.mark.rule("SR-7")
async def test_what_a_trigger_sent_is_not_said_in_other_words(open_scenario: Open) -> None:
    """It is what came from outside, and is cancelled or left as it is."""
    async with open_scenario([hang()]) as s:
        await s.begin()
        await s.send("first")
        await event(s, "event")
        [waiting] = await s.engine.queue(s.id)
        with pytest.raises(Conflict, match="trigger"):
            await s.engine.edit_queued(s.id, waiting.id, "mine")


@pytest.mark.rule("SR-10", "SR-7")
async def test_a_queue_that_two_have_emptied_at_once_is_not_paused(open_scenario: Open) -> None:
    """Each of them saw the other's message wait; what is sent next would never be fired."""
    gate = Gate()
    async with open_scenario([[wait(gate), say("1")], say("4")]) as s:
        await s.begin()
        await s.send("first")
        waiting = await queued(s, "second", "third")
        await s.engine.pause_queue(s.id)
        await asyncio.gather(*(s.engine.cancel_queued(s.id, one) for one in waiting))
        assert await paused(s) == ([], False, None)
        last = await s.send("fourth")
        gate.set()
        assert (await last.wait()).status == "completed"


@pytest.mark.rule("SR-6")
@pytest.mark.parametrize("how", ["send_queued", "interrupt"])
async def test_a_message_that_has_begun_by_itself_is_not_stopped_for_its_own_sake(
    open_scenario: Open, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What runs ends at the very moment it is to make way."""
    gate, begun = Gate(), Gate()
    async with open_scenario([[wait(gate), say("1")], [wait(begun), say("2")]]) as s:
        await s.begin()
        await s.send("first")
        runner = s.engine._runtime.runner
        stop = runner._stop_live

        async def stop_late(session_id: str, reason: str, to: str | None = None) -> bool:
            gate.set()
            # Whoever holds the session while this is done keeps the next one from beginning.
            if not runner._sessions.lock(session_id).locked():
                await begun.reached.wait()
            stopped = await stop(session_id, reason, to)
            begun.set()
            return stopped

        monkeypatch.setattr(runner, "_stop_live", stop_late)
        if how == "interrupt":
            second = await s.send("second", on_busy="interrupt")
        else:
            second = await s.engine.send_queued(s.id, (await queued(s, "second"))[0])
        assert (await second.wait()).status == "completed"
