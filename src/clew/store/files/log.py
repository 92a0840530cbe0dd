"""The log of a session: units as lines. Pure.

``session.jsonl`` is the source of truth. While a message is streamed, its growth goes to ``stream.jsonl``; the unit
that ends a step or settles a turn writes all of it to the log, after which the stream file may be removed. Both share
one sequence of numbers, so that they can be read in the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import orjson

from clew.store.files import record as r
from clew.store.files.crc import with_check
from clew.store.files.log_lines import AHEAD, Memo
from clew.store.files.session_value import ABSENT, TABLES, Entries, SessionValue
from clew.transcript.iso_time import iso
from clew.transcript.line import line_messages
from clew.transcript.message import MessageRow
from clew.transcript.view import read_compaction

__all__ = ["Written", "is_streaming", "plan_log", "plan_stream"]

SCHEMA_VERSION: Final = 1
_STREAM: Final = frozenset({*AHEAD, "journal", "marks"})
_SETTLING: Final = frozenset({"state", "turns", "steps"})


class Written(NamedTuple):
    """Lines to append, and the memo after that."""

    data: bytes
    memo: Memo


class _Writer:
    """The records of one unit, with numbers."""

    def __init__(self, memo: Memo, *, streamed: bool = False) -> None:
        self.memo = memo.copied(streamed=streamed)
        self._streamed = streamed
        self._records: list[r.Record] = []
        self._after = memo.stream_end if streamed else memo.end
        ending = memo.stream_ending if streamed else memo.ending
        self._prefix = b"\n" if ending == "line" else b""

    def _next(self) -> int:
        self.memo.seq += 1
        return self.memo.seq

    def add(self, record: r.Record) -> None:
        head = {"recordType": record["recordType"], "schemaVersion": SCHEMA_VERSION, "seq": self._next()}
        if not self._records:
            head["after"] = self._after
        self._records.append({**head, **{key: value for key, value in record.items() if key != "recordType"}})

    def add_readable(self, record: r.Record, message_id: str) -> None:
        """Add a record of a message that other programs can read."""
        self.add(record)
        self.memo.note(record, message_id, self.memo.seq)

    def written(self) -> Written:
        n = len(self._records)
        if not n:
            return Written(b"", self.memo)
        lines = [
            with_check(orjson.dumps({**record, "unit": [i, n]}, option=orjson.OPT_NON_STR_KEYS)) + b"\n"
            for i, record in enumerate(self._records, 1)
        ]
        if self._streamed:
            self.memo.streams, self.memo.stream_end, self.memo.stream_ending = True, self.memo.seq, ""
        else:
            self.memo.logged, self.memo.end, self.memo.ending = True, self.memo.seq, ""
        return Written(self._prefix + b"".join(lines), self.memo)


def is_streaming(entries: Entries) -> bool:
    """Return whether these changes are only the growth of a message."""
    touched = {name for name, _ in entries}
    return touched <= _STREAM and bool(touched & {"journal", "marks"})


def plan_stream(value: SessionValue, memo: Memo, entries: Entries) -> Written:
    """Return the lines of a growing message for the stream file."""
    writer = _Writer(memo, streamed=True)
    for (name, key), (before, after) in entries.items():
        if before is after:
            continue
        if name in AHEAD:
            writer.memo.ahead.setdefault((name, key), before)
        if name == "messages":
            _add_growth(writer, value, before, after)
        elif name == "journal" and _grows(before, after):
            chunks = TABLES[name].encode(after[len(before) :] if before is not ABSENT else after)
            writer.add({"recordType": "chunks", "key": key, "value": chunks, "more": True})
        else:
            _add_entry(writer, value, name, key, after)
    return writer.written()


def _grows(before: Any, after: Any) -> bool:
    if after is ABSENT:
        return False
    return before is ABSENT or after[: len(before)] == before


def _add_growth(writer: _Writer, value: SessionValue, before: Any, after: MessageRow) -> None:
    if before is ABSENT:
        _, turn_id = _order(value, [after.id]).get(after.id, (_LAST, None))
        writer.add({"recordType": "aside", "value": TABLES["messages"].encode(after), "turn": turn_id})
        return
    old = {part.index: part for part in before.parts}
    specs = [r.spec_of(part, part.data, {}) for part in after.parts if old.get(part.index) != part]
    if specs:
        writer.add({"recordType": "part", "timestamp": iso(after.updated_at), "clew": {"id": after.id, "parts": specs}})
    _add_metadata(writer, before, after)


def _add_metadata(writer: _Writer, before: MessageRow, after: MessageRow) -> None:
    changed = {key: one for key, one in after.metadata.items() if before.metadata.get(key, ABSENT) != one}
    drop = [key for key in before.metadata if key not in after.metadata]
    times = [after.created_at, after.updated_at]
    if changed or drop or times != [before.created_at, before.updated_at]:
        writer.add({"recordType": "metadata", "clew": {"id": after.id, "set": changed, "drop": drop, "at": times}})


def _add_entry(writer: _Writer, value: SessionValue, name: str, key: Any, after: Any) -> None:
    record: r.Record = {"recordType": TABLES[name].record_type, "key": key}
    if after is ABSENT:
        writer.add({**record, "gone": True})
        return
    record["value"] = TABLES[name].encode(after)
    if name == "links" and key in value.turns:
        # Redundant, in case the line of the turn is lost.
        record["under"] = value.turns[key].parent_turn_id
    writer.add(record)


def plan_log(value: SessionValue, memo: Memo, entries: Entries) -> Written:
    """Return the lines of a unit for the log, including changes that only the stream file has so far."""
    writer = _Writer(memo)
    wanted = {key: pair for key, pair in entries.items() if pair[0] is not pair[1]}
    ahead = memo.ahead
    touched = {name for name, _ in entries}
    sealed = {("messages", key) for name, key in entries if name == "seals"}
    if touched & _SETTLING or any(key in ahead for key in sealed.union(entries)):
        wanted |= {
            (name, key): (logged, now)
            for (name, key), logged in ahead.items()
            if (now := getattr(value, name).get(key, ABSENT)) is not logged
        }
        writer.memo.ahead = {}
    _add_messages(writer, value, {key: pair for (name, key), pair in wanted.items() if name == "messages"})
    if (not memo.logged or memo.copied_by_hand) and ("row", "session") not in wanted:
        wanted["row", "session"] = (ABSENT, value.row["session"])
    writer.memo.copied_by_hand = False
    for (name, key), (before, after) in wanted.items():
        if name == "messages":
            continue
        if name == "steps" and before is not ABSENT and after is not ABSENT:
            # Only new steps, since all of them every time would be quadratic.
            fresh = TABLES[name].encode([step for step in after if step not in before])
            writer.add({"recordType": "step", "key": key, "value": fresh, "more": True})
        elif name != "marks":
            _add_entry(writer, value, name, key, after)
    return writer.written()


def _add_messages(writer: _Writer, value: SessionValue, wanted: dict[str, tuple[Any, Any]]) -> None:
    """Add messages in the order of the conversation, then summaries, which refer to messages before them in the log."""
    if not wanted:
        return
    order = _order(value, wanted)
    nowhere = (_LAST, None)
    markers: list[MessageRow] = []
    for message_id in sorted(wanted, key=lambda id_: order.get(id_, nowhere)[0]):
        before, after = wanted[message_id]
        # The files have another version of a repaired message, so that a difference would be wrong.
        repaired = writer.memo.repaired.pop(message_id, None) is not None
        if message_id in writer.memo.readable and before is not ABSENT and not repaired:
            _add_difference(writer, before, after)
        elif message_id not in order or after.role == "system" or not (r.is_marker(after) or r.says_something(after)):
            writer.add({"recordType": "aside", "value": TABLES["messages"].encode(after)})
        elif r.is_marker(after):
            markers.append(after)
        else:
            for record in r.message_records(after, after.parts, whole=True):
                writer.add_readable(_in_turn(record, order[after.id][1]), after.id)
    for row in markers:
        first = _first_tail_seq(writer, row)
        for copied in _tail_before_split(writer, value, row, first):
            # Only for other programs: without clew's parts it adds nothing for clew.
            more = {"copyOf": writer.memo.places[copied.id][0][0], "clew": {"id": copied.id, "parts": []}}
            for record in r.message_records(copied, copied.parts, whole=False):
                if record["recordType"] == "message":
                    writer.add_readable({**record, **more}, copied.id)
        writer.add_readable(_in_turn(r.compaction_record(row, first), order[row.id][1]), row.id)


_LAST: Final = (1 << 62, 0, 0)


def _order(value: SessionValue, wanted: Iterable[str]) -> dict[str, tuple[tuple[int, int, int], str | None]]:
    """Return the position in the conversation and the turn of each of these messages that is in a turn."""
    left = set(wanted)
    found: dict[str, tuple[tuple[int, int, int], str | None]] = {}
    for turn_id in reversed(value.links):
        for position, message_id in enumerate(value.links[turn_id]):
            if message_id in left:
                turn = value.turns.get(turn_id)
                found[message_id] = ((turn.depth, turn.created_at, position) if turn else _LAST, turn_id)
        if len(found) == len(left):
            break
    return found


def _in_turn(record: r.Record, turn_id: str | None) -> r.Record:
    """Add the turn to the first record of a message, in case the line of the link is lost."""
    if "row" not in record["clew"]:
        return record
    return {**record, "clew": {**record["clew"], "turn": turn_id}}


def _add_difference(writer: _Writer, before: MessageRow, after: MessageRow) -> None:
    old = {part.index: part for part in before.parts}
    for record in r.changed_parts(after, old):
        writer.memo.count += record["recordType"] == "message"
        writer.add(record)
    fresh = [part for part in after.parts if part.index not in old]
    if fresh:
        for record in r.message_records(after, fresh, whole=False):
            writer.add_readable(record, after.id)
    _add_metadata(writer, before, after)


def _tail_before_split(
    writer: _Writer, value: SessionValue, row: MessageRow, first_tail_seq: int
) -> Iterator[MessageRow]:
    """Yield the messages of the tail before the one in which it is split, such as the prompt. Programs that keep
    records from a number on would lose them."""
    compaction = read_compaction(row, "")
    if compaction is None or compaction.split is None:
        return
    line = [message_id for _, message_id in line_messages(value.tree())]
    if compaction.tail_start_id in line and compaction.split.message_id in line:
        for message_id in line[line.index(compaction.tail_start_id) : line.index(compaction.split.message_id)]:
            earlier, places = value.messages.get(message_id), writer.memo.places.get(message_id, ())
            if (
                earlier is not None
                and places
                and not r.is_marker(earlier)
                and all(seq < first_tail_seq for seq, _ in places)
            ):
                yield earlier


def _first_tail_seq(writer: _Writer, row: MessageRow) -> int:
    """Return the number of the first record that readers keep after a compaction."""
    compaction = read_compaction(row, "")
    if compaction is None or compaction.tail_start_id is None:
        return 1
    tail, split = compaction.tail_start_id, compaction.split
    if split is not None and split.message_id in writer.memo.places:
        in_tail = [seq for seq, first in writer.memo.places[split.message_id] if first >= split.from_part]
        # If the split is after the last part, the tail has no record of this message; earlier messages are copied.
        return in_tail[0] if in_tail else writer.memo.seq + 1
    places = writer.memo.places.get(tail)
    return places[0][0] if places else writer.memo.seq + 1
