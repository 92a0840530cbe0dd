"""Which providers there are, what is known about their models, and that no key is ever shown."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from clew.errors import InvalidInput, UnknownVariant
from clew.providers import registry as registry_module
from clew.providers.base import EndpointKind, ModelInfo, ModelListing, ProviderFailure, Providers
from clew.providers.catalog import GUESSED_OUTPUT, GUESSED_WINDOW, Catalog, ModelFacts, Prices, families
from clew.providers.demo import DEMO_MODELS, DemoProvider
from clew.providers.pydantic_ai import EFFORTS, Endpoint, PydanticAIProvider, what_to_install
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.transcript.session import Model
from clew.transcript.usage import Usage

INSTALL = 'run pip install "clew-sessions[models]"'
SECRET = "sk-very-secret-0123456789"
LOCAL = ProviderConfig(base_url="http://127.0.0.1:9/v1")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries for real models count as installed, whether they are or not."""
    monkeypatch.setattr(registry_module, "what_to_install", lambda _: None)


def registry(configs: dict[str, ProviderConfig] | None = None, **environ: str) -> ProviderRegistry:
    return ProviderRegistry(configs, environ=environ)


def endpoint_of(made: ProviderRegistry, provider_id: str) -> Endpoint:
    provider = made.get(provider_id)
    assert isinstance(provider, PydanticAIProvider)
    return provider.endpoint


def no_price_list() -> None:
    return None


# Which there are


def test_the_registry_keeps_the_contract() -> None:
    """It is what the runtime sees, and a demo provider is always in it."""
    made: Providers = registry()
    assert isinstance(made.get("demo"), DemoProvider)
    assert made.get("demo") is made.get("demo")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "demo/tour"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic/claude-sonnet-5-5"),
        ({"OPENAI_API_KEY": "k"}, "openai/gpt-6.1-sol"),
        ({"GEMINI_API_KEY": "k"}, "google/gemini-3.8-flash"),
        ({"GOOGLE_API_KEY": "k"}, "google/gemini-3.8-flash"),
        ({"OPENROUTER_API_KEY": "k"}, "openrouter/anthropic/claude-sonnet-5.5"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic/claude-sonnet-5-5"),
        ({"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": "k"}, "openai/gpt-6.1-sol"),
    ],
)
def test_the_default_model_follows_the_key_that_is_set(environ: dict[str, str], expected: str) -> None:
    """Without any it is the tour; an empty key is none."""
    assert str(ProviderRegistry(environ=environ).default_model()) == expected


def test_a_provider_that_needs_no_key_is_not_picked_by_itself() -> None:
    """That it could be used says nothing about what the user wants."""
    made = registry({"ollama": ProviderConfig(default_model="qwen3")})
    assert made.default_model() == Model("demo", "tour")


def test_the_users_own_choice_comes_first() -> None:
    """Also before a key that is set."""
    made = ProviderRegistry(default_model="demo/echo", environ={"ANTHROPIC_API_KEY": "k"})
    assert made.default_model() == Model("demo", "echo")


def test_a_key_without_the_libraries_is_not_answered_by_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever set a key wants that model: the list and the call say what to install."""
    monkeypatch.setattr(registry_module, "what_to_install", lambda _: INSTALL)
    made = registry(OPENAI_API_KEY="k")
    assert made.default_model().provider_id == "openai"
    assert {line.reason for line in made.models() if line.id.startswith("openai/")} == {INSTALL}
    with pytest.raises(
        ProviderFailure, match=r"openai cannot be used: run pip install .clew-sessions\[models\]"
    ) as caught:
        made.get("openai")
    assert caught.value.kind == "unknown"


def test_a_provider_without_its_key_says_which_is_missing() -> None:
    """As an authentication failure, so that it is shown and not tried again."""
    with pytest.raises(ProviderFailure, match="anthropic cannot be used: set ANTHROPIC_API_KEY") as caught:
        registry().get("anthropic")
    assert caught.value.kind == "auth"


def test_a_provider_nobody_configured_is_refused() -> None:
    """With the names of those there are."""
    for ask in (lambda made: made.get("nobody"), lambda made: made.info(Model("nobody", "m"))):
        with pytest.raises(
            InvalidInput, match="'nobody'; there are demo, anthropic, openai, google, openrouter, ollama"
        ):
            ask(registry())


@pytest.mark.parametrize(
    ("provider_id", "environ", "expected"),
    [
        ("anthropic", {"ANTHROPIC_API_KEY": SECRET}, ("anthropic", None, SECRET)),
        ("openai", {"OPENAI_API_KEY": SECRET}, ("openai", None, SECRET)),
        (
            "openai",
            {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "http://proxy/v1"},
            ("openai", "http://proxy/v1", SECRET),
        ),
        (
            "google",
            {"GOOGLE_API_KEY": SECRET},
            ("google", None, SECRET),
        ),
        (
            "openrouter",
            {"OPENROUTER_API_KEY": SECRET},
            ("openrouter", "https://openrouter.ai/api/v1", SECRET),
        ),
        ("ollama", {}, ("ollama", "http://127.0.0.1:11434/v1", None)),
        ("local", {}, ("openai-compatible", "http://127.0.0.1:9/v1", None)),
        ("keyed", {"MY_KEY": SECRET}, ("anthropic", "https://host/", SECRET)),
        ("written", {"OPENAI_API_KEY": "other"}, ("openai-compatible", "https://host/v1", SECRET)),
    ],
)
def test_where_a_provider_is_and_with_which_key(
    provider_id: str, environ: dict[str, str], expected: tuple[str, str | None, str | None]
) -> None:
    """From the environment or the user's configuration, never one provider's key for another."""
    configs = {
        "local": LOCAL,
        "keyed": ProviderConfig(kind="anthropic", base_url="https://host/", api_key_env="MY_KEY"),
        "written": ProviderConfig(base_url="https://host/v1", api_key=SECRET),
    }
    endpoint = endpoint_of(ProviderRegistry(configs, environ=environ), provider_id)
    kind, base_url, api_key = expected
    # What else an SDK finds in the environment is meant for its maker's endpoint alone.
    ambient = provider_id in ("anthropic", "openai")
    # Reasoning that one account of Anthropic's wire signed is taken by the others.
    seals = {"anthropic": ("keyed",), "keyed": ("anthropic",)}.get(provider_id, ())
    assert endpoint == Endpoint(
        provider_id=provider_id,
        kind=kind,  # type: ignore[arg-type]
        base_url=base_url,
        api_key=api_key,
        ambient=ambient,
        seals=seals,
    )


def test_a_well_known_provider_can_be_sent_elsewhere() -> None:
    """It keeps its own way of speaking and its own key."""
    made = registry({"anthropic": ProviderConfig(base_url="http://gateway")}, ANTHROPIC_API_KEY=SECRET)
    assert endpoint_of(made, "anthropic") == Endpoint(
        provider_id="anthropic", kind="anthropic", base_url="http://gateway", api_key=SECRET
    )


def test_the_second_wire_of_a_maker_is_at_its_own_address() -> None:
    """For the same account; through a gateway nothing of that account goes along."""
    kind = ProviderConfig(kind="openai-responses")
    assert endpoint_of(registry({"openai": kind}, OPENAI_API_KEY=SECRET), "openai") == Endpoint(
        provider_id="openai", kind="openai-responses", api_key=SECRET, ambient=True
    )
    elsewhere = ProviderConfig(kind="openai-responses", base_url="http://gateway/v1")
    assert endpoint_of(registry({"openai": elsewhere}, OPENAI_API_KEY=SECRET), "openai") == Endpoint(
        provider_id="openai", kind="openai-responses", base_url="http://gateway/v1", api_key=SECRET
    )


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("demo", LOCAL),
        ("a/b", LOCAL),
        ("", LOCAL),
        ("local", ProviderConfig()),
        ("local", ProviderConfig(base_url="file:///etc/passwd")),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(name: str, config: ProviderConfig) -> None:
    """When the registry is made, not when the provider is first called."""
    with pytest.raises(InvalidInput, match=rf"\[providers\.{name}\]"):
        registry({name: config})


def test_a_configuration_reads_as_it_is_written_in_the_file() -> None:
    """Models are a list of names, or a table with what is known about each."""
    written = {
        "local": {"kind": "openai-compatible", "base_url": "http://127.0.0.1:11434/v1", "models": ["a", "b"]},
        "other": {
            "base_url": "http://127.0.0.1:1/v1",
            "models": {"c": {"window": 9_000, "tools": False, "prices": {"input": 1, "output": 2}}},
        },
    }
    read = msgspec.convert(written, dict[str, ProviderConfig])
    assert read == {
        "local": ProviderConfig(kind="openai-compatible", base_url="http://127.0.0.1:11434/v1", models=["a", "b"]),
        "other": ProviderConfig(
            base_url="http://127.0.0.1:1/v1",
            models={"c": ModelFacts(window=9_000, tools=False, prices=Prices(input=1, output=2))},
        ),
    }


async def test_no_key_is_ever_shown() -> None:
    """Not in a repr, a listing, or an error."""
    made = registry({"written": ProviderConfig(base_url="https://host/v1", api_key=SECRET)}, OPENAI_API_KEY=SECRET)
    shown = [repr(made), repr(made._configs), repr(made.get("written")), repr(made.get("openai")), str(made.models())]
    with pytest.raises(InvalidInput) as caught:
        made.get("nobody")
    assert [text for text in (*shown, repr(caught.value)) if SECRET in text] == []
    await made.close()


# The list


def test_models_are_listed_with_the_reason_why_not() -> None:
    """Usable ones first; a provider whose models nobody can know has one line that says what to do."""
    made = registry(
        {"local": ProviderConfig(base_url="http://127.0.0.1:9/v1", models=["a"]), "bare": LOCAL}, OPENAI_API_KEY="k"
    )
    lines = made.models()
    demo = [
        ModelListing(
            id=f"demo/{name}",
            window=info.window,
            max_output=info.max_output,
            usable=True,
            variants=("slow",),
            files=info.files,
            tools=info.tools,
        )
        for name, info in DEMO_MODELS.items()
    ]
    openai = [
        ModelListing(
            id=f"openai/{name}",
            window=made.info(Model("openai", name)).window,
            max_output=made.info(Model("openai", name)).max_output,
            usable=True,
            default=name == "gpt-6.1-sol",
            variants=() if name.startswith("gpt-4") else EFFORTS,
            files=made.info(Model("openai", name)).files,
            caching=True,
        )
        for name in families()["openai"].models
    ]
    own = ModelListing(
        id="local/a",
        window=GUESSED_WINDOW,
        max_output=GUESSED_OUTPUT,
        usable=True,
        variants=EFFORTS,
        files=made.info(Model("local", "a")).files,
        known=False,
    )
    usable = [line for line in lines if line.usable]
    assert usable == [*demo, *openai, own]
    assert lines[: len(usable)] == usable
    reasons = {line.id.partition("/")[0]: line.reason for line in lines if not line.usable}
    assert reasons == {
        "anthropic": "set ANTHROPIC_API_KEY",
        "google": "set GEMINI_API_KEY",
        "openrouter": "set OPENROUTER_API_KEY",
        "ollama": "name a model of it, for example ollama/llama3.2",
        "bare": "name a model of it, for example bare/NAME",
    }


def test_a_default_model_outside_the_table_is_listed_too() -> None:
    """As the default, and usable when its provider is."""
    made = ProviderRegistry(default_model="ollama/qwen3", environ={})
    assert [line for line in made.models() if line.default] == [
        ModelListing(
            id="ollama/qwen3",
            window=GUESSED_WINDOW,
            max_output=GUESSED_OUTPUT,
            usable=True,
            default=True,
            variants=EFFORTS,
            known=False,
        )
    ]


@pytest.mark.slow
def test_listing_models_loads_nothing_heavy() -> None:
    """Neither the libraries for real models nor the price list, although lines about them are written."""
    code = (
        "import json, sys; from clew.providers.registry import ProviderRegistry;"
        "made = ProviderRegistry(environ={'ANTHROPIC_API_KEY': 'k'}); made.models(); made.get('demo');"
        "made.get('anthropic'); print(json.dumps(sorted(sys.modules)))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    heavy = {"anthropic", "genai_prices", "httpx2", "openai", "pydantic", "pydantic_ai"}
    assert {name.partition(".")[0] for name in loaded} & heavy == set()


# What is known


def test_a_model_of_the_table_has_its_figures() -> None:
    """Also when it is pinned to a date or asked for in a variant; small jobs go to the cheap one."""
    cheap = Model("anthropic", "claude-haiku-5-5")
    for model in (
        Model("anthropic", "claude-sonnet-4-5"),
        Model("anthropic", "claude-sonnet-4-5-20250929"),
        Model("anthropic", "claude-sonnet-4-5", "high"),
    ):
        assert Catalog(price_list=no_price_list).info(model) == ModelInfo(
            model=model, window=200_000, max_output=64_000, summariser=cheap, titler=cheap, variants=EFFORTS
        )


def test_another_model_of_the_same_name_is_not_taken_for_it() -> None:
    """Only a date may follow."""
    catalog = Catalog(price_list=no_price_list)
    assert catalog.info(Model("openai", "gpt-5-enormous")).known is False
    assert catalog.info(Model("openai", "gpt-5-2025-08-07")).known is True


def test_an_unknown_model_gets_a_cautious_guess_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """However often it is asked about."""
    catalog = Catalog(price_list=no_price_list)
    model = Model("local", "mystery")
    with caplog.at_level(logging.WARNING, logger="clew.providers"):
        infos = [catalog.info(model) for _ in range(3)]
    guess = ModelInfo(
        model=model,
        window=32_000,
        max_output=4_096,
        summariser=model,
        variants=EFFORTS,
        known=False,
        output_known=False,
    )
    assert infos == [guess] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "unknown model local/mystery: assuming a window of 32000 and 4096 of output; set them in config.toml"
    ]


def test_the_users_configuration_knows_best(caplog: pytest.LogCaptureFixture) -> None:
    """Over the table and over a guess, which then is none."""
    config = ProviderConfig(
        base_url="http://127.0.0.1:9/v1",
        models={
            "big": ModelFacts(
                window=64_000,
                max_output=8_000,
                tools=False,
                summariser="small",
                files=("image/*",),
                variants=("low",),
            ),
            "other": ModelFacts(window=16_000),
        },
        summariser="tiny",
    )
    made = registry({"local": config})
    tiny = Model("local", "tiny")
    with caplog.at_level(logging.WARNING, logger="clew.providers"):
        assert made.info(Model("local", "big")) == ModelInfo(
            model=Model("local", "big"),
            window=64_000,
            max_output=8_000,
            tools=False,
            summariser=Model("local", "small"),
            files=("image/*",),
            variants=("low",),
            kind="openai-compatible",
        )
        assert made.info(Model("local", "other")) == ModelInfo(
            model=Model("local", "other"),
            window=16_000,
            max_output=4_096,
            summariser=tiny,
            titler=tiny,
            variants=EFFORTS,
            output_known=False,
            files=("image/png", "image/jpeg", "image/gif", "image/webp"),
            kind="openai-compatible",
        )
    assert caplog.records == []


def test_a_demo_model_that_does_not_exist_is_refused() -> None:
    """The list of demo models is closed."""
    with pytest.raises(InvalidInput, match="there is no model demo/nothing; there are demo/tour, demo/echo"):
        registry().info(Model("demo", "nothing"))


def test_cost_is_the_catalogues_business_and_only_where_prices_are_known() -> None:
    """The demo is free, configured prices are used for all five kinds, and for the rest nobody guesses."""
    prices = Prices(input=1.0, output=10.0, cache_read=0.1, cache_write=1.25)
    config = ProviderConfig(base_url="http://127.0.0.1:9/v1", models={"m": ModelFacts(prices=prices)})
    made = registry({"local": config})
    usage = Usage(input=1_000_000, output=200_000, reasoning=100_000, cache_read=2_000_000, cache_write=400_000)
    assert made.cost(Model("local", "m"), usage) == pytest.approx(1.0 + 3.0 + 0.2 + 0.5)
    assert made.cost(Model("local", "unpriced"), usage) is None
    assert made.cost(Model("demo", "echo"), usage) == 0.0
    assert Prices(input=1.0, output=10.0).cost(usage) == pytest.approx(1.0 + 3.0 + 2.0 + 0.4)


@pytest.mark.slow
def test_the_price_list_knows_windows_and_prices() -> None:
    """Of models outside the table, and of a gateway's models by whose they are."""
    catalog = Catalog()
    usage = Usage(input=1_000_000, output=500_000, reasoning=500_000, cache_read=1_000_000, cache_write=1_000_000)
    assert catalog.cost(Model("anthropic", "claude-opus-4-5"), usage) == pytest.approx(5 + 25 + 0.5 + 6.25)
    assert catalog.cost(Model("openrouter", "anthropic/claude-opus-4-5"), Usage(output=1_000_000)) == pytest.approx(25)
    assert catalog.cost(Model("openai", "no-such-model"), usage) is None
    assert catalog.cost(Model("ollama", "llama3.2"), usage) is None
    gpt_4o = catalog.info(Model("openai", "gpt-4o"))
    assert (gpt_4o.window, gpt_4o.max_output, gpt_4o.known, gpt_4o.output_known) == (128_000, 16_000, True, False)


def test_without_the_price_list_there_is_no_cost() -> None:
    """And no error."""
    assert Catalog(price_list=no_price_list).cost(Model("openai", "gpt-5"), Usage(input=1)) is None


# Whatever pydantic-ai can name


@pytest.mark.rule("PV-1")
@pytest.mark.parametrize("provider_id", list(families()))
def test_every_provider_is_made_from_its_key_or_account(provider_id: str) -> None:
    """By its own name, over its own wire, at its own address; without either it says what to set."""
    family = families()[provider_id]
    wanted = [*family.keys[:1], *family.accounts[:1]]
    if wanted:
        with pytest.raises(ProviderFailure, match=f"{provider_id} cannot be used: set {' or '.join(wanted)}"):
            registry().get(provider_id)
    for name in wanted or ["NOTHING"]:
        endpoint = endpoint_of(ProviderRegistry(environ={name: SECRET}), provider_id)
        key = SECRET if name in family.keys else None
        assert (endpoint.kind, endpoint.base_url, endpoint.api_key) == (family.kind, family.base_url, key)


@pytest.mark.rule("PV-1")
@pytest.mark.parametrize(
    ("kind", "library", "extra"),
    [
        ("openai", "pydantic_ai", "models"),
        ("deepseek", "openai", "models"),
        ("anthropic", "anthropic", "models"),
        ("google", "google.genai", "google"),
        ("google-cloud", "google.genai", "google"),
        ("bedrock", "boto3", "bedrock"),
        ("mistral", "mistralai", "mistral"),
        ("groq", "groq", "groq"),
        ("xai", "xai_sdk", "xai"),
    ],
)
def test_a_wire_without_its_library_says_which_extra_brings_it(
    kind: EndpointKind, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so does the call, when a library is there in part."""

    def find(name: str) -> object:
        if name == library and "." in name:
            raise ModuleNotFoundError(name)
        return None if name == library else object()

    monkeypatch.setattr("importlib.util.find_spec", find)
    assert what_to_install(kind) == f'run pip install "clew-sessions[{extra}]"'
    library = "nothing"
    assert what_to_install(kind) is None


@pytest.mark.rule("PV-1")
def test_every_extra_that_is_asked_for_is_one_of_the_package() -> None:
    """What is told to be installed can be."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    assert {"models", "google", "bedrock", "mistral", "groq", "xai"} <= extras
    everything = project["optional-dependencies"]["all"][0].removeprefix("clew-sessions[").removesuffix("]").split(",")
    assert sorted(everything) == sorted(extras - {"all"})


@pytest.mark.rule("PV-2")
@pytest.mark.parametrize(
    "named",
    ["mistral/codestral-latest", "groq/llama-3.3-70b-versatile", "xai/grok-code-fast-1", "google/gemini-2.0-flash"],
)
def test_an_effort_that_a_model_does_not_have_is_refused_with_what_it_has(named: str) -> None:
    """Before anything is sent; one that has it names the levels."""
    with pytest.raises(UnknownVariant, match=f"{named} has no variant 'high'; it has none"):
        registry().parse(f"{named}:high")
    with pytest.raises(UnknownVariant, match=r"it has none, minimal, low, medium, high, xhigh, max"):
        registry().parse("google/gemini-3.8-flash:hard")
    assert registry().parse("xai/grok-4.7:high").variant == "high"
