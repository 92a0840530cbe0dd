"""Converts messages to and from their form in ``json:`` files: text, files, calls, usage, model and two flags. Pure.

Values that other programs read are stored once, under the keys that those programs use. The rest of each part is under
``clew``, with a hole (null) in place of each such value.

Other keys of a message that another program wrote are preserved in a separate part. They are written back unchanged, in
one message of the file for each one that was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import orjson
from msgspec.structs import replace

from clew.convert import convert
from clew.store.files.metadata import model_of
from clew.store.files.record import content_text, is_marker
from clew.transcript.iso_time import iso
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import merge
from clew.transcript.part import COMPACTION_PART, PRESERVED_PART, data_of, tool_name

__all__ = ["BOUNDARY", "decode_message", "encode_message", "plain_metadata", "plain_records", "with_unknown_keys"]

BOUNDARY: Final = "Everything before this point is told by the summary that follows."
_GAP: Final = "\n\n"
_PROGRAM: Final = "json"
"""The program name in parts that preserve messages of ``json:`` files."""
_OTHER: Final = "other"
"""The metadata key for keys that another program added to a message that clew wrote."""
_BOUNDARY_OTHER: Final = "boundary_other"
"""The same for the boundary before a summary, which is a message of the file alone."""
_RESULTS_OTHER: Final = "results_other"
"""The same for the results of calls, which are messages of the file alone: by tool call id, as results arrive later."""
_TEXT: Final = ("text", "content")
_ARGUMENTS: Final = ("arguments", "input", "args")
_RESULT: Final = ("result", "output")


# Writing


def encode_message(row: MessageRow) -> list[dict[str, Any]]:
    """Return the messages of the file that represent one message of clew's. The first has its row and its parts."""
    return [shape for shape, _ in _encode(row)]


def _encode(row: MessageRow) -> list[tuple[dict[str, Any], PartRow | None]]:
    """Return the messages of the file, each with the part that preserves it if another program wrote it."""
    shapes: list[tuple[dict[str, Any], PartRow | None]] = []
    specs: list[Any] = []
    other, of_results = row.metadata.get(_OTHER), row.metadata.get(_RESULTS_OTHER)
    of_results = of_results if isinstance(of_results, dict) else {}
    for keeper, parts in _segments(row.parts):
        shape, own = _encode_parts(row, parts, first=not specs)
        specs += own
        preserved = None if keeper is None else _preserved_of(keeper)
        shape = shape if preserved is None else _refill(preserved, parts, row)
        results = _results(row, shape, preserved)
        if keeper is None:
            shape, other = _join(shape, other), None
        shapes += [(shape, keeper), *((_join(one, of_results.get(one["toolCallId"])), None) for one in results)]
    found = [shape for shape, keeper in shapes if keeper is not None]
    carried: dict[str, Any] = {"row": [row.created_at, row.updated_at, row.metadata], "parts": specs}
    if found:
        # Values under another program's keys are not read back from there, so the parts are written completely.
        whole = [[part.id, part.created_at, part.updated_at, part.data, {}] for part in row.parts]
        carried = {"id": row.id, **carried, "parts": whole}
    shapes = [({**one, "clew": {"of": row.id} if n else carried}, keeper) for n, (one, keeper) in enumerate(shapes)]
    if is_marker(row) and not any(shape.get("role") == "user" for shape in found):
        shape = {"id": f"{row.id}-boundary", "role": "user", "text": BOUNDARY, "synthetic": True, "summary": True}
        shape |= {"content": BOUNDARY, "createdAt": iso(row.created_at), "timestamp": row.created_at}
        shape["clew"] = {"boundary": row.id}
        shapes.insert(0, (_join(shape, row.metadata.get(_BOUNDARY_OTHER)), None))
    return shapes


def _results(row: MessageRow, shape: dict[str, Any], preserved: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the results of a message's calls as messages of their own, where other programs look for them.

    clew itself reads none of them. Those of another program's message are where that program put them, except for
    results that arrived later.
    """
    there: set[str] = set()
    if preserved is not None:
        found = _calls_of(preserved["shape"])
        there = {id_ for id_, call in found if "toolCallId" not in call or any(key in call for key in _RESULT)}
    results = []
    for id_, call in _calls_of(shape) if shape.get("role") == "assistant" else ():
        if id_ not in there and "result" in call:
            said = call["result"] if isinstance(call["result"], str) else orjson.dumps(call["result"]).decode()
            names = {"toolCallId": id_, "toolName": call.get("toolName", call.get("name"))}
            result = {"id": f"{row.id}-{id_}", "role": "tool", "content": said, **names}
            results.append({**result, "isError": call.get("isError") is True, "timestamp": row.updated_at})
    return results


def _segments(parts: Sequence[PartRow]) -> Iterator[tuple[PartRow | None, Sequence[PartRow]]]:
    """Yield the parts of each message in the file, with the part that preserves it if another program wrote it."""
    start = 0
    for index, part in enumerate(parts):
        preserved = _preserved_of(part)
        if preserved is not None:
            begin = max(index - preserved["parts"], start)
            if begin > start:
                yield None, parts[start:begin]
            yield part, parts[begin:index]
            start = index + 1
    if start < len(parts) or not parts:
        yield None, parts[start:]


def _encode_parts(row: MessageRow, parts: Sequence[PartRow], *, first: bool) -> tuple[dict[str, Any], list[Any]]:
    text = ""
    files: list[Any] = []
    calls: list[Any] = []
    specs: list[Any] = []
    for part in parts:
        data = part.data
        hole: dict[str, Any] = {}
        if part.type == "text" and isinstance(data.get("text"), str):
            text += _GAP if text else ""
            hole = {"text": [len(text), len(text) + len(data["text"])]}
            text += data["text"]
        elif part.type == COMPACTION_PART and is_marker(row) and isinstance(data["data"].get("summary"), str):
            text += _GAP if text else ""
            summary = data["data"]["summary"]
            hole = {"data": [len(text), len(text) + len(summary)]}
            data = {**data, "data": {**data["data"], "summary": None}}
            text += summary
        elif part.tool_call_id is not None:
            hole = {key: len(calls) for key in ("input", "output", "errorText") if key in data}
            calls.append(_call(part))
        elif part.type == "file":
            files.append({"name": data.get("filename"), "mediaType": data.get("mediaType"), "url": data.get("url")})
        holed = {key: None if key in hole and key != "data" else value for key, value in data.items()}
        specs.append([part.id, part.created_at, part.updated_at, holed, hole])
    used, model = row.usage, row.asked_model
    # Other programs have only two counts: total input and total output.
    sums = [used.input + used.cache_read + used.cache_write, used.output + used.reasoning]
    counts = dict(zip(("inputTokens", "outputTokens"), sums, strict=True)) if "usage" in row.metadata else None
    shape: dict[str, Any] = {
        "id": row.id,
        "role": row.role,
        "text": text,
        "files": files or None,
        "toolCalls": calls or None,
        "usage": counts if first else None,
        "model": f"{model.get('provider_id')}/{model.get('model_id')}" if isinstance(model, dict) else model,
        "synthetic": row.is_synthetic or None,
        "summary": row.is_summary or None,
        "createdAt": iso(row.created_at),
        # Names of the same values in programs that share such files.
        "content": text,
        "timestamp": row.created_at,
    }
    return {key: one for key, one in shape.items() if one is not None}, specs


def _call(part: PartRow) -> dict[str, Any]:
    data = part.data
    id_, name, arguments = part.tool_call_id, tool_name(data), data.get("input", {})
    call = {"id": id_, "name": name, "arguments": arguments, "toolCallId": id_, "toolName": name, "args": arguments}
    if "output" in data:
        call |= {"result": data["output"], "isError": False}
    if "errorText" in data:
        call |= {"result": data["errorText"], "isError": True}
    return call


# Reading


def decode_message(shape: dict[str, Any], session_id: str) -> MessageRow | None:
    """Return a message that clew wrote; None for one that belongs to another one, such as a boundary."""
    own = shape["clew"]
    if "boundary" in own or "of" in own:
        return None
    created_at, updated_at, metadata = own["row"]
    parts = []
    for index, (id_, at, since, data, hole) in enumerate(own["parts"]):
        filled = {key: _fill(shape, key, hole[key], value) if key in hole else value for key, value in data.items()}
        parts.append(PartRow(id_, index, filled, at, since))
    id_ = own.get("id", shape.get("id"))
    row = MessageRow(id_, session_id, _role(shape, parts), created_at, updated_at, metadata, tuple(parts))
    return convert(msgspec.to_builtins(row), MessageRow)


def _role(shape: dict[str, Any], parts: Sequence[PartRow]) -> Any:
    """Return the role. A summary is an assistant message, even if its first message in the file is a boundary."""
    return "assistant" if any(part.type == COMPACTION_PART for part in parts) else shape["role"]


def _fill(shape: dict[str, Any], key: str, hole: Any, value: Any) -> Any:
    """Return the value of a part's key: ``hole`` is its range in the message's text, or the index of the call."""
    if key == "data":
        return {**value, "summary": shape["text"][hole[0] : hole[1]]}
    if key == "text":
        return shape["text"][hole[0] : hole[1]]
    call = shape["toolCalls"][hole]
    return call["arguments"] if key == "input" else call["result"]


# Keys that another program added to messages that clew wrote


def with_unknown_keys(row: MessageRow, found: Sequence[dict[str, Any]]) -> MessageRow:
    """Return the row with all keys that clew would not write itself, from its messages ``found`` in the file."""
    own = replace(row, metadata=merge(row.metadata, {}, (_OTHER, _BOUNDARY_OTHER, _RESULTS_OTHER)))
    written = _encode(own)
    if len(found) != len(written):
        return row
    parts = list(row.parts)
    others: dict[str, Any] = {}
    for one, (shape, keeper) in zip(found, written, strict=True):
        more = _unknown(one, shape)
        if more is None:
            continue
        if keeper is not None:
            preserved = keeper.data["data"]
            data = {**keeper.data, "data": {**preserved, "shape": _join(preserved["shape"], more)}}
            parts[keeper.index] = replace(keeper, data=data)
        elif "boundary" in shape["clew"]:
            others[_BOUNDARY_OTHER] = more
        elif shape["role"] == "tool":
            of_results = others.setdefault(_RESULTS_OTHER, {})
            of_results[shape["toolCallId"]] = {**of_results.get(shape["toolCallId"], {}), **more}
        else:
            others.setdefault(_OTHER, more)
    return replace(own, metadata=merge(own.metadata, others), parts=tuple(parts))


def _unknown(found: Any, written: Any) -> Any:
    """Return the keys and items of ``found`` that ``written`` does not have, at any depth; None if there are none."""
    if isinstance(found, dict) and isinstance(written, dict):
        pairs = {key: _unknown(one, written[key]) if key in written else one for key, one in found.items()}
        preserved = {key: one for key, one in pairs.items() if one is not None or key not in written}
        return {key: one for key, one in preserved.items() if key not in ("clew", "check")} or None
    if isinstance(found, list) and isinstance(written, list) and len(found) == len(written):
        items = [_unknown(one, other) for one, other in zip(found, written, strict=True)]
        return items if any(item is not None for item in items) else None
    return None


def _join(written: Any, more: Any) -> Any:
    """Return ``written`` with the keys and items that :func:`_unknown` returned."""
    if isinstance(written, dict) and isinstance(more, dict):
        return {**written, **{key: _join(written[key], one) if key in written else one for key, one in more.items()}}
    if isinstance(written, list) and isinstance(more, list) and len(written) == len(more):
        return [_join(one, other) for one, other in zip(written, more, strict=True)]
    return written


# Messages of other programs


def plain_records(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Return another program's messages as records for adoption. A user's summary followed by
    the assistant's is a compaction.

    Each record also has the message itself, as parts that preserve it: under ``kept``, and the boundary of a compaction
    under ``before``.
    """
    records: list[dict[str, Any]] = []
    boundary: list[dict[str, Any]] = []
    for index, shape in enumerate(messages):
        if not isinstance(shape, dict) or shape.get("role") not in ("user", "assistant", "tool"):
            continue
        role = shape["role"]
        content = next((shape[key] for key in _TEXT if isinstance(shape.get(key), str | list)), "")
        text = content if isinstance(content, str) else content_text(content)
        seq = (index + 1) * 1000
        head = {"seq": seq, "timestamp": shape.get("createdAt", shape.get("timestamp")), "from": index}
        preserved = [_preserved(shape)]
        if shape.get("summary") is True and role == "user":
            boundary = preserved
            continue
        if shape.get("summary") is True and role == "assistant":
            compaction = {"recordType": "compaction", "summary": text, "firstKeptSeq": seq + 1}
            records.append({**compaction, **head, "before": boundary, "kept": preserved})
            boundary = []
            continue
        if role == "tool":
            result = _result(shape.get("toolCallId"), content, shape.get("isError"))
            records.append({**result, **head, "kept": preserved})
            continue
        blocks: list[Any] = [{"type": "text", "text": text}] if text or role == "user" else []
        for file in shape.get("files") or () if isinstance(shape.get("files"), list) else ():
            if isinstance(file, dict):
                url = file.get("url") or file.get("path") or ""
                block = {"type": "file", "mediaType": str(file.get("mediaType") or ""), "url": str(url)}
                blocks.append({**block, **({"filename": str(file["name"])} if file.get("name") else {})})
        calls = _calls_of(shape) if role == "assistant" else []
        for id_, call in calls:
            arguments = next((call[key] for key in _ARGUMENTS if key in call), None)
            name = str(call.get("name", call.get("toolName")))
            blocks.append({"type": "toolCall", "id": id_, "name": name, "arguments": arguments})
        message = {"role": role, "content": blocks, "synthetic": shape.get("synthetic"), "kept": preserved}
        records.append({"recordType": "message", **message, **head})
        for number, (id_, call) in enumerate(calls, 1):
            output = next((call[key] for key in _RESULT if call.get(key) is not None), None)
            if output is not None:
                records.append({**_result(id_, output, call.get("isError")), **head, "seq": seq + number})
                del records[-1]["from"]
    return records


def _calls_of(shape: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a message that have an id, under any of its names, each with that id."""
    calls = shape.get("toolCalls")
    found = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    named = ((call.get("id", call.get("toolCallId")), call) for call in found)
    return [(str(id_), call) for id_, call in named if id_ is not None]


def _result(id_: object, output: Any, is_error: object) -> dict[str, Any]:
    content = [{"type": "text", "text": output if isinstance(output, str) else orjson.dumps(output).decode()}]
    result = {"recordType": "message", "role": "toolResult", "content": content, "toolCallId": id_}
    return {**result, "isError": is_error is True}


def _preserved(shape: dict[str, Any]) -> dict[str, Any]:
    """Return the part that preserves a message, without the long values that its other parts have."""
    holes: list[list[Any]] = [[key] for key in _TEXT if isinstance(shape.get(key), str)][:1]
    if shape.get("summary") is True and shape.get("role") == "user":
        holes = []  # no other part has the text of a boundary
    preserved = {key: value for key, value in shape.items() if key not in ("clew", "check")}
    if isinstance(shape.get("toolCalls"), list) and _calls_of(shape):
        preserved["toolCalls"] = [dict(call) if isinstance(call, dict) else call for call in shape["toolCalls"]]
        for index, call in enumerate(shape["toolCalls"]):
            if isinstance(call, dict) and ("id" in call or "toolCallId" in call):
                arguments = next((key for key in _ARGUMENTS if key in call), None)
                result = next((key for key in _RESULT if call.get(key) is not None), None)
                holes += [["toolCalls", index, arguments]] if arguments and isinstance(call[arguments], dict) else []
                holes += [["toolCalls", index, result]] if result and isinstance(call[result], str) else []
    for *path, key in holes:
        _at(preserved, path)[key] = None
    return {"type": PRESERVED_PART, "data": {"program": _PROGRAM, "shape": preserved, "holes": holes, "parts": 0}}


def _at(shape: Any, path: Sequence[Any]) -> Any:
    for key in path:
        shape = shape[key]
    return shape


def _preserved_of(part: PartRow) -> dict[str, Any] | None:
    preserved = data_of(part.data, PRESERVED_PART)
    return preserved if preserved is not None and preserved.get("program") == _PROGRAM else None


def _refill(preserved: dict[str, Any], parts: Sequence[PartRow], row: MessageRow) -> dict[str, Any]:
    """Return a preserved message with its holes filled from its parts, and with results that arrived later."""
    shape: dict[str, Any] = orjson.loads(orjson.dumps(preserved["shape"]))
    calls = {part.tool_call_id: part.data for part in row.parts if part.tool_call_id is not None}
    for *path, key in preserved["holes"]:
        target = _at(shape, path)
        if path:
            data = calls.get(str(target.get("id", target.get("toolCallId"))), {})
            target[key] = data.get("input") if key in _ARGUMENTS else data.get("output", data.get("errorText"))
        elif shape.get("role") == "tool":
            data = calls.get(str(shape.get("toolCallId")), {})
            target[key] = data.get("output", data.get("errorText"))
        else:
            texts = [part.data["text"] for part in parts if part.type == "text"]
            texts += [part.data["data"]["summary"] for part in parts if part.type == COMPACTION_PART]
            target[key] = _GAP.join(texts)
    separate = [one["shape"].get("toolCallId") for one in map(_preserved_of, row.parts) if one is not None]
    for id_, call in _calls_of(shape) if shape.get("role") == "assistant" else ():
        data = calls.get(id_, {})
        if id_ not in separate and not any(key in call for key in _RESULT) and {"output", "errorText"} & data.keys():
            call |= {"result": data.get("output", data.get("errorText")), "isError": "errorText" in data}
    return shape


def plain_metadata(shape: dict[str, Any]) -> dict[str, Any]:
    """Return clew's metadata for another program's message."""
    found: dict[str, Any] = {}
    used = shape.get("usage")
    if isinstance(used, dict):
        counts = [used.get("inputTokens"), used.get("outputTokens")]
        tokens = [count if isinstance(count, int) and count >= 0 else 0 for count in counts]
        found["usage"] = {"input": tokens[0], "output": tokens[1], "reasoning": 0, "cache_read": 0, "cache_write": 0}
    if isinstance(shape.get("model"), str):
        found["model"] = msgspec.to_builtins(model_of(shape["model"]))
    return found
