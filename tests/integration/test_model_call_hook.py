"""Every model call passes `before_model_call`: the table of call sites, changes on the wire, refusals."""

from __future__ import annotations

import ast
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.providers.base import CallPurpose, ModelRequest
from clew.providers.catalog import ModelFacts
from clew.providers.registry import ProviderConfig, ProviderRegistry
from tests.acceptance.compacting import summary
from tests.integration.http_client import AsgiClient, served
from tests.integration.wire_server import OPENAI, Arrived, Step, WireServer, ok

pytestmark = [pytest.mark.anyio, pytest.mark.rule("EM-7")]

SECRET = "hunter2"
CALL_SITES = {
    "session/model_calls.py": ["AskedCall.stream", "ask_text.ask_text"],
    "session/turn/loop.py": ["Loop._stream", "Loop._create_call"],
}
"""Where a provider or an ``AskedCall`` is asked, and where one is made. A new site needs the hook first."""
PURPOSES: tuple[CallPurpose, ...] = ("answer", "subagent", "title", "summary")


def _reply(request: Arrived) -> Sequence[Step]:
    """Delegate the first prompt to a subagent, and answer everything else in text."""
    messages = request.json["messages"]
    if request.json["model"] == "cheap" and "## Goal" in request.body.decode():
        return [*ok(), *OPENAI.text(summary("remember"))]
    if messages[-1]["role"] == "user" and "delegate" in str(messages[-1]["content"]):
        arguments = json.dumps({"prompt": f"work with {SECRET}"})
        return [*ok(), *OPENAI.calls(OPENAI.call(0, "c1", "task", arguments))]
    return [*ok(), *OPENAI.text("Fine.")]


@asynccontextmanager
async def _wired() -> AsyncIterator[tuple[WireServer, AsgiClient]]:
    async with WireServer(_reply) as wire:
        facts = {"m": ModelFacts(window=200_000, max_output=8_000), "cheap": ModelFacts(window=200_000)}
        config = ProviderConfig(
            kind="openai-compatible", base_url=f"{wire.url}/v1", api_key="k", models=facts, summariser="cheap"
        )
        registry = ProviderRegistry({"wired": config}, default_model="wired/m", environ={})
        rules = [clew.Rule("task", "*", "allow")]
        async with served(providers=registry, rules=rules) as client:
            yield wire, client


async def _every_call(client: AsgiClient) -> Any:
    """Cause a call of each purpose over HTTP; return how the compaction was answered."""
    session_id = await client.session()
    for text in (f"delegate {SECRET}", f"second {SECRET} " + "word " * 3_000, "third " + "word " * 3_000, "fourth"):
        await client.post(f"/api/sessions/{session_id}/prompt", {"text": text})
        await client.idle(session_id)
    compacted = await client.post(f"/api/sessions/{session_id}/compact")
    await client.engine.drain(10)
    return compacted


def test_every_model_call_site_is_known() -> None:
    """A provider's stream is opened in one place only, and that place is reached from two."""
    root, found = Path(clew.__file__).parent, dict[str, list[str]]()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).as_posix()
        if name.startswith(("testing/", "providers/")):
            continue
        tree = ast.parse(file.read_text())
        for outer in tree.body:
            for inner in outer.body if isinstance(outer, ast.ClassDef) else [outer]:
                calls = [node for node in ast.walk(inner) if isinstance(node, ast.Call)]
                # By whatever name the provider is called: `stream` with a request is its only method that asks it.
                asks = any(
                    isinstance(one.func, ast.Attribute) and one.func.attr == "stream" and one.args for one in calls
                )
                if asks or (
                    name != "session/model_calls.py" and "AskedCall" in map(ast.unparse, (one.func for one in calls))
                ):
                    found.setdefault(name, []).append(f"{getattr(outer, 'name', '')}.{getattr(inner, 'name', '')}")
    assert found == CALL_SITES


async def test_before_model_call_sees_title_summary_and_subagent_calls_and_its_change_is_what_is_sent() -> None:
    """A hook that redacts a secret: no request on the wire holds it, whatever the call was for."""
    seen: list[tuple[CallPurpose, bool]] = []

    async def redact(request: ModelRequest) -> ModelRequest:
        text = msgspec.json.encode([message.parts for message in request.messages]).decode()
        seen.append((request.purpose, SECRET in text))
        cleaned = json.loads(text.replace(SECRET, "[gone]"))
        messages = [
            msgspec.structs.replace(message, parts=parts)
            for message, parts in zip(request.messages, cleaned, strict=True)
        ]
        return msgspec.structs.replace(request, messages=messages)

    async with _wired() as (wire, client):
        client.engine.hook("before_model_call", redact)
        compacted = await _every_call(client)
    assert compacted.status == 200, compacted
    assert {purpose for purpose, held in seen if held} == set(PURPOSES)
    assert len(seen) == len(wire.requests)
    assert [request.json["model"] for request in wire.requests if SECRET in request.body.decode()] == []


@pytest.mark.parametrize("refused", PURPOSES)
async def test_a_hook_that_refuses_refuses_a_call_of_any_purpose(refused: CallPurpose) -> None:
    """What is refused does not reach the wire; calls of another purpose do."""
    allowed: list[CallPurpose] = []

    async def refuse(request: ModelRequest) -> None:
        if request.purpose == refused:
            raise ValueError("not this one")
        allowed.append(request.purpose)

    async with _wired() as (wire, client):
        client.engine.hook("before_model_call", refuse)
        await _every_call(client)
    assert len(wire.requests) == len(allowed)
    # Where no step is answered, nothing is delegated.
    assert set(allowed) == set(PURPOSES) - {refused} - ({"subagent"} if refused == "answer" else set())
