"""How an answer ended, told truthfully in the stream, the turn and the message, and how it goes on."""

from __future__ import annotations

from typing import Any

import pytest

from clew.errors import NothingToContinue
from clew.session.turn.continuation import GO_ON
from clew.testing.scripted import say, then

from .conftest import Open


@pytest.mark.rule("RN-9")
@pytest.mark.parametrize(
    ("reason", "stopped"),
    [("length", "length"), ("content-filter", "content_filter"), ("error", "error"), ("other", "other")],
)
async def test_an_answer_that_is_not_whole_does_not_look_complete(
    open_scenario: Open, reason: Any, stopped: str
) -> None:
    """The model's own word for it goes all the way."""
    async with open_scenario([then(say("half an ans"), finish=reason), say("hello")]) as s:
        await s.begin()
        chunks = await s.prompt("talk")
        assert chunks[-1] == {"type": "finish", "finishReason": reason}
        message = (await s.engine.messages(s.id))[-1]
        assert message.metadata["turn"] == {"status": "completed", "stopped": stopped}
        (step,) = (await s.engine.turn(message.metadata["turn_id"])).steps
        assert step.finish_reason == reason
        await s.prompt("next")
        assert (await s.transcript())[-1] == "assistant: hello"
        assert await s.check() == []


@pytest.mark.rule("RN-9")
@pytest.mark.parametrize("reason", ["length", "other"])
async def test_a_cut_answer_goes_on_in_the_same_turn(open_scenario: Open, reason: Any) -> None:
    """The history that is sent does not end in the model's own words, and nothing is asked again."""
    async with open_scenario([then(say("one two thr"), finish=reason), say("ee four")]) as s:
        await s.begin()
        await s.prompt("count")
        outcome = await (await s.engine.continue_turn(s.id)).wait()
        assert (outcome.status, outcome.stopped) == ("completed", None)
        assert await s.transcript() == ["user: count", "assistant: one two thr", f"user: {GO_ON}", "assistant: ee four"]
        assert [message.role for message in s.model.requests[-1].messages] == ["user", "assistant", "user"]
        assert len({message.metadata["turn_id"] for message in await s.engine.messages(s.id)}) == 1
        with pytest.raises(NothingToContinue):
            await s.engine.continue_turn(s.id)
        assert await s.check() == []
