"""The same answers on three wires, what can go wrong with them at any event, and what must be heard of each.

:func:`hear` reads the bytes of a wire by itself, with none of clew's code: what it hears is what clew must have kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from clew.transcript.usage import Usage
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESET, RESPONSES, Pause, Step, chunked, ok, refuse

__all__ = ["ANSWERS", "BREAKS", "REFUSED", "RICH", "WIRES", "Break", "Heard", "Wire", "broken", "hear", "phases"]

Wire: TypeAlias = Literal["anthropic", "openai", "openai-responses"]
WIRES: tuple[Wire, ...] = ("anthropic", "openai", "openai-responses")
Break: TypeAlias = Literal["ends", "breaks", "resets", "talks garbage", "is overloaded", "falls silent"]
BREAKS: tuple[Break, ...] = ("ends", "breaks", "resets", "talks garbage", "is overloaded", "falls silent")
"""What a wire does in the middle of an answer: the stream just ends, the transport says that it broke, the connection
is reset, a line is no JSON, the provider says it failed, nothing more comes."""

_CALL_ID = "call_0123456789abcdef"
_COUNTS = {"input_tokens": 60, "output_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7}


def _anthropic(*blocks: list[bytes], reason: str = "end_turn") -> list[bytes]:
    return [
        ANTHROPIC.start(**_COUNTS),
        *(e for block in blocks for e in block),
        *ANTHROPIC.stop(reason, output_tokens=30),
    ]


def _openai(*events: bytes, reason: str = "stop") -> list[bytes]:
    used = OPENAI.usage(107, 30, cached=40, written=7, reasoning=12)
    return [*events, OPENAI.chunk({}, reason), used, OPENAI.done]


def _responses(*items: list[bytes], status: str = "completed", reason: str | None = None) -> list[bytes]:
    end = RESPONSES.end(status, reason, input=107, output=30, cached=40, reasoning=12)
    return [*RESPONSES.created(), *(e for item in items for e in item), end]


_THOUGHT, _WORDS, _NO = ("Let me ", "think."), ("One ", "two."), ("I can", "not.")
_NOTE = ('{"n"', ": 1}")
RICH = "a thought, words and a call"
ANSWERS: dict[str, dict[Wire, list[bytes]]] = {
    "an answer": {
        "anthropic": _anthropic(ANTHROPIC.text_block(0, *_WORDS)),
        "openai": _openai(*(OPENAI.chunk({"content": word}) for word in _WORDS)),
        "openai-responses": _responses(RESPONSES.message(0, *_WORDS)),
    },
    RICH: {
        "anthropic": _anthropic(
            ANTHROPIC.thinking_block(0, *_THOUGHT),
            ANTHROPIC.text_block(1, *_WORDS),
            ANTHROPIC.tool_block(2, _CALL_ID, "note", *_NOTE),
            reason="tool_use",
        ),
        "openai": _openai(
            *(OPENAI.chunk({"reasoning_content": word}) for word in _THOUGHT),
            *(OPENAI.chunk({"content": word}) for word in _WORDS),
            OPENAI.call(0, _CALL_ID, "note", _NOTE[0]),
            OPENAI.call(0, None, None, _NOTE[1]),
            reason="tool_calls",
        ),
        "openai-responses": _responses(
            RESPONSES.reasoning(0, *_THOUGHT),
            RESPONSES.message(1, *_WORDS),
            RESPONSES.call(2, _CALL_ID, "note", *_NOTE),
        ),
    },
    "no more tokens in the words": {
        "anthropic": _anthropic(ANTHROPIC.text_block(0, *_WORDS), reason="max_tokens"),
        "openai": _openai(*(OPENAI.chunk({"content": word}) for word in _WORDS), reason="length"),
        "openai-responses": _responses(RESPONSES.message(0, *_WORDS), status="incomplete", reason="max_output_tokens"),
    },
    "no more tokens in the thought": {
        "anthropic": _anthropic(ANTHROPIC.thinking_block(0, *_THOUGHT), reason="max_tokens"),
        "openai": _openai(*(OPENAI.chunk({"reasoning_content": word}) for word in _THOUGHT), reason="length"),
        "openai-responses": _responses(
            RESPONSES.reasoning(0, *_THOUGHT), status="incomplete", reason="max_output_tokens"
        ),
    },
    "a refusal": {
        "anthropic": _anthropic(ANTHROPIC.text_block(0, *_NO), reason="refusal"),
        "openai": _openai(*(OPENAI.chunk({"refusal": word}) for word in _NO)),
        "openai-responses": _responses(RESPONSES.message(0, *_NO, kind="refusal")),
    },
    "a content filter": {
        "anthropic": _anthropic(ANTHROPIC.text_block(0, *_WORDS), reason="refusal"),
        "openai": _openai(*(OPENAI.chunk({"content": word}) for word in _WORDS), reason="content_filter"),
        "openai-responses": _responses(RESPONSES.message(0, *_WORDS), status="incomplete", reason="content_filter"),
    },
}
"""Whole answers. The input was 107 tokens, 40 of them from the cache and, where the wire tells it, 7 into it."""

REFUSED: dict[str, list[Step]] = {
    "429 before": refuse(429, headers={"retry-after-ms": "1"}),
    "500 before": refuse(500),
    "529 before": refuse(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    "400 before": refuse(400),
}
"""Refusals before anything was said."""


def phases(wire: Wire) -> dict[str, int]:
    """Where the rich answer can break: so many of its events have come then."""
    heard = [hear(wire, ANSWERS[RICH][wire][:count]) for count in range(len(ANSWERS[RICH][wire]) + 1)]

    def first(at: Callable[[Heard], object]) -> int:
        return next(count for count, one in enumerate(heard) if at(one))

    return {
        "before the first word": first(lambda one: one.anything) - 1,
        "in the thought": first(lambda one: one.reasoning),
        "in the words": first(lambda one: one.text),
        "in the arguments": first(lambda one: one.arguments),
        "after the end was said": first(lambda one: one.ended),
    }


def broken(wire: Wire, events: Sequence[bytes], how: Break) -> list[Step]:
    """A reply that breaks in this way after these events."""
    if how == "breaks":
        return chunked(events, end=False)
    failure = {
        "anthropic": ANTHROPIC.error("overloaded_error", "Overloaded"),
        "openai": OPENAI.error("The server is overloaded", code="server_error"),
        "openai-responses": RESPONSES.error("server_error", "The server is overloaded"),
    }
    last: dict[Break, list[Step]] = {
        "ends": [],
        "resets": [RESET],
        "talks garbage": [b"data: {oops\n\n" if wire == "openai" else b"event: ping\ndata: {oops\n\n"],
        "is overloaded": [failure[wire]],
        "falls silent": [Pause(asyncio.Event())],
    }
    return [*ok(), *events, *last[how]]


class Heard(msgspec.Struct):
    """What the events of an answer say, from the first to some event of it."""

    reasoning: str = ""
    text: str = ""
    arguments: str = ""
    called: bool = False
    said: Usage | None = None
    finish: str | None = None

    @property
    def ended(self) -> bool:
        """A refusal says what it is with its first word, and only later that it is whole."""
        return self.finish not in (None, "refused")

    @property
    def anything(self) -> bool:
        return bool(self.reasoning or self.text or self.called)


_FINISH = {
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "content-filter",
    "tool_use": "tool-calls",
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_calls": "tool-calls",
    "completed": "stop",
    "max_output_tokens": "length",
}


def hear(wire: Wire, events: Sequence[bytes]) -> Heard:
    heard = Heard()
    read = {"anthropic": _hear_anthropic, "openai": _hear_openai, "openai-responses": _hear_responses}[wire]
    for data in _data(events):
        read(heard, data)
    return heard


def _data(events: Sequence[bytes]) -> Iterator[Any]:
    for event in events:
        text = event.decode().split("data: ", 1)[1]
        if not text.startswith("[DONE]"):
            yield json.loads(text)


def _hear_anthropic(heard: Heard, data: Any) -> None:
    match data:
        case {"type": "message_start", "message": {"usage": used}}:
            heard.said = Usage(
                input=used["input_tokens"],
                output=used["output_tokens"],
                cache_read=used.get("cache_read_input_tokens", 0),
                cache_write=used.get("cache_creation_input_tokens", 0),
            )
        case {"type": "content_block_start", "content_block": {"type": "tool_use"}}:
            heard.called = True
        case {"type": "content_block_delta", "delta": delta}:
            heard.reasoning += delta.get("thinking", "")
            heard.text += delta.get("text", "")
            heard.arguments += delta.get("partial_json", "")
        case {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": used}:
            heard.finish = _FINISH[reason]
            heard.said = msgspec.structs.replace(heard.said or Usage(), output=used["output_tokens"])


def _hear_openai(heard: Heard, data: Any) -> None:
    if data.get("usage"):
        used = data["usage"]
        cached, written = (
            used["prompt_tokens_details"]["cached_tokens"],
            used["prompt_tokens_details"]["cache_write_tokens"],
        )
        thought = used["completion_tokens_details"]["reasoning_tokens"]
        left = used["prompt_tokens"] - cached - written
        heard.said = Usage(left, used["completion_tokens"] - thought, thought, cached, written)
    for choice in data["choices"]:
        delta = choice["delta"]
        heard.reasoning += delta.get("reasoning_content", "")
        heard.text += delta.get("content", "") + delta.get("refusal", "")
        for call in delta.get("tool_calls", ()):
            heard.called = True
            heard.arguments += call["function"].get("arguments", "")
        if "refusal" in delta:
            heard.finish = "refused"
        elif choice["finish_reason"]:
            heard.finish = "content-filter" if heard.finish == "refused" else _FINISH[choice["finish_reason"]]


def _hear_responses(heard: Heard, data: Any) -> None:
    match data["type"].removeprefix("response."):
        case "reasoning_summary_text.delta":
            heard.reasoning += data["delta"]
        case "output_text.delta":
            heard.text += data["delta"]
        case "refusal.delta":
            heard.text += data["delta"]
            heard.finish = "refused"
        case "output_item.added" if data["item"]["type"] == "function_call":
            heard.called = True
        case "function_call_arguments.delta":
            heard.arguments += data["delta"]
        case "completed" | "incomplete":
            used, why = data["response"]["usage"], data["response"]["incomplete_details"]
            cached, thought = (
                used["input_tokens_details"]["cached_tokens"],
                used["output_tokens_details"]["reasoning_tokens"],
            )
            heard.said = Usage(used["input_tokens"] - cached, used["output_tokens"] - thought, thought, cached)
            finish = _FINISH["completed" if why is None else why["reason"]]
            heard.finish = "content-filter" if heard.finish == "refused" else finish
            if heard.called and heard.finish == "stop":
                heard.finish = "tool-calls"
