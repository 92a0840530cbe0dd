"""Repair of a session with lost lines: it is made consistent, and every repair is reported. Pure, and in memory only.

A lost line loses only its own contents. A lost turn is placed where other entries refer to it, a lost message is shown
as damaged in its position. Repaired values are never treated as written ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from clew.ids import derived_id
from clew.store import unit as u
from clew.store.files.record import is_marker
from clew.store.files.session_value import SessionValue
from clew.transcript.damage import DAMAGED, LOST, damaged_part
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import blob_of
from clew.transcript.turn import Turn, with_parent
from clew.transcript.turn_state import OPEN

__all__ = ["LogEntry", "Problem", "RepairHints", "repair_value"]

Problem = tuple[str, str | None]
"""A description of damage, and the id of the message, if it is shown as damaged and its loss can be accepted."""


class LogEntry(NamedTuple):
    """The state of a message in the log at a number: its row, and chunks since it was folded. Older entries of the
    stream file are obsolete, readable or not."""

    seq: int
    row: MessageRow | None
    entries: tuple[u.JournalEntry, ...]


class RepairHints(msgspec.Struct):
    """Redundant information of the files for repairs. ``turn_of`` and ``parents``: second records of the turns of
    messages and of the parents of turns. ``logged``: the last state in the log of a growing message. ``named``:
    messages that unreadable lines refer to, with the highest number of these lines. ``damaged``: something is
    unreadable; ``log_reads``: the log is readable."""

    turn_of: dict[str, str] = {}
    parents: dict[str, str | None] = {}
    logged: dict[str, LogEntry] = {}
    named: dict[str, float] = {}
    damaged: bool = False
    log_reads: bool = True
    state_lost: bool = False


def repair_value(value: SessionValue, hints: RepairHints) -> list[Problem]:
    """Make the session consistent; return the damage."""
    found = [*_repair_state(value, hints), *_repair_positions(value, hints), *_repair_turns(value, hints)]
    found += [*_repair_ends(value), *_repair_messages(value)]
    if hints.damaged:
        found += _mark_damaged(value, hints)
        for row in value.messages.values():
            for named in filter(None, (blob_of(part.data) for part in row.parts)):
                value.blobs.setdefault(named, None)
    return found


# Turns


def _repair_state(value: SessionValue, hints: RepairHints) -> Iterator[Problem]:
    if hints.state_lost:
        head = value.moves[max(value.moves)].to_turn_id if value.moves else None
        opened = next((turn.id for turn in value.turns.values() if turn.status in OPEN), None)
        value.state["state"] = replace(value.state["state"], head_turn_id=head, open_turn_id=opened)
        yield "where the session stood was lost, and is worked out from its turns", None
    elif value.moves and value.moves[max(value.moves)].to_turn_id != value.state["state"].head_turn_id:
        yield "a move of the head is lost", None


def _repair_turns(value: SessionValue, hints: RepairHints) -> Iterator[Problem]:
    origin_of = {move.to_turn_id: move.from_turn_id for move in reversed(value.moves.values())}
    while missing := _missing(value):
        for turn_id in sorted(missing):
            held = [value.messages[id_] for id_ in value.links.get(turn_id, ()) if id_ in value.messages]
            at = min((row.created_at for row in held), default=value.row["session"].created_at)
            parent = hints.parents.get(turn_id, origin_of.get(turn_id))
            if turn_id == value.state["state"].open_turn_id and turn_id not in hints.parents:
                parent = value.state["state"].head_turn_id
            lost = Turn(
                id=turn_id,
                session_id=value.row["session"].id,
                parent_turn_id=None if parent == turn_id else parent,
                created_at=at,
                kind="compaction" if any(is_marker(row) for row in held) else "normal",
            )
            # An open turn stays open, and is settled like any other without a runner.
            is_open = turn_id == value.state["state"].open_turn_id
            value.turns[turn_id] = lost if is_open else _ended(lost, "what was noted of this turn is lost")
            yield f"turn {turn_id} is lost", None
    _set_depths(value)


def _ended(turn: Turn, why: str) -> Turn:
    data = {**turn.data, "error": {"code": "row_undecodable", "message": why}}
    return replace(turn, status="failed", settled_at=turn.settled_at or turn.created_at, data=data)


def _missing(value: SessionValue) -> set[str]:
    state = value.state["state"]
    named = {turn.parent_turn_id for turn in value.turns.values()} | set(value.links)
    named |= {state.head_turn_id, state.open_turn_id, *(move.to_turn_id for move in value.moves.values())}
    return {turn_id for turn_id in named if turn_id is not None and turn_id not in value.turns}


def _set_depths(value: SessionValue) -> None:
    """Set the depths of turns from the tree. A cycle of parents is cut."""
    done: dict[str, Turn] = {}
    for start in list(value.turns):
        path: list[str] = []
        turn_id: str | None = start
        while turn_id is not None and turn_id not in done and turn_id not in path:
            path.append(turn_id)
            turn_id = value.turns[turn_id].parent_turn_id
        for one in reversed(path):
            parent = value.turns[one].parent_turn_id
            done[one] = with_parent(value.turns[one], done.get(parent or ""))
    for turn_id, turn in done.items():
        if value.turns[turn_id] != turn:
            value.turns[turn_id] = turn


def _repair_ends(value: SessionValue) -> Iterator[Problem]:
    """Settle open turns other than the one in the state: their ends are lost."""
    state = value.state["state"]
    opened = value.turns.get(state.open_turn_id or "")
    if opened is not None and opened.status not in OPEN:
        value.state["state"] = replace(state, open_turn_id=None)
        opened = None
    for turn in list(value.turns.values()):
        if turn.status in OPEN and turn is not opened:
            value.turns[turn.id] = _ended(turn, "how this turn ended is lost")
            yield f"how turn {turn.id} ended is lost", None


# Messages


def _repair_positions(value: SessionValue, hints: RepairHints) -> Iterator[Problem]:
    """Put every message into a turn or the queue, unless it is cancelled."""
    held = {id_ for ids in value.links.values() for id_ in ids}
    for message_id, turn_id in hints.turn_of.items():
        if message_id in value.messages and message_id not in held:
            value.links[turn_id] = (*value.links.get(turn_id, ()), message_id)
            value.queue.pop(message_id, None)
            held.add(message_id)
            yield f"which turn holds message {message_id} was lost, and is taken from the message", None
    for message_id in [id_ for id_ in value.queue if id_ in held]:
        del value.queue[message_id]
        yield f"message {message_id} seemed to wait in the queue, and is in a turn", None
    for row in value.messages.values() if hints.damaged else ():
        if row.queued_at is not None and row.id not in held and row.id not in value.queue:
            value.queue[row.id] = u.Enqueue(row.id, row.queued_at)
            yield f"the place of message {row.id} in the queue was lost", None


def _repair_messages(value: SessionValue) -> Iterator[Problem]:
    for turn_id, held in value.links.items():
        for place, message_id in enumerate(held):
            if message_id not in value.messages:
                value.messages[message_id] = _lost_message(value, turn_id, place, message_id)
                yield f"message {message_id} is lost", message_id
    for table in (value.queue, value.journal, value.marks, value.seals):
        for message_id in [id_ for id_ in table if id_ not in value.messages]:
            del table[message_id]
    for key in [key for key in value.pruned if key[1] not in value.messages]:
        del value.pruned[key]
    for row in list(value.messages.values()):
        there = {part.index: part for part in row.parts}
        if list(there) != list(range(len(row.parts))):
            count = max(there) + 1
            parts = tuple(there.get(index) or _lost_part(row, index) for index in range(count))
            value.messages[row.id] = _damaged(replace(row, parts=parts))
            yield f"parts of message {row.id} are lost", row.id


def _lost_message(value: SessionValue, turn_id: str, place: int, message_id: str) -> MessageRow:
    at = value.turns[turn_id].created_at
    role: Any = "assistant" if place or value.turns[turn_id].kind == "compaction" else "user"
    row = MessageRow(message_id, value.row["session"].id, role, at, at, {DAMAGED: LOST})
    return replace(row, parts=(_lost_part(row, 0),))


def _lost_part(row: MessageRow, index: int, id_: str | None = None) -> PartRow:
    id_ = id_ or derived_id("prt_", row.session_id, f"{row.id}/{index}", row.created_at)
    return PartRow(id_, index, damaged_part("part_id", id_, LOST), row.created_at, row.updated_at)


def _damaged(row: MessageRow) -> MessageRow:
    return replace(row, metadata={**row.metadata, DAMAGED: LOST})


def _mark_damaged(value: SessionValue, hints: RepairHints) -> Iterator[Problem]:
    """Mark messages that differ from their seal, or that have no seal and may be affected by an unreadable line.

    A line without a message id, or with an unknown one, may affect any message.
    """
    of_any = max((last for id_, last in hints.named.items() if id_ not in value.messages), default=0)
    for row in list(value.messages.values()):
        seal, logged = value.seals.get(row.id), hints.logged.get(row.id, LogEntry(0, None, ()))
        whole = seal == row.seal if seal is not None else max(of_any, hints.named.get(row.id, 0)) <= logged.seq
        if whole or DAMAGED in row.metadata:
            continue
        if row.id in value.journal:
            # Chunks streamed since may be incomplete: only the parts are known, and the chunks in the log, if the
            # parts are those of the log.
            del value.journal[row.id]
            value.marks.pop(row.id, None)
            if logged.row is not None and logged.entries and logged.row.parts == row.parts:
                value.journal[row.id] = logged.entries
        else:
            open_calls = [part for part in row.parts if part.tool_state and not part.tool_state.startswith("output-")]
            if hints.log_reads and logged.row is not None:
                # The log has the calls, since their step has ended: only their results may be lost.
                open_calls = []
            lost = {part.index: _lost_part(row, part.index, part.id) for part in open_calls}
            lost = lost or {len(row.parts): _lost_part(row, len(row.parts))}
            parts = [lost.pop(part.index, part) for part in row.parts]
            row = replace(row, parts=(*parts, *lost.values()))
        value.messages[row.id] = _damaged(row)
        yield "something of this message is lost", row.id
