"""What the engine sends a provider again and again, as it goes over the wire: once, and the same each time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.engine import Engine
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESPONSES, WireServer, ok
from tests.integration.wire_talk import wire

__all__ = ["wire"]

SPEAKS: dict[str, list[bytes]] = {
    "anthropic": ANTHROPIC.text("fine"),
    "openai": OPENAI.text("fine"),
    "openai-responses": RESPONSES.text("fine"),
}


@asynccontextmanager
async def opened(wire: WireServer, kind: str, folder: Path) -> AsyncIterator[tuple[Engine, str]]:
    """An engine whose model is behind the wire, and a session in a folder."""
    wire.always(*ok(), *SPEAKS[kind])
    address = wire.url if kind == "anthropic" else f"{wire.url}/v1"
    provider = {"kind": kind, "base_url": address, "api_key": "sk-a-key", "models": {"m": {"window": 100_000}}}
    config = clew.Config(providers={"far": provider}, default_model="far/m")
    async with clew.open("memory:", config=config) as engine:
        session = await engine.create_session(title="named", workspace_root=folder)
        yield engine, session.id


async def say(engine: Engine, session_id: str, text: str) -> str:
    outcome = await (await engine.submit(session_id, text)).wait()
    assert outcome.status == "completed", outcome
    return outcome.turn_id


def tools_of(body: Any) -> list[Any]:
    """The tools of a request, whatever the wire calls their fields."""
    return [tool.get("function", tool) for tool in body["tools"]]


@pytest.mark.rule("SP-1")
@pytest.mark.parametrize("kind", SPEAKS)
async def test_a_tool_is_told_once_in_a_request_and_the_evidence_names_it(
    wire: WireServer, kind: str, tmp_path: Path
) -> None:
    """It goes as a tool, not as text of the prompt as well; what was sent is proven all the same."""
    async with opened(wire, kind, tmp_path) as (engine, session_id):
        turn_id = await say(engine, session_id, "hello")
        body, report = wire.requests[0].json, await engine.request(turn_id)
    tools = tools_of(body)
    names = [tool["name"] for tool in tools]
    assert {"bash", "edit", "grep", "read", "write"} <= set(names)
    sent = json.dumps(body, ensure_ascii=False)
    told = {tool["name"]: sent.count(json.dumps(tool["description"].split("\n")[0])[1:-1]) for tool in tools}
    assert told == dict.fromkeys(names, 1)
    assert [tool.name for tool in report.tools] == names
    assert (report.proven, report.prompt[-1].name) == (True, "tools")
    assert all(f"## {name}\n" in report.prompt[-1].text for name in names)
