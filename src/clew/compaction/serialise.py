"""History as flat labelled text, so that a summariser reports on it instead of going on with it.

What people, models and tools wrote cannot pass for a label or for the tags around it: such a line gets a space in
front, such a tag one inside.
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
_LEAST_PIECE: Final = 32
"""Characters below which nothing is cut up any further."""


def history_text(messages: Iterable[Message]) -> str:
    """The messages as labelled lines. Reasoning and data are left out, as they are from every request."""
    return "\n".join(line for message in messages for line in _lines(message))


def without_tags(text: str) -> str:
    """The text with the tags that frame a request made harmless."""
    return _TAG.sub(r"< \1", text)


def chunks_of(messages: Sequence[Message], limit_tokens: int) -> list[list[Message]]:
    """The messages in runs whose text is at most so many tokens. Nothing is left out.

    A message that is larger by itself is cut into several, part by part, and a part that is larger into several
    parts. Only below 32 characters nothing is cut any more, so a limit that small may be passed.
    """
    chunks: list[list[Message]] = []
    held = 0
    for message in messages:
        for piece in _pieces(message, limit_tokens):
            size = _tokens(piece)
            if not chunks or (chunks[-1] and held + size > limit_tokens):
                chunks.append([])
                held = 0
            chunks[-1].append(piece)
            held += size
    return chunks


def _lines(message: Message) -> Iterator[str]:
    if message.role != "assistant":
        said = "\n".join(text for part in message.parts if (text := _words(part)))
        if not said:
            return
        # What the program itself put in is no word of the user's.
        own = message.is_synthetic or message.role == "system"
        yield f"[Tool result]: (a notice of the program) {_safe(said)}" if own else f"[User]: {_safe(said)}"
        return
    calls: list[p.Part] = []
    for part in message.parts:
        if p.is_call(part):
            calls.append(part)
            continue
        words = _words(part)
        if words or p.kind_of(part) == p.STEP_START:
            yield from _called(calls)
            calls = []
        if words:
            yield f"[Assistant]: {_safe(words)}"
    yield from _called(calls)


def _called(calls: Sequence[p.Part]) -> Iterator[str]:
    """The calls of a step on one line, then the result of each, in the same order."""
    if calls:
        yield "[Assistant tool calls]: " + _safe(
            "; ".join(f"{p.tool_name(part)}({_arguments(part)})" for part in calls)
        )
    for part in calls:
        yield f"[Tool result]: {_safe(_result(part))}"


def _arguments(part: p.Part) -> str:
    given = p.input_of(part)
    if isinstance(given, Mapping):
        return ", ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in given.items())
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


def _words(part: p.Part) -> str:
    if p.kind_of(part) == "file":
        return f"(file: {p.file_name_of(part) or 'unnamed'}, {p.media_type_of(part) or 'unknown type'})"
    return "" if p.is_notice(part) else p.text_of(part) or ""


def _safe(text: str) -> str:
    # The first line stands behind a label already.
    first, *rest = without_tags(text).splitlines() or [""]
    return "\n".join([first, *(f" {line}" if _LABEL.match(line) else line for line in rest)])


# Chunks


def _tokens(message: Message) -> int:
    return estimate_tokens(len(history_text([message])) + 1)


def _pieces(message: Message, limit: int) -> Iterator[Message]:
    """The message, in as many as it takes for each to be within the limit."""
    if _tokens(message) <= limit:
        yield message
        return
    held: list[dict[str, Any]] = []
    size = 0
    for part in [piece for whole in message.parts for piece in _halves(message, whole, limit)]:
        own = _tokens(msgspec.structs.replace(message, parts=[part]))
        if held and size + own > limit:
            yield msgspec.structs.replace(message, parts=held)
            held, size = [], 0
        held.append(part)
        size += own
    if held:
        yield msgspec.structs.replace(message, parts=held)


def _halves(message: Message, part: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    """The part, halved until each piece is within the limit."""
    if _tokens(msgspec.structs.replace(message, parts=[part])) <= limit:
        return [part]
    halves = p.halve(part, _LEAST_PIECE)
    return [piece for half in halves for piece in _halves(message, half, limit)] if len(halves) > 1 else [part]
