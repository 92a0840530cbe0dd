"""The provider interface: a model call takes a request and yields a stream of chunks.

A provider only reaches a model: it has no session, store or loop. It yields the *content* of one step as chunks: text,
reasoning and files, each opened and closed, and tool calls as ``tool-input-start`` / ``-delta`` / ``-available``. The
loop adds ``start-step`` and ``finish-step``. The last item is a :class:`StepEnd` with the usage in five disjoint kinds.
Usage that the endpoint reports earlier is yielded as a :class:`UsageUpdate` immediately, also right before a failure,
so that an interrupted call is paid for. Ids of texts and calls are unique within the call.

Errors are raised as :class:`ProviderFailure`, whose ``kind`` says what may help. A provider never retries by itself, so
that every attempt is visible. Closing the iterator early (``aclose``) cancels the call and frees its connection.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, Protocol

import msgspec

from clew.errors import ModelFailed
from clew.transcript.chunk import Chunk
from clew.transcript.file_rule import UNKNOWN, FileRule
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.turn import NOT_REPORTED
from clew.transcript.usage import Usage

__all__ = [
    "NO_MODEL",
    "CallPurpose",
    "EndpointKind",
    "FailureCause",
    "FailureKind",
    "ModelInfo",
    "ModelListing",
    "ModelRequest",
    "Provider",
    "ProviderFailure",
    "Providers",
    "StepEnd",
    "ToolSchema",
    "UsageUpdate",
    "cause_of",
    "repr_without_key",
]

NO_MODEL: Final = Model("demo", "tour")
"""The model that is used if no key is set and no model is configured."""

EndpointKind = Literal[
    "openai",
    "openai-responses",
    "openai-compatible",
    "anthropic",
    "openrouter",
    "ollama",
    "google",
    "google-cloud",
    "bedrock",
    "mistral",
    "groq",
    "xai",
    "alibaba",
    "cerebras",
    "crusoe",
    "deepseek",
    "fireworks",
    "heroku",
    "litellm",
    "meta",
    "moonshotai",
    "nebius",
    "ovhcloud",
    "sambanova",
    "together",
    "vercel",
    "vllm",
    "zai",
]
"""``openai``, ``openai-responses`` and ``anthropic`` are the APIs of these vendors, which gateways offer too; a
compatible one may support less. The others have the names that pydantic-ai uses."""

CallPurpose = Literal["answer", "subagent", "title", "summary"]
"""The purpose of a model call: a step of a user's turn, a step of a subagent, a session's title, a compaction."""

FailureKind = Literal[
    # The same call may succeed later. It is retried, as long as no part of the answer was received.
    "transient",
    # The request is larger than the model's window. clew prunes or compacts more, and calls again.
    "overflow",
    # The key or the account is refused, or there is none. The turn ends.
    "auth",
    # The request or the response is invalid. clew calls again without structured output, or without files of earlier
    # turns, if the request had them; else the turn ends.
    "invalid",
    # Any other failure. The turn ends.
    "unknown",
]
"""The kind of a failed call: it decides whether the call is repeated."""

FailureCause = Literal[
    # The provider has no key; ``key_name`` says which variable to set.
    "no_key",
    # The provider refused the key.
    "key_refused",
    # The account has no credit left.
    "no_credit",
    # Too many calls in a short time.
    "rate_limit",
    # The provider answered with an error of its own.
    "provider_down",
    # No connection to the provider.
    "unreachable",
    # The connection broke off in the middle of an answer.
    "broken_off",
    # The request is larger than the context window.
    "too_large",
    # The provider has no such model.
    "no_model",
    # The provider refused the request.
    "request_refused",
    # The library for this provider is not installed.
    "not_installed",
    # Anything else.
    "unknown",
]
"""Why a call failed, in terms of what a user can do about it. The kind says whether it is retried."""


class ToolSchema(msgspec.Struct, frozen=True):
    """A tool definition as a model receives it. ``input_schema`` is JSON Schema."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. ``messages`` is the model view: AI SDK messages in order, every tool call with its result.

    ``once``: no later request begins with it, so that caching it is of no use. ``settled_call``: the messages up to
    this call change less often than the rest, so that a provider with explicit cache points should set one there.
    ``purpose`` is the purpose of the call; providers may ignore it. ``answer`` names the tool whose arguments are the
    structured output: a provider with native structured output may use that instead of the tool, and yields the value
    as a call of the tool.
    """

    model: Model
    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    max_output_tokens: int | None = None
    temperature: float | None = None
    once: bool = False
    settled_call: str | None = None
    answer: str | None = None
    purpose: CallPurpose = "answer"


class UsageUpdate(msgspec.Struct, frozen=True):
    """The usage of the call so far, as counted by the provider. Each update replaces the previous one."""

    usage: Usage


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a call. ``finish_reason`` is for display: the loop depends on the presence of tool calls."""

    usage: Usage
    finish_reason: Literal["stop", "length", "content-filter", "tool-calls", "error", "other"] = "stop"
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_counted(self) -> bool:
        """Whether the provider reported the usage of the call."""
        return self.data.get("usage") != NOT_REPORTED


class ProviderFailure(ModelFailed):
    """A failed call. ``retry_after_ms`` is the delay that the provider asked for, if any.

    ``cause`` is derived from the kind and the status unless it is passed. With ``provider_id`` and ``key_name`` it is
    stored with the turn's error, and fronts choose their messages by it.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        status: int | None = None,
        retry_after_ms: int | None = None,
        cause: FailureCause | None = None,
        **ids: object,
    ) -> None:
        self.cause: FailureCause = cause or cause_of(kind, status)
        super().__init__(message, status=status, cause=self.cause, **ids)
        self.kind = kind
        self.status = status
        self.retry_after_ms = retry_after_ms


def cause_of(kind: FailureKind, status: int | None) -> FailureCause:
    """Return the most likely cause of a failure of this kind with this status."""
    if kind == "overflow":
        return "too_large"
    if kind == "auth":
        # Some providers report an exhausted account as 429, for which waiting would not help.
        return "no_credit" if status in (402, 429) else "key_refused"
    if kind == "transient":
        return "unreachable" if status is None else "rate_limit" if status == 429 else "provider_down"
    if kind == "invalid":
        return "no_model" if status == 404 else "request_refused"
    return "unknown"


def repr_without_key(settings: msgspec.Struct) -> str:
    """Return the ``repr`` of settings without their ``api_key``, which must not appear in a log."""
    shown = {name: getattr(settings, name) for name in settings.__struct_fields__}
    if shown["api_key"] is not None:
        shown["api_key"] = "…"
    return f"{type(settings).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Provider(Protocol):
    """Access to the models of one provider id. A subclass only has to implement ``stream``."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | UsageUpdate | StepEnd, None]:
        """Yield the content of one step, then its :class:`StepEnd`. Raises :class:`ProviderFailure`."""
        ...

    async def close(self) -> None:
        """Close connections. The default is for a provider without connections."""
        return


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a model. ``known=False``: the model is unknown, and the limits are cautious guesses.

    ``output_known=False``: ``max_output`` is an estimate and not the model's own limit. It is never sent, so that no
    answer is cut short by a guess. ``summariser`` and ``titler`` are the provider's cheap models for these tasks;
    without a titler a session's title is the start of its first prompt. ``variants`` are the values allowed after a
    colon, for one turn. ``files`` are the media types it accepts besides text; ``image/*`` means all images.
    ``file_rule`` is how its provider counts tokens of files. ``seals`` names other providers whose reasoning can be
    sent to it. ``kind`` is the kind of its endpoint.
    """

    model: Model
    window: int
    max_output: int
    tools: bool = True
    summariser: Model | None = None
    titler: Model | None = None
    variants: tuple[str, ...] = ()
    known: bool = True
    output_known: bool = True
    files: tuple[str, ...] = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
    file_rule: FileRule = UNKNOWN
    seals: tuple[str, ...] = ()
    kind: EndpointKind | None = None

    def takes(self, media_type: str) -> bool:
        """Return whether a file of this type can be sent to it unchanged."""
        return any(fnmatchcase(media_type.lower(), one.lower()) for one in self.files)


class ModelListing(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the list of models. ``reason`` says why a model cannot be used, and what to do about it.

    ``files`` are the media types it accepts besides text, as in :class:`ModelInfo`. ``caching``: input that is sent
    again costs less. ``known=False``: the limits are guesses.
    """

    id: str
    window: int
    max_output: int
    usable: bool
    reason: str | None = None
    default: bool = False
    variants: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    tools: bool = True
    caching: bool = False
    known: bool = True


class Providers(Protocol):
    """All providers of a host, and descriptions of their models."""

    def get(self, provider_id: str) -> Provider:
        """Return a provider. Raises ``InvalidInput`` for an unknown id, ``ProviderFailure`` (auth) without a key."""
        ...

    def parse(self, named: str | Model | dict[str, Any]) -> Model:
        """Return the model of a name (:mod:`clew.providers.naming`).

        Raises ``InvalidInput`` for an unknown provider, ``UnknownVariant`` for a variant the model does not have.
        """
        ...

    def info(self, model: Model) -> ModelInfo: ...

    def cost(self, model: Model, usage: Usage) -> float | None:
        """Return US dollars; None if prices are unknown."""
        ...

    def models(self) -> Sequence[ModelListing]: ...

    def default_model(self) -> Model: ...

    async def close(self) -> None: ...
