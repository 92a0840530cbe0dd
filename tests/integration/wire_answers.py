"""Whole answers as they come over a wire, to be cut and spoiled."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from clew.providers.base import ProviderFailure
from clew.transcript import chunk as c
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESPONSES, Step, WireServer
from tests.integration.wire_talk import Items, Talk

ANTHROPIC_ANSWER = [
    ANTHROPIC.start(),
    *ANTHROPIC.thinking_block(0, "hm"),
    *ANTHROPIC.text_block(1, "Grüße ", "🙂"),
    *ANTHROPIC.tool_block(2, "toolu_0123456789abcdef", "read", '{"path":', '"ä"}'),
    *ANTHROPIC.stop("tool_use"),
]
OPENAI_ANSWER = [
    OPENAI.chunk({"reasoning_content": "hm"}),
    OPENAI.chunk({"content": "Grüße "}),
    OPENAI.chunk({"content": "🙂"}),
    OPENAI.call(0, "call_0123456789abcdef", "read", '{"path":'),
    OPENAI.call(0, None, None, '"ä"}'),
    OPENAI.chunk({}, "tool_calls"),
    OPENAI.usage(),
    OPENAI.done,
]
RESPONSES_ANSWER = [
    *RESPONSES.created(),
    *RESPONSES.reasoning(0, "hm"),
    *RESPONSES.message(1, "Grüße ", "🙂"),
    *RESPONSES.call(2, "call_0123456789abcdef", "read", '{"path":', '"ä"}'),
    RESPONSES.end(),
]
ANSWERS: dict[str, list[bytes]] = {
    "anthropic": ANTHROPIC_ANSWER,
    "openai-compatible": OPENAI_ANSWER,
    "openai-responses": RESPONSES_ANSWER,
}


@pytest.fixture(params=list(ANSWERS))
async def talk(request: pytest.FixtureRequest, wire: WireServer) -> AsyncIterator[Talk]:
    """The same on every wire."""
    made = Talk(wire, request.param)
    yield made
    await made.provider.close()


def answer(talk: Talk) -> list[bytes]:
    return ANSWERS[talk.provider.endpoint.kind]


async def failed(talk: Talk, *steps: Step, into: Items | None = None) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        await talk.play(*steps, into=into)
    return caught.value


def text_of(items: Items) -> str:
    return "".join(item.delta for item in items if isinstance(item, c.TextDelta))
