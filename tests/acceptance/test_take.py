"""Taking a session: on every way to a run, each call the model is told of has a result, in truthful words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import clew
from clew.providers.base import ModelRequest
from clew.session.prompt.submission import Submission
from clew.testing.scenario import Scenario
from clew.testing.scripted import call, say
from clew.transcript.part import error_text, is_call, is_open_call
from clew.triggers.values.routing import Routing
from tests.acceptance.errands import allow
from tests.acceptance.triggered import ended

from .conftest import Open

BY_USER = "aborted by the user; its effects are unknown"
BY_PROMPT = "interrupted by a new prompt; its effects are unknown"
BY_RESTART = "aborted by host restart; its effects are unknown"


class Digging:
    """A tool that digs until it is told not to, and says when it has begun."""

    def __init__(self) -> None:
        self.started = asyncio.Event()

        @clew.tool
        async def dig(context: clew.ToolContext) -> str:
            """Dig until told not to."""
            self.started.set()
            await context.signal.wait()
            return "late"

        self.tool = dig

    async def begin(self, s: Scenario, **fields: Any) -> Submission:
        """A turn whose call runs and has no result."""
        await s.begin(**fields)
        await allow(s, "dig")
        submission = await s.send("dig")
        await self.started.wait()
        return submission

    async def cut_off(self, s: Scenario) -> None:
        """A turn that the user aborted in the middle of its call; nobody has taken the session since."""
        submission = await self.begin(s)
        assert await s.engine.abort(s.id)
        assert (await submission.wait()).status == "aborted"
        assert await s.transcript() == ["user: dig", "dig {} → input-available"]


def results(request: ModelRequest) -> list[str | None]:
    """What each call of a request came to; an open one fails."""
    calls = [part for message in request.messages for part in message.parts if is_call(part)]
    assert not any(map(is_open_call, calls)), calls
    return [error_text(part) for part in calls]


async def by_prompt(s: Scenario) -> None:
    await s.send("go on")


async def by_event(s: Scenario) -> None:
    await s.engine.events.receive("test", "1", Routing(session_id=s.id), text="look")


async def by_schedule(s: Scenario) -> None:
    routing = Routing(session_id=s.id)
    schedule = await s.engine.schedules.add("0 0 1 1 *", "look", routing=routing)
    await s.engine.schedules.run(schedule.id)


Way = Callable[[Scenario], Awaitable[None]]


@pytest.mark.rule("SR-9", "SR-4")
@pytest.mark.parametrize("way", [by_prompt, by_event, by_schedule])
async def test_who_comes_after_an_abort_finds_the_call_settled(open_scenario: Open, way: Way) -> None:
    """The request that follows tells the model who cut the call off."""
    digging = Digging()
    async with open_scenario([call("dig", {}), say("fine")], tools=[digging.tool]) as s:
        await digging.cut_off(s)
        await way(s)
        await ended(s.engine)
        assert results(s.model.requests[1]) == [BY_USER]
        assert (await s.transcript())[-1] == "assistant: fine"
        assert await s.check() == []


@pytest.mark.rule("SR-9")
@pytest.mark.parametrize("way", [by_prompt, by_event, by_schedule])
async def test_what_was_queued_behind_an_abort_finds_the_call_settled(open_scenario: Open, way: Way) -> None:
    """The queue fires by itself at the end of the aborted turn, and takes the session like everybody."""
    digging = Digging()
    async with open_scenario([call("dig", {}), say("fine")], tools=[digging.tool]) as s:
        await digging.begin(s)
        await way(s)
        assert len(await s.engine.queue(s.id)) == 1
        assert await s.engine.abort(s.id, queue="go_on")
        await ended(s.engine)
        assert results(s.model.requests[1]) == [BY_USER]
        assert (await s.transcript())[-1] == "assistant: fine"
        assert await s.check() == []


@pytest.mark.rule("SR-9", "SR-6")
async def test_an_interrupt_settles_the_call_it_interrupts(open_scenario: Open) -> None:
    """In its own words: it was no abort of the user's."""
    digging = Digging()
    async with open_scenario([call("dig", {}), say("fine")], tools=[digging.tool]) as s:
        await digging.begin(s)
        submission = await s.send("stop that", on_busy="interrupt")
        assert (await submission.wait()).status == "completed"
        assert results(s.model.requests[1]) == [BY_PROMPT]
        assert await s.transcript() == [
            "user: dig",
            f"dig {{}} → error: {BY_PROMPT}",
            "user: stop that",
            "assistant: fine",
        ]
        assert await s.check() == []


@pytest.mark.rule("SR-9", "SR-4")
async def test_continue_settles_the_call_that_was_cut_off(open_scenario: Open) -> None:
    """It goes on after the step that made the call, which the model is told the end of."""
    digging = Digging()
    async with open_scenario([call("dig", {}), say("fine")], tools=[digging.tool]) as s:
        await digging.cut_off(s)
        submission = await s.engine.continue_turn(s.id)
        assert (await submission.wait()).status == "completed"
        assert results(s.model.requests[1]) == [BY_USER]
        assert await s.transcript() == ["user: dig", f"dig {{}} → error: {BY_USER}", "assistant: fine"]
        assert await s.check() == []


@pytest.mark.rule("SR-9", "RW-1")
@pytest.mark.parametrize("options", [{}, {"mode": "edit", "text": "dig less"}])
async def test_going_back_and_running_settles_the_call(open_scenario: Open, options: dict[str, Any]) -> None:
    """A rewind to the second prompt leaves the first on the line, whose call was never taken up again."""
    digging = Digging()
    script = [call("dig", {}), say("fine"), say("better")]
    async with open_scenario(script, tools=[digging.tool]) as s:
        await digging.cut_off(s)
        await s.prompt("go on")
        asked = (await s.engine.messages(s.id))[2].id
        rewound = await s.engine.rewind(s.id, asked, run=True, **options)
        assert rewound.submission is not None
        assert (await rewound.submission.wait()).status == "completed"
        assert results(s.model.requests[2]) == [BY_USER]
        assert await s.check() == []


@pytest.mark.rule("SR-9", "PM-6")
async def test_answers_settle_every_call_of_the_step(open_scenario: Open) -> None:
    """One allowed and one denied: the request that follows has a result for each, and for what was cut off before."""
    digging = Digging()

    @clew.tool
    async def fetch(name: str) -> str:
        """Fetch something."""
        return f"here is {name}"

    script = [call("dig", {}), [call("fetch", {"name": "a"}), call("fetch", {"name": "b"})], say("done")]
    async with open_scenario(script, tools=[digging.tool, fetch]) as s:
        await digging.cut_off(s)
        await s.prompt("fetch both")
        one, two = (await s.engine.get_status(s.id)).waiting
        assert one.approval_id is not None
        assert two.approval_id is not None
        assert await s.engine.answer(s.id, one.approval_id, "once") == 1
        assert await s.engine.answer(s.id, two.approval_id, "deny", "not that one") == 0
        await ended(s.engine)
        assert results(s.model.requests[1]) == [BY_USER]
        assert results(s.model.requests[2]) == [BY_USER, None, None]
        assert (await s.transcript())[-3:] == [
            'fetch {"name":"a"} → "here is a"',
            'fetch {"name":"b"} → output-denied',
            "assistant: done",
        ]
        assert await s.check() == []


@pytest.mark.rule("SR-9", "SR-4")
async def test_a_restart_does_not_change_who_cut_a_call_off(open_scenario: Open) -> None:
    """What the user aborted reads so at once after a restart, and so does the model."""
    digging = Digging()
    async with open_scenario([call("dig", {})], tools=[digging.tool]) as s:
        await digging.cut_off(s)
    async with open_scenario([say("fine")]) as s:
        await s.begin()
        assert await s.transcript() == ["user: dig", f"dig {{}} → error: {BY_USER}"]
        await s.prompt("go on")
        assert results(s.model.requests[0]) == [BY_USER]
        assert await s.check() == []


@pytest.mark.rule("SR-9", "SR-4")
async def test_a_call_that_the_host_left_behind_says_so(open_scenario: Open) -> None:
    """Closing an engine aborts its runs, and that was nobody's word but the host's."""
    digging = Digging()
    async with open_scenario([call("dig", {})], tools=[digging.tool]) as s:
        await digging.begin(s)
    async with open_scenario([say("fine")]) as s:
        await s.begin()
        assert await s.transcript() == ["user: dig", f"dig {{}} → error: {BY_RESTART}"]
        await s.prompt("go on")
        assert results(s.model.requests[0]) == [BY_RESTART]
        assert await s.check() == []
