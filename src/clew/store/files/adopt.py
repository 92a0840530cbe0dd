"""Adoption: records that another program wrote, taken in as a session of clew's. Pure.

A user message begins a turn; what follows is its answer, one message with a step for each record. Ids follow from the
session and the place of a record, so that every load gives the same ones, and the file itself is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from clew.ids import EPOCH_MS
from clew.store.files.iso_time import milliseconds
from clew.store.files.record import Record, content_text
from clew.store.memory.session_value import SessionValue
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import merged
from clew.transcript.part import COMPACTION_PART
from clew.transcript.project import project, tails_of
from clew.transcript.turn import HeadMove, Turn, placed

__all__ = ["adopt", "adopted_id", "project_hidden"]

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def adopted_id(prefix: str, session_id: str, place: str, at: int) -> str:
    """An id of clew's form that is always the same for the same place."""
    number = int.from_bytes(sha256(f"{session_id}/{place}".encode()).digest()[:16])
    tail = ""
    for _ in range(14):
        number, digit = divmod(number, len(_ALPHABET))
        tail += _ALPHABET[digit]
    return f"{prefix}{(max(at - EPOCH_MS, 0) << 7) & ((1 << 48) - 1):012x}{tail}"


def adopt(value: SessionValue, record: Record, seqs: Mapping[str, list[tuple[int, int]]]) -> str | None:
    """Take in one record of another program; the id of the message it became, or became part of."""
    if record["recordType"] == "compaction":
        return _adopt_compaction(value, record, seqs)
    role = record.get("role")
    if role == "user":
        return _adopt_user(value, record)
    if role == "assistant":
        return _adopt_assistant(value, record)
    return _adopt_result(value, record) if role == "toolResult" else None


def _at(value: SessionValue, record: Record) -> int:
    found = milliseconds(record.get("timestamp"))
    if found is not None:
        return found
    return max((row.created_at for row in value.messages.values()), default=value.row["session"].created_at)


def _adopt_user(value: SessionValue, record: Record) -> str:
    at, place = _at(value, record), str(record["seq"])
    turn = _begin(value, place, at, "normal")
    metadata = {key: True for key in ("synthetic", "summary") if record.get(key) is True}
    parts = _text_parts(value, record, place, at)
    return _add(value, turn, "user", place, at, metadata, parts)


def _adopt_assistant(value: SessionValue, record: Record) -> str:
    at, place = _at(value, record), str(record["seq"])
    head = value.turns.get(value.state["state"].head_turn_id or "")
    if head is None or head.kind == "compaction":
        head = _begin(value, place, at, "normal")
    held = value.links.get(head.id, ())
    row = value.messages[held[-1]] if held else None
    said: list[dict[str, Any]] = [{"type": "step-start"}]
    content = record.get("content")
    for block in content if isinstance(content, list) else [{"type": "text", "text": content_text(content)}]:
        match block:
            case {"type": "text", "text": str(text)}:
                said.append({"type": "text", "text": text, "state": "done"})
            case {"type": "toolCall", "id": str(id_), "name": str(name)}:
                given = block.get("arguments")
                said.append(_call(id_, name, given if isinstance(given, dict) else {}))
            case {"type": str()}:
                said.append(block)
            case _:
                pass
    value.turns[head.id] = msgspec.structs.replace(head, status="completed", settled_at=at)
    metadata = {key: True for key in ("synthetic", "summary") if record.get(key) is True}
    if row is None or row.role != "assistant":
        return _add(value, value.turns[head.id], "assistant", place, at, metadata, _parts(value, said, place, at, 0))
    parts = (*row.parts, *_parts(value, said, place, at, len(row.parts)))
    value.messages[row.id] = msgspec.structs.replace(row, parts=parts, updated_at=max(row.updated_at, at))
    return row.id


def _call(id_: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    # Without a result it is what a process that was cut off leaves; settling gives it an end.
    return {"type": f"tool-{name}", "toolCallId": id_, "state": "input-available", "input": given}


def _adopt_result(value: SessionValue, record: Record) -> str | None:
    call_id, text = record.get("toolCallId"), content_text(record.get("content"))
    for row in reversed(value.messages.values()):
        for part in row.parts:
            if part.tool_call_id == call_id and part.tool_state == "input-available":
                came = {"state": "output-available", "output": text}
                if record.get("isError") is True:
                    came = {"state": "output-error", "errorText": text}
                at = _at(value, record)
                new = msgspec.structs.replace(part, data={**part.data, **came}, updated_at=at)
                parts = (*row.parts[: part.index], new, *row.parts[part.index + 1 :])
                value.messages[row.id] = msgspec.structs.replace(row, parts=parts, updated_at=max(row.updated_at, at))
                return row.id
    return None


def _adopt_compaction(value: SessionValue, record: Record, seqs: Mapping[str, list[tuple[int, int]]]) -> str:
    at, place = _at(value, record), str(record["seq"])
    turn = _begin(value, place, at, "compaction")
    marker_id = adopted_id("msg_", value.row["session"].id, place, at)
    tail, split = _kept_from(record.get("firstKeptSeq"), seqs)
    data: dict[str, Any] = {
        "summary": str(record.get("summary", "")),
        "tail_start_id": tail or marker_id,
        "auto": True,
        "tokens_before": record.get("tokensBefore", 0),
        "read_files": list(record.get("readFiles") or ()),
        "modified_files": list(record.get("modifiedFiles") or ()),
    }
    if split is not None:
        data["split"] = {"message_id": tail, "from_part": split}
    said = [{"type": COMPACTION_PART, "data": data}]
    metadata = {"synthetic": True, "summary": True}
    return _add(value, turn, "assistant", place, at, metadata, _parts(value, said, place, at, 0))


def _kept_from(first: object, seqs: Mapping[str, list[tuple[int, int]]]) -> tuple[str | None, int | None]:
    """The message that the first record which is kept belongs to, and from which of its parts on, if not from all."""
    wanted = first if isinstance(first, int) else 0
    for message_id, places in seqs.items():
        for seq, from_part in places:
            if seq >= wanted:
                return message_id, from_part or None
    return None, None


def _text_parts(value: SessionValue, record: Record, place: str, at: int) -> tuple[PartRow, ...]:
    content = record.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content_text(content)}]
    return _parts(value, [block for block in blocks if isinstance(block, dict)], place, at, 0)


def _parts(value: SessionValue, said: list[dict[str, Any]], place: str, at: int, first: int) -> tuple[PartRow, ...]:
    session_id = value.row["session"].id
    return tuple(
        PartRow(adopted_id("prt_", session_id, f"{place}/{index}", at), index, data, at, at)
        for index, data in enumerate(said, first)
    )


def _add(
    value: SessionValue,
    turn: Turn,
    role: Any,
    place: str,
    at: int,
    metadata: dict[str, Any],
    parts: tuple[PartRow, ...],
) -> str:
    session = value.row["session"]
    row = MessageRow(adopted_id("msg_", session.id, place, at), session.id, role, at, at, metadata, parts)
    value.messages[row.id] = row
    value.links[turn.id] = (*value.links.get(turn.id, ()), row.id)
    value.row["session"] = msgspec.structs.replace(session, updated_at=max(session.updated_at, at))
    return row.id


def _begin(value: SessionValue, place: str, at: int, kind: Any) -> Turn:
    """A turn below the head, which moves to it."""
    session_id, state = value.row["session"].id, value.state["state"]
    turn = Turn(
        id=adopted_id("trn_", session_id, place, at),
        session_id=session_id,
        parent_turn_id=state.head_turn_id,
        created_at=at,
        kind=kind,
        status="completed" if kind == "compaction" else "unanswered",
        settled_at=at,
    )
    value.turns[turn.id] = placed(turn, value.turns.get(state.head_turn_id or ""))
    seq = next(reversed(value.moves), 0) + 1
    why: Any = "compaction" if kind == "compaction" else "turn"
    value.moves[seq] = HeadMove(seq, session_id, state.head_turn_id, turn.id, at, why)
    value.state["state"] = msgspec.structs.replace(state, head_turn_id=turn.id)
    return value.turns[turn.id]


def project_hidden(value: SessionValue) -> None:
    """Mark what compactions of another program hide."""
    tree = value.tree()
    hidden = project(tree, tails_of(tree, value.messages))
    for row in list(value.messages.values()):
        one = hidden.get(row.id)
        metadata = merged(row.metadata, {}, ("hidden_at", "hidden_by"))
        if one is not None:
            metadata = {**metadata, "hidden_at": one.at, "hidden_by": one.by}
        if metadata != row.metadata:
            value.messages[row.id] = msgspec.structs.replace(row, metadata=metadata)
