"""What a user is left with, whatever a wire does: the words, the ending, the bill, and a session that can go on."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.wire_cases import ANSWERS, BREAKS, RICH, WIRES, Wire, broken, phases
from tests.integration.wire_server import OPENAI, RESPONSES, Pause, Step, ok
from tests.integration.wire_table import cut, documented, judge, told
from tests.integration.wired import wired
from tests.rounds import ROUNDS

pytestmark = [pytest.mark.slow, pytest.mark.rule("RN-9", "US-1", "RN-8")]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try that failed is made again at once."""
    monkeypatch.setattr("clew.providers.retry._FIRST_MS", 1)


@pytest.mark.parametrize("wire", WIRES)
async def test_words_ending_bill_and_next_prompt_are_right_whatever_the_wire_does(wire: Wire) -> None:
    """Whole answers, refusals and a rich answer that is cut in each phase, as the documents tell of them."""
    async with wired(wire) as server:
        assert {name: row async for name, row in told(server, wire)} == documented(wire)


@pytest.mark.parametrize("wire", WIRES)
async def test_however_a_wire_breaks_it_comes_to_the_same(wire: Wire) -> None:
    """An end, a broken transport, garbage, an error, silence; in a campaign at each event."""
    counts = phases(wire)
    some = (counts["before the first word"], counts["in the words"])
    async with wired(wire) as server:
        for count in range(len(ANSWERS[RICH][wire])) if ROUNDS > 100 else some:
            for how in BREAKS:
                await judge(server, cut(wire, count, how, f"{how} after {count} events"))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_broken_answer_is_continued_without_what_was_cut(wire: Wire) -> None:
    """The step before it is sent with the result of its tool, which does not run again; the cut words are not sent."""
    whole = ANSWERS[RICH][wire]
    async with wired(wire) as server:
        for phase in ("in the thought", "in the words", "in the arguments"):
            session_id = await server.begin([*ok(), *whole], broken(wire, whole[: phases(wire)[phase]], "breaks"))
            assert (await server.prompt(session_id, "go"))[-1]["finishReason"] == "error"
            assert (await server.go_on(session_id))[-1] == {"type": "finish", "finishReason": "stop"}
            sent = str(server.wire.requests[-1].json)
            assert (sent.count("One two."), sent.count("noted 1"), server.ran, server.wire.refused) == (1, 1, [1], [])
            # Two calls that ended, and what the wire or the estimate says of the one that did not.
            spent = (await server.client.get("/api/usage?by=session")).json()
            (own,) = [group for group in spent["groups"] if group["key"] == session_id]
            assert (own["calls"], own["estimated"]) == (3, 1)


REFUSALS: dict[Wire, list[Step]] = {
    "openai": [*ok(), *(OPENAI.chunk({"refusal": word}) for word in ("I can", "not"))],
    "openai-responses": [*ok(), *RESPONSES.created(), *RESPONSES.message(0, "I can", "not", kind="refusal")[:4]],
}


@pytest.mark.parametrize("wire", REFUSALS)
async def test_an_abort_in_the_middle_of_a_refusal_keeps_its_words(wire: Wire) -> None:
    """They are in the stream, in the message and in the bill, though the library keeps them to itself until the end."""
    async with wired(wire) as server:
        session_id = await server.begin([*REFUSALS[wire], Pause(asyncio.Event())])
        following = asyncio.create_task(server.prompt(session_id, "go"))
        await server.wire.pausing.wait()
        for _ in range(100):  # what was sent before the silence is read by then
            await asyncio.sleep(0)
        assert (await server.client.post(f"/api/sessions/{session_id}/abort")).status == 202
        found = await server.found(session_id, await following)
        assert (found.text, found.stream, found.turn) == ("I cannot", "abort", ("aborted", "aborted by the user"))
        assert (found.usage.output > 0, found.estimated) == (True, True)
