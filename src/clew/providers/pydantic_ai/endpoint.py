"""Endpoints of models, with their HTTP and SDK clients, and the extras of clew that install them.

SDK clients do not retry by themselves (every attempt must be visible in the status) and follow no redirects (a prompt
must not leave the configured address). They read the environment by themselves; values meant for the vendor's endpoint
are removed for any other. Responses are bounded: an endless line or error page does not fill the memory.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, get_args

import msgspec

from clew.providers.base import EndpointKind, repr_without_key

__all__ = [
    "LONGEST_ERROR",
    "LONGEST_LINE",
    "OPENAI_WIRES",
    "OWN_FORMS",
    "Connection",
    "Endpoint",
    "connect",
    "how_to_install",
    "load_libraries",
    "what_to_install",
]


_LIBRARIES: Final[dict[EndpointKind, tuple[str, str]]] = {
    "anthropic": ("anthropic", "models"),
    "bedrock": ("boto3", "bedrock"),
    "google": ("google.genai", "google"),
    "google-cloud": ("google.genai", "google"),
    "groq": ("groq", "groq"),
    "mistral": ("mistralai", "mistral"),
    "xai": ("xai_sdk", "xai"),
}
"""The library and the extra."""
_DEFAULT: Final = ("openai", "models")
"""The library and the extra of every other kind."""

OPENAI_WIRES: Final[frozenset[EndpointKind]] = frozenset(get_args(EndpointKind)) - frozenset(_LIBRARIES)
_NEWER_LIMIT: Final[frozenset[EndpointKind]] = frozenset(
    {"openai", "openai-responses", "openrouter", "cerebras", "crusoe", "meta"}
)
"""Kinds with OpenAI's newer name of the output limit, or a name that the library knows."""

OWN_FORMS: Final[frozenset[EndpointKind]] = frozenset(
    {"anthropic", "openai", "openai-responses", "google", "google-cloud"}
)
"""Kinds with native structured output, also together with tools and in a stream. An OpenAI-compatible server may ignore
the request for it silently."""
LONGEST_LINE: Final = 32 * 1024 * 1024
"""Bytes of one line of a stream. An image in base64 fits; a hundred megabytes do not."""
LONGEST_ERROR: Final = 256 * 1024
"""Bytes of the body of an error response that are read."""
_REMEMBERED: Final = 100
_LOAD_LIMIT_MS: Final = 10_000.0
_LONGEST_READ: Final = 600
"""Seconds. Amazon's library reads in a thread, which a timeout of the caller cannot interrupt."""
_REGION: Final = re.compile(r"\bbedrock-runtime[.-]([a-z0-9-]+)\.amazonaws\.")
_NO_KEY: Final = "no-key"
"""The key for clients that require one if the endpoint needs none."""


def how_to_install(kind: EndpointKind) -> str:
    """Return how to install the library of this kind."""
    return f'run pip install "clew-sessions[{_LIBRARIES.get(kind, _DEFAULT)[1]}]"'


def what_to_install(kind: EndpointKind) -> str | None:
    """Return how to install the library of this kind; None if it is installed. Imports at most a parent package."""
    for name in ("pydantic_ai", _LIBRARIES.get(kind, _DEFAULT)[0]):
        try:
            found = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            return how_to_install(kind)
    return None


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's address and key. ``repr`` does not show the key.

    ``ambient``: the values that the SDK reads from the environment (organisation, project, further headers) are meant
    for this endpoint, which is the vendor's own. ``seals`` names other providers whose reasoning can be sent to it.
    """

    provider_id: str
    kind: EndpointKind
    base_url: str | None = None
    api_key: str | None = None
    ambient: bool = False
    seals: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return repr_without_key(self)


class Connection:
    """An open client with its models. ``system`` is the library's name for the provider."""

    def __init__(self, close: Callable[[], Awaitable[None]], provider: Any, make_model: Callable[[str], Any]) -> None:
        self.system: str = provider.name
        self.base_url: str = provider.base_url
        self.close = close
        self._make_model = make_model
        self._models: dict[str, Any] = {}

    async def model(self, model_id: str) -> Any:
        known = self._models.get(model_id)
        if known is None:
            # In a thread: the first model of a kind loads modules and the table of model profiles.
            known = self._models[model_id] = await asyncio.to_thread(self.load_model, model_id)
            if len(self._models) > _REMEMBERED:
                self._models.pop(next(iter(self._models)))
        return known

    def load_model(self, model_id: str) -> Any:
        """Return a new model. It loads modules and the table of model profiles, so call it in a thread."""
        model = self._make_model(model_id)
        _ = model.profile
        return model


def connect(endpoint: Endpoint, connect_limit_ms: float) -> Connection:
    """Return the clients for an endpoint. It imports the libraries, which takes seconds, so call it in a thread."""
    import pydantic_ai.direct  # noqa: F401  (loaded here, in the thread)

    if endpoint.kind == "bedrock":
        return _connect_bedrock(endpoint, connect_limit_ms)
    if endpoint.kind == "xai":
        return _connect_xai(endpoint)
    # Groq's client only accepts the older of the two libraries.
    library = importlib.import_module("httpx" if endpoint.kind == "groq" else "httpx2")
    # The caller limits the silence between content; only connecting is limited here.
    timeout = library.Timeout(connect=connect_limit_ms / 1000, read=None, write=60.0, pool=60.0)
    http = library.AsyncClient(
        timeout=timeout,
        follow_redirects=False,
        event_hooks={"response": [functools.partial(_bounded, library)]},
        limits=library.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30.0),
    )
    if endpoint.kind in ("google", "google-cloud"):
        return _connect_google(endpoint, http)
    key = endpoint.api_key or _NO_KEY
    if endpoint.kind == "mistral":
        from pydantic_ai.providers.mistral import MistralProvider

        return _named(endpoint.kind, MistralProvider(api_key=key, base_url=endpoint.base_url, http_client=http), http)
    options = {"api_key": key, "http_client": http, "timeout": timeout, "max_retries": 0}
    if endpoint.kind == "groq":
        from groq import AsyncGroq
        from pydantic_ai.providers.groq import GroqProvider

        groq = AsyncGroq(base_url=endpoint.base_url or "https://api.groq.com", **options)
        return _named(endpoint.kind, GroqProvider(groq_client=groq), http)
    return (_connect_anthropic if endpoint.kind == "anthropic" else _connect_openai)(endpoint, http, options)


def load_libraries(endpoint: Endpoint, model_id: str) -> None:
    """Import what a call of this model needs. Nothing is connected."""
    import pydantic_ai.direct  # noqa: F401

    # Clients of the clouds look for credentials, also over the network.
    if endpoint.kind not in ("bedrock", "google-cloud"):
        connect(endpoint, _LOAD_LIMIT_MS).load_model(model_id)


def _named(kind: str, provider: Any, http: Any, profile: Any = None) -> Connection:
    """Return the models that the library infers for this name; ``profile`` overrides their profile."""
    from pydantic_ai.models import infer_model

    def make(name: str) -> Any:
        model = infer_model(f"{kind}:{name}", lambda _: provider)
        return model if profile is None else type(model)(name, provider=provider, profile=profile)

    return Connection(http.aclose, provider, make)


def _connect_anthropic(endpoint: Endpoint, http: Any, options: dict[str, Any]) -> Connection:
    from anthropic import AsyncAnthropic
    from pydantic_ai.providers.anthropic import AnthropicProvider

    address = endpoint.base_url or "https://api.anthropic.com"
    client: Any = AsyncAnthropic(base_url=address, open_telemetry=False, **options)
    if not endpoint.ambient:
        client._custom_headers = {}
    _ = client.beta.messages
    return _named("anthropic", AnthropicProvider(anthropic_client=client), http)


def _connect_openai(endpoint: Endpoint, http: Any, options: dict[str, Any]) -> Connection:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers import infer_provider_class
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    client: Any = AsyncOpenAI(base_url=endpoint.base_url or "https://api.openai.com/v1", **options)
    if not endpoint.ambient:
        client._custom_headers = {}
        client.organization = client.project = client.admin_api_key = None
    _ = client.chat.completions, client.responses
    # Most compatible servers only know the older name of the output limit.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    if endpoint.kind != "openai-compatible":
        # In the library, ``openai`` means the Responses API.
        kind = "openai-chat" if endpoint.kind == "openai" else endpoint.kind
        provider: Any = infer_provider_class(kind)
        return _named(kind, provider(openai_client=client), http, None if endpoint.kind in _NEWER_LIMIT else profile)
    provider = OpenAICompatibleProvider(endpoint.provider_id, openai_client=client)
    return Connection(http.aclose, provider, lambda name: OpenAIChatModel(name, provider=provider, profile=profile))


def _connect_google(endpoint: Endpoint, http: Any) -> Connection:
    from pydantic_ai.providers.google import GoogleProvider
    from pydantic_ai.providers.google_cloud import GoogleCloudProvider

    if endpoint.kind == "google":
        own = GoogleProvider(api_key=endpoint.api_key or _NO_KEY, base_url=endpoint.base_url, http_client=http)
        return _named(endpoint.kind, own, http)
    # Without a key, Google's own library finds the account, project and location.
    cloud = GoogleCloudProvider(api_key=endpoint.api_key, base_url=endpoint.base_url, http_client=http)
    return _named(endpoint.kind, cloud, http)


def _connect_bedrock(endpoint: Endpoint, connect_limit_ms: float) -> Connection:
    import boto3
    from botocore.config import Config
    from pydantic_ai.models.bedrock import BedrockConverseModel
    from pydantic_ai.providers.bedrock import BedrockProvider, _BearerTokenSession

    # Without a key, Amazon's own library finds the account and its region.
    options: dict[str, Any] = {"signature_version": "bearer"} if endpoint.api_key else {}
    config = Config(
        connect_timeout=connect_limit_ms / 1000,
        read_timeout=_LONGEST_READ,
        retries={"total_max_attempts": 1},
        **options,
    )
    bearer = _BearerTokenSession(endpoint.api_key) if endpoint.api_key else None
    # A request is signed for a region, which an address of Amazon contains and that of a proxy may not.
    named = _REGION.search(endpoint.base_url) if endpoint.base_url else None
    region = named[1] if named else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and endpoint.base_url:
        region = "us-east-1"
    client = boto3.Session(botocore_session=bearer, region_name=region).client(
        "bedrock-runtime", config=config, endpoint_url=endpoint.base_url
    )
    provider = BedrockProvider(bedrock_client=client)

    async def close() -> None:
        await asyncio.to_thread(client.close)

    return Connection(close, provider, lambda name: BedrockConverseModel(name, provider=provider))


def _connect_xai(endpoint: Endpoint) -> Connection:
    from pydantic_ai.models.xai import XaiModel
    from pydantic_ai.providers.xai import XaiProvider

    scheme, _, host = (endpoint.base_url or "https://api.x.ai").rpartition("://")
    provider: Any = XaiProvider(api_key=endpoint.api_key or _NO_KEY, api_host=host.rstrip("/"))
    # The library creates the client in the event loop that uses it; by default it retries.
    lazy = provider._lazy_client
    lazy._kwargs |= {"channel_options": [("grpc.enable_retries", 0)], "use_insecure_channel": scheme == "http"}

    async def close() -> None:
        if lazy._client is not None:
            await lazy._client.close()

    return Connection(close, provider, lambda name: XaiModel(name, provider=provider))


async def _bounded(library: Any, response: Any) -> None:
    """Limit the body of a response before it is read."""
    stream, refused = response.stream, response.status_code >= 400

    async def read(_: Any) -> AsyncIterator[bytes]:
        total = line = 0
        async for data in stream:
            total += len(data)
            newline = data.rfind(b"\n")
            line = line + len(data) if newline < 0 else len(data) - newline - 1
            if refused and total > LONGEST_ERROR:
                yield data[: LONGEST_ERROR - total]
                return
            if line > LONGEST_LINE:
                raise library.DecodingError(f"a line of the stream is longer than {LONGEST_LINE} bytes")
            yield data

    async def aclose(_: Any) -> None:
        await stream.aclose()

    # The client only accepts its own stream class, which is known once the library is imported.
    response.stream = type("BoundedStream", (library.AsyncByteStream,), {"__aiter__": read, "aclose": aclose})()
