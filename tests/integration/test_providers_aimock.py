"""An independent pass: a provider mock that nobody here wrote plays OpenAI and Anthropic for the adapter.

``wire_server`` speaks these wires as we understand them; ``@copilotkit/aimock`` speaks them as somebody else does. A
conversation with reasoning, a tool call and its result has to come out the same.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clew.providers.base import ModelRequest, ProviderFailure, StepEnd, ToolSchema, UsageUpdate
from clew.providers.pydantic_ai import Endpoint, PydanticAIProvider
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.usage import Usage

pytestmark = [pytest.mark.node, pytest.mark.slow]

NODE = Path(__file__).parents[1] / "node"
MOCK = NODE / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
KINDS = ["anthropic", "openai", "openai-compatible", "openai-responses", "ollama"]
WEATHER = ToolSchema(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
FIRST = {"prompt_tokens": 120, "completion_tokens": 30, "total_tokens": 150, "input_tokens": 120, "output_tokens": 30}
SECOND = {"prompt_tokens": 160, "completion_tokens": 8, "total_tokens": 168, "input_tokens": 160, "output_tokens": 8}
FIXTURES: dict[str, Any] = {
    "fixtures": [
        {
            "match": {"userMessage": "weather", "hasToolResult": False},
            "response": {
                "content": "Let me look — at Tromsø.",
                "reasoning": "I need the tool.",
                "toolCalls": [{"name": "get_weather", "arguments": '{"city":"Tromsø"}', "id": "call_1"}],
                "usage": FIRST,
            },
        },
        {
            "match": {"userMessage": "weather", "hasToolResult": True},
            "response": {"content": "It is cold in Tromsø.", "usage": SECOND},
        },
        {
            "match": {"userMessage": "limit"},
            "response": {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429},
        },
    ]
}


@pytest.fixture
async def mock_url(tmp_path: Path) -> AsyncIterator[str]:
    """A running mock on a port of its own."""
    if not await asyncio.to_thread(MOCK.is_file):
        pytest.fail("aimock is not installed in tests/node: run make test, which installs it", pytrace=False)
    fixtures = tmp_path / "fixtures.json"
    await asyncio.to_thread(fixtures.write_text, json.dumps(FIXTURES), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *("node", str(MOCK), "--port", "0", "--host", "127.0.0.1", "--fixtures", str(fixtures), "--chunk-size", "4"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        seen = b""
        while (found := re.search(rb"listening on (http://[\d.:]+)", seen)) is None:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert line, seen.decode()
            seen += line
        yield found[1].decode()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def provider(url: str, kind: Any) -> PydanticAIProvider:
    base_url = url if kind == "anthropic" else f"{url}/v1"
    return PydanticAIProvider(Endpoint(provider_id="mock", kind=kind, base_url=base_url, api_key="k" * 20))


def request(*messages: Message) -> ModelRequest:
    return ModelRequest(model=Model("mock", "some-model"), system="Be brief.", messages=messages, tools=(WEATHER,))


def user(text: str) -> Message:
    return Message("m1", "user", [{"type": "text", "text": text}], {})


async def step(fold: Fold, made: PydanticAIProvider, asked: ModelRequest) -> StepEnd:
    """One step, folded as a run does it."""
    fold.apply(c.StartStep())
    async for item in made.stream(asked):
        if isinstance(item, StepEnd):
            return item
        if not isinstance(item, UsageUpdate):
            fold.apply(item)
    raise AssertionError("the stream ended without saying how")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_conversation_with_a_tool(mock_url: str, kind: str) -> None:
    """Two steps of one message: reasoning, words and a call; then, with the result, the answer."""
    made = provider(mock_url, kind)
    asked = user("what is the weather in Tromsø?")
    fold = Fold("a1")
    first = await step(fold, made, request(asked))
    (call,) = [part for part in fold.parts if "toolCallId" in part]
    fold.apply(c.ToolOutputAvailable(call["toolCallId"], {"celsius": -3}))
    fold.apply(c.FinishStep())
    second = await step(fold, made, request(asked, Message("a1", "assistant", fold.parts, {})))
    fold.apply(c.FinishStep())
    await made.close()
    shown = ("type", "text", "state", "input", "output")
    kept = [{key: part[key] for key in shown if key in part} for part in fold.parts]
    assert kept == [
        {"type": "step-start"},
        {"type": "reasoning", "text": "I need the tool.", "state": "done"},
        {"type": "text", "text": "Let me look — at Tromsø.", "state": "done"},
        {
            "type": "tool-get_weather",
            "state": "output-available",
            "input": {"city": "Tromsø"},
            "output": {"celsius": -3},
        },
        {"type": "step-start"},
        {"type": "text", "text": "It is cold in Tromsø.", "state": "done"},
    ]
    assert (first.usage, first.finish_reason) == (Usage(input=120, output=30), "tool-calls")
    assert (second.usage, second.finish_reason) == (Usage(input=160, output=8), "stop")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rate_limit(mock_url: str, kind: str) -> None:
    """The mock's way of refusing is understood, too."""
    made = provider(mock_url, kind)
    with pytest.raises(ProviderFailure, match="mock answered 429: slow down") as caught:
        await anext(made.stream(request(user("limit"))))
    assert (caught.value.kind, caught.value.status) == ("transient", 429)
    await made.close()
