"""Rebuilding a session's value from the lines of its log and its stream, in the order they were written. Pure.

An invalid record is skipped. Entries of the stream file about a message are valid until the log has newer ones.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

from msgspec.structs import replace

from clew.convert import convert
from clew.store.files.adopt import adopt, project_hidden
from clew.store.files.codec import MISREAD
from clew.store.files.log_lines import AHEAD, Lines, Memo, has_place
from clew.store.files.record import Record, decode_parts, unknown_in
from clew.store.files.repair import LogEntry, Problem, RepairHints, repair_value
from clew.store.files.session_value import ABSENT, TABLE_OF, TABLES, OwnIds, SessionValue, decode_entry, load_entry
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import tool_name
from clew.transcript.turn_state import OPEN

__all__ = ["rebuild_value"]

_SAYING: Final = frozenset({"message", "compaction"})
"""Kinds of records of other programs that are part of the conversation."""
_FOLD: Final = frozenset({"part", "metadata", "chunks", "mark"})
"""Types of records in the stream file for a message that is folded while it grows."""


def rebuild_value(value: SessionValue, memo: Memo, log: Lines, stream: Lines) -> list[Problem]:
    """Apply the lines of a session's files to its value; return the damage."""
    wrong: list[Problem] = [(fault, None) for fault in (*log.faults, *stream.faults)]
    # The log repeats values only in part: an unreadable line may always have had the last state.
    hints = RepairHints(named={**stream.named, **dict.fromkeys(log.named, inf)}, log_reads=not log.faults)
    adopted = False
    session_id = value.row["session"].id
    written_as: str | None = None
    units = [(unit, False) for unit in log.units] + [(unit, True) for unit in stream.units]
    for unit, streamed in sorted(units, key=lambda one: one[0][0]["seq"]):
        whole = _is_whole(unit)
        folded: list[str] = []
        named = _session_named(unit)
        if named is not None and written_as not in (None, named):
            # Up to here it is a copy of another session's log, which was continued after that.
            _rename(value, memo, named)
            hints = RepairHints(named=hints.named, log_reads=hints.log_reads)
        written_as = named or written_as
        if not has_place(unit[0]):
            # A record of another program, whatever its type.
            adopted |= _adopt(value, memo, unit[0], wrong)
            continue
        if not streamed:
            folded = _settle(value, memo, unit)
        elif not whole:
            # Chunks are removed from the journal together with the update of the parts, or not at all.
            unit = [one for one in unit if one["recordType"] not in _FOLD or one.get("more") is True]
        for record in unit:
            if record["recordType"] in _SAYING and not isinstance(record.get("clew"), dict):
                # Another program has rewritten it without clew's keys.
                adopted |= _adopt(value, memo, record, wrong)
                continue
            try:
                _apply(value, memo, record, streamed)
                _gather(value, hints, record)
            except MISREAD as error:
                what = f"record {record['seq']} makes no sense: {type(error).__name__}: {error}"
                wrong.append((what, None))
        for message_id in folded:
            held = LogEntry(unit[-1]["seq"], value.messages.get(message_id), value.journal.get(message_id, ()))
            hints.logged[message_id] = held if whole else LogEntry(0, None, ())
    hints.damaged = bool(wrong)
    links, read = dict(value.links), dict(value.messages)
    wrong += repair_value(value, hints)
    memo.repaired = {id_: row for id_, row in value.messages.items() if read.get(id_) is not row}
    for key in [key for key, held in value.links.items() if held != links.get(key)]:
        # A link derived from a message that the log does not have yet is written to the log with it.
        if any(("messages", id_) in memo.ahead for id_ in value.links[key]):
            memo.ahead.setdefault(("links", key), links.get(key, ABSENT))
    if adopted:
        project_hidden(value)
    if written_as not in (None, session_id):
        _rename(value, memo, session_id)
        memo.copied_by_hand = True
    memo.end, memo.stream_end = log.last_seq, stream.last_seq
    memo.ending, memo.stream_ending = log.ending, stream.ending
    memo.seq = max(log.last_seq, stream.last_seq)
    return wrong


def _session_named(unit: list[Record]) -> str | None:
    """Return the id of the session that a unit says it is of; None if it does not say that."""
    for record in unit:
        match record:
            case {"recordType": "session", "unit": [int(), int()], "value": {"id": str() as session_id}}:
                return session_id
    return None


def _rename(value: SessionValue, memo: Memo, session_id: str) -> None:
    """Give the content of a copied log ids of the session that it was copied to."""
    ids = OwnIds(value, session_id)
    memo.ahead = {
        (name, ids.key(name, key)): entry if entry is ABSENT else ids.entry(name, key, entry)
        for (name, key), entry in memo.ahead.items()
    }
    ids.apply(value)
    memo.places = {ids(key): places for key, places in memo.places.items()}
    memo.readable = set(map(ids, memo.readable))
    memo.repaired = {ids(key): value.messages.get(ids(key)) for key in memo.repaired}


def _adopt(value: SessionValue, memo: Memo, record: Record, wrong: list[Problem]) -> bool:
    """Adopt a record of another program; return whether it is part of the conversation."""
    if record["recordType"] not in _SAYING:
        return False
    parts = {id_: len(row.parts) for id_, row in value.messages.items()}
    try:
        message_id = adopt(value, record, memo.places)
        if message_id is not None:
            memo.note(record, message_id, record["seq"], parts.get(message_id, 0))
            _keep_unknown(value, message_id, record)
        else:
            memo.count += record["recordType"] == "message"
    except MISREAD as error:
        wrong.append((f"record {record['seq']} makes no sense: {type(error).__name__}: {error}", None))
    return True


def _is_whole(unit: list[Record]) -> bool:
    """Return whether a unit is complete. Each record of another program is a unit of its own."""
    match unit[0].get("unit"):
        case [int(), int(n)]:
            return len(unit) == n
    return True


def _gather(value: SessionValue, hints: RepairHints, record: Record) -> None:
    """Collect redundant values of a record, which are used if the line with the original is lost."""
    kind, state = record["recordType"], value.state["state"]
    own = record if kind == "aside" else record.get("clew")
    if kind == "move":
        value.state["state"] = replace(state, head_turn_id=record["value"]["to_turn_id"])
    elif kind == "turn" and record["value"]["status"] in OPEN:
        value.state["state"] = replace(state, open_turn_id=record["key"])
    elif kind == "turn" and state.open_turn_id == record["key"]:
        value.state["state"] = replace(state, open_turn_id=None)
    elif kind == "link":
        hints.parents.update({record["key"]: record["under"]} if "under" in record else {})
    elif isinstance(own, dict) and isinstance(own.get("turn"), str):
        hints.turn_of[own["id"] if "id" in own else record["value"]["id"]] = own["turn"]


def _settle(value: SessionValue, memo: Memo, unit: list[Record]) -> list[Any]:
    """Drop the stream file's earlier versions of entries that this unit of the log has. Return the messages that it
    folds completely."""
    named: set[tuple[str, Any]] = set()
    folded: list[Any] = []  # messages whose chunks all are in their parts: a step of theirs ended, or they were sealed
    for record in unit:
        kind, about = record["recordType"], record.get("value" if record["recordType"] == "aside" else "clew")
        named.add(("messages", about.get("id") if isinstance(about, dict) else None))
        if TABLE_OF.get(kind) in AHEAD:
            named.add((TABLE_OF[kind], record.get("key")))
        elif kind == "seal":
            folded.append(record["key"])
        elif kind == "step" and isinstance(record.get("value"), list):
            # A finished step was recorded before, with the chunks up to then.
            known = {step.index for step in value.steps.get(record.get("key", ""), ())}
            ended = [step for step in record["value"] if isinstance(step, dict) and step.get("index") not in known]
            folded += [step.get("message_id") for step in ended]
    for name, key in named & memo.ahead.keys():
        logged = memo.ahead.pop((name, str(key)))
        table = value.tables()[name]
        if logged is ABSENT:
            table.pop(key, None)
        else:
            table[key] = logged
    for message_id in folded:
        # The stream file may lack the line that removed them, or be an older one after a loss of power.
        value.journal.pop(message_id, None)
        value.marks.pop(message_id, None)
    return folded


def _apply(value: SessionValue, memo: Memo, record: Record, streamed: bool) -> None:
    """Apply one of clew's records."""
    kind = record["recordType"]
    match kind:
        case "message" | "compaction" | "part":
            _apply_message(value, memo, record, streamed)
        case "aside":
            row = decode_entry(value, "messages", record["value"])
            if streamed:
                memo.ahead.setdefault(("messages", row.id), value.messages.get(row.id, ABSENT))
            value.messages[row.id] = row
        case "metadata":
            own = record["clew"]
            row = value.messages[own["id"]]
            if streamed:
                memo.ahead.setdefault(("messages", row.id), row)
            remaining = {key: one for key, one in row.metadata.items() if key not in own["drop"]}
            created_at, updated_at = own["at"]
            row = replace(row, metadata={**remaining, **own["set"]}, created_at=created_at, updated_at=updated_at)
            value.messages[row.id] = row
        case _ if kind in TABLE_OF:
            name = TABLE_OF[kind]
            key, table = TABLES[name].decode_key(record["key"]), value.tables()[name]
            if streamed and name in AHEAD:
                memo.ahead.setdefault((name, key), table.get(key, ABSENT))
            if record.get("gone") is True:
                table.pop(key, None)
            elif record.get("more") is True and name == "steps":
                fresh = TABLES[name].decode(record["value"])
                table[key] = tuple({step.index: step for step in (*table.get(key, ()), *fresh)}.values())
            elif record.get("more") is True:
                table[key] = (*table.get(key, ()), *TABLES[name].decode(record["value"]))
            else:
                load_entry(value, name, record["key"], record["value"])
            memo.logged = memo.logged or name == "row"


def _keep_unknown(value: SessionValue, message_id: str, record: Record) -> None:
    """Add the unknown values of a record to the message's metadata, for copies of the session."""
    unknown, row = unknown_in(record), value.messages[message_id]
    if "toolName" in unknown and record.get("role") == "toolResult":
        # The call says it, too.
        named = (tool_name(part.data) for part in row.parts if part.tool_call_id == record["toolCallId"])
        if unknown["toolName"] == next(named, None):
            del unknown["toolName"]
    if unknown:
        records = {**row.metadata.get("records", {}), str(record["seq"]): unknown}
        value.messages[message_id] = replace(row, metadata={**row.metadata, "records": records})


def _apply_message(value: SessionValue, memo: Memo, record: Record, streamed: bool) -> None:
    own = record["clew"]
    message_id = own["id"]
    row = logged = value.messages.get(message_id)
    stored = {part.index: part for part in row.parts} if row is not None else {}
    parts = decode_parts(record, stored)
    if "row" in own:
        created_at, updated_at, metadata = own["row"]
        role = "assistant" if record["recordType"] == "compaction" else record["role"]
        fields = [message_id, value.row["session"].id, role, created_at, updated_at, metadata]
        row = convert(dict(zip(MessageRow.__struct_fields__, fields, strict=False)), MessageRow)
        stored = {}
    if row is None:
        raise KeyError(message_id)
    merged: dict[int, PartRow] = {**stored, **{part.index: part for part in parts}}
    if streamed:
        memo.ahead.setdefault(("messages", message_id), logged if logged is not None else ABSENT)
    value.messages[message_id] = replace(row, parts=tuple(merged[index] for index in sorted(merged)))
    if not streamed and (record["recordType"] != "part" or "row" in own or "role" in record):
        memo.note(record, message_id, record["seq"])
