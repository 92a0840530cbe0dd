"""What a model is asked for: how long it may answer and think, and what may be cached, as it goes over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from clew.providers.base import EndpointKind
from clew.providers.catalog import Catalog
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.transcript.session import Model
from tests.integration.http_client import served
from tests.integration.wire_server import WireServer
from tests.integration.wire_talk import Talk, user, wire

__all__ = ["wire"]

pytestmark = pytest.mark.slow


async def body(wire: WireServer, kind: EndpointKind, name: str, variant: str | None = None, **fields: Any) -> Any:
    talk = Talk(wire, kind)
    try:
        model = Model(talk.provider.endpoint.provider_id, name, variant)
        return await talk.body(user("hello"), model=model, system="Be brief.", **fields)
    finally:
        await talk.provider.close()


@pytest.mark.rule("RN-9")
@pytest.mark.parametrize(
    "name", ["openai/o3", "openai/gpt-4o", "anthropic/claude-next", "openrouter/qwen/qwen3-coder", "openrouter/a/model"]
)
def test_a_model_outside_the_table_has_no_invented_limit(name: str) -> None:
    """What is planned with is a guess, and no guess is sent."""
    provider, _, model = name.partition("/")
    assert Catalog().find(Model(provider, model)).output_known is False


@pytest.mark.rule("RN-9")
async def test_where_the_wire_wants_a_limit_it_is_the_familys(wire: WireServer) -> None:
    """Anthropic's does; OpenAI's does not, and none is sent."""
    assert Catalog().find(Model("anthropic", "claude-opus-4-1")).max_output == 32_000
    sent = await body(wire, "anthropic", "claude-next")
    assert sent["max_tokens"] == 16_384
    sent = await body(wire, "openai", "gpt-4o")
    assert {"max_tokens", "max_completion_tokens"} & sent.keys() == set()


@pytest.mark.rule("RN-9")
@pytest.mark.parametrize(
    ("limit", "thinking"),
    [
        (None, {"type": "enabled", "budget_tokens": 32_768}),
        (64_000, {"type": "enabled", "budget_tokens": 32_000}),
        (8_000, {"type": "enabled", "budget_tokens": 4_000}),
        (2_000, None),
    ],
)
async def test_a_thinking_budget_stays_below_the_output_limit(
    wire: WireServer, limit: int | None, thinking: dict[str, Any] | None
) -> None:
    """The wire refuses a budget that its limit does not hold; where both do not fit, the answer comes first."""
    sent = await body(wire, "anthropic", "claude-opus-4-1", "max", max_output_tokens=limit)
    assert sent.get("thinking") == thinking
    assert thinking is None or sent["max_tokens"] > thinking["budget_tokens"]


@pytest.mark.parametrize(
    ("kind", "name"), [("anthropic", "claude-sonnet-5-5"), ("openrouter", "anthropic/claude-sonnet-5.5")]
)
async def test_prompts_are_cached_through_a_gateway_as_on_the_direct_wire(
    wire: WireServer, kind: EndpointKind, name: str
) -> None:
    """The server of this test is at an address of its own, as a gateway is."""
    assert "cache_control" in str(await body(wire, kind, name))


async def test_a_server_that_speaks_the_dialect_is_sent_no_field_it_may_not_know(wire: WireServer) -> None:
    """Some refuse what they do not know."""
    assert "cache" not in str(await body(wire, "openai-compatible", "some-model"))


@pytest.mark.rule("RN-9")
async def test_a_model_of_openrouter_without_its_maker_ends_in_a_sentence_that_says_what_to_write(
    wire: WireServer,
) -> None:
    """It was an internal error; nothing is sent, and the session goes back to the model it had."""
    config = ProviderConfig(kind="openrouter", base_url=f"{wire.url}/v1", api_key="k", models=["gpt-4o"])
    registry = ProviderRegistry({"gate": config}, default_model="demo/echo", environ={})
    async with served(providers=registry) as client:
        session_id = await client.session(title="t")
        await client.prompt(session_id, "hi", model="gate/gpt-4o")
        await client.idle(session_id)
        turn_id = (await client.messages(session_id))[-1]["metadata"]["turn_id"]
        turn = (await client.get(f"/api/turns/{turn_id}")).json()
        says = "gate has no model 'gpt-4o': its names begin with their maker, as openai/gpt-4o does"
        error = {"code": "model_failed", "message": says, "cause": "no_model", "provider_id": "gate"}
        assert (turn["status"], turn["data"]["error"]) == ("failed", error)
        session = (await client.get(f"/api/sessions/{session_id}")).json()
        assert (session["model"], wire.requests) == ({"provider_id": "demo", "model_id": "echo"}, [])
