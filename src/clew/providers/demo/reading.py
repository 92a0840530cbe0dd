"""What a demo model reads in a request: the newest words, the results since then, and how much was sent.

Pure. A token is four characters, counted over what a model is really given: the system text, the words of every
message, tool calls with their results, and the tools as compact JSON. Reasoning and data parts are not sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.providers.base import ModelRequest
from clew.transcript.message import Message
from clew.transcript.part import STEP_START, kind_of

__all__ = ["Result", "compact", "newest_words", "open_results", "request_stamp", "sent_tokens", "tokens", "words_of"]

_UNFINISHED: Final = "no result was recorded"


class Result(msgspec.Struct, frozen=True):
    """A tool call and what came of it. ``text`` is the output, the error, or why it was denied."""

    tool: str
    input: Any
    outcome: str
    text: str


def tokens(characters: int) -> int:
    return -(-characters // 4)


def compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def words_of(message: Message) -> str:
    """The text of a message; several texts are told apart by a line break."""
    return "\n".join(text for part in message.parts if (text := _text(part)) is not None)


def newest_words(messages: Sequence[Message]) -> str:
    """The text of the newest user message."""
    index = _newest(messages)
    return "" if index is None else words_of(messages[index])


def open_results(messages: Sequence[Message]) -> list[Result]:
    """What the last step that called tools got back, if that was after the newest user message."""
    index = _newest(messages)
    since = messages if index is None else messages[index + 1 :]
    steps: list[list[Result]] = []
    for message in since:
        if message.role != "assistant":
            continue
        steps.append([])
        for part in message.parts:
            if kind_of(part) == STEP_START:
                steps.append([])
            elif (result := _result(part)) is not None:
                steps[-1].append(result)
    return next((step for step in reversed(steps) if step), [])


def sent_tokens(request: ModelRequest) -> int:
    """Tokens of all that is sent with a request."""
    characters = len(request.system)
    for message in request.messages:
        characters += sum(len(piece) for part in message.parts for piece in _sent(part))
    if request.tools:
        characters += len(compact(request.tools))
    return tokens(characters)


def request_stamp(request: ModelRequest) -> str:
    """The place in a conversation a request was made at, as a short text: the same place, the same stamp."""
    last = request.messages[-1] if request.messages else None
    place = (str(request.model), len(request.messages), last and last.id, last and len(last.parts))
    return hashlib.sha256(repr(place).encode()).hexdigest()[:10]


def _newest(messages: Sequence[Message]) -> int | None:
    """The newest message a person wrote; without one, the newest that stands in for a person's."""
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    people = [index for index in users if not messages[index].is_synthetic]
    found = people or users
    return found[-1] if found else None


def _result(part: Mapping[str, Any]) -> Result | None:
    if "toolCallId" not in part:
        return None
    kind = str(part.get("type", ""))
    name = str(part.get("toolName", "")) if kind == "dynamic-tool" else kind.removeprefix("tool-")
    given = part.get("input", part.get("rawInput"))
    match part.get("state"):
        case "output-available":
            output = part.get("output")
            return Result(name, given, "done", output if isinstance(output, str) else compact(output))
        case "output-error":
            return Result(name, given, "failed", str(part.get("errorText", "")))
        case "output-denied":
            approval = part.get("approval")
            reason = approval.get("reason") if isinstance(approval, Mapping) else None
            return Result(name, given, "denied", reason if isinstance(reason, str) else "")
        case _:
            return Result(name, given, "failed", _UNFINISHED)


def _sent(part: Mapping[str, Any]) -> Iterator[str]:
    text = _text(part)
    if text is not None:
        yield text
    elif part.get("type") == "file":
        yield f"{part.get('filename', '')} {part.get('mediaType', '')}"
    elif (result := _result(part)) is not None:
        yield result.tool
        if result.input is not None:
            yield result.input if isinstance(result.input, str) else compact(result.input)
        yield result.text


def _text(part: Mapping[str, Any]) -> str | None:
    text = part.get("text") if part.get("type") == "text" else None
    return text if isinstance(text, str) else None
