"""The demo provider: deterministic models without a key or network.

Each model is a function from a request to chunks. The provider enforces the window, counts tokens that were really sent
and produced, waits before each chunk for the variant ``slow``, and fails before the first one for ``demo/fail``. Other
variants are ignored. Ids are derived from the position in the conversation, so that two steps of one message never
share one; for a repeated request at the same position, the ids of calls get a number.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Final, Literal

from clew.clock import Clock, SystemClock
from clew.providers.base import ModelInfo, ModelRequest, ProviderFailure, StepEnd
from clew.providers.demo import tour
from clew.providers.demo.reading import (
    Asked,
    asked_lines,
    compact,
    newest_words,
    open_results,
    request_stamp,
    sent_tokens,
    tokens,
)
from clew.providers.demo.script import script
from clew.providers.demo.summary import summarise
from clew.providers.failure import kind_of_status
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.part import first_words
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["DEMO", "DEMO_MODELS", "DEMO_VARIANTS", "DemoProvider"]

DEMO: Final = "demo"
DEMO_VARIANTS: Final = ("slow",)
MAX_OUTPUT: Final = 400
SLOW_MS: Final = 20

_WORDS: Final = re.compile(r"\A\s*\S+\s*|\S+\s*|\A\s+")
"""Words with the space after them; joined they equal the text."""
_FAILURE: Final = re.compile(r"(?<!\d)([45]\d\d)(?!\d)(?:\s+(\d{1,9})(?!\d)(?:\s+(\d{1,3})(?!\d))?)?")
_NUMBER: Final = re.compile(r"\d+")
_MAX_WORDS: Final = 1_000_000
_REMEMBERED: Final = 10_000
_STREAK: Final = 64
"""Chunks in a row before other work on the event loop gets its turn."""


class DemoProvider:
    """The provider of all ``demo/…`` models. The variant ``slow`` waits on ``clock``."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._failures = _Counter()
        self._visits = _Counter()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | StepEnd, None]:
        name = request.model.model_id
        if name not in _MODELS:
            what = f"there is no model {DEMO}/{name}; there are {', '.join(_MODELS)}"
            raise ProviderFailure(what, kind="invalid", status=404, provider_id=DEMO)
        window, answer = _MODELS[name]
        sent = sent_tokens(request)
        if sent > window:
            what = f"the prompt is too long: {sent} tokens > {window} maximum"
            raise ProviderFailure(what, kind="overflow", status=400, provider_id=DEMO)
        if name == "fail":
            self._fail(request)
        written = reasoned = calls = 0
        stamp = request_stamp(request)
        for count, chunk in enumerate(answer(request, _Ids(stamp, self._visits.next(stamp))), start=1):
            if request.model.variant == "slow":
                await self._clock.sleep(SLOW_MS)
            elif count % _STREAK == 0:
                await asyncio.sleep(0)
            if isinstance(chunk, c.TextDelta):
                written += len(chunk.delta)
            elif isinstance(chunk, c.ReasoningDelta):
                reasoned += len(chunk.delta)
            elif isinstance(chunk, c.ToolInputAvailable):
                calls += 1
                written += len(chunk.tool_name) + len(compact(chunk.input))
            yield chunk
        yield StepEnd(
            usage=Usage(input=sent, output=tokens(written), reasoning=tokens(reasoned)),
            finish_reason="tool-calls" if calls else "stop",
        )

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _fail(self, request: ModelRequest) -> None:
        """Fail with the status in the newest prompt, as often as it asks for."""
        match = _FAILURE.search(newest_words(request.messages))
        if match is None:
            return
        turn = next((m.id for m in reversed(request.messages) if m.role == "user"), "")
        key = f"{turn} {len(request.messages)} {match[0]}"
        if match[2] is not None and self._failures.next(key) > int(match[2]):
            self._failures.forget(key)  # if the message is sent again, it fails as often again
            return
        status = int(match[1])
        text = script().failures.get(str(status), "the provider refused")
        default_wait = 1_000 if status == 429 else None
        raise ProviderFailure(
            f"{status}: {text}",
            kind=kind_of_status(status, text),
            status=status,
            provider_id=DEMO,
            retry_after_ms=default_wait if match[3] is None else int(match[3]) * 1_000,
        )


class _Counter:
    """A counter by key with a limited number of keys."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, key: str) -> int:
        count = self._counts.pop(key, 0) + 1
        self._counts[key] = count
        if len(self._counts) > _REMEMBERED:
            del self._counts[next(iter(self._counts))]
        return count

    def forget(self, key: str) -> None:
        self._counts.pop(key, None)


class _Ids:
    """The ids of one request. Those of tool calls also differ between requests at the same position.

    A session finds a call by its id, even one that a rewind has hidden; the id of a text is only used in its stream.
    """

    def __init__(self, stamp: str, visit: int) -> None:
        self._stamp = stamp
        self._visit = "" if visit == 1 else f"_{visit}"
        self._count = 0

    def next(self, kind: Literal["text", "reasoning", "call"]) -> str:
        self._count += 1
        return f"{kind}_{self._stamp}_{self._count}{self._visit if kind == 'call' else ''}"


def _echo(request: ModelRequest, ids: _Ids) -> Iterator[Chunk]:
    return _text(newest_words(request.messages), ids)


def _tools(request: ModelRequest, ids: _Ids) -> Iterator[Chunk]:
    results = open_results(request.messages)
    if results:
        output = [(f"{result.tool} {result.outcome}", first_words(result.text, 200)) for result in results]
        return _text("".join(f"{what}: {text}\n" if text else f"{what}\n" for what, text in output), ids, by_line=True)
    words = newest_words(request.messages)
    asked = asked_lines(words, request.tools)
    return _calls(asked, ids) if asked else _text(words, ids)


def _tour(request: ModelRequest, ids: _Ids) -> Iterator[Chunk]:
    results = open_results(request.messages)
    if results:
        return _text(tour.show_results(results), ids)
    words = newest_words(request.messages)
    wanted = tour.wanted_call(words, request.tools)
    if isinstance(wanted, Asked):
        return _calls([wanted], ids)
    return _text(tour.answer(words) if wanted is None else wanted, ids)


def _long(request: ModelRequest, ids: _Ids) -> Iterator[Chunk]:
    number = _NUMBER.search(newest_words(request.messages))
    count = 200 if number is None else min(int(number[0][:9]), _MAX_WORDS)
    reasoning, text = ids.next("reasoning"), ids.next("text")
    yield c.ReasoningStart(reasoning)
    for word in _WORDS.findall(f"The user asked for {count} words. I will count them as I go."):
        yield c.ReasoningDelta(reasoning, word)
    yield c.ReasoningEnd(reasoning)
    yield c.TextStart(text)
    tale = script().tale.split()
    for index in range(count):
        # Neighbours differ and the order does not repeat soon, so that a lost or doubled word shows.
        word = tale[(index * 7 + index // len(tale)) % len(tale)]
        yield c.TextDelta(text, word if index == count - 1 else word + " ")
    yield c.TextEnd(text)


_MODELS: Final[dict[str, tuple[int, Callable[[ModelRequest, _Ids], Iterator[Chunk]]]]] = {
    # A guide: answers questions about clew, and uses tools when asked.
    "tour": (200_000, _tour),
    # Repeats the prompt, one chunk a word.
    "echo": (8_000, _echo),
    # The same, with a small window.
    "small": (2_000, _echo),
    # Each line that starts with ``!`` becomes a tool call, all in one step: ``!read P``, ``!ls P``, ``!bash LINE``,
    # ``!write P TEXT``, ``!edit P OLD NEW``, ``!task TEXT`` or ``!name {json}``. The next step reports each result.
    "tools": (200_000, _tools),
    # A reasoning, then as many words as the first number in the prompt, by default 200.
    "long": (200_000, _long),
    # ``STATUS [TIMES [SECONDS]]`` in the prompt: fails so often before the first chunk, always without a number, and
    # asks for so many seconds until the next attempt; then repeats the prompt.
    "fail": (200_000, _echo),
    # A summary of the messages it receives.
    "summary": (200_000, lambda request, ids: _text(summarise(request), ids)),
}
"""The window and the function of each model, by name."""

DEMO_MODELS: Final[dict[str, ModelInfo]] = {
    name: ModelInfo(
        model=Model(DEMO, name),
        window=window,
        max_output=MAX_OUTPUT,
        tools=name in ("tour", "tools"),
        summariser=Model(DEMO, "summary"),
        variants=DEMO_VARIANTS,
    )
    for name, (window, _) in _MODELS.items()
}


def _text(text: str, ids: _Ids, *, by_line: bool = False) -> Iterator[Chunk]:
    id_ = ids.next("text")
    yield c.TextStart(id_)
    for piece in text.splitlines(keepends=True) if by_line else _WORDS.findall(text):
        yield c.TextDelta(id_, piece)
    yield c.TextEnd(id_)


def _calls(asked: list[Asked], ids: _Ids) -> Iterator[Chunk]:
    for call in asked:
        id_ = ids.next("call")
        yield c.ToolInputStart(id_, call.tool)
        yield c.ToolInputDelta(id_, compact(call.input))
        yield c.ToolInputAvailable(id_, call.tool, call.input)
