"""The providers of a host: the demo, the built-in ones with a key in the environment, and configured ones.

Keys and addresses come from the environment and from the user's own configuration, never from a project folder.
Providers are created on first use. A key is never part of a ``repr``, a listing or an error.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from clew.clock import Clock, SystemClock
from clew.convert import convert
from clew.errors import Invalid, InvalidInput
from clew.providers.base import (
    NO_MODEL,
    EndpointKind,
    ModelInfo,
    ModelListing,
    Provider,
    ProviderFailure,
    repr_without_key,
)
from clew.providers.catalog import Catalog, ModelFacts, does_cache, families
from clew.providers.demo import DEMO, DEMO_MODELS, DemoProvider
from clew.providers.naming import parse_model
from clew.providers.pydantic_ai import Endpoint, PydanticAIProvider, load_libraries, what_to_install
from clew.transcript.file_rule import UNKNOWN, FileRule
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["ProviderConfig", "ProviderRegistry", "file_rule", "files_taken"]

log = logging.getLogger("clew.providers")

_OWN_ENDPOINTS: Final = (
    "anthropic",
    "openai",
    "openai-responses",
    "google",
    "google-cloud",
    "bedrock",
    "mistral",
    "groq",
    "xai",
)
"""Kinds of endpoint with a default address."""
_PORTABLE_SEALS: Final = ("anthropic",)
"""Kinds whose signed reasoning any account of the kind accepts."""
_AMBIENT: Final = ("anthropic", "openai", "openai-responses")
"""Kinds whose clients read more than a key from the environment."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_URL: Final = re.compile(r"https?://[^\s/]+.*")


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``[providers.NAME]`` of the user's configuration."""

    kind: EndpointKind | None = None
    """The API of the endpoint. Default: OpenAI-compatible, or that of the built-in provider of this name."""
    base_url: str | None = None
    """The address of the endpoint."""
    api_key_env: str | None = None
    """The environment variable with the key."""
    api_key: str | None = None
    """The key itself."""
    models: list[str] | dict[str, ModelFacts] = msgspec.field(default_factory=list)
    """Names of models, or a table with properties that the catalog lacks or has wrong."""
    default_model: str | None = None
    """The model when only the provider is named."""
    summariser: str | None = None
    """The model for summaries and titles of the others."""

    def __repr__(self) -> str:
        return repr_without_key(self)

    def facts(self) -> Mapping[str, ModelFacts]:
        """Return the configured models with their properties."""
        return self.models if isinstance(self.models, dict) else {name: ModelFacts() for name in self.models}


class ProviderRegistry:
    """Implementation of :class:`clew.providers.base.Providers`.

    ``default_model`` is the user's choice; without one, it is the default of the first provider with a key, or the
    tour.
    """

    def __init__(
        self,
        providers: Mapping[str, ProviderConfig] | None = None,
        *,
        default_model: str | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Clock | None = None,
    ) -> None:
        self._configs = dict(providers or {})
        self._environ = environ
        self._clock = clock or SystemClock()
        self._made: dict[str, Provider] = {}
        for name, config in self._configs.items():
            if name == DEMO or _NAME.fullmatch(name) is None:
                raise InvalidInput(f"[providers.{name}]: this name cannot be used")
            if config.base_url is not None and _URL.fullmatch(config.base_url) is None:
                raise InvalidInput(f"[providers.{name}]: base_url must begin with http:// or https://")
            if name not in families() and config.base_url is None and config.kind not in _OWN_ENDPOINTS:
                raise InvalidInput(f"[providers.{name}]: base_url is missing")
        named = ((provider, config.facts()) for provider, config in self._configs.items())
        self._catalog = Catalog({f"{provider}/{name}": one for provider, facts in named for name, one in facts.items()})
        try:
            self._default = None if default_model is None else self.parse(default_model)
        except Invalid as error:
            raise type(error)(f"default_model in your configuration: {error}") from error

    def __repr__(self) -> str:
        return f"ProviderRegistry({', '.join(self._ids())})"

    def get(self, provider_id: str) -> Provider:
        """Return a provider, created on first use. Raises as :meth:`clew.providers.base.Providers.get` does."""
        if provider_id in self._made:
            return self._made[provider_id]
        self._check_provider(provider_id)
        if provider_id == DEMO:
            return self._made.setdefault(DEMO, DemoProvider(self._clock))
        missing = self._missing(provider_id)
        if missing is not None:
            says = f"{provider_id} cannot be used: {missing}"
            if self._missing_account(provider_id) is None:
                raise ProviderFailure(says, kind="unknown", cause="not_installed", provider_id=provider_id)
            name = missing.removeprefix("set ")
            raise ProviderFailure(says, kind="auth", cause="no_key", provider_id=provider_id, key_name=name)
        endpoint = self._endpoint(provider_id)
        made = PydanticAIProvider(endpoint, clock=self._clock)
        return self._made.setdefault(provider_id, made)

    def parse(self, named: str | Model | dict[str, Any]) -> Model:
        """Return the model of a name. Raises as :meth:`clew.providers.base.Providers.parse` does."""

        def variants_of(model: Model) -> tuple[str, ...]:
            self._check_known(model)
            return self._catalog.variants(model)

        return parse_model(named, variants_of=variants_of, is_id=self._catalog.is_id, takes_colons=self._takes_colons)

    def info(self, model: Model) -> ModelInfo:
        """Return the description of a model; raises ``InvalidInput`` for an unknown provider or demo model."""
        self._check_known(model)
        return self._of_its_wire(self._catalog.info(model))

    def _of_its_wire(self, info: ModelInfo) -> ModelInfo:
        """Add the properties that depend on the endpoint and on the provider's configuration."""
        model = info.model
        config = self._configs.get(model.provider_id)
        own = config.facts().get(model.model_id) if config is not None else None
        info = msgspec.structs.replace(info, seals=self._seals(model.provider_id))
        if model.provider_id != DEMO:
            kind = self._kind(model.provider_id)
            info = msgspec.structs.replace(info, file_rule=file_rule(model.model_id), kind=kind)
        if model.provider_id != DEMO and (own is None or own.files is None):
            taken = files_taken(self._endpoint(model.provider_id).kind, model.model_id)
            info = msgspec.structs.replace(info, files=taken)
        if config is None or config.summariser is None or (own is not None and own.summariser is not None):
            return info
        cheap = Model(model.provider_id, config.summariser)
        return msgspec.structs.replace(info, summariser=cheap, titler=cheap)

    def cost(self, model: Model, usage: Usage) -> float | None:
        return self._catalog.cost(model, usage)

    def models(self) -> Sequence[ModelListing]:
        """Return all known models, the usable ones first, the others with the reason why they are not."""
        default = self.default_model()
        lines = [line for provider_id in self._ids() for line in self._lines(provider_id, default)]
        return sorted(lines, key=lambda line: not line.usable)

    def default_model(self) -> Model:
        if self._default is not None:
            return self._default
        for provider_id in families():
            # A provider without a key is not a choice of the user. One whose library is missing is used still, and its
            # call says so: a user who set a key does not want the demo.
            model_id = self._default_of(provider_id)
            if model_id and self._key(provider_id):
                return Model(provider_id, model_id)
        return NO_MODEL

    def load_libraries(self, models: Iterable[Model]) -> None:
        """Import what calls of these models need, which takes seconds. A model that cannot be called is skipped."""
        for model in {model.provider_id: model for model in models}.values():
            try:
                if isinstance(self.get(model.provider_id), PydanticAIProvider):
                    load_libraries(self._endpoint(model.provider_id), model.model_id)
            except Exception as error:
                log.debug("the libraries of %s could not be loaded: %s", model, error)

    async def close(self) -> None:
        made, self._made = self._made, {}
        for provider in made.values():
            await provider.close()

    # Inside

    def _ids(self) -> Iterator[str]:
        yield DEMO
        yield from families()
        yield from (name for name in self._configs if name not in families())

    def _takes_colons(self, provider_id: str) -> bool:
        """Return whether ids may contain colons, as those of a user's own server may."""
        known, config = families().get(provider_id), self._configs.get(provider_id)
        return provider_id != DEMO and (
            known is None or known.colons or (config is not None and config.base_url is not None)
        )

    def _check_known(self, model: Model) -> None:
        self._check_provider(model.provider_id)
        if model.provider_id == DEMO and model.model_id not in DEMO_MODELS:
            raise InvalidInput(f"there is no model {model}; there are {', '.join(f'{DEMO}/{m}' for m in DEMO_MODELS)}")

    def _check_provider(self, provider_id: str) -> None:
        if provider_id not in self._ids():
            raise InvalidInput(f"there is no provider {provider_id!r}; there are {', '.join(self._ids())}")

    def _endpoint(self, provider_id: str) -> Endpoint:
        config = self._configs.get(provider_id, ProviderConfig())
        known = families().get(provider_id)
        kind = self._kind(provider_id)
        base_url = config.base_url
        if base_url is None and known is not None:
            from_environ = self._environ.get(known.base_url_env) if known.base_url_env else None
            base_url = from_environ or known.base_url
        own_address = known is not None and known.kind in _AMBIENT and config.base_url is None
        return Endpoint(
            provider_id=provider_id,
            kind=kind,
            base_url=base_url,
            api_key=self._key(provider_id),
            # Both APIs of OpenAI have the same address and account.
            ambient=own_address and known is not None and kind.removesuffix("-responses") == known.kind,
            seals=self._seals(provider_id),
        )

    def _kind(self, provider_id: str) -> EndpointKind:
        config, known = self._configs.get(provider_id), families().get(provider_id)
        named = config.kind if config is not None else None
        return named or (known.kind if known else "openai-compatible")

    def _seals(self, provider_id: str) -> tuple[str, ...]:
        """Return the other providers whose reasoning this one accepts: those of its kind, where a signature is valid
        for any account. Reasoning sealed by other makers can be read only by the account that received it."""
        kind = self._kind(provider_id)
        if provider_id == DEMO or kind not in _PORTABLE_SEALS:
            return ()
        return tuple(one for one in self._ids() if one not in (DEMO, provider_id) and self._kind(one) == kind)

    def _key(self, provider_id: str) -> str | None:
        return next((value for name in self._key_names(provider_id) if (value := self._environ.get(name))), None) or (
            self._configs[provider_id].api_key if provider_id in self._configs else None
        )

    def _key_names(self, provider_id: str) -> tuple[str, ...]:
        config = self._configs.get(provider_id)
        if config is not None and (config.api_key_env or config.api_key):
            return (config.api_key_env,) if config.api_key_env else ()
        known = families().get(provider_id)
        return known.keys if known else ()

    def _missing(self, provider_id: str) -> str | None:
        """Return what has to be done before the provider can be used."""
        return self._missing_account(provider_id) or what_to_install(self._endpoint(provider_id).kind)

    def _missing_account(self, provider_id: str) -> str | None:
        names, known = self._key_names(provider_id), families().get(provider_id)
        accounts = known.accounts if known is not None else ()
        if not (names or accounts) or self._key(provider_id):
            return None
        # A cloud's own library finds its account; a section in the configuration says that there is one.
        if accounts and (provider_id in self._configs or any(self._environ.get(name) for name in accounts)):
            return None
        return f"set {' or '.join((*names[:1], *accounts[:1]))}"

    def _default_of(self, provider_id: str) -> str | None:
        config = self._configs.get(provider_id)
        if config is not None and config.default_model is not None:
            return config.default_model
        known = families().get(provider_id)
        return known.default if known else None

    def _lines(self, provider_id: str, default: Model) -> Iterator[ModelListing]:
        if provider_id == DEMO:
            yield from (self._line(Model(DEMO, name), default, None) for name in DEMO_MODELS)
            return
        missing = self._missing(provider_id)
        known, config = families().get(provider_id), self._configs.get(provider_id)
        if known is not None and known.quiet and config is None and (known.like or self._missing_account(provider_id)):
            return
        first = self._default_of(provider_id)
        names = [] if first is None else [first]
        names += [*(known.models if known else ()), *(config.facts() if config else ())]
        if default.provider_id == provider_id:
            names.append(default.model_id)
        for name in dict.fromkeys(names):
            yield self._line(Model(provider_id, name), default, missing)
        if not names:
            example = (known.example if known else None) or f"{provider_id}/NAME"
            info = self._catalog.guess(Model(provider_id, "…"))
            reason = missing or f"name a model of it, for example {example}"
            yield ModelListing(
                id=str(info.model), window=info.window, max_output=info.max_output, usable=False, reason=reason
            )

    def _line(self, model: Model, default: Model, reason: str | None) -> ModelListing:
        info = self._of_its_wire(self._catalog.find(model))
        return ModelListing(
            id=str(model),
            window=info.window,
            max_output=info.max_output,
            usable=reason is None,
            reason=reason,
            default=model == default.plain,
            variants=info.variants,
            files=info.files,
            tools=info.tools,
            caching=model.provider_id != DEMO and does_cache(self._endpoint(model.provider_id).kind),
            known=info.known,
        )


# Files


class _Less(msgspec.Struct, frozen=True):
    models: tuple[str, ...]
    without: tuple[str, ...]


class _Counted(FileRule, frozen=True, kw_only=True):
    models: tuple[str, ...]


class _Files(msgspec.Struct, frozen=True):
    """``files.toml``."""

    wires: dict[EndpointKind, tuple[str, ...]]
    less: tuple[_Less, ...]
    counted: tuple[_Counted, ...]


@cache
def _files() -> _Files:
    return convert(tomllib.loads(files(__package__).joinpath("files.toml").read_text("utf-8")), _Files)


def files_taken(kind: EndpointKind, model_id: str) -> tuple[str, ...]:
    """Return the media types that a model accepts at an endpoint of this kind."""
    less = [one.without for one in _files().less if _is_of(model_id, one.models)]
    left_out = [pattern for without in less for pattern in without]
    carried = _files().wires.get(kind) or _files().wires["openai-compatible"]
    return tuple(one for one in carried if not any(fnmatchcase(one, pattern) for pattern in left_out))


def file_rule(model_id: str) -> FileRule:
    """Return how the provider of a model counts pictures and documents, from the first entry that matches its name."""
    found = next((one for one in _files().counted if _is_of(model_id, one.models)), UNKNOWN)
    return FileRule(found.image, found.page)


def _is_of(model_id: str, patterns: tuple[str, ...]) -> bool:
    # A gateway's name for a model begins with the vendor.
    name = model_id.rpartition("/")[2].lower()
    return any(fnmatchcase(name, pattern) for pattern in patterns)
