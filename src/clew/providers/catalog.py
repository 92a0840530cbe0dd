"""The catalog of models: their windows, output limits, tools, summarisers and prices.

Sources, in this order: the user's configuration, the table ``models.toml``, the price list of ``genai-prices`` if it is
installed, and a cautious guess, which is marked as one and logged once. The limits of the table err on the small side:
a window that is assumed too small is compacted early, one assumed too large is an error in the middle of a turn.

Only the configuration and the price list have prices. The price list takes a moment to load, so it is loaded for the
first cost or unknown model.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from clew.convert import convert
from clew.providers.base import EndpointKind, ModelInfo
from clew.providers.demo import DEMO, DEMO_MODELS, DEMO_VARIANTS
from clew.providers.pydantic_ai import EFFORTS
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["GUESSED_OUTPUT", "GUESSED_WINDOW", "Catalog", "Family", "ModelFacts", "Prices", "does_cache", "families"]

log = logging.getLogger("clew.providers")

GUESSED_WINDOW: Final = 32_000
GUESSED_OUTPUT: Final = 4_096
_DATE: Final = re.compile(r"-(?:latest|[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2})\Z")
"""The date at the end of a model's name: ``…-20250929``, ``…-2026-03-17``."""
_REGION: Final = re.compile(r"\A(?:us|eu|apac|au|in|jp|ca|sa|global|us-gov)\.")
PLANNED_OUTPUT: Final = 20_000
"""Tokens reserved for an answer if only the window is known. It is not sent as a limit."""


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a million tokens. Reasoning is priced as output; cached tokens as input unless given."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        millions = (
            usage.input * self.input
            + (usage.output + usage.reasoning) * self.output
            + usage.cache_read * cache_read
            + usage.cache_write * cache_write
        )
        return millions / 1_000_000


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Configured properties of a model; None if not given."""

    window: int | None = None
    """The context window in tokens."""
    max_output: int | None = None
    """The longest answer in tokens."""
    tools: bool | None = None
    """Whether it can call tools."""
    variants: tuple[str, ...] | None = None
    """The names of its variants."""
    summariser: str | None = None
    """The model of the same provider for summaries and titles."""
    prices: Prices | None = None
    """US dollars for a million tokens: ``input``, ``output``, ``cache_read`` and ``cache_write``."""
    files: tuple[str, ...] | None = None
    """The media types that it accepts besides text."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A built-in provider: its endpoint and models. Without ``keys`` it needs no key.

    ``cheap`` is the model for summaries and titles. ``older`` models can be named, but are not listed. ``colons``: ids
    of its models may have colons. ``unthinking`` are patterns of models without variants; if ``thinking`` is given,
    only models of these patterns have them. ``accounts`` are variables by which the provider's own library finds an
    account instead of a key. ``quiet``: not listed without a key. ``like``: its models are those of this family.
    ``price_list`` is its name in the price list.
    """

    kind: EndpointKind
    keys: tuple[str, ...] = ()
    base_url: str | None = None
    base_url_env: str | None = None
    example: str | None = None
    default: str | None = None
    cheap: str | None = None
    colons: bool = False
    unthinking: tuple[str, ...] = ()
    thinking: tuple[str, ...] | None = None
    accounts: tuple[str, ...] = ()
    quiet: bool = False
    like: str | None = None
    price_list: str | None = None
    models: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    older: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)


class _Models(msgspec.Struct, frozen=True):
    """``models.toml``. ``priced`` are the names of providers in the price list, ``caching`` the kinds of endpoint with
    cheaper cached input."""

    families: dict[str, Family]
    priced: frozenset[str]
    caching: frozenset[EndpointKind]


@cache
def _models() -> _Models:
    return convert(tomllib.loads(files(__package__).joinpath("models.toml").read_text("utf-8")), _Models)


def families() -> Mapping[str, Family]:
    """Return the built-in providers in the order in which a default is chosen."""
    return _models().families


def does_cache(kind: EndpointKind) -> bool:
    """Return whether input that is sent again costs less at an endpoint of this kind. Unknown servers are not
    listed."""
    return kind in _models().caching


class Catalog:
    """The lookup of models. ``facts`` are the properties in the user's configuration, by ``"provider/model"``."""

    def __init__(
        self, facts: Mapping[str, ModelFacts] | None = None, *, price_list: Callable[[], Any] | None = None
    ) -> None:
        self._facts = dict(facts or {})
        self._price_list = price_list or _price_list
        self._warned: set[str] = set()

    def info(self, model: Model) -> ModelInfo:
        """Return the description of a model, which may be a guess. A guess is logged once."""
        info = self.find(model)
        if not info.known and str(model) not in self._warned:
            self._warned.add(str(model))
            log.warning(
                "unknown model %s: assuming a window of %d and %d of output; set them in config.toml",
                model,
                info.window,
                info.max_output,
            )
        return info

    def find(self, model: Model) -> ModelInfo:
        """Return the description of a model without logging a guess."""
        plain = Model(model.provider_id, model.model_id)
        if plain.provider_id == DEMO and plain.model_id in DEMO_MODELS:
            known = DEMO_MODELS[plain.model_id]
        else:
            known = self._looked_up(plain)
        known = msgspec.structs.replace(known, model=model, variants=self.variants(model))
        return self._overruled(known, self._facts.get(str(plain)))

    def variants(self, model: Model) -> tuple[str, ...]:
        """Return the variants of a model. These are levels of effort, unless the model is known not to think."""
        own, family = self._facts.get(str(model)), families().get(model.provider_id)
        if own is not None and own.variants is not None:
            return own.variants
        if model.provider_id == DEMO:
            return DEMO_VARIANTS
        if family is None:
            return EFFORTS
        name = _plain_name(model.model_id)
        thinks = family.thinking is None or any(fnmatchcase(name, one) for one in family.thinking)
        return EFFORTS if thinks and not any(fnmatchcase(name, one) for one in family.unthinking) else ()

    def is_id(self, model: Model) -> bool:
        """Return whether exactly this id is known."""
        family = families().get(model.provider_id)
        return str(model) in self._facts or (family is not None and model.model_id in _table(family))

    def cost(self, model: Model, usage: Usage) -> float | None:
        """Return the cost of a call in US dollars; None if it is unknown."""
        own = self._facts.get(str(model))
        if own is not None and own.prices is not None:
            return own.prices.cost(usage)
        if model.provider_id == DEMO:
            return 0.0
        prices = self._listed(model)
        return None if prices is None else _listed_cost(prices, model, usage)

    def _looked_up(self, model: Model) -> ModelInfo:
        family = families().get(model.provider_id)
        cheap = Model(model.provider_id, family.cheap) if family is not None and family.cheap is not None else None
        # A name may be pinned to a date.
        plain = _DATE.sub("", model.model_id)
        table = {} if family is None else _table(family)
        limits = table.get(model.model_id) or table.get(plain)
        if limits is not None:
            known = ModelInfo(model=model, window=limits[0], max_output=limits[1])
        elif (prices := self._listed(model)) is not None and (window := _listed_window(prices, model)) is not None:
            planned = min(PLANNED_OUTPUT, max(GUESSED_OUTPUT, window // 8), window // 4)
            known = ModelInfo(model=model, window=window, max_output=planned, output_known=False)
        else:
            known = self.guess(model)
        return msgspec.structs.replace(known, summariser=cheap or model, titler=cheap)

    def _listed(self, model: Model) -> Any:
        """Return the price list if it may have the model's provider, which a user's own server is not."""
        return self._price_list() if _price_list_name(model.provider_id) is not None else None

    @staticmethod
    def guess(model: Model) -> ModelInfo:
        """Return the assumptions about an unknown model."""
        return ModelInfo(
            model=model,
            window=GUESSED_WINDOW,
            max_output=GUESSED_OUTPUT,
            summariser=model,
            known=False,
            output_known=False,
        )

    @staticmethod
    def _overruled(info: ModelInfo, own: ModelFacts | None) -> ModelInfo:
        if own is None:
            return info
        provider = info.model.provider_id
        return msgspec.structs.replace(
            info,
            window=own.window or info.window,
            max_output=own.max_output or info.max_output,
            tools=info.tools if own.tools is None else own.tools,
            summariser=info.summariser if own.summariser is None else Model(provider, own.summariser),
            known=info.known or own.window is not None,
            output_known=info.output_known or own.max_output is not None,
            files=info.files if own.files is None else own.files,
        )


# The price list


@cache
def _price_list() -> Any:
    """Return the module ``genai_prices``; None if it is not installed."""
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices


def _listed_window(prices: Any, model: Model) -> int | None:
    for provider, name in _listed_names(model):
        try:
            _, found = prices.data_snapshot.get_snapshot().find_provider_model(name, None, provider, None)
        except LookupError:
            continue
        window = found.context_window
        if isinstance(window, int) and window > 0:
            return window
    return None


def _listed_cost(prices: Any, model: Model, usage: Usage) -> float | None:
    counts = prices.Usage(
        input_tokens=usage.input + usage.cache_read + usage.cache_write,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output + usage.reasoning,
    )
    for provider, name in _listed_names(model):
        try:
            total = prices.calc_price(counts, model_ref=name, provider_id=provider).total_price
        except (LookupError, ValueError):
            continue
        return float(total) if isinstance(total, Decimal) else None
    return None


def _listed_names(model: Model) -> Iterable[tuple[str, str]]:
    """Yield possible names of a model in the price list: by its provider, and for a gateway by its vendor."""
    yield _price_list_name(model.provider_id) or model.provider_id, model.model_id
    vendor, slash, name = model.model_id.partition("/")
    if slash and model.provider_id == "openrouter":
        yield vendor, name


def _price_list_name(provider_id: str) -> str | None:
    family = families().get(provider_id)
    if family is not None and family.price_list is not None:
        return family.price_list
    return provider_id if provider_id in _models().priced else None


# Names


def _table(family: Family) -> Mapping[str, tuple[int, int]]:
    other = families().get(family.like) if family.like is not None else None
    return {**(_table(other) if other is not None else {}), **family.models, **family.older}


def _plain_name(model_id: str) -> str:
    """Return a model's name without its vendor, and without the region that Bedrock's names may begin with."""
    return _REGION.sub("", model_id.rpartition("/")[2].lower())
