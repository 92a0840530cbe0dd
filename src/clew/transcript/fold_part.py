"""The effect of a chunk on one part, given the part alone.

Owns the shape of every part that chunks create, and how each further chunk changes it: the keys of each state of a tool
call, what a delta extends, which metadata replaces which. Ids of open texts, the order of parts and the message around
them are not known here: see :mod:`clew.transcript.fold`.

:func:`begin` creates a part, :func:`check` checks whether a chunk fits a part, :func:`extend` writes it. Growing text
is collected in pieces and joined when it is read; the partial input of a tool call is parsed then, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from clew.errors import IllegalChunk
from clew.transcript import chunk as c
from clew.transcript.chunk import UNSET
from clew.transcript.part import Part, call_id_of, is_call, kind_of, state_of
from clew.transcript.partial_json import parse_partial_json
from clew.transcript.tool_state import TOOL_STATES, next_state

__all__ = ["GrowingPart", "begin", "check", "continues", "extend"]

Json: TypeAlias = dict[str, Any]
_Text: TypeAlias = c.TextDelta | c.TextEnd | c.ReasoningDelta | c.ReasoningEnd
_Call: TypeAlias = c.ToolInputStart | c.ToolInputAvailable | c.ToolInputError
_Tool: TypeAlias = _Call | c.ToolInputDelta | c.ToolApprovalRequest | c.ToolOutputDenied
_Output: TypeAlias = c.ToolOutputAvailable | c.ToolOutputError

_TOOL_KEYS: Final = (
    "type",
    "toolName",
    "toolCallId",
    "state",
    "title",
    "toolMetadata",
    "providerExecuted",
    "input",
    "inputEncoding",
    "rawInput",
    "output",
    "errorText",
    "preliminary",
    "approval",
    "callProviderMetadata",
    "resultProviderMetadata",
)
_RANK: Final = {key: rank for rank, key in enumerate(_TOOL_KEYS)}
_STATE_RANK: Final = {state: rank for rank, state in enumerate(TOOL_STATES)}
_MAX_PARSED_CHARS: Final = 64 * 1024
"""Characters of streaming arguments to parse: parsing megabytes repeatedly would block all other work."""
_PER_STATE: Final = ("input", "inputEncoding", "rawInput", "output", "errorText", "preliminary")
"""Keys whose presence depends on the state of a tool call; every transition writes all of them."""


class GrowingPart:
    """A part and the text added to it. ``data`` is complete only while ``pieces`` is None."""

    __slots__ = ("changed", "data", "length", "pieces")

    def __init__(self, data: Json, *, changed: bool) -> None:
        self.data = data
        self.changed = changed
        self.pieces: list[str] | None = None
        self.length = 0

    def grow(self, delta: str) -> None:
        """Append to a text, a reasoning, or the streaming arguments of a call."""
        if self.pieces is None:
            existing = self.data.get(self._growing())
            self.pieces = [existing if isinstance(existing, str) else ""]
            self.length = len(self.pieces[0])
            self.changed = True
        self.pieces.append(delta)
        self.length += len(delta)

    def settle(self) -> Json:
        """Bring ``data`` up to date and return it."""
        if self.pieces is not None:
            text = "".join(self.pieces)
            self.pieces = None
            self.data[self._growing()] = text
            if "toolCallId" in self.data:
                is_text = self.data.get("inputEncoding") == "text"
                _set(self.data, "input", text if is_text else parse_partial_json(text[:_MAX_PARSED_CHARS]))
        return self.data

    def text_length(self) -> int:
        if self.pieces is not None:
            return self.length
        text = self.data.get(self._growing())
        return len(text) if isinstance(text, str) else 0

    def snapshot(self) -> Json:
        """Return a copy of the part: as given if unchanged, else with its keys in a fixed order."""
        data = self.settle()
        if not self.changed or not is_call(data):
            return dict(data)
        return dict(sorted(data.items(), key=lambda item: _RANK.get(item[0], len(_RANK))))

    def state_after(self, event: str, tool_call_id: str) -> str:
        """Return the next state of this call; raise :class:`IllegalChunk` if there is none."""
        return _state_after(self.data.get("state"), event, tool_call_id, self.data.get("preliminary") is True)

    def _growing(self) -> str:
        return "rawInput" if "toolCallId" in self.data else "text"


def _set(data: Json, key: str, value: Any) -> None:
    """Set a key, or remove it if the value is ``UNSET``."""
    if value is UNSET:
        data.pop(key, None)
    else:
        data[key] = value


def _without_unset(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value is not UNSET}


def _state_after(state: str | None, event: str, tool_call_id: str, preliminary: bool = False) -> str:
    try:
        return next_state(state, event, preliminary=preliminary)
    except IllegalChunk as error:
        raise IllegalChunk(f"{error} ({tool_call_id})", **error.ids, tool_call_id=tool_call_id) from None


# Beginning parts.


def begin(chunk: c.Chunk) -> Json:
    """Return the part a chunk begins; raise :class:`IllegalChunk` for a chunk that can only continue one."""
    make = _BEGIN.get(chunk.__class__)
    if make is not None:
        return make(chunk)
    call_id = getattr(chunk, "tool_call_id", None)
    if call_id is not None:
        _state_after(None, chunk.type, call_id)
    raise IllegalChunk(f"{chunk.type} cannot begin a part", chunk_type=chunk.type)


def _begin_text(chunk: c.TextStart | c.ReasoningStart) -> Json:
    # A client keeps the id of a reasoning but not that of a text.
    keys = {"type": "text"} if isinstance(chunk, c.TextStart) else {"type": "reasoning", "id": chunk.id}
    return _without_unset(**keys, text="", state="streaming", providerMetadata=chunk.provider_metadata)


def _begin_call(chunk: _Call) -> Json:
    state = _state_after(None, chunk.type, chunk.tool_call_id)
    dynamic = chunk.dynamic is True
    data: Json = {"type": "dynamic-tool" if dynamic else "", "toolCallId": chunk.tool_call_id}
    _write_call(data, chunk, state)
    return data


def _begin_data(chunk: c.Data) -> Json:
    """Return the chunk as a part, including unknown fields."""
    _refuse_transient(chunk)
    return c.chunk_dict(chunk)


def _refuse_transient(chunk: c.Data) -> None:
    if chunk.transient is True:
        raise IllegalChunk(f"{chunk.type} is transient and has no part", chunk_type=chunk.type)


_BEGIN: Final[dict[type[c.Chunk], Callable[[Any], Json]]] = {
    c.StartStep: lambda _: {"type": "step-start"},
    c.TextStart: _begin_text,
    c.ReasoningStart: _begin_text,
    c.ToolInputStart: _begin_call,
    c.ToolInputAvailable: _begin_call,
    c.ToolInputError: _begin_call,
    c.SourceUrl: c.known_fields,
    c.SourceDocument: c.known_fields,
    c.File: lambda chunk: _without_unset(
        type="file", mediaType=chunk.media_type, url=chunk.url, providerMetadata=chunk.provider_metadata
    ),
    c.Data: _begin_data,
}


# Continuing parts.


def check(part: GrowingPart, chunk: c.Chunk) -> None:
    """Raise :class:`IllegalChunk` unless the chunk fits the part. Nothing is changed."""
    check_part = _CHECK.get(chunk.__class__)
    if check_part is None:
        raise IllegalChunk(f"{chunk.type} begins a new part", chunk_type=chunk.type)
    check_part(part, chunk)


def _check_text(part: GrowingPart, chunk: _Text) -> None:
    kind = "text" if isinstance(chunk, (c.TextDelta, c.TextEnd)) else "reasoning"
    if part.data.get("type") != kind or part.data.get("state") != "streaming":
        raise IllegalChunk(f"{chunk.type} for {chunk.id!r}: the part is not an open {kind}", chunk_type=chunk.type)


def _check_tool(part: GrowingPart, chunk: _Tool | _Output) -> None:
    call_id = chunk.tool_call_id
    if call_id_of(part.data) != call_id:
        raise IllegalChunk(f"{chunk.type}: the part is not the tool call {call_id!r}", tool_call_id=call_id)
    part.state_after(chunk.type, call_id)
    if isinstance(chunk, c.ToolInputAvailable):
        dynamic = part.data["type"] == "dynamic-tool"
        if dynamic != (chunk.dynamic is True):
            kind = "dynamic" if dynamic else "static"
            raise IllegalChunk(f"the tool call {call_id!r} began as {kind}", tool_call_id=call_id)


def _check_data(part: GrowingPart, chunk: c.Data) -> None:
    _refuse_transient(chunk)
    if part.data.get("type") != chunk.type or part.data.get("id", UNSET) != chunk.id or chunk.id is UNSET:
        raise IllegalChunk(f"{chunk.type}: the part holds other data", chunk_type=chunk.type)


def extend(part: GrowingPart, chunk: c.Chunk) -> None:
    """Write a chunk that :func:`check` has accepted."""
    _EXTEND[chunk.__class__](part, chunk)
    part.changed = True


def _add_text(part: GrowingPart, chunk: c.TextDelta | c.ReasoningDelta) -> None:
    part.grow(chunk.delta)
    if chunk.provider_metadata is not UNSET:
        part.data["providerMetadata"] = chunk.provider_metadata


def _end_text(part: GrowingPart, chunk: c.TextEnd | c.ReasoningEnd) -> None:
    data = part.settle()
    data["state"] = "done"
    if chunk.provider_metadata is not UNSET:
        data["providerMetadata"] = chunk.provider_metadata


def _set_call(part: GrowingPart, chunk: _Call) -> None:
    part.pieces = None  # this chunk replaces what was streamed so far
    _write_call(part.data, chunk, part.state_after(chunk.type, chunk.tool_call_id))


def _write_call(data: Json, chunk: _Call, state: str) -> None:
    dynamic = data["type"] == "dynamic-tool"
    state_keys: Json = {}
    if isinstance(chunk, c.ToolInputStart):
        state_keys = {"inputEncoding": chunk.input_encoding}
    elif isinstance(chunk, c.ToolInputAvailable):
        state_keys = {"input": chunk.input}
    else:
        state_keys = {"input" if dynamic else "rawInput": chunk.input, "errorText": chunk.error_text}
    data["toolName" if dynamic else "type"] = chunk.tool_name if dynamic else f"tool-{chunk.tool_name}"
    # Like a client, ignore the title of invalid arguments.
    if not isinstance(chunk, c.ToolInputError) and chunk.title is not UNSET:
        data["title"] = chunk.title
    _move(data, chunk, state, state_keys)


def _set_output(part: GrowingPart, chunk: _Output) -> None:
    data = part.settle()
    state = part.state_after(chunk.type, chunk.tool_call_id)
    state_keys = {"input": data.get("input", UNSET)}
    if isinstance(chunk, c.ToolOutputAvailable):
        state_keys |= {"output": chunk.output, "preliminary": chunk.preliminary}
    else:
        state_keys["errorText"] = chunk.error_text
        if data["type"] != "dynamic-tool":
            state_keys["rawInput"] = data.get("rawInput", UNSET)
    _move(data, chunk, state, state_keys)


def _move(data: Json, chunk: _Call | _Output, state: str, holds: Json) -> None:
    data["state"] = state
    for key in _PER_STATE:
        _set(data, key, holds.get(key, UNSET))
    if chunk.tool_metadata is not UNSET:
        data["toolMetadata"] = chunk.tool_metadata
    if chunk.provider_executed is not UNSET:
        data["providerExecuted"] = chunk.provider_executed
    if chunk.provider_metadata is not UNSET:
        prefix = "result" if state in ("output-available", "output-error") else "call"
        data[f"{prefix}ProviderMetadata"] = chunk.provider_metadata


def _request_approval(part: GrowingPart, chunk: c.ToolApprovalRequest) -> None:
    part.data["state"] = part.state_after(chunk.type, chunk.tool_call_id)
    descriptor = UNSET if chunk.approval_descriptor is None else chunk.approval_descriptor
    part.data["approval"] = _without_unset(
        id=chunk.approval_id,
        descriptor=descriptor,
        inputSchemaInput=chunk.input_schema_input,
        signature=chunk.signature,
    )


_Act: TypeAlias = Callable[[GrowingPart, Any], None]
_CHECK: Final[dict[type[c.Chunk], _Act]] = {
    **dict.fromkeys((c.TextDelta, c.TextEnd, c.ReasoningDelta, c.ReasoningEnd), _check_text),
    **dict.fromkeys((c.ToolInputStart, c.ToolInputDelta, c.ToolInputAvailable, c.ToolInputError), _check_tool),
    **dict.fromkeys((c.ToolApprovalRequest, c.ToolOutputDenied), _check_tool),
    **dict.fromkeys((c.ToolOutputAvailable, c.ToolOutputError), _check_tool),
    c.Data: _check_data,
}
_EXTEND: Final[dict[type[c.Chunk], _Act]] = {
    c.TextDelta: _add_text,
    c.TextEnd: _end_text,
    c.ReasoningDelta: _add_text,
    c.ReasoningEnd: _end_text,
    c.ToolInputDelta: lambda part, chunk: part.grow(chunk.input_text_delta),
    c.ToolInputAvailable: _set_call,
    c.ToolInputError: _set_call,
    c.ToolApprovalRequest: _request_approval,
    c.ToolOutputAvailable: _set_output,
    c.ToolOutputError: _set_output,
    c.ToolOutputDenied: lambda part, chunk: part.data.update(state=part.state_after(chunk.type, chunk.tool_call_id)),
    c.Data: lambda part, chunk: part.data.update(data=chunk.data),
}


# Comparing versions of a part.


def continues(stored: Sequence[Part], shown: Sequence[Part]) -> bool:
    """Return whether ``stored`` equals ``shown``, or can have developed from it by further chunks."""
    if len(stored) < len(shown):
        return False
    return all(_part_extends(after, before) for after, before in zip(stored, shown, strict=False))


def _part_extends(after: Part, before: Part) -> bool:
    if after == before:
        return True
    if after.get("type") != before.get("type"):
        return False
    if kind_of(before) in ("text", "reasoning"):
        return state_of(before) == "streaming" and str(after.get("text")).startswith(str(before.get("text")))
    if is_call(before):
        return call_id_of(after) == call_id_of(before) and _call_extends(after, before)
    # Only data with an id is ever replaced, and no other key of its part.
    named = kind_of(before).startswith("data-") and "id" in before
    return named and {**after, "data": None} == {**before, "data": None}


def _call_extends(after: Part, before: Part) -> bool:
    """Return whether a call can have developed from ``before`` to ``after``. Complete arguments never change."""
    state, earlier = str(state_of(after)), str(state_of(before))
    if earlier == "input-streaming":
        if state == earlier:
            return str(after.get("rawInput", "")).startswith(str(before.get("rawInput", "")))
        return state in _STATE_RANK
    if after.get("input") != before.get("input"):
        return False
    if earlier.startswith("output-"):
        return before.get("preliminary") is True and state in ("output-available", "output-error")
    return _STATE_RANK.get(state, -1) > _STATE_RANK[earlier]
