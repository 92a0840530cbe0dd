"""The provider of one endpoint.

The limit on silence is measured between content, since pings only keep a connection alive. A stream is complete only if
the provider sent a finish reason; one that just ends was cut off.

An error response is classified by its status and text. A failed connection may work later. An invalid stream, or one
that reports an error, may be retried only while nothing of it was used. Keys are removed from every message, and the
chain of causes is dropped if it contains a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from clew.clock import Clock, SystemClock
from clew.providers.base import (
    FailureCause,
    FailureKind,
    ModelRequest,
    ProviderFailure,
    StepEnd,
    ToolSchema,
    UsageUpdate,
)
from clew.providers.failure import kind_of_status, parse_retry_after, says_account, says_overflow
from clew.providers.pydantic_ai.endpoint import OPENAI_WIRES, OWN_FORMS, Connection, Endpoint, connect, how_to_install
from clew.providers.pydantic_ai.history import sent_calls, translate, translate_tools
from clew.providers.pydantic_ai.stream import Translator, first_usage, refusal_of, says_end, step_end, usage_of
from clew.transcript.chunk import Chunk
from clew.transcript.usage import Usage

__all__ = ["CONNECT_LIMIT_MS", "EFFORTS", "IDLE_LIMIT_MS", "PydanticAIProvider"]

CONNECT_LIMIT_MS: Final = 10_000
IDLE_LIMIT_MS: Final = 120_000
LEAST_THINKING: Final = 1_024
"""Tokens. Anthropic refuses a smaller budget."""
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The variants of a real model: its level of effort for one turn."""

_ASKED_TO_CACHE: Final = frozenset({"anthropic", "bedrock", "openai", "openai-responses", "openrouter"})

T = TypeVar("T")


class PydanticAIProvider:
    """The provider of one endpoint's models. ``idle_limit_ms`` limits the time without content."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock | None = None,
        idle_limit_ms: float = IDLE_LIMIT_MS,
        connect_limit_ms: float = CONNECT_LIMIT_MS,
    ) -> None:
        self.endpoint = endpoint
        self._clock = clock or SystemClock()
        self._idle_limit_ms = idle_limit_ms
        self._connect_limit_ms = connect_limit_ms
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"PydanticAIProvider({self.endpoint!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | UsageUpdate | StepEnd, None]:
        connection = await self._connected()
        model = await self._model(connection, request)
        form = self._own_form(model, request)
        call = self._call(connection, model, request, form)
        translator = Translator(request, self.endpoint.provider_id, answer=form.name if form is not None else None)
        events: Any = None
        response: Any = None
        used = Usage()
        try:
            async with contextlib.AsyncExitStack() as stack:
                response = await self._within_limit(stack.enter_async_context(call))
                # The library reads one event ahead. Report its usage before the first content.
                used = await first_usage(response)
                if used.total:
                    yield UsageUpdate(used)
                events = aiter(response)
                last: Any = None
                while True:
                    try:
                        event = await self._within_limit(anext(events, None))
                    except Exception:
                        if not says_end(response):
                            raise
                        # An error after the finish reason does not matter.
                        event = None
                    if event is None:
                        break
                    if event.event_kind == "part_end" and event.next_part_kind is None:
                        # The library ends the last part at the end of the stream, even if that was cut off.
                        last = event
                        continue
                    if (newest := usage_of(response.usage)) != used and newest.total:
                        used = newest
                        yield UsageUpdate(used)
                    for chunk in translator.take(event):
                        yield chunk
                if not says_end(response):
                    raise self._failure("ended its stream before the answer was complete", cause="broken_off")
                for chunk in translator.end(last, refusal=refusal_of(response)):
                    yield chunk
                yield step_end(response, has_calls=translator.has_calls)
        except (Exception, asyncio.CancelledError) as error:
            # Report usage that arrived after the last content, and a refusal, which the library holds back until the
            # end.
            if response is not None and (refusal := refusal_of(response)):
                for chunk in translator.refuse(refusal):
                    yield chunk
            if response is not None and (newest := usage_of(response.usage)) != used and newest.total:
                yield UsageUpdate(newest)
            if isinstance(error, ProviderFailure | asyncio.CancelledError):
                raise
            _raise_failure(
                error,
                self.endpoint.provider_id,
                began=translator.began,
                now_ms=self._clock.now_ms(),
                secrets=[self.endpoint.api_key] if self.endpoint.api_key else [],
            )
        finally:
            if events is not None:
                await events.aclose()

    def _failure(
        self, says: str, kind: FailureKind = "transient", cause: FailureCause | None = None
    ) -> ProviderFailure:
        name = self.endpoint.provider_id
        return ProviderFailure(f"{name} {says}", kind=kind, cause=cause, provider_id=name)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self._connection is None:
                try:
                    self._connection = await asyncio.to_thread(connect, self.endpoint, self._connect_limit_ms)
                except ImportError as error:
                    what = f"needs a library that is not there ({error.name}): {how_to_install(self.endpoint.kind)}"
                    raise self._failure(what, "unknown", "not_installed") from error
                except Exception as error:
                    # The libraries of clouds look for an account, and their error says what is missing.
                    raise self._failure(f"cannot be set up: {error}", "auth") from error
            return self._connection

    async def _model(self, connection: Connection, request: ModelRequest) -> Any:
        from pydantic_ai.exceptions import UserError

        try:
            return await connection.model(request.model.model_id)
        except UserError as error:
            # The library needs the vendor in OpenRouter's names to choose an API.
            says = f"has no model {request.model.model_id!r}: its names begin with their maker, as openai/gpt-4o does"
            raise self._failure(says, "invalid", "no_model") from error

    def _own_form(self, model: Any, request: ModelRequest) -> ToolSchema | None:
        """Return the tool whose arguments are the answer, if the API has native structured output."""
        form = next((tool for tool in request.tools if tool.name == request.answer), None)
        if self.endpoint.kind not in OWN_FORMS or not model.profile.get("supports_json_schema_output", False):
            return None
        # Older models of Google do not combine structured output with tools.
        alone = self.endpoint.kind in ("google", "google-cloud") and len(request.tools) > 1
        return None if alone and not model.profile.get("google_supports_tool_combination", False) else form

    def _call(self, connection: Connection, model: Any, request: ModelRequest, form: ToolSchema | None) -> Any:
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition

        asked: dict[str, Any] = {}
        if form is not None:
            request = msgspec.structs.replace(request, tools=[tool for tool in request.tools if tool is not form])
            schema = OutputObjectDefinition(dict(form.input_schema), form.name)
            asked = {"output_mode": "native", "output_object": schema}
        return model_request_stream(
            model,
            translate(
                request,
                self.endpoint.provider_id,
                connection.system,
                model.canonical_system,
                marks=self.endpoint.kind == "anthropic",
                short_ids=self.endpoint.kind == "mistral",
                seals=self.endpoint.seals,
            ),
            model_settings=self._settings(model, request),
            model_request_parameters=ModelRequestParameters(function_tools=translate_tools(request), **asked),
            instrument=False,
        )

    def _settings(self, model: Any, request: ModelRequest) -> Any:
        settings: dict[str, Any] = {}
        variant = request.model.variant
        if request.max_output_tokens is not None:
            settings["max_tokens"] = request.max_output_tokens
        if variant is not None:
            if variant not in EFFORTS:
                raise ProviderFailure(
                    f"{request.model} has no variant {variant!r}; there are {', '.join(EFFORTS)}", kind="invalid"
                )
            settings["thinking"] = False if variant == "none" else variant
            if not model.profile.get("supports_thinking", False):
                # The library would ignore the effort silently. It knows the models of the vendors, but not those of
                # other servers.
                if self.endpoint.kind not in OPENAI_WIRES or (self.endpoint.ambient and self.endpoint.base_url is None):
                    raise self._failure(f"has no effort for {request.model.model_id}: leave :{variant} out", "invalid")
                settings["openai_reasoning_effort"] = variant
            if variant != "none" and self.endpoint.kind == "anthropic":
                settings.update(_within_output(model.profile, variant, request.max_output_tokens))
        elif request.temperature is not None and _takes_temperature(model.profile):
            settings["temperature"] = request.temperature
        if self.endpoint.kind in _ASKED_TO_CACHE and not request.once:
            # Every step sends the conversation again, so caching pays wherever it must be requested. A single request
            # would only pay for the write. An OpenAI-compatible server may refuse the unknown field.
            settings["cache"] = True
        if not request.tools and sent_calls(request.messages):
            settings["tool_choice"] = "none"
        # The provider does not store the conversation: reasoning is returned encrypted, to be sent again.
        if self.endpoint.kind in ("openai-responses", "meta"):
            settings["openai_store"] = False
        elif self.endpoint.kind == "xai":
            settings["xai_include_encrypted_content"] = True
        return settings

    async def _within_limit(self, wait: Awaitable[T]) -> T:
        """Wait at most as long as the provider may be silent."""
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                timer = self._clock.call_later(self._idle_limit_ms, lambda: limit.reschedule(loop.time()))
                try:
                    return await wait
                finally:
                    timer.cancel()
        except TimeoutError:
            if limit.expired():
                says = f"sent nothing for {self._idle_limit_ms / 1000:g} s"
                raise self._failure(says, cause="provider_down") from None
            raise


def _within_output(profile: Any, variant: str, limit: int | None) -> dict[str, Any]:
    """Return a thinking budget that leaves room for the answer; Anthropic refuses one above the output limit."""
    from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP

    if limit is None or profile.get("anthropic_supports_adaptive_thinking", False):
        return {}
    budget = min(ANTHROPIC_THINKING_BUDGET_MAP[variant], limit // 2)
    if budget < LEAST_THINKING:
        return {"thinking": False}
    return {"anthropic_thinking": {"type": "enabled", "budget_tokens": budget}}


def _takes_temperature(profile: Any) -> bool:
    """Return whether a model accepts a temperature. Reasoning models refuse it, and the library would warn each
    time."""
    return not (profile.get("openai_supports_reasoning") or profile.get("anthropic_disallows_sampling_settings"))


_LONGEST_TEXT: Final = 500
_KEYS: Final = re.compile(r"\b((?:sk|key|pk|rk|gsk|xai)[-_]|AIza)[-_A-Za-z0-9]{12,}")


def _raise_failure(error: Exception, provider_id: str, *, began: bool, now_ms: int, secrets: Iterable[str]) -> NoReturn:
    """Raise the failure for an error. ``began``: part of the answer was used already."""
    hidden = [secret for secret in secrets if len(secret) >= 4]
    failure = _failure(error, provider_id, began=began, now_ms=now_ms, hidden=hidden)
    shown = "\n".join(f"{link} {link!r} {getattr(link, 'body', '')}" for link in _chain(error))
    if any(secret in shown for secret in hidden):
        raise failure from None
    raise failure from error


def _failure(error: Exception, provider_id: str, *, began: bool, now_ms: int, hidden: Iterable[str]) -> ProviderFailure:
    import httpx2
    from pydantic_ai import exceptions as theirs

    def failed(says: str, kind: FailureKind, **fields: Any) -> ProviderFailure:
        return ProviderFailure(_clean(f"{provider_id} {says}", hidden), kind=kind, provider_id=provider_id, **fields)

    senseless: FailureKind = "invalid" if began else "transient"
    if isinstance(error, theirs.ModelHTTPError):
        text = _words(error.body)
        kind = kind_of_status(error.status_code, text)
        if isinstance(error, theirs.ModelContextWindowExceededError):
            kind = "overflow"
        elif isinstance(error, theirs.ModelQuotaExceededError):
            kind = "auth"
        says = f"{'failed while it answered' if error.in_stream else 'answered'} {error.status_code}"
        headers = error.headers or {}
        wait_ms = parse_retry_after(headers.get("retry-after-ms"), now_ms, unit_ms=1)
        if wait_ms is None:
            wait_ms = parse_retry_after(headers.get("retry-after"), now_ms)
        says = f"{says}: {text}" if text else says
        cause: FailureCause | None = "no_credit" if kind == "auth" and says_account(text) else None
        return failed(says, kind, status=error.status_code, retry_after_ms=wait_ms, cause=cause)
    causes = list(_chain(error))
    unreadable = next((cause for cause in causes if isinstance(cause, httpx2.DecodingError)), None)
    if unreadable is not None:
        return failed(f"sent an unreadable response: {unreadable}", senseless, cause="broken_off")
    if isinstance(error, theirs.ModelConnectionError | httpx2.TransportError | OSError):
        # The innermost cause says what happened; the others say that something did.
        reason = str(causes[-1]) or type(causes[-1]).__name__
        says = f"{'broke the connection' if began else 'could not be reached'}: {reason}"
        return failed(says, "transient", cause="broken_off" if began else "unreachable")
    if isinstance(error, theirs.ModelAPIError):
        text = _words(error.body) or str(error)
        if says_overflow(text):
            return failed(f"failed while it answered: {text}", "overflow")
        if says_account(text):
            return failed(f"failed while it answered: {text}", "auth", cause="no_credit")
        return failed(f"failed while it answered: {text}", senseless, cause="provider_down")
    if isinstance(error, theirs.UserError):
        return failed(f"cannot take this request: {error}", "invalid")
    return failed(f"sent an invalid response: {type(error).__name__}: {error}", senseless, cause="broken_off")


def _words(body: object) -> str:
    """Return the message in the body of an error response, whose structure depends on the provider."""
    if isinstance(body, str) and body.lstrip().startswith("{"):
        # Mistral's client passes the body on unparsed.
        with contextlib.suppress(ValueError):
            body = json.loads(body)
    for _ in range(4):
        if not isinstance(body, Mapping):
            break
        inner = next(
            (body[key] for key in ("error", "message", "detail", "errors", "Error", "Message") if body.get(key)), None
        )
        if inner is None:
            break
        code = body.get("code")
        if isinstance(inner, str) and isinstance(code, str) and code not in inner:
            return f"{inner} ({code})"
        body = inner
    if isinstance(body, list) and body:
        return _words(body[0])
    return "" if body is None else str(body)


def _clean(text: str, hidden: Iterable[str]) -> str:
    for secret in hidden:
        text = text.replace(secret, "…")
    text = _KEYS.sub(lambda match: f"{match[1]}…", " ".join(text.split()))
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
