"""History as flat labelled text, so that a summariser reports on it instead of continuing it.

Text from people, models and tools cannot imitate a label or the tags around it: such a line is prefixed with a space,
and such a tag gets one inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.compaction.budget import estimate_tokens
from clew.transcript import part as p
from clew.transcript.message import Message

__all__ = ["chunks_of", "history_text", "without_tags"]

_LABEL: Final = re.compile(r"\[(?:user|assistant tool calls|assistant|tool result)\b[^\]]*\]:", re.IGNORECASE)
_TAG: Final = re.compile(r"<(/?(?:conversation|previous-summary|directives|summary)\b)", re.IGNORECASE)
_MIN_PIECE_CHARS: Final = 32
"""Characters below which nothing is split any further."""


def history_text(messages: Iterable[Message]) -> str:
    """Return the messages as labelled lines. Reasoning and data are left out, as in every request."""
    return "\n".join(line for message in messages for line in _lines(message))


def without_tags(text: str) -> str:
    """Return the text with the tags that frame a request defused."""
    return _TAG.sub(r"< \1", text)


def chunks_of(messages: Sequence[Message], limit_tokens: int) -> list[list[Message]]:
    """Group the messages into chunks whose text has at most ``limit_tokens``. Nothing is left out.

    A message that is larger is split into several, part by part, and a larger part into several parts. Nothing shorter
    than 32 characters is split, so a very small limit may be exceeded.
    """
    chunks: list[list[Message]] = []
    chunk_tokens = 0
    for message in messages:
        for piece in _pieces(message, limit_tokens):
            size = _tokens(piece)
            if not chunks or (chunks[-1] and chunk_tokens + size > limit_tokens):
                chunks.append([])
                chunk_tokens = 0
            chunks[-1].append(piece)
            chunk_tokens += size
    return chunks


def _lines(message: Message) -> Iterator[str]:
    if message.role != "assistant":
        combined = "\n".join(text for part in message.parts if (text := _text(part)))
        if not combined:
            return
        # Text that clew inserted must not appear as the user's.
        own = message.is_synthetic or message.role == "system"
        yield f"[Tool result]: (a notice of the program) {_safe(combined)}" if own else f"[User]: {_safe(combined)}"
        return
    calls: list[p.Part] = []
    for part in message.parts:
        if p.is_call(part):
            calls.append(part)
            continue
        text = _text(part)
        if text or p.kind_of(part) == p.STEP_START:
            yield from _call_lines(calls)
            calls = []
        if text:
            yield f"[Assistant]: {_safe(text)}"
    yield from _call_lines(calls)


def _call_lines(calls: Sequence[p.Part]) -> Iterator[str]:
    """Yield the calls of a step on one line, then the result of each, in the same order."""
    if calls:
        yield "[Assistant tool calls]: " + _safe(
            "; ".join(f"{p.tool_name(part)}({_arguments(part)})" for part in calls)
        )
    for part in calls:
        yield f"[Tool result]: {_safe(_result(part))}"


def _arguments(part: p.Part) -> str:
    arguments = p.input_of(part)
    if isinstance(arguments, Mapping):
        return ", ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in arguments.items())
    return p.input_text(part)


def _result(part: p.Part) -> str:
    text = p.result_text(part)
    if p.is_open_call(part):
        return "no result was recorded"
    match p.state_of(part):
        case "output-error":
            return f"failed: {text}" if text else "failed"
        case "output-denied":
            return f"denied: {text}" if text else "denied"
        case _:
            return text


def _text(part: p.Part) -> str:
    if p.kind_of(part) == "file":
        return f"(file: {p.file_name_of(part) or 'unnamed'}, {p.media_type_of(part) or 'unknown type'})"
    return "" if p.is_notice(part) else p.text_of(part) or ""


def _safe(text: str) -> str:
    # The first line already has a label.
    first, *rest = without_tags(text).splitlines() or [""]
    return "\n".join([first, *(f" {line}" if _LABEL.match(line) else line for line in rest)])


# Chunks


def _tokens(message: Message) -> int:
    return estimate_tokens(len(history_text([message])) + 1)


def _pieces(message: Message, limit: int) -> Iterator[Message]:
    """Yield the message, split into as many as needed for each to be within the limit."""
    if _tokens(message) <= limit:
        yield message
        return
    parts: list[dict[str, Any]] = []
    size = 0
    for part in [piece for whole in message.parts for piece in _halves(message, whole, limit)]:
        own = _tokens(msgspec.structs.replace(message, parts=[part]))
        if parts and size + own > limit:
            yield msgspec.structs.replace(message, parts=parts)
            parts, size = [], 0
        parts.append(part)
        size += own
    if parts:
        yield msgspec.structs.replace(message, parts=parts)


def _halves(message: Message, part: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    """Return the part, halved until each piece is within the limit."""
    if _tokens(msgspec.structs.replace(message, parts=[part])) <= limit:
        return [part]
    halves = p.halve(part, _MIN_PIECE_CHARS)
    return [piece for half in halves for piece in _halves(message, half, limit)] if len(halves) > 1 else [part]
