"""Messages as records of a log: what others read in their own words, with clew's extras riding on them.

Text, calls and results stand in the record's ``content``, once. The rest of each part rides in ``clew``, with a hole
where the content has the value, so that a part comes back key by key in its order. A record without ``clew`` is
another program's, and is taken in by :mod:`clew.store.files.adopt`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from clew.store.files.stamp import iso
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import COMPACTION_PART, tool_name

__all__ = [
    "Record",
    "changed_parts",
    "compaction_record",
    "content_text",
    "decode_parts",
    "is_marker",
    "message_records",
    "pieces",
    "says_something",
]

Record = dict[str, Any]


def content_text(content: object) -> str:
    """The text of a record's blocks; what is no text block is passed over."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str))


# Out


def says_something(row: MessageRow) -> bool:
    """Whether there is anything in the message that a record of it could say to others."""
    return row.role == "user" or any(_block(part) is not None for part in row.parts)


def is_marker(row: MessageRow) -> bool:
    """Whether the message is the marker of a compaction, which has a record of its own."""
    return row.role == "assistant" and any(
        part.type == COMPACTION_PART and isinstance(part.data.get("data"), dict) for part in row.parts
    )


def pieces(parts: Sequence[PartRow]) -> list[list[PartRow]]:
    """The parts step by step: another program's log has a message for each."""
    found: list[list[PartRow]] = []
    for part in parts:
        if part.type == "step-start" or not found:
            found.append([])
        found[-1].append(part)
    return found


def message_records(row: MessageRow, parts: Sequence[PartRow], *, whole: bool) -> Iterator[Record]:
    """The records of a message, or of the parts that are new in it; a result stands in a record of its own."""
    said = list(parts)
    for piece in pieces(said) or [[]]:
        content: list[Any] = []
        specs: list[Any] = []
        for part in piece:
            block = _block(part)
            specs.append(_spec(part, _hole(part), len(content)) if block is not None else _spec(part, None, None))
            if block is not None:
                content.append(block)
        extras: Record = {"id": row.id, "parts": specs}
        if whole:
            extras["row"] = [row.created_at, row.updated_at, row.metadata]
            whole = False
        if content or row.role == "user":
            yield _message(row.role, content, row.updated_at, extras)
        else:
            # Nothing in it that others have a block for; an empty message would say something that nobody said.
            yield {"recordType": "part", "timestamp": iso(row.updated_at), "role": row.role, "clew": extras}
        for part in piece:
            if _is_ended(part):
                yield result_record(row, part)


def result_record(row: MessageRow, part: PartRow) -> Record:
    """What came of a call. Its arguments stay where the call is."""
    data = part.data
    state = data.get("state")
    hole: dict[str, str] = {}
    text = "denied"
    if state == "output-available":
        output = data.get("output")
        hole["output"] = "text" if isinstance(output, str) else "json"
        text = output if isinstance(output, str) else orjson.dumps(output).decode()
    elif isinstance(data.get("errorText"), str):
        hole["errorText"] = "text"
        text = data["errorText"]
    if isinstance(data.get("input"), dict):
        hole["input"] = "stored"
    spec = [part.id, part.index, part.created_at, part.updated_at, _with_holes(data, hole), hole]
    record = _message("toolResult", [{"type": "text", "text": text}], part.updated_at, {"id": row.id, "parts": [spec]})
    return {**record, "toolCallId": part.tool_call_id, "isError": state != "output-available"}


def changed_parts(row: MessageRow, before: Mapping[int, PartRow]) -> Iterator[Record]:
    """The records of parts that were there and are different: results as such, anything else as it is."""
    for part in row.parts:
        old = before.get(part.index)
        if old is None or old == part:
            continue
        same_input = old.data.get("input") == part.data.get("input") and old.type == part.type
        if _is_ended(part) and not _is_ended(old) and same_input:
            yield result_record(row, part)
        else:
            spec = [part.id, part.index, part.created_at, part.updated_at, part.data, {}]
            yield {"recordType": "part", "timestamp": iso(part.updated_at), "clew": {"id": row.id, "parts": [spec]}}


def compaction_record(row: MessageRow, first_kept_seq: int) -> Record:
    """The marker of a compaction in the words of others, the rest of it riding along."""
    said = next(part.data["data"] for part in row.parts if part.type == COMPACTION_PART)
    specs = []
    for part in row.parts:
        data, hole = part.data, {}
        if part.type == COMPACTION_PART and part.data["data"] is said and isinstance(said.get("summary"), str):
            data, hole = {**data, "data": {**said, "summary": None}}, {"data": "summary"}
        specs.append([part.id, part.index, part.created_at, part.updated_at, data, hole])
    return {
        "recordType": "compaction",
        "firstKeptSeq": first_kept_seq,
        "summary": str(said.get("summary", "")),
        "tokensBefore": _count(said.get("tokens_before")),
        "readFiles": _names(said.get("read_files")),
        "modifiedFiles": _names(said.get("modified_files")),
        "timestamp": iso(row.created_at),
        "clew": {"id": row.id, "row": [row.created_at, row.updated_at, row.metadata], "parts": specs},
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _message(role: str, content: list[Any], at: int, extras: Record) -> Record:
    return {"recordType": "message", "role": role, "content": content, "timestamp": iso(at), "clew": extras}


def _is_ended(part: PartRow) -> bool:
    return (part.tool_state or "").startswith("output-")


def _block(part: PartRow) -> Record | None:
    if part.type == "text" and isinstance(part.data.get("text"), str):
        return {"type": "text", "text": part.data["text"]}
    if part.tool_call_id is not None:
        given = part.data.get("input")
        arguments = given if isinstance(given, dict) else {}
        return {"type": "toolCall", "id": part.tool_call_id, "name": tool_name(part.data), "arguments": arguments}
    return None


def _hole(part: PartRow) -> str | None:
    if part.type == "text":
        return "text"
    return "input" if isinstance(part.data.get("input"), dict) else None


def _spec(part: PartRow, key: str | None, block: int | None) -> list[Any]:
    """A part without what the content says of it. The result of a call has a record of its own, which says all."""
    data = part.data
    hole: dict[str, Any] = {} if key is None else {key: block}
    if _is_ended(part):
        kept: Record = {name: data[name] for name in ("type", "toolName", "toolCallId", "input") if name in data}
        data = {"input": {}, **kept, "state": "input-available"}
    return [part.id, part.index, part.created_at, part.updated_at, _with_holes(data, hole), hole]


def _with_holes(data: Mapping[str, Any], hole: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if key in hole else value for key, value in data.items()}


# In


def decode_parts(record: Record, stored: Mapping[int, PartRow]) -> list[PartRow]:
    """The parts that a record of clew's holds, its holes filled from the content and from what is stored."""
    found = []
    for id_, index, created_at, updated_at, data, hole in record["clew"]["parts"]:
        filled = {
            key: _fill(record, key, hole[key], value, stored.get(index)) if key in hole else value
            for key, value in data.items()
        }
        found.append(msgspec.convert([id_, index, filled, created_at, updated_at], tuple[str, int, Record, int, int]))
    return [PartRow(*one) for one in found]


def _fill(record: Record, key: str, place: object, value: Any, stored: PartRow | None) -> Any:
    content = record.get("content")
    if place == "summary":
        return {**value, "summary": record["summary"]}
    if place == "stored":
        return stored.data[key] if stored is not None else {}
    if place == "text":
        return content_text(content)
    if place == "json":
        return orjson.loads(content_text(content))
    block = content[place]  # type: ignore[index]  # a record that is not as clew wrote it is damage, and told as such
    return block["text"] if key == "text" else block["arguments"]
