"""What a model call costs when it breaks off, as Anthropic's wire has it and HTTP tells it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

import clew
from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.store.unit import PatchSession, Unit
from clew.testing.scripted import FakeProviders, Gate
from tests.integration.http_client import HOST, TOKEN, AsgiClient
from tests.integration.wire_server import ANTHROPIC, RESET, Pause, Step, WireServer, ok
from tests.integration.wire_talk import Talk, wire

__all__ = ["wire"]

pytestmark = [pytest.mark.service, pytest.mark.rule("US-1", "US-5")]

START = ANTHROPIC.start(input_tokens=14_000, cache_read_input_tokens=350)
COUNTS = {"input": 14_000, "output": 1, "reasoning": 0, "cache_read": 350, "cache_write": 0}
FORTY = "forty characters of an answer, no more.."


@contextlib.asynccontextmanager
async def talking(wire: WireServer, *tools: Any) -> AsyncIterator[tuple[AsgiClient, str]]:
    talk = Talk(wire, "anthropic")
    providers = FakeProviders({"anthropic": talk.provider}, default="anthropic/some-model")
    async with clew.open("memory:", config=clew.Config(), providers=providers, tools=tools) as engine:
        streams = Streams()
        client = AsgiClient(make_app(engine, token=TOKEN, hosts={HOST}, streams=streams), engine, streams)
        session = await client.session(title="spend")
        allowed = ({"permission": "*", "pattern": "*", "action": "allow"},)
        await engine.store.commit(Unit(session, (PatchSession(permissions=allowed),)))
        yield client, session


async def told(client: AsgiClient, session: str) -> tuple[Any, int, int, dict[str, Any]]:
    """The usage of the answer, the sums and the spend of the session, and the sum over all calls."""
    row = (await client.get(f"/api/sessions/{session}")).json()
    total = (await client.get("/api/usage?by=model")).json()["total"]
    message = (await client.messages(session))[-1]
    return message["metadata"].get("usage"), row["total_tokens"], row["spend"]["tokens"], total


async def has_come(client: AsgiClient, session: str, words: bool) -> bool:
    """Whether what the wire has sent is stored."""
    [call] = await client.engine.store.open_model_calls(session) or [None]
    parts = (await client.messages(session))[-1]["parts"]
    return call is not None and call.usage.input == 14_000 and (not words or len(parts) > 1)


PHASES: dict[str, tuple[list[bytes], dict[str, int]]] = {
    "before the first word": ([], {}),
    "in reasoning": (ANTHROPIC.thinking_block(0, FORTY)[:2], {"reasoning": 11}),
    "in text": (ANTHROPIC.text_block(0, FORTY)[:2], {"output": 11}),
    "in arguments": (ANTHROPIC.tool_block(0, "c", "pause", '{"x":"seventeen more chr')[:2], {"output": 9}),
}


@pytest.mark.parametrize(
    ("phase", "end"),
    # What is cut before its first word is asked again.
    [*((phase, "abort") for phase in PHASES), *((phase, "cut") for phase in PHASES if phase.startswith("in "))],
)
async def test_a_call_that_breaks_off_costs_what_the_wire_had_said(wire: WireServer, phase: str, end: str) -> None:
    """And an estimate of the rest, marked, in every place that tells of it."""
    gate, (said, more) = asyncio.Event(), PHASES[phase]
    steps: list[Step] = [*ok(), START, *said, Pause(gate), RESET]
    wire.reply(*steps)
    used = {**COUNTS, **more}
    async with talking(wire) as (client, session):
        sent = asyncio.create_task(client.prompt(session, "go"))
        await wire.pausing.wait()
        while not await has_come(client, session, bool(said)):
            pass
        if end == "abort":
            await client.post(f"/api/sessions/{session}/abort")
        else:
            gate.set()
        await sent
        await client.idle(session)
        usage, sums, spend, total = await told(client, session)
        assert (usage, sums, spend) == ({**used, "estimated": True}, sum(used.values()), sum(used.values()))
        assert (total["calls"], total["estimated"]) == (1, 1)


async def test_a_call_whose_tool_is_aborted_costs_what_the_wire_said(wire: WireServer) -> None:
    """All of it: the call had ended. This showed as nothing once."""
    gate = Gate()

    @clew.tool
    async def pause() -> str:
        """Wait."""
        await gate.wait()
        return "rested"

    wire.reply(
        *ok(), START, *ANTHROPIC.tool_block(0, "c", "pause", "{}"), *ANTHROPIC.stop("tool_use", output_tokens=20)
    )
    async with talking(wire, pause) as (client, session):
        sent = asyncio.create_task(client.prompt(session, "go"))
        await gate.reached.wait()
        running = await told(client, session)
        await client.post(f"/api/sessions/{session}/abort")
        await sent
        await client.idle(session)
        used = {**COUNTS, "output": 20}
        total = {**used, "calls": 1, "cost_usd": 0.0, "estimated": 0, "unpriced": 1}
        assert running == await told(client, session) == (used, 14_370, 14_370, total)
