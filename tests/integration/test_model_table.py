"""The kept table of models against the libraries that know them."""

from __future__ import annotations

import asyncio

import pytest

from clew.providers.base import ModelRequest, ProviderFailure
from clew.providers.catalog import families
from clew.providers.pydantic_ai import Endpoint, PydanticAIProvider
from clew.providers.pydantic_ai.endpoint import connect
from clew.providers.registry import ProviderRegistry
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.usage import Usage

pytestmark = [pytest.mark.slow, pytest.mark.rule("PV-2")]

NAMED = [(name, model) for name, family in families().items() for model in family.models]
MADE_FROM_KEYS = [name for name, family in families().items() if name != "bedrock"]


def endpoint(provider_id: str) -> Endpoint:
    family = families()[provider_id]
    return Endpoint(provider_id=provider_id, kind=family.kind, base_url=family.base_url, api_key="k" * 20)


async def test_the_table_says_of_every_model_it_lists_whether_it_thinks_as_its_library_does() -> None:
    """What is refused when it is named would have been left out without a word, and nothing else is refused."""
    registry = ProviderRegistry(environ={})
    wrong = []
    for provider_id in dict(NAMED):
        connection = await asyncio.to_thread(connect, endpoint(provider_id), 1000)
        for model_id in families()[provider_id].models:
            profile = (await connection.model(model_id)).profile
            told = bool(registry.info(Model(provider_id, model_id)).variants)
            if told != profile.get("supports_thinking", False):
                wrong.append((f"{provider_id}/{model_id}", told))
        await connection.close()
    assert wrong == []


@pytest.mark.parametrize("provider_id", MADE_FROM_KEYS)
@pytest.mark.rule("PV-1")
async def test_every_provider_of_the_table_can_be_constructed(provider_id: str) -> None:
    """With a key and nothing else, under the name pydantic-ai has for it; nothing is asked of anybody."""
    connection = await asyncio.to_thread(connect, endpoint(provider_id), 1000)
    name = "openai/gpt-5" if provider_id == "openrouter" else families()[provider_id].default or "some-model"
    model = await connection.model(name)
    assert model.model_name == name
    await connection.close()


async def test_an_effort_that_only_the_library_knows_not_to_be_there_is_refused_before_anything_is_sent() -> None:
    """It would be left out without a word."""
    provider = PydanticAIProvider(endpoint("groq"))
    asked = Message("m", "user", [{"type": "text", "text": "hi"}], {})
    request = ModelRequest(model=Model("groq", "llama-9", "high"), system="", messages=[asked])
    with pytest.raises(ProviderFailure, match="groq has no effort for llama-9: leave :high out") as caught:
        await anext(provider.stream(request))
    assert caught.value.kind == "invalid"
    await provider.close()


@pytest.mark.parametrize(
    "named",
    [
        "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "google-cloud/gemini-2.5-pro",
        "openai-responses/gpt-5",
        "xai/grok-4",
        "mistral/mistral-large-latest",
        "groq/llama-3.3-70b-versatile",
        "deepseek/deepseek-chat",
    ],
)
def test_prices_and_windows_come_from_the_price_list_under_the_name_it_has(named: str) -> None:
    """A provider may be called otherwise there."""
    registry = ProviderRegistry(environ={})
    model = registry.parse(named)
    cost = registry.cost(model, Usage(input=1_000_000))
    assert cost is not None
    assert cost > 0
    assert registry.info(model).known
