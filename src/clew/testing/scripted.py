"""Models that follow a script, so that a test reads like the conversation it describes.

One entry of the script per model call::

    model = ScriptedModel([
        call("read", {"path": "a.txt"}),                    # one tool call
        [say("Both."), call("ls", {}), call("read", {})],   # several pieces in one step
        fail(429, retry_after_ms=1000),                     # an error before the first chunk
        then(say("done"), usage=Usage(input=7, output=3)),  # a step with its own usage
        [report(Usage(input=7)), cut_after(2, say("one two"))],  # reports usage, breaks off after two chunks
        hang(),                                             # never ends by itself
    ])
    providers = FakeProviders(model)

A gate is an ``asyncio.Event``: the model waits there until the test sets it. A :class:`Gate` also signals that the
model has reached it. Requests are collected in ``requests``; calls that were closed before their end are counted in
``closed_early``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from clew.providers.base import (
    FailureKind,
    ModelInfo,
    ModelRequest,
    Provider,
    ProviderFailure,
    StepEnd,
    UsageUpdate,
)
from clew.providers.failure import kind_of_status
from clew.providers.host_providers import ProviderSet
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk, FinishReason
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = [
    "FakeProviders",
    "Gate",
    "Piece",
    "ScriptedModel",
    "Turnout",
    "call",
    "chunks",
    "cut_after",
    "fail",
    "hang",
    "report",
    "say",
    "then",
    "think",
    "wait",
]

Item: TypeAlias = Chunk | UsageUpdate | asyncio.Event | BaseException
"""An item of a script: a chunk or a usage to yield, a gate to wait at, an exception to raise."""

DEFAULT_USAGE: Final = Usage(input=10, output=5)
_BROKEN: Final = "the connection was lost"


class Gate(asyncio.Event):
    """A point where a model waits. ``reached`` is set when it gets there, ``set`` lets it continue."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.reached.set()
        await super().wait()
        return True


class _Ids:
    """Ids of one model, counted over all its calls, so that they are unique in a session."""

    def __init__(self) -> None:
        self._count = 0

    def next(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"


class Piece(msgspec.Struct, frozen=True):
    """A part of a step, created when it is played."""

    make: Callable[[_Ids], Iterable[Item]]


class Turnout(msgspec.Struct, frozen=True):
    """The course of one model call: its pieces, and its end unless one of them raises."""

    pieces: tuple[Piece, ...]
    usage: Usage | None = None
    finish: FinishReason | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)


Entry: TypeAlias = Piece | Turnout | Sequence[Piece]
Script: TypeAlias = Iterable[Entry | Callable[[ModelRequest], Entry]]


# Pieces


def say(text: str, *, id: str | None = None) -> Piece:
    """Return a text, word by word."""

    def make(ids: _Ids) -> Iterator[Item]:
        own = id or ids.next("text")
        yield c.TextStart(own)
        for word in _words(text):
            yield c.TextDelta(own, word)
        yield c.TextEnd(own)

    return Piece(make)


def think(text: str, *, id: str | None = None) -> Piece:
    """Return reasoning, word by word."""

    def make(ids: _Ids) -> Iterator[Item]:
        own = id or ids.next("reasoning")
        yield c.ReasoningStart(own)
        for word in _words(text):
            yield c.ReasoningDelta(own, word)
        yield c.ReasoningEnd(own)

    return Piece(make)


def call(name: str, input: Any, *, id: str | None = None) -> Piece:
    """Return a tool call with streamed arguments. Arguments that are a text are sent unchanged, valid or not."""

    def make(ids: _Ids) -> Iterator[Item]:
        own = id or ids.next("call")
        written = input if isinstance(input, str) else json.dumps(input, ensure_ascii=False)
        yield c.ToolInputStart(own, name)
        for at in range(0, len(written), 16):
            yield c.ToolInputDelta(own, written[at : at + 16])
        if isinstance(input, str):
            yield c.ToolInputError(own, name, input, "the arguments are not a JSON object")
        else:
            yield c.ToolInputAvailable(own, name, input)

    return Piece(make)


def chunks(*given: Chunk) -> Piece:
    """Return chunks unchanged, including ones that no provider should send."""
    return Piece(lambda _: given)


def report(usage: Usage) -> Piece:
    """Report the usage so far."""
    return Piece(lambda _: [UsageUpdate(usage)])


def wait(gate: asyncio.Event) -> Piece:
    """Wait until the gate is set."""
    return Piece(lambda _: [gate])


def hang(gate: asyncio.Event | None = None) -> Piece:
    """Wait until the gate is set; without one, forever."""
    return Piece(lambda _: [gate or asyncio.Event()])


def fail(
    status: int | None = None,
    text: str | None = None,
    *,
    kind: FailureKind | None = None,
    retry_after_ms: int | None = None,
) -> Piece:
    """Fail with a status. The kind depends on the status unless it is given."""
    words = text or (f"status {status}" if status else _BROKEN)
    known = kind or (kind_of_status(status, words) if status else "transient")

    def make(_: _Ids) -> Iterator[Item]:
        yield ProviderFailure(words, kind=known, status=status, retry_after_ms=retry_after_ms)

    return Piece(make)


def cut_after(count: int, *pieces: Piece, by: BaseException | Piece | None = None) -> Piece:
    """Play the pieces up to ``count`` chunks, then lose the connection, or do what ``by`` says."""

    def make(ids: _Ids) -> Iterator[Item]:
        sent = 0
        for item in _played(pieces, ids):
            if sent == count:
                break
            sent += not isinstance(item, UsageUpdate | asyncio.Event | BaseException)
            yield item
        if isinstance(by, Piece):
            yield from by.make(ids)
        else:
            yield by or ProviderFailure(_BROKEN, kind="transient")

    return Piece(make)


def then(*pieces: Piece, usage: Usage | None = None, finish: FinishReason | None = None, **data: Any) -> Turnout:
    """Return several pieces as one step, with its usage, finish reason and other data."""
    return Turnout(pieces, usage, finish, data)


# Models


class ScriptedModel:
    """A provider that follows a script; ``otherwise`` is the entry to play after the end of the script."""

    def __init__(
        self,
        script: Script = (),
        *,
        otherwise: Entry | Callable[[ModelRequest], Entry] | None = None,
        usage: Usage = DEFAULT_USAGE,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.closed_early = 0
        self.closed = False
        self._script = list(script)
        self._otherwise = otherwise
        self._usage = usage
        self._ids = _Ids()

    @property
    def left(self) -> int:
        """The number of entries that were not played yet."""
        return max(len(self._script) - len(self.requests), 0)

    def add(self, *entries: Entry) -> None:
        """Append entries to the script."""
        self._script.extend(entries)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | UsageUpdate | StepEnd, None]:
        turnout = self._next(request)
        called = False
        try:
            for item in _played(turnout.pieces, self._ids):
                if isinstance(item, asyncio.Event):
                    await item.wait()
                elif isinstance(item, BaseException):
                    raise item
                else:
                    called = called or isinstance(item, c.ToolInputAvailable)
                    yield item
            yield StepEnd(
                usage=turnout.usage or self._usage,
                finish_reason=turnout.finish or ("tool-calls" if called else "stop"),
                data=turnout.data,
            )
        except (GeneratorExit, asyncio.CancelledError):
            self.closed_early += 1
            raise

    async def close(self) -> None:
        self.closed = True

    def _next(self, request: ModelRequest) -> Turnout:
        number = len(self.requests)
        self.requests.append(request)
        entry = self._script[number] if number < len(self._script) else self._otherwise
        if entry is None:
            raise AssertionError(f"the script has no entry for model call number {number + 1}")
        if callable(entry) and not isinstance(entry, Piece | Turnout):
            entry = entry(request)
        if isinstance(entry, Turnout):
            return entry
        return Turnout((entry,) if isinstance(entry, Piece) else tuple(entry))


class FakeProviders(ProviderSet):
    """Providers with one model or several, and their descriptions.

    ``FakeProviders(model)`` uses it for every model of the provider ``test``. ``infos`` describes models (by
    ``"provider/model"``); others have a window of 200,000, a maximum output of 4,000 and the variants ``slow``, ``low``
    and ``high``.
    """

    def __init__(
        self,
        models: Provider | Mapping[str, Provider],
        *,
        infos: Mapping[str, ModelInfo] | Iterable[ModelInfo] = (),
        default: str | Model | None = None,
        cost: Callable[[Model, Usage], float | None] | None = None,
    ) -> None:
        providers = dict(models) if isinstance(models, Mapping) else {"test": models}
        known = infos.values() if isinstance(infos, Mapping) else infos
        super().__init__(providers, models=known, default=default or f"{next(iter(providers))}/model", cost=cost)

    def guess(self, model: Model) -> ModelInfo:
        return ModelInfo(
            model=model, window=200_000, max_output=4_000, summariser=model, variants=("slow", "low", "high")
        )


def _played(pieces: Iterable[Piece], ids: _Ids) -> Iterator[Item]:
    for piece in pieces:
        yield from piece.make(ids)


def _words(text: str) -> list[str]:
    return re.findall(r"\A\s*\S+\s*|\S+\s*|\A\s+", text)
