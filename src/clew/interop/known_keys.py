"""Known keys: the keys that clew writes into parts, metadata and data of a session and later reads without a check.

Parts, metadata and data may have any keys. The values of known ones must have the types that clew writes; other keys
are not checked, nor are parts of unknown types.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from clew.convert import convert, convert_json
from clew.errors import InvalidInput
from clew.transcript.part import COMPACTION_PART
from clew.transcript.session import Model
from clew.transcript.tool_state import ToolState
from clew.transcript.usage import Usage
from clew.transcript.view import Split

__all__ = ["MessageKeys", "StepKeys", "TurnKeys", "check_keys", "check_part", "check_tools"]

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class MessageKeys(msgspec.Struct):
    """Known keys of a message's metadata."""

    agent: str | None = None
    model: Model | str | None = None
    usage: Usage | None = None


class _Section(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A section of a step's prompt: its name and length, and how it was sent if not as text."""

    name: str
    length: _Count
    native: str = ""


class StepKeys(msgspec.Struct):
    """Known keys of a step's data."""

    prompt: list[_Section] | None = None
    tools: str | None = None
    request: str | None = None
    view: Annotated[list[int | None], msgspec.Meta(min_length=2)] | None = None
    limits: tuple[int | None, float | None] | None = None
    sized: tuple[_Count, _Count] | None = None


class TurnKeys(msgspec.Struct):
    """Known keys of a turn's data."""

    stopped: str | None = None
    budget_from: _Count = 0
    error: dict[str, Any] | None = None
    waiting: list[dict[str, Any]] = []
    unsent: list[Split] | None = None
    resumed: _Count | None = None
    warned: list[str] | None = None
    reminded: _Count | None = None


class _Text(msgspec.Struct):
    text: str


class _File(msgspec.Struct):
    url: str
    mediaType: str = ""  # noqa: N815 (the AI SDK's key)


class _Approval(msgspec.Struct):
    id: str | None = None
    approved: bool | None = None
    reason: str | None = None


class _Call(msgspec.Struct):
    type: str
    toolCallId: str  # noqa: N815 (the AI SDK's key)
    state: ToolState
    errorText: str | None = None  # noqa: N815 (the AI SDK's key)
    approval: _Approval | None = None


class _DynamicCall(_Call, kw_only=True):
    toolName: str  # noqa: N815 (the AI SDK's key)


class _Done(msgspec.Struct):
    output: Any


class _Failed(msgspec.Struct):
    errorText: str  # noqa: N815 (the AI SDK's key)


class _Summary(msgspec.Struct):
    summary: str
    tail_start_id: str | None = None
    split: Split | None = None


class _Compaction(msgspec.Struct):
    data: _Summary


class _Tool(msgspec.Struct):
    name: str
    description: str
    input_schema: dict[str, Any]


_PARTS: Final[dict[object, type[Any]]] = {
    "text": _Text,
    "reasoning": _Text,
    "file": _File,
    "dynamic-tool": _DynamicCall,
    COMPACTION_PART: _Compaction,
}
_ENDS: Final[dict[object, type[Any]]] = {"output-available": _Done, "output-error": _Failed}


def check_keys(value: dict[str, Any], keys: type[Any], where: str) -> None:
    """Raise ``InvalidInput`` unless the values of known keys have their types."""
    try:
        convert(value, keys)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{where}: {error}", where=where) from error


def check_tools(body: str, where: str) -> None:
    """Raise ``InvalidInput`` unless a text is the tools of a request as they are stored."""
    try:
        convert_json(body, list[_Tool])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidInput(f"{where}: invalid tool definitions: {error}", where=where) from error


def check_part(data: dict[str, Any], where: str) -> None:
    """Raise ``InvalidInput`` unless a part of a known type has valid keys."""
    kind = data.get("type")
    called = "toolCallId" in data or (isinstance(kind, str) and kind.startswith("tool-"))
    shape = _PARTS.get(kind) if isinstance(kind, str) else None
    if shape is None and called:
        shape = _Call
    if shape is not None:
        check_keys(data, shape, where)
    state = data.get("state")
    if called and isinstance(state, str) and state in _ENDS:
        check_keys(data, _ENDS[state], where)
