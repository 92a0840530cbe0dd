"""Messages in the shape of ``json:`` files: text, files, calls, usage, model and two flags; and back. Pure.

What others read stands once, in their words. The rest of each part rides in ``clew``, with a hole where the message
has the value already.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clew.fit import fit
from clew.store.files.metadata import model_of
from clew.store.files.record import is_marker
from clew.transcript.iso_time import iso
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import COMPACTION_PART, tool_name

__all__ = ["BOUNDARY", "decode_message", "encode_boundary", "encode_message", "plain_metadata", "plain_records"]

BOUNDARY: Final = "Everything before this point is told by the summary that follows."
_KNOWN: Final = frozenset(
    {
        *("id", "role", "text", "content", "files", "toolCalls", "usage", "model", "synthetic", "summary"),
        *("createdAt", "timestamp", "clew"),
    }
)
_GAP: Final = "\n\n"


# Out


def encode_message(row: MessageRow) -> dict[str, Any]:
    """One message."""
    text = ""
    files: list[Any] = []
    calls: list[Any] = []
    specs: list[Any] = []
    for part in row.parts:
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
    # The counts as others have them: all that went in, all that came out.
    sums = [used.input + used.cache_read + used.cache_write, used.output + used.reasoning]
    shape: dict[str, Any] = {
        "id": row.id,
        "role": row.role,
        "text": text,
        "files": files or None,
        "toolCalls": calls or None,
        "usage": dict(zip(("inputTokens", "outputTokens"), sums, strict=True)) if "usage" in row.metadata else None,
        "model": f"{model.get('provider_id')}/{model.get('model_id')}" if isinstance(model, dict) else model,
        "synthetic": row.is_synthetic or None,
        "summary": row.is_summary or None,
        "createdAt": iso(row.created_at),
    }
    extras = {"row": [row.created_at, row.updated_at, row.metadata], "parts": specs}
    return {**{key: one for key, one in shape.items() if one is not None}, "clew": extras}


def _call(part: PartRow) -> dict[str, Any]:
    data = part.data
    kept = {key: data[key] for key in ("input", "output", "errorText") if key in data}
    named = {"id": part.tool_call_id, "name": tool_name(part.data), "arguments": kept.get("input", {})}
    if "output" in kept:
        named |= {"result": kept["output"], "isError": False}
    if "errorText" in kept:
        named |= {"result": kept["errorText"], "isError": True}
    return named


def encode_boundary(marker: MessageRow) -> dict[str, Any]:
    """The first of the pair that stands for a compaction; the second is its marker."""
    shape = {"id": f"{marker.id}-boundary", "role": "user", "text": BOUNDARY, "synthetic": True, "summary": True}
    return {**shape, "createdAt": iso(marker.created_at), "clew": {"boundary": marker.id}}


# In


def decode_message(shape: dict[str, Any], session_id: str) -> MessageRow | None:
    """A message that clew wrote; None for a boundary, which its marker stands for."""
    own = shape["clew"]
    if "boundary" in own:
        return None
    created_at, updated_at, metadata = own["row"]
    parts = []
    for index, (id_, at, since, data, hole) in enumerate(own["parts"]):
        filled = {key: _fill(shape, key, hole[key], value) if key in hole else value for key, value in data.items()}
        parts.append(PartRow(id_, index, filled, at, since))
    row = MessageRow(shape["id"], session_id, shape["role"], created_at, updated_at, metadata, tuple(parts))
    return fit(msgspec.to_builtins(row), MessageRow)


def _fill(shape: dict[str, Any], key: str, place: Any, value: Any) -> Any:
    if key == "data":
        return {**value, "summary": shape["text"][place[0] : place[1]]}
    if key == "text":
        return shape["text"][place[0] : place[1]]
    call = shape["toolCalls"][place]
    return call["arguments"] if key == "input" else call["result"]


def plain_records(messages: list[Any]) -> list[dict[str, Any]]:
    """Another program's messages as the records that adoption takes. A pair of summaries is a compaction."""
    records: list[dict[str, Any]] = []
    for place, shape in enumerate(messages):
        if not isinstance(shape, dict):
            continue
        role, text = shape.get("role"), shape.get("text", shape.get("content", ""))
        seq = (place + 1) * 1000
        head = {"seq": seq, "timestamp": shape.get("createdAt", shape.get("timestamp"))}
        if shape.get("summary") is True:
            if role == "assistant":
                records.append({"recordType": "compaction", "summary": str(text), "firstKeptSeq": seq + 1, **head})
            continue
        blocks: list[Any] = [{"type": "text", "text": str(text)}] if text or role == "user" else []
        for file in shape.get("files") or ():
            if isinstance(file, dict):
                url = file.get("url") or file.get("path") or ""
                named = {"type": "file", "mediaType": str(file.get("mediaType") or ""), "url": str(url)}
                blocks.append({**named, **({"filename": str(file["name"])} if file.get("name") else {})})
        calls = [call for call in shape.get("toolCalls") or () if isinstance(call, dict) and "id" in call]
        for call in calls:
            given = call.get("arguments", call.get("input"))
            named = {"type": "toolCall", "id": str(call["id"]), "name": str(call.get("name"))}
            blocks.append({**named, "arguments": given})
        about = {"role": role, "content": blocks, "from": place, "synthetic": shape.get("synthetic")}
        records.append({"recordType": "message", **about, **head})
        for number, call in enumerate(calls, 1):
            came = call.get("result", call.get("output"))
            if came is not None:
                content = [
                    {"type": "text", "text": came if isinstance(came, str) else msgspec.json.encode(came).decode()}
                ]
                result = {"recordType": "message", "role": "toolResult", "content": content, "toolCallId": call["id"]}
                records.append({**result, "isError": call.get("isError") is True, **head, "seq": seq + number})
    return records


def plain_metadata(shape: dict[str, Any]) -> dict[str, Any]:
    """What another program's message says beside its content, as clew keeps it; keys that are not known stay."""
    found: dict[str, Any] = {}
    used = shape.get("usage")
    if isinstance(used, dict):
        counts = [used.get("inputTokens"), used.get("outputTokens")]
        tokens = [count if isinstance(count, int) and count >= 0 else 0 for count in counts]
        found["usage"] = {"input": tokens[0], "output": tokens[1], "reasoning": 0, "cache_read": 0, "cache_write": 0}
    if isinstance(shape.get("model"), str):
        found["model"] = msgspec.to_builtins(model_of(shape["model"]))
    others = {key: value for key, value in shape.items() if key not in _KNOWN}
    return {**found, **({"other": others} if others else {})}
