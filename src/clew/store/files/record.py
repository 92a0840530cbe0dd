"""Messages as records of a log: in the form that other programs read, with clew's own data in an extra key.

Text, calls and results are in the record's ``content``. The rest of each part is in ``clew``, with a hole where the
content has the value, so that the keys of a part keep their order. A record without ``clew`` was written by another
program, and is read by :mod:`clew.store.files.adopt`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from clew.convert import convert
from clew.transcript.iso_time import iso, milliseconds
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import COMPACTION_PART, STEP_START, tool_name

Record = dict[str, Any]
_ENDS: Final = frozenset({"output-available", "output-error", "output-denied"})
_KNOWN: Final = frozenset(
    {
        *("recordType", "schemaVersion", "seq", "timestamp", "unit", "after"),
        *("role", "content", "toolCallId", "isError", "synthetic"),
        *("firstKeptSeq", "summary", "tokensBefore", "readFiles", "modifiedFiles"),
    }
)


def content_text(content: object) -> str:
    """Return the text of a record's text blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str))


# Writing


def says_something(row: MessageRow) -> bool:
    """Return whether a record of the message would have content for other programs."""
    return row.role == "user" or any(_block(part) is not None for part in row.parts)


def is_marker(row: MessageRow) -> bool:
    """Return whether the message is the marker of a compaction, which has a record of its own."""
    return row.role == "assistant" and any(
        part.type == COMPACTION_PART and isinstance(part.data.get("data"), dict) for part in row.parts
    )


def spec_of(part: PartRow, data: Mapping[str, Any], hole: Mapping[str, Any]) -> list[Any]:
    """Return a part for ``clew``, without values that its record has elsewhere."""
    holed = {key: None if key in hole and key != "data" else value for key, value in data.items()}
    return [part.id, part.index, part.created_at, part.updated_at, holed, dict(hole)]


def message_records(row: MessageRow, parts: Sequence[PartRow], *, whole: bool) -> Iterator[Record]:
    """Yield the records of a message, or of its new parts: one for each step, as in logs of other programs, and one for
    each result.
    """
    steps: list[list[PartRow]] = []
    for part in parts:
        if part.type == STEP_START or not steps:
            steps.append([])
        steps[-1].append(part)
    for step in steps or [[]]:
        content: list[Any] = []
        extras: Record = {"id": row.id, "parts": []}
        for part in step:
            data, hole, block = part.data, {}, _block(part)
            if block is not None and (part.type == "text" or isinstance(data.get("input"), dict)):
                hole = {"text" if part.type == "text" else "input": len(content)}
            if part.tool_state in _ENDS:
                # The result has a record of its own.
                call: Record = {
                    name: data[name] for name in ("type", "toolName", "toolCallId", "input") if name in data
                }
                data = {"input": {}, **call, "state": "input-available"}
            extras["parts"].append(spec_of(part, data, hole))
            content += [block] if block is not None else []
        if whole:
            extras["row"] = [row.created_at, row.updated_at, row.metadata]
            whole = False
        if content or row.role == "user":
            yield _message(row.role, content, row.updated_at, extras)
        else:
            # Other programs have no blocks for these parts, and an empty message would be wrong.
            yield {"recordType": "part", "timestamp": iso(row.updated_at), "role": row.role, "clew": extras}
        for part in step:
            if part.tool_state in _ENDS:
                yield _result(row, part)


def _message(role: str, content: list[Any], at: int, extras: Record) -> Record:
    return {"recordType": "message", "role": role, "content": content, "timestamp": iso(at), "clew": extras}


def _block(part: PartRow) -> Record | None:
    """Return a part as a block of other programs; None if they have no block for it."""
    if part.type == "text" and isinstance(part.data.get("text"), str):
        return {"type": "text", "text": part.data["text"]}
    if part.tool_call_id is not None:
        given = part.data.get("input")
        arguments = given if isinstance(given, dict) else {}
        return {"type": "toolCall", "id": part.tool_call_id, "name": tool_name(part.data), "arguments": arguments}
    return None


def _result(row: MessageRow, part: PartRow) -> Record:
    """Return the record of a result. The arguments stay with the call."""
    data, text = part.data, "denied"
    hole: dict[str, str] = {}
    if part.tool_state == "output-available":
        output = data.get("output")
        hole["output"] = "text" if isinstance(output, str) else "json"
        text = output if isinstance(output, str) else orjson.dumps(output).decode()
    elif isinstance(data.get("errorText"), str):
        hole["errorText"] = "text"
        text = data["errorText"]
    if isinstance(data.get("input"), dict):
        hole["input"] = "stored"
    extras = {"id": row.id, "parts": [spec_of(part, data, hole)]}
    record = _message("toolResult", [{"type": "text", "text": text}], part.updated_at, extras)
    named = {"toolCallId": part.tool_call_id, "toolName": tool_name(data)}
    return {**record, **named, "isError": part.tool_state != "output-available"}


def changed_parts(row: MessageRow, before: Mapping[int, PartRow]) -> Iterator[Record]:
    """Yield the records of changed parts: new results as results, other parts completely."""
    for part in row.parts:
        old = before.get(part.index)
        if old is None or old == part:
            continue
        same_input = old.data.get("input") == part.data.get("input") and old.type == part.type
        if part.tool_state in _ENDS and old.tool_state not in _ENDS and same_input:
            yield _result(row, part)
        else:
            extras = {"id": row.id, "parts": [spec_of(part, part.data, {})]}
            yield {"recordType": "part", "timestamp": iso(part.updated_at), "clew": extras}


def compaction_record(row: MessageRow, first_tail_seq: int) -> Record:
    """Return the record of a compaction in the form of other programs, with the rest in ``clew``."""
    said = next(part.data["data"] for part in row.parts if part.type == COMPACTION_PART)
    specs = []
    for part in row.parts:
        data, hole = part.data, {}
        if part.type == COMPACTION_PART and part.data["data"] is said and isinstance(said.get("summary"), str):
            data, hole = {**data, "data": {**said, "summary": None}}, {"data": "summary"}
        specs.append(spec_of(part, data, hole))
    # Older versions only recorded the tokens of the whole context.
    tokens = said.get("summarised_tokens", said.get("tokens_before"))
    return {
        "recordType": "compaction",
        "firstKeptSeq": first_tail_seq,
        "summary": str(said.get("summary", "")),
        "tokensBefore": tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else 0,
        "readFiles": names_in(said.get("read_files")),
        "modifiedFiles": names_in(said.get("modified_files")),
        "timestamp": iso(row.created_at),
        "clew": {"id": row.id, "row": [row.created_at, row.updated_at, row.metadata], "parts": specs},
    }


def names_in(value: object) -> list[str]:
    """Return the texts of an untrusted list."""
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


# Reading


def unknown_in(record: Record) -> Record:
    """Return the values of another program's record that clew's message has no place for."""
    found = {key: value for key, value in record.items() if not _is_understood(key, value)}
    blocks = record.get("content")
    for place, block in enumerate(blocks if isinstance(blocks, list) else ()):
        rest = _unknown_in_block(block, is_result=record.get("role") == "toolResult")
        if rest not in (None, {}):
            found.setdefault("content", {})[str(place)] = rest
    return found


def _is_understood(key: str, value: object) -> bool:
    match key:
        case "unit" | "after":
            return False  # only a record of clew's has a place in a unit
        case "synthetic" | "isError":
            return isinstance(value, bool)
        case "tokensBefore":
            return isinstance(value, int)
        case "readFiles" | "modifiedFiles":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)
        case "timestamp":
            return milliseconds(value) is not None
    return key in _KNOWN


def _unknown_in_block(block: Any, *, is_result: bool) -> Any:
    """Return the part of a block that clew's parts have no place for: its unknown keys, or all of it."""
    match block:
        case {"type": "text", "text": str()}:
            return {key: value for key, value in block.items() if key not in ("type", "text")}
        case {"type": "toolCall", "id": str(), "name": str()} if not is_result:
            known = ("type", "id", "name", "arguments") if isinstance(block.get("arguments"), dict) else ("type",)
            return {key: value for key, value in block.items() if key not in known}
        case {"type": str()} if not is_result:
            return None  # a part of its own
    return block


def decode_parts(record: Record, stored: Mapping[int, PartRow]) -> list[PartRow]:
    """Return the parts of one of clew's records, with holes filled from the content and from stored parts."""
    found = []
    for id_, index, created_at, updated_at, data, hole in record["clew"]["parts"]:
        filled = {
            key: _fill(record, key, hole[key], value, stored.get(index)) if key in hole else value
            for key, value in data.items()
        }
        found.append(convert([id_, index, filled, created_at, updated_at], tuple[str, int, Record, int, int]))
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
    block = content[place]  # type: ignore[index]  # a changed record is reported as damage
    return block["text"] if key == "text" else block["arguments"]
