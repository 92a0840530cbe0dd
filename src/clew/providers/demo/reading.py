"""Reading a request for the demo models: the newest prompt, the calls it asks for, the results since then, and the
number of tokens.

Pure. A token is four characters of what is really sent: the system prompt, the text of every message, tool calls with
their results, and the tools as compact JSON. Reasoning and data parts are not sent.

A line of a prompt can ask for a tool call. Argument names are those of the offered tool's schema, as a real model would
use them; for a tool that is not offered, they are those of ``script.toml``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.convert import convert_json
from clew.providers.base import ModelRequest, ToolSchema
from clew.providers.demo.script import script
from clew.transcript import part as p
from clew.transcript.message import Message

__all__ = [
    "Asked",
    "Result",
    "arguments",
    "asked_lines",
    "compact",
    "newest_words",
    "open_results",
    "request_stamp",
    "sent_tokens",
    "tokens",
    "words_of",
]

_UNFINISHED: Final = "no result was recorded"


class Result(msgspec.Struct, frozen=True):
    """A tool call with its outcome. ``text`` is the output, the error, or the reason for a denial."""

    tool: str
    input: Any
    outcome: str
    text: str


def tokens(characters: int) -> int:
    return -(-characters // 4)


def compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def words_of(message: Message) -> str:
    """Return the texts of a message, joined by line breaks."""
    return "\n".join(message.texts)


def newest_words(messages: Sequence[Message]) -> str:
    """Return the text of the newest user message."""
    index = _newest(messages)
    return "" if index is None else words_of(messages[index])


def open_results(messages: Sequence[Message]) -> list[Result]:
    """Return the results of the last step with tool calls, if it is after the newest user message."""
    index = _newest(messages)
    since = messages if index is None else messages[index + 1 :]
    steps = [step for message in since if message.role == "assistant" for step in p.steps_of(message.parts)]
    called = [[part for part in step if p.is_call(part)] for step in steps]
    return [_result(part) for part in next((step for step in reversed(called) if step), [])]


def sent_tokens(request: ModelRequest) -> int:
    """Return the tokens of a request."""
    characters = len(request.system)
    for message in request.messages:
        characters += sum(map(_sent_characters, message.parts))
    if request.tools:
        characters += len(compact(request.tools))
    return tokens(characters)


def request_stamp(request: ModelRequest) -> str:
    """Return a digest of the request's position in a conversation, equal for equal positions."""
    last = request.messages[-1] if request.messages else None
    position = (str(request.model), len(request.messages), last and last.id, last and len(last.parts))
    return hashlib.sha256(repr(position).encode()).hexdigest()[:10]


def _newest(messages: Sequence[Message]) -> int | None:
    """Return the index of the newest message that a user wrote; without one, of the newest synthetic user message."""
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


_LINE: Final = re.compile(r"!([A-Za-z_][\w.-]*)(?:[ \t]+(.*))?", re.DOTALL)
_DEFAULT_ARGUMENTS: Final[dict[str, str]] = {"ls": "."}
"""The argument of a tool if the line has none."""


class Asked(msgspec.Struct, frozen=True):
    """A call that a line requests."""

    tool: str
    input: dict[str, Any]


def asked_lines(text: str, tools: Sequence[ToolSchema]) -> list[Asked]:
    """Return the calls that lines starting with ``!`` request, in order."""
    offered = {tool.name: tool for tool in tools}
    found = (match for line in text.splitlines() if (match := _LINE.fullmatch(line)) is not None)
    return [Asked(match[1], arguments(match[1], match[2] or "", offered.get(match[1]))) for match in found]


def arguments(name: str, rest: str, tool: ToolSchema | None) -> dict[str, Any]:
    """Return the arguments after a tool's name: JSON, or one word for each field and the rest for the last."""
    rest = rest.strip() or _DEFAULT_ARGUMENTS.get(name, "")
    if rest.startswith("{"):
        try:
            return convert_json(rest, dict[str, Any])
        except msgspec.DecodeError:
            pass
    schema: Mapping[str, Any] = tool.input_schema if tool is not None else {}
    fields = script().fields.get(name) or tuple(_required_texts(schema)) or ("input",)
    values = rest.split(None, len(fields) - 1) if rest else []
    given = {_own_name(field, schema): value for field, value in zip(fields, values, strict=False)}
    # A tool may require a title besides the text: the start of the text serves as one.
    return given | {field: rest[:60] for field in _required_texts(schema) if field not in given and rest}


def _required_texts(schema: Mapping[str, Any]) -> Iterator[str]:
    properties = schema.get("properties")
    required = schema.get("required")
    for field in required if isinstance(required, list) else ():
        described = properties.get(field) if isinstance(properties, Mapping) else None
        if isinstance(described, Mapping) and described.get("type") == "string":
            yield field


def _own_name(field: str, schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return field
    return next((name for name in script().synonyms.get(field, (field,)) if name in properties), field)
