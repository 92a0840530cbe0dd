"""What a demo model reads in a request: the newest words, the results since then, and how much was sent.

Pure. A token is four characters, counted over what a model is really given: the system text, the words of every
message, tool calls with their results, and the tools as compact JSON. Reasoning and data parts are not sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clew.providers.base import ModelRequest
from clew.transcript import part as p
from clew.transcript.message import Message

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
    return "\n".join(message.texts)


def newest_words(messages: Sequence[Message]) -> str:
    """The text of the newest user message."""
    index = _newest(messages)
    return "" if index is None else words_of(messages[index])


def open_results(messages: Sequence[Message]) -> list[Result]:
    """What the last step that called tools got back, if that was after the newest user message."""
    index = _newest(messages)
    since = messages if index is None else messages[index + 1 :]
    steps = [step for message in since if message.role == "assistant" for step in p.steps_of(message.parts)]
    called = [[part for part in step if p.is_call(part)] for step in steps]
    return [_result(part) for part in next((step for step in reversed(called) if step), [])]


def sent_tokens(request: ModelRequest) -> int:
    """Tokens of all that is sent with a request."""
    characters = len(request.system)
    for message in request.messages:
        characters += sum(map(_sent_characters, message.parts))
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


def _result(part: p.Part) -> Result:
    outcomes = {"output-available": "done", "output-denied": "denied"}
    text = _UNFINISHED if p.is_open_call(part) else p.result_text(part)
    return Result(p.tool_name(part), p.input_of(part), outcomes.get(str(p.state_of(part)), "failed"), text)


def _sent_characters(part: p.Part) -> int:
    if p.is_call(part):
        return len(p.tool_name(part)) + len(p.input_text(part)) + len(_result(part).text)
    if p.kind_of(part) == "file":
        return len(f"{p.file_name_of(part) or ''} {p.media_type_of(part) or ''}")
    return len(p.text_of(part) or "")
