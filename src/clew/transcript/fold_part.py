"""What a chunk does to one part, given the part alone.

Owns the shape of every part that chunks make, and how each further chunk changes it: which keys a state of a
tool call has, what a delta adds to, which metadata replaces which. Ids of open texts, the order of parts and
the message around them are not known here: that is :mod:`clew.transcript.fold`.

:func:`begin` makes a part, :func:`check` asks whether a part takes a chunk, :func:`extend` writes it. Growing
text is kept in pieces and joined when somebody looks; the partial input of a tool call is parsed then, not
before.
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
_MOST_PARSED: Final = 64 * 1024
"""Of arguments that are still being written: looking through megabytes of them again and again would hold up everybody.
What they are as a whole is said once they are whole."""
_PER_STATE: Final = ("input", "inputEncoding", "rawInput", "output", "errorText", "preliminary")
"""Keys that say what a tool call holds in its present state; every move writes all of them anew."""


class GrowingPart:
    """A part and the text that has been added to it. ``data`` is whole only while ``pieces`` is None."""

    __slots__ = ("changed", "data", "length", "pieces")

    def __init__(self, data: Json, *, changed: bool) -> None:
        self.data = data
        self.changed = changed
        self.pieces: list[str] | None = None
        self.length = 0

    def grow(self, delta: str) -> None:
        """Add to the text of a text or reasoning, or to the arguments of a call as they are written."""
        if self.pieces is None:
            begun = self.data.get(self._growing())
            self.pieces = [begun if isinstance(begun, str) else ""]
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
                _set(self.data, "input", text if is_text else parse_partial_json(text[:_MOST_PARSED]))
        return self.data

    def text_length(self) -> int:
        if self.pieces is not None:
            return self.length
        text = self.data.get(self._growing())
        return len(text) if isinstance(text, str) else 0

    def snapshot(self) -> Json:
        """The part in a dict of its own: as it was given if nothing changed it, else in one order of keys."""
        data = self.settle()
        if not self.changed or not is_call(data):
            return dict(data)
        return dict(sorted(data.items(), key=lambda item: _RANK.get(item[0], len(_RANK))))

    def state_after(self, event: str, tool_call_id: str) -> str:
        """Where the table leads this call; :class:`IllegalChunk` where it leads nowhere."""
        return _state_after(self.data.get("state"), event, tool_call_id, self.data.get("preliminary") is True)

    def _growing(self) -> str:
        return "rawInput" if "toolCallId" in self.data else "text"


def _set(data: Json, key: str, value: Any) -> None:
    """Absent stays absent: a key whose value is not given is not there."""
    if value is UNSET:
        data.pop(key, None)
    else:
        data[key] = value


def _given(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value is not UNSET}


def _state_after(state: str | None, event: str, tool_call_id: str, preliminary: bool = False) -> str:
    try:
        return next_state(state, event, preliminary=preliminary)
    except IllegalChunk as error:
        raise IllegalChunk(f"{error} ({tool_call_id})", **error.ids, tool_call_id=tool_call_id) from None


# Parts begin.


def begin(chunk: c.Chunk) -> Json:
    """The part a chunk begins; :class:`IllegalChunk` for one that can only go on with a part."""
    make = _BEGIN.get(chunk.__class__)
    if make is not None:
        return make(chunk)
    call_id = getattr(chunk, "tool_call_id", None)
    if call_id is not None:
        _state_after(None, chunk.type, call_id)
    raise IllegalChunk(f"{chunk.type} does not begin a part", chunk_type=chunk.type)


def _begin_text(chunk: c.TextStart | c.ReasoningStart) -> Json:
    # A client keeps the id of a reasoning, and forgets that of a text.
    kept = {"type": "text"} if isinstance(chunk, c.TextStart) else {"type": "reasoning", "id": chunk.id}
    return _given(**kept, text="", state="streaming", providerMetadata=chunk.provider_metadata)


def _begin_call(chunk: _Call) -> Json:
    state = _state_after(None, chunk.type, chunk.tool_call_id)
    dynamic = chunk.dynamic is True
    data: Json = {"type": "dynamic-tool" if dynamic else "", "toolCallId": chunk.tool_call_id}
    _write_call(data, chunk, state)
    return data


def _begin_data(chunk: c.Data) -> Json:
    """A data part is its chunk, unknown fields included."""
    _refuse_transient(chunk)
    return c.chunk_dict(chunk)


def _refuse_transient(chunk: c.Data) -> None:
    if chunk.transient is True:
        raise IllegalChunk(f"{chunk.type} is transient and belongs to no part", chunk_type=chunk.type)


_BEGIN: Final[dict[type[c.Chunk], Callable[[Any], Json]]] = {
    c.StartStep: lambda _: {"type": "step-start"},
    c.TextStart: _begin_text,
    c.ReasoningStart: _begin_text,
    c.ToolInputStart: _begin_call,
    c.ToolInputAvailable: _begin_call,
    c.ToolInputError: _begin_call,
    c.SourceUrl: c.known_fields,
    c.SourceDocument: c.known_fields,
    c.File: lambda chunk: _given(
        type="file", mediaType=chunk.media_type, url=chunk.url, providerMetadata=chunk.provider_metadata
    ),
    c.Data: _begin_data,
}


# Parts go on.


def check(part: GrowingPart, chunk: c.Chunk) -> None:
    """Raise :class:`IllegalChunk` unless the part takes the chunk. Nothing is changed."""
    ask = _CHECK.get(chunk.__class__)
    if ask is None:
        raise IllegalChunk(f"{chunk.type} begins a part of its own", chunk_type=chunk.type)
    ask(part, chunk)


def _check_text(part: GrowingPart, chunk: _Text) -> None:
    kind = "text" if isinstance(chunk, (c.TextDelta, c.TextEnd)) else "reasoning"
    if part.data.get("type") != kind or part.data.get("state") != "streaming":
        raise IllegalChunk(f"{chunk.type} for {chunk.id!r}: the part is no open {kind}", chunk_type=chunk.type)


def _check_tool(part: GrowingPart, chunk: _Tool | _Output) -> None:
    call_id = chunk.tool_call_id
    if call_id_of(part.data) != call_id:
        raise IllegalChunk(f"{chunk.type}: the part is not the tool call {call_id!r}", tool_call_id=call_id)
    part.state_after(chunk.type, call_id)
    if isinstance(chunk, c.ToolInputAvailable):
        dynamic = part.data["type"] == "dynamic-tool"
        if dynamic != (chunk.dynamic is True):
            kind = "dynamic" if dynamic else "static"
            raise IllegalChunk(f"the tool call {call_id!r} began as a {kind} one", tool_call_id=call_id)


def _check_data(part: GrowingPart, chunk: c.Data) -> None:
    _refuse_transient(chunk)
    if part.data.get("type") != chunk.type or part.data.get("id", UNSET) != chunk.id or chunk.id is UNSET:
        raise IllegalChunk(f"{chunk.type}: the part holds other data", chunk_type=chunk.type)


def extend(part: GrowingPart, chunk: c.Chunk) -> None:
    """Write a chunk that :func:`check` has let pass."""
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
    part.pieces = None  # what was written so far gives way to what this chunk says
    _write_call(part.data, chunk, part.state_after(chunk.type, chunk.tool_call_id))


def _write_call(data: Json, chunk: _Call, state: str) -> None:
    dynamic = data["type"] == "dynamic-tool"
    holds: Json = {}
    if isinstance(chunk, c.ToolInputStart):
        holds = {"inputEncoding": chunk.input_encoding}
    elif isinstance(chunk, c.ToolInputAvailable):
        holds = {"input": chunk.input}
    else:
        holds = {"input" if dynamic else "rawInput": chunk.input, "errorText": chunk.error_text}
    data["toolName" if dynamic else "type"] = chunk.tool_name if dynamic else f"tool-{chunk.tool_name}"
    # A client ignores the title of arguments that failed; so does the part.
    if not isinstance(chunk, c.ToolInputError) and chunk.title is not UNSET:
        data["title"] = chunk.title
    _move(data, chunk, state, holds)


def _set_output(part: GrowingPart, chunk: _Output) -> None:
    data = part.settle()
    state = part.state_after(chunk.type, chunk.tool_call_id)
    holds = {"input": data.get("input", UNSET)}
    if isinstance(chunk, c.ToolOutputAvailable):
        holds |= {"output": chunk.output, "preliminary": chunk.preliminary}
    else:
        holds["errorText"] = chunk.error_text
        if data["type"] != "dynamic-tool":
            holds["rawInput"] = data.get("rawInput", UNSET)
    _move(data, chunk, state, holds)


def _move(data: Json, chunk: _Call | _Output, state: str, holds: Json) -> None:
    data["state"] = state
    for key in _PER_STATE:
        _set(data, key, holds.get(key, UNSET))
    if chunk.tool_metadata is not UNSET:
        data["toolMetadata"] = chunk.tool_metadata
    if chunk.provider_executed is not UNSET:
        data["providerExecuted"] = chunk.provider_executed
    if chunk.provider_metadata is not UNSET:
        about = "result" if state in ("output-available", "output-error") else "call"
        data[f"{about}ProviderMetadata"] = chunk.provider_metadata


def _ask(part: GrowingPart, chunk: c.ToolApprovalRequest) -> None:
    part.data["state"] = part.state_after(chunk.type, chunk.tool_call_id)
    descriptor = UNSET if chunk.approval_descriptor is None else chunk.approval_descriptor
    part.data["approval"] = _given(
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
    c.ToolApprovalRequest: _ask,
    c.ToolOutputAvailable: _set_output,
    c.ToolOutputError: _set_output,
    c.ToolOutputDenied: lambda part, chunk: part.data.update(state=part.state_after(chunk.type, chunk.tool_call_id)),
    c.Data: lambda part, chunk: part.data.update(data=chunk.data),
}


# What a part may have become.


def continues(stored: Sequence[Part], shown: Sequence[Part]) -> bool:
    """Whether ``stored`` is ``shown``, or what it can have become by further chunks."""
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
        return call_id_of(after) == call_id_of(before) and _later(after, before)
    # Only data with an id is ever replaced, and nothing of the part but the data.
    named = kind_of(before).startswith("data-") and "id" in before
    return named and {**after, "data": None} == {**before, "data": None}


def _later(after: Part, before: Part) -> bool:
    """Whether a call can have gone on from ``before`` to ``after``. Arguments that were complete never change."""
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
