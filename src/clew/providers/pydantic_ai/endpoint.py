"""Where models are reached, and the HTTP client and SDK client for it.

SDK clients never retry by themselves (an attempt nobody sees makes the status lie) and follow no redirect (a prompt
goes where the user said). They read from the environment by their own; what they find there is meant for their
makers' endpoints and is taken away again for any other. What a server sends is bounded: a line without end, or an
error page without end, does not fill the memory.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from clew.providers.base import EndpointKind, repr_without_key

__all__ = ["LONGEST_ERROR", "LONGEST_LINE", "Connection", "Endpoint", "connect", "is_installed"]

LONGEST_LINE: Final = 32 * 1024 * 1024
"""Bytes of one line of a stream. An image in base64 fits; a hundred megabytes do not."""
LONGEST_ERROR: Final = 256 * 1024
"""Bytes of the body of a refusal; what is beyond is not read."""

_REMEMBERED: Final = 100
_NO_KEY: Final = "no-key"
"""What is sent where a key is not needed but a client insists on one."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's address and key. The key is not shown by ``repr``.

    ``ambient``: what the SDK finds in the environment by itself (organisation, project, further headers) is meant for
    this endpoint. Only its maker's own endpoint is such a one.
    """

    provider_id: str
    kind: EndpointKind
    base_url: str | None = None
    api_key: str | None = None
    ambient: bool = False

    def __repr__(self) -> str:
        return repr_without_key(self)


def is_installed() -> bool:
    """Whether the libraries for real models are there; does not import them."""
    return all(importlib.util.find_spec(name) is not None for name in ("pydantic_ai", "openai", "anthropic"))


class Connection:
    """An open HTTP client with the models reached through it. ``system`` is what the library calls the provider."""

    def __init__(self, http: Any, provider: Any, make_model: Callable[[str], Any]) -> None:
        self.system: str = provider.name
        self.base_url: str = provider.base_url
        self._http = http
        self._make_model = make_model
        self._models: dict[str, Any] = {}

    async def model(self, model_id: str) -> Any:
        known = self._models.get(model_id)
        if known is None:
            # Made in a thread: the first one of its kind loads modules and the table of what models can do.
            known = self._models[model_id] = await asyncio.to_thread(self._made, model_id)
            if len(self._models) > _REMEMBERED:
                self._models.pop(next(iter(self._models)))
        return known

    async def close(self) -> None:
        await self._http.aclose()

    def _made(self, model_id: str) -> Any:
        model = self._make_model(model_id)
        _ = model.profile
        return model


def connect(endpoint: Endpoint, connect_limit_ms: float) -> Connection:
    """Clients for an endpoint. Imports the libraries, which takes seconds: not for the event loop."""
    import httpx2
    import pydantic_ai.direct  # noqa: F401  loaded here, so that no call waits for it

    # Silence is measured by the caller, over content; here only the time to get through counts.
    timeout = httpx2.Timeout(connect=connect_limit_ms / 1000, read=None, write=60.0, pool=60.0)
    http = httpx2.AsyncClient(
        timeout=timeout,
        follow_redirects=False,
        event_hooks={"response": [_bounded]},
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30.0),
    )
    options = {"api_key": endpoint.api_key or _NO_KEY, "http_client": http, "timeout": timeout, "max_retries": 0}
    return (_connect_anthropic if endpoint.kind == "anthropic" else _connect_openai)(endpoint, http, options)


def _connect_anthropic(endpoint: Endpoint, http: Any, options: dict[str, Any]) -> Connection:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    address = endpoint.base_url or "https://api.anthropic.com"
    client: Any = AsyncAnthropic(base_url=address, open_telemetry=False, **options)
    if not endpoint.ambient:
        client._custom_headers = {}
    _ = client.beta.messages
    provider = AnthropicProvider(anthropic_client=client)
    return Connection(http, provider, lambda name: AnthropicModel(name, provider=provider))


def _connect_openai(endpoint: Endpoint, http: Any, options: dict[str, Any]) -> Connection:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    client: Any = AsyncOpenAI(base_url=endpoint.base_url or "https://api.openai.com/v1", **options)
    if not endpoint.ambient:
        client._custom_headers = {}
        client.organization = client.project = client.admin_api_key = None
    _ = client.chat.completions, client.responses
    if endpoint.kind in ("openai", "openai-responses"):
        own = OpenAIProvider(openai_client=client)
        speaks = OpenAIChatModel if endpoint.kind == "openai" else OpenAIResponsesModel
        return Connection(http, own, lambda name: speaks(name, provider=own))
    if endpoint.kind == "openrouter":
        from pydantic_ai.models.openrouter import OpenRouterModel
        from pydantic_ai.providers.openrouter import OpenRouterProvider

        gateway = OpenRouterProvider(openai_client=client)
        return Connection(http, gateway, lambda name: OpenRouterModel(name, provider=gateway))
    provider = OpenAICompatibleProvider(endpoint.provider_id, openai_client=client)
    # Servers that speak this dialect know the older name of the limit, and few the newer one.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return Connection(http, provider, lambda name: OpenAIChatModel(name, provider=provider, profile=profile))


async def _bounded(response: Any) -> None:
    """Put a bound around what a response sends, before anybody reads it."""
    import httpx2

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
                raise httpx2.DecodingError(f"a line of the stream is longer than {LONGEST_LINE} bytes")
            yield data

    async def aclose(_: Any) -> None:
        await stream.aclose()

    # The client takes nothing but its own kind of stream, and that kind is known only once it is imported.
    response.stream = type("BoundedStream", (httpx2.AsyncByteStream,), {"__aiter__": read, "aclose": aclose})()
