"""What a name of a model means: which colon begins a variant, and which belongs to an id."""

from __future__ import annotations

import pytest

from clew.errors import InvalidInput, UnknownVariant
from clew.providers.catalog import ModelFacts
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.transcript.session import Model

OWN = ProviderConfig(
    base_url="http://127.0.0.1:9/v1", models={"qwen:max": ModelFacts(), "plain": ModelFacts(variants=("low", "high"))}
)
HARD = "none, minimal, low, medium, high, xhigh, max"
pytestmark = pytest.mark.rule("MS-3")


def registry(**providers: ProviderConfig) -> ProviderRegistry:
    return ProviderRegistry({"own": OWN, **providers}, environ={})


@pytest.mark.parametrize(
    ("named", "means"),
    [
        ("demo/long:slow", Model("demo", "long", "slow")),
        ("anthropic/claude-sonnet-5:high", Model("anthropic", "claude-sonnet-5", "high")),
        ("openrouter/qwen/qwen3:free", Model("openrouter", "qwen/qwen3:free")),
        ("openrouter/qwen/qwen3:free:high", Model("openrouter", "qwen/qwen3:free", "high")),
        ("openrouter/qwen/qwen3:low", Model("openrouter", "qwen/qwen3", "low")),
        ("ollama/llama3:8b", Model("ollama", "llama3:8b")),
        ("openai/ft:gpt-4o:acme::x1", Model("openai", "ft:gpt-4o:acme::x1")),
        ("own/qwen:max", Model("own", "qwen:max")),
        ("own/other:max", Model("own", "other", "max")),
        ("own/other:q4", Model("own", "other:q4")),
        ({"provider_id": "own", "model_id": "other:max"}, Model("own", "other:max")),
        (Model("own", "plain", "low"), Model("own", "plain", "low")),
    ],
)
def test_what_is_behind_the_last_colon_is_decided_by_what_there_is(named: str | Model, means: Model) -> None:
    """A known id first, then a variant the model has; else it is the id's own where ids may have colons."""
    assert registry().parse(named) == means


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("anthropic/claude-sonnet-5:hihg", f"anthropic/claude-sonnet-5 has no variant 'hihg'; it has {HARD}"),
        ("demo/echo:high", "demo/echo has no variant 'high'; it has slow"),
        ("openai/gpt-4.1:high", "openai/gpt-4.1 has no variant 'high'; it has none"),
        (Model("own", "plain", "max"), "own/plain has no variant 'max'; it has low, high"),
        (
            {"provider_id": "ollama", "model_id": "a", "variant": "loud"},
            f"ollama/a has no variant 'loud'; it has {HARD}",
        ),
    ],
)
def test_a_variant_that_a_model_does_not_have_is_refused_with_those_it_has(named: str | Model, says: str) -> None:
    """In whichever form it is named."""
    with pytest.raises(UnknownVariant) as caught:
        registry().parse(named)
    assert (caught.value.code, str(caught.value)) == ("unknown_variant", says)


def test_behind_a_gateway_ids_are_what_it_calls_them() -> None:
    """A well-known provider at another address may have any ids."""
    made = registry(anthropic=ProviderConfig(base_url="http://127.0.0.1:9", api_key="k"))
    assert made.parse("anthropic/claude-v2:0") == Model("anthropic", "claude-v2:0")


def test_a_default_model_is_read_as_every_name_is() -> None:
    """The configuration too may ask for a variant, and a misspelt one is told when it is read."""
    assert ProviderRegistry(default_model="demo/long:slow").default_model() == Model("demo", "long", "slow")
    with pytest.raises(UnknownVariant, match="configuration: demo/long has no variant 'slwo'; it has slow"):
        ProviderRegistry(default_model="demo/long:slwo")
    with pytest.raises(InvalidInput, match="configuration: there is no provider 'dmeo'"):
        ProviderRegistry(default_model="dmeo/long")
