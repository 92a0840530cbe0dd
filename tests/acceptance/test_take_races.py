"""Taking, closing and deleting at an awkward moment: nothing is left behind, and nobody waits for ever."""

from __future__ import annotations

import pytest

import clew
from clew.testing.scripted import Gate, call, chunks, say, wait
from clew.transcript import chunk as c
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
