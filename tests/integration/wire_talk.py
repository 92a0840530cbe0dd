"""Talking to a model over a wire of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from clew.providers.base import EndpointKind, ModelRequest, StepEnd, UsageUpdate
from clew.providers.pydantic_ai import Endpoint, PydanticAIProvider
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESPONSES, Step, WireServer, ok

Items = list[Chunk | StepEnd]
IDS: dict[EndpointKind, str] = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openai-responses": "openai",
    "openai-compatible": "local",
    "openrouter": "openrouter",
}


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer() as server:
        yield server


class Talk:
    """A provider that reaches the server."""

    def __init__(self, wire: WireServer, kind: EndpointKind, **options: Any) -> None:
        base_url = wire.url if kind == "anthropic" else f"{wire.url}/v1"
        endpoint = Endpoint(provider_id=IDS[kind], kind=kind, base_url=base_url, api_key="sk-a-key-to-hide")
        self.wire = wire
        self.said: list[Usage] = []
        self.provider = PydanticAIProvider(endpoint, **options)

    def request(self, *messages: Message, **fields: Any) -> ModelRequest:
        model = fields.pop("model", Model(self.provider.endpoint.provider_id, "some-model"))
        return ModelRequest(model=model, messages=messages or (user("hello"),), **{"system": "", **fields})

    async def play(self, *steps: Step, asked: ModelRequest | None = None, into: Items | None = None) -> Items:
        """What becomes of one reply; every chunk is checked by the fold."""
        self.wire.reply(*steps)
        got: Items = [] if into is None else into
        self.said = []
        fold = Fold("answer")
        fold.apply(c.StartStep())
        async for item in self.provider.stream(asked or self.request()):
            if isinstance(item, UsageUpdate):
                self.said.append(item.usage)
                continue
            if not isinstance(item, StepEnd):
                fold.apply(item)
            got.append(item)
        fold.apply(c.FinishStep())
        return got

    async def body(self, *messages: Message, **fields: Any) -> Any:
        """What the provider is sent for these messages."""
        speaks: dict[str, list[bytes]] = {"anthropic": ANTHROPIC.text("ok"), "openai-responses": RESPONSES.text("ok")}
        text = speaks.get(self.provider.endpoint.kind, OPENAI.text("ok"))
        await self.play(*ok(), *text, asked=self.request(*messages, **fields))
        return self.wire.requests[-1].json


@pytest.fixture
async def anthropic(wire: WireServer) -> AsyncIterator[Talk]:
    talk = Talk(wire, "anthropic")
    yield talk
    await talk.provider.close()


@pytest.fixture
async def openai(wire: WireServer) -> AsyncIterator[Talk]:
    talk = Talk(wire, "openai-compatible")
    yield talk
    await talk.provider.close()


def user(text: str, id: str = "m1") -> Message:
    return Message(id, "user", [{"type": "text", "text": text}], {})


def assistant(*parts: dict[str, Any], id: str = "a1") -> Message:
    return Message(id, "assistant", list(parts), {})


def calls_of(items: Items) -> list[Chunk]:
    return [item for item in items if isinstance(item, c.ToolInputAvailable | c.ToolInputError)]
