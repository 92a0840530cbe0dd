"""Replay: convert a stored message back to chunks.

Guarantees that a v6 client that reduces these chunks has the stored message again (id, metadata and parts in order) and
can continue with the live stream from there. Deltas are joined. Open parts stay open: a text or reasoning under its id
in the live stream, arguments of a tool call as far as they were written. A text that was interrupted permanently comes
back as ``streaming``, as it is stored. The caller knows where the message came from and whether a run is live.

Text parts have no stored id, so they get new ones; reasoning keeps its own, because a client stores it.

A v6 stream cannot express these, so the client holds something else:

* The answer to an approval. The request of an answered call is left out, or the client would ask again: a call that was
  answered and has no output yet becomes ``input-available``, and no ended call has its ``approval``.
* A part of a type that has no chunk, or a tool call in a state v6 does not have: it is left out.
* ``filename`` of a file is sent as an extra field; a v6 client drops it.
* Parts that no v6 stream produces, such as imported ones: a text or reasoning without ``state`` becomes done, a
  reasoning without ``id`` gets one, streaming arguments without ``rawInput`` have no ``input``, a failed dynamic call
  loses its ``rawInput``, a call without ``input`` gets null, two data parts with the same type and id become one, and
  unknown keys are dropped except in data parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeVar

import msgspec

from clew.errors import InvalidInput
from clew.transcript import chunk as c
from clew.transcript.chunk import UNSET, Chunk, FinishReason, UnsetType
from clew.transcript.fold_part import continues
from clew.transcript.part import STEP_START, Part, is_call, kind_of, state_of, tool_name

__all__ = ["Diverged", "catch_up", "named_by_part", "part_chunks", "replay"]

_T = TypeVar("_T")
_CALL_KEYS: Final = ("input", "title", "callProviderMetadata", "rawInput")
"""Keys of a call that are sent before its output. A dynamic call does not keep the last one."""


def replay(
    message: Mapping[str, Any], *, open_ids: Mapping[int, str] | None = None, finish: bool | FinishReason = False
) -> Iterator[Chunk]:
    """Yield the chunks that produce ``message``, an assistant's ``UIMessage``.

    ``open_ids`` maps the parts that the live stream will continue to their ids there (``Fold.open_ids``). ``finish``
    ends the last step and the message, with a reason if one is given; leave it out if a live stream follows.
    """
    if message.get("role") != "assistant":
        raise InvalidInput("only an assistant message can be replayed as a stream")
    live_ids = dict(open_ids or {})
    used = {*live_ids.values(), *(part["id"] for part in message["parts"] if isinstance(part.get("id"), str))}
    ids = (id_ for id_ in (f"replayed-{n}" for n in count(1)) if id_ not in used)
    yield c.Start(message["id"], _optional(message, "metadata", dict))
    in_step = False
    for index, part in enumerate(message["parts"]):
        if kind_of(part) == STEP_START:
            # A client forgets every open text at finish-step, so none may be sent while a live text is open.
            if in_step and not any(at < index for at in live_ids):
                yield c.FinishStep()
            in_step = True
        yield from part_chunks(part, ids, live_ids.get(index))
    if finish:
        if in_step:
            yield c.FinishStep()
        yield c.Finish(UNSET if finish is True else finish)


def part_chunks(part: Part, ids: Iterator[str], live_id: str | None = None) -> list[Chunk]:
    """Return the chunks that produce one part; none if it has no chunk. ``ids`` are for parts without an id."""
    try:
        return list(_chunks(part, ids, live_id))
    except _NotExpressible:
        return []


class Diverged(Exception):
    """The stored message cannot have developed from what was shown."""


def _growth(before: Part, after: Part, id_: str) -> list[c.Chunk]:
    """Return the chunks that turn ``before`` into ``after``; ``id_`` is the id of an open text."""
    kind = kind_of(after)
    if kind in ("text", "reasoning"):
        delta, end = (c.TextDelta, c.TextEnd) if kind == "text" else (c.ReasoningDelta, c.ReasoningEnd)
        ends = state_of(after) != "streaming"
        added = after["text"][len(before["text"]) :]
        metadata = (
            after["providerMetadata"] if after.get("providerMetadata") != before.get("providerMetadata") else UNSET
        )
        text_chunks: list[c.Chunk] = []
        if added or (not ends and metadata is not UNSET):
            text_chunks.append(delta(id_, added, provider_metadata=UNSET if ends else metadata))
        return [*text_chunks, end(id_, provider_metadata=metadata)] if ends else text_chunks
    if not is_call(after):
        return part_chunks(after, iter(()))
    written, was_written = str(before.get("rawInput", "")), state_of(before) == "input-streaming"
    if "input" in before and after["type"] == "dynamic-tool" and "input" not in after:
        raise Diverged("invalid arguments cannot be streamed without their raw text")
    # A call that was cut off while its arguments were streaming has only the arguments already shown.
    call_keys = _CALL_KEYS[:-1] if after["type"] == "dynamic-tool" else _CALL_KEYS
    was_cut = state_of(after) == "output-error" and all(
        before.get(key, UNSET) == after.get(key, UNSET) for key in call_keys
    )
    chunks: list[c.Chunk] = []
    for chunk in part_chunks(after, iter(())):
        if isinstance(chunk, c.ToolInputError) and was_cut and was_written:
            chunk = c.ToolOutputError(chunk.tool_call_id, chunk.error_text, provider_metadata=chunk.provider_metadata)
        if isinstance(chunk, c.ToolInputDelta):
            rest = chunk.input_text_delta[len(written) :]
            if was_written and (rest or "rawInput" not in before):
                chunks.append(c.ToolInputDelta(chunk.tool_call_id, rest))
        elif isinstance(chunk, c.ToolInputAvailable):
            if was_written and not was_cut:
                chunks.append(chunk)
        elif isinstance(chunk, c.ToolOutputAvailable | c.ToolOutputError | c.ToolInputError):
            # These fields of the call may have arrived with its end.
            executed, tool_metadata = after.get("providerExecuted", UNSET), after.get("toolMetadata", UNSET)
            chunks.append(msgspec.structs.replace(chunk, provider_executed=executed, tool_metadata=tool_metadata))
        elif not isinstance(chunk, c.ToolInputStart):
            chunks.append(chunk)
    return chunks


def catch_up(
    before: Sequence[Part], after: Sequence[Part], *, in_step: bool, open_ids: Mapping[int, str] | None = None
) -> list[c.Chunk]:
    """Return the chunks that turn the parts shown so far into the stored ones.

    ``in_step`` tells whether a step was shown without its end. ``open_ids`` are the ids of open texts by the index of
    their part; other texts get an id by part. Raise :class:`Diverged` if it cannot be done.
    """
    if not continues(after, before):
        raise Diverged("the stored message does not match what was shown")
    chunks: list[c.Chunk] = []
    for index, part in enumerate(after):
        own_id = part.get("id") if kind_of(part) == "reasoning" else None
        id_ = (open_ids or {}).get(index, own_id if isinstance(own_id, str) else text_id(index))
        if index < len(before):
            chunks += _growth(before[index], part, id_) if part != before[index] else ()
            continue
        if kind_of(part) == STEP_START:
            chunks += [c.FinishStep()] if in_step else []
            in_step = True
        chunks += part_chunks(part, iter((id_,)), id_ if state_of(part) == "streaming" else None)
    return chunks


def text_id(index: int) -> str:
    """Return the id of a text where ids go by part: then each process knows it without having seen it begin."""
    return f"text-{index}"


def named_by_part(chunk: Chunk, index: int | None) -> Chunk:
    """Return a chunk of the part at ``index``, with that part's id if it is a text."""
    if index is not None and isinstance(chunk, c.TextDelta | c.TextStart | c.TextEnd):
        return msgspec.structs.replace(chunk, id=text_id(index))
    return chunk


class _NotExpressible(Exception):
    """No chunk can express this part."""


def _chunks(part: Part, ids: Iterator[str], live_id: str | None) -> Iterator[Chunk]:
    kind = kind_of(part)
    if kind == "text":
        yield from _text(part, next(ids) if live_id is None else live_id)
    elif kind == "reasoning":
        own_id = part["id"] if isinstance(part.get("id"), str) else next(ids)
        yield from _text(part, own_id if live_id is None else live_id)
    elif is_call(part):
        yield from _tool(part)
    elif kind.startswith("data-"):
        extra = {key: value for key, value in part.items() if key not in ("type", "id", "data", "transient")}
        # A stored part is not transient, whatever it says: a client would drop it.
        transient = False if part.get("transient") is False else UNSET
        yield c.Data(kind[5:], part.get("data"), _optional(part, "id", str), transient, extra=extra or UNSET)
    elif kind == STEP_START:
        yield c.StartStep()
    elif kind == "source-url":
        source, title = _text_of(part, "sourceId"), _optional(part, "title", str)
        yield c.SourceUrl(source, _text_of(part, "url"), title, provider_metadata=_metadata(part))
    elif kind == "source-document":
        source, media_type = _text_of(part, "sourceId"), _text_of(part, "mediaType")
        title, name = _text_of(part, "title"), _optional(part, "filename", str)
        yield c.SourceDocument(source, media_type, title, name, provider_metadata=_metadata(part))
    elif kind == "file":
        name = _optional(part, "filename", str)
        extra = {} if name is UNSET else {"filename": name}
        url, media_type = _text_of(part, "url"), _text_of(part, "mediaType")
        yield c.File(url, media_type, provider_metadata=_metadata(part), extra=extra or UNSET)
    else:
        raise _NotExpressible


# Field values by type. A value of another type would make a client refuse the whole stream.


def _text_of(part: Part, key: str) -> str:
    value = part.get(key)
    if not isinstance(value, str):
        raise _NotExpressible
    return value


def _optional(part: Part, key: str, kind: type[_T]) -> _T | UnsetType:
    value = part.get(key)
    return value if isinstance(value, kind) else UNSET


def _metadata(part: Part, key: str = "providerMetadata") -> dict[str, dict[str, Any]] | UnsetType:
    value = part.get(key)
    is_metadata = isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values())
    return value if is_metadata and value is not None else UNSET


# Texts.


def _text(part: Part, id_: str) -> Iterator[Chunk]:
    is_text = kind_of(part) == "text"
    text = _text_of(part, "text")
    yield (c.TextStart if is_text else c.ReasoningStart)(id_, provider_metadata=_metadata(part))
    if text:
        yield (c.TextDelta if is_text else c.ReasoningDelta)(id_, text)
    if state_of(part) != "streaming":
        yield (c.TextEnd if is_text else c.ReasoningEnd)(id_)


# Tool calls: the chunks depend on which fields the part still has.


def _tool(part: Part) -> Iterator[Chunk]:
    state = state_of(part)
    call_id = _text_of(part, "toolCallId")
    if state == "input-streaming":
        yield _begun_call(part, part.get("inputEncoding"))
        if isinstance(part.get("rawInput"), str):
            yield c.ToolInputDelta(call_id, part["rawInput"])
    elif state in ("input-available", "approval-responded"):
        yield _call(part)
    elif state == "approval-requested":
        approval = part.get("approval")
        if not isinstance(approval, Mapping):
            raise _NotExpressible
        descriptor, shown = approval.get("descriptor", UNSET), approval.get("inputSchemaInput", UNSET)
        yield _call(part)
        yield c.ToolApprovalRequest(
            _text_of(approval, "id"), call_id, descriptor, shown, _optional(approval, "signature", str)
        )
    elif state == "output-available":
        yield _call(part)
        yield c.ToolOutputAvailable(
            call_id,
            part.get("output"),
            _optional(part, "preliminary", bool),
            provider_metadata=_metadata(part, "resultProviderMetadata"),
        )
    elif state == "output-denied":
        yield _call(part)
        yield c.ToolOutputDenied(call_id)
    elif state == "output-error":
        yield from _failed_call(part)
    else:
        raise _NotExpressible


def _call(part: Part) -> Chunk:
    return c.ToolInputAvailable(
        _text_of(part, "toolCallId"),
        tool_name(part),
        part.get("input"),
        _optional(part, "title", str),
        **_call_fields(part),
    )


def _begun_call(part: Part, encoding: object = UNSET) -> Chunk:
    return c.ToolInputStart(
        _text_of(part, "toolCallId"),
        tool_name(part),
        "json" if encoding == "json" else "text" if encoding == "text" else UNSET,
        _optional(part, "title", str),
        **_call_fields(part),
    )


def _failed_call(part: Part) -> Iterator[Chunk]:
    call_id, error_text = _text_of(part, "toolCallId"), _text_of(part, "errorText")
    metadata = _metadata(part, "resultProviderMetadata")
    raw, is_static = part.get("rawInput", UNSET), part["type"] != "dynamic-tool"
    if is_static and raw is not UNSET and "input" not in part:
        # The arguments did not validate, or were cut off before they had a value: a client holds the same.
        yield _begun_call(part)
        yield c.ToolInputError(call_id, tool_name(part), raw, error_text, provider_metadata=metadata)
        return
    if is_static and isinstance(raw, str):
        # Interrupted while the arguments were streaming. Only text arguments equal their raw text.
        yield _begun_call(part, "text" if part["input"] == raw else UNSET)
        yield c.ToolInputDelta(call_id, raw)
    else:
        yield _call(part) if "input" in part else _begun_call(part)
    yield c.ToolOutputError(call_id, error_text, provider_metadata=metadata)


def _call_fields(part: Part) -> dict[str, Any]:
    return {
        "tool_metadata": _optional(part, "toolMetadata", dict),
        "provider_executed": _optional(part, "providerExecuted", bool),
        "provider_metadata": _metadata(part, "callProviderMetadata"),
        "dynamic": True if part["type"] == "dynamic-tool" else UNSET,
    }
