"""The provider contract: one model call in, a stream of chunks out.

A provider knows how to reach a model and nothing else: no session, no store, no loop. It yields the *content* of one
step in the chunk vocabulary: text, reasoning and files, each opened and closed, and tool calls as
``tool-input-start`` / ``-delta`` / ``-available``. ``start-step`` and ``finish-step`` are the loop's. The last item
is a :class:`StepEnd` with the usage in five disjoint kinds. What the wire says about the usage before that comes as a
:class:`UsageUpdate` at once, also right before a failure: a call that breaks off has cost what was said. Ids of texts
and calls are unique within the call.

What goes wrong is raised as :class:`ProviderFailure`, whose ``kind`` says what may help; never retried inside, so
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
"""What answers where no key is set and no model is configured."""

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
"""``openai``, ``openai-responses`` and ``anthropic`` are their makers' own wires, spoken by gateways too; a
compatible one may know less. The others are called what pydantic-ai calls them."""

CallPurpose = Literal["answer", "subagent", "title", "summary"]
"""Why a model is called: a step of a person's turn, a step of a subagent's, a session's title, a compaction."""

FailureKind = Literal["transient", "overflow", "auth", "invalid", "unknown"]
"""transient: the same call may work later. overflow: the request is larger than the window. auth: the key or the
account. invalid: the request or the answer makes no sense. unknown: anything else; not tried again."""

FailureCause = Literal[
    "no_key",
    "key_refused",
    "no_credit",
    "rate_limit",
    "provider_down",
    "unreachable",
    "broken_off",
    "too_large",
    "no_model",
    "request_refused",
    "not_installed",
    "unknown",
]
"""Why a call failed, as a person would ask. The kind says whether it is tried again; this, what one can do about it."""


class ToolSchema(msgspec.Struct, frozen=True):
    """A tool as a model is told about it. ``input_schema`` is JSON Schema."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. ``messages`` is the model view: AI SDK messages in order, every tool call with its result.

    ``once``: nothing that is sent later begins with it, so a provider need not keep it. ``settled_call``: up to this
    call it stays as it is for longer than the rest, so a provider that keeps what it is told to had better keep that.
    ``purpose`` says why the model is called; providers may ignore it.
    ``answer`` names the tool whose arguments are the answer: one that has a way of its own to ask for a value of a
    schema may use that in place of the tool, and tells what came as a call of it.
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
    """What the call has used so far by the provider's own count; each one replaces the one before."""

    usage: Usage


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended. ``finish_reason`` is for show: the loop goes by the presence of calls."""

    usage: Usage
    finish_reason: Literal["stop", "length", "content-filter", "tool-calls", "error", "other"] = "stop"
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_counted(self) -> bool:
        """The provider said what the call used."""
        return self.data.get("usage") != NOT_REPORTED


class ProviderFailure(ModelFailed):
    """A call that did not end well. ``retry_after_ms`` is the provider's own word, when it gave one.

    ``cause`` follows from the kind and the status unless it is given; with ``provider_id`` and ``key_name`` it is kept
    with the turn's error, and fronts have their words from it.
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
    """What a failure of this kind, with this status, most likely comes from."""
    if kind == "overflow":
        return "too_large"
    if kind == "auth":
        # A limit of the account's is told as too many requests by some, and waiting would not help.
        return "no_credit" if status in (402, 429) else "key_refused"
    if kind == "transient":
        return "unreachable" if status is None else "rate_limit" if status == 429 else "provider_down"
    if kind == "invalid":
        return "no_model" if status == 404 else "request_refused"
    return "unknown"


def repr_without_key(settings: msgspec.Struct) -> str:
    """How settings with an ``api_key`` are shown: a key must not end up in a log."""
    shown = {name: getattr(settings, name) for name in settings.__struct_fields__}
    if shown["api_key"] is not None:
        shown["api_key"] = "…"
    return f"{type(settings).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Provider(Protocol):
    """Reaches the models of one provider id. A class below it needs ``stream`` and nothing else."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | UsageUpdate | StepEnd, None]:
        """The content of one step, then its :class:`StepEnd`. Raises :class:`ProviderFailure`."""
        ...

    async def close(self) -> None:
        """Let go of connections; a provider that has none leaves it as it is."""
        return


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a model. ``known=False``: nothing was, and the figures are cautious guesses.

    ``output_known=False``: ``max_output`` is what is planned with, and not the model's own limit; it is never sent, so
    that no answer is cut short by a guess.
    ``summariser`` and ``titler`` are the provider's cheap models for those jobs; without a titler a session is
    named after its first words. ``variants`` are what it can be asked for behind a colon, for one turn.
    ``files`` are the media types it takes beside text, which every model does; ``image/*`` stands for all of a kind.
    ``file_rule`` is how its provider counts them. ``seals`` names other providers whose reasoning can be sent to it.
    ``kind`` is that of the endpoint it is reached at.
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
        """Whether a file of this type can be sent to it as it is."""
        return any(fnmatchcase(media_type.lower(), one.lower()) for one in self.files)


class ModelListing(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the list of models. ``reason`` says why one cannot be used, and what to do about it.

    ``files`` are the media types it takes beside text, as :class:`ModelInfo` has them. ``caching``: what is sent again
    costs less there. ``known=False``: the figures are guesses.
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
    """Every provider a host has, and what is known about their models. Composed by the engine."""

    def get(self, provider_id: str) -> Provider:
        """Raises ``InvalidInput`` for an id nobody configured, ``ProviderFailure`` (auth) for one without a key."""
        ...

    def parse(self, named: str | Model | dict[str, Any]) -> Model:
        """The model somebody means (:mod:`clew.providers.naming`).

        Raises ``InvalidInput`` for a provider nobody knows, ``UnknownVariant`` for a variant the model does not have.
        """
        ...

    def info(self, model: Model) -> ModelInfo: ...

    def cost(self, model: Model, usage: Usage) -> float | None:
        """US dollars, when prices are known; never computed by the recorder."""
        ...

    def models(self) -> Sequence[ModelListing]: ...

    def default_model(self) -> Model: ...

    async def close(self) -> None: ...
