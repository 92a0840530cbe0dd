"""The provider of ``examples/``, over a real connection: refused, asked again, a call and its result, an answer cut."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import clew
from examples.own_provider import LineServer

BUSY = [{"busy": "come back later"}]
CALL = [
    {"text": "Let me see."},
    {"call": {"id": "c1", "tool": "look", "arguments": {"n": 7}}},
    {"end": {"read": 10, "said": 5}},
]
ANSWER = [{"text": "It is "}, {"text": "seven."}, {"end": {"read": 20, "said": 3}}]
CUT = [{"text": "It is"}]


@clew.tool
def look(n: int) -> str:
    """Look at a number."""
    return f"looked at {n}"


@pytest.mark.rule("EM-1")
async def test_a_provider_of_the_hosts_own_is_retried_counted_and_never_taken_for_whole_when_cut() -> None:
    """The server hears the whole conversation, the tool's result included."""
    script: list[list[Any]] = [BUSY, CALL, ANSWER, CUT]
    heard: list[Any] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(json.loads(await reader.readline()))
        writer.writelines(json.dumps(piece).encode() + b"\n" for piece in script[len(heard) - 1])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    provider = LineServer("127.0.0.1", server.sockets[0].getsockname()[1])
    rules = [clew.Rule("look", "*", "allow")]
    async with server, clew.open("memory:", providers={"line": provider}, tools=[look], rules=rules) as engine:
        session = await engine.create_session(model="line/small")
        outcome = await (await engine.submit(session.id, "Which?")).wait()
        said = (await engine.messages(session.id))[-1]
        assert (outcome.status, said.texts) == ("completed", ["Let me see.", "It is seven."])
        assert [part["output"] for part in said.parts if part["type"] == "tool-look"] == ["looked at 7"]
        assert "looked at 7" in json.dumps(heard[2]["said"])
        spend = (await engine.get_session(session.id)).spend
        assert (spend.calls, spend.tokens) == (3, 38)  # the refusal is a call, too
        outcome = await (await engine.submit(session.id, "Again?")).wait()
        assert (outcome.status, (await engine.messages(session.id))[-1].texts) == ("failed", ["It is"])
