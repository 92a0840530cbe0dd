"""The log of a session: a unit as lines. Pure.

``session.jsonl`` is the truth. While a message is being streamed, what comes of it goes to ``stream.jsonl``; the unit
that ends a step or settles a turn brings all of it into the log, and the other file may go. Both count in one row of
numbers, so that together they can be read in the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import orjson

from clew.store.files import record as r
from clew.store.files.codec import Entries
from clew.store.files.crc import with_check
from clew.store.files.file_state import AHEAD, Memo
from clew.store.files.tables import TABLES
from clew.store.memory.change import ABSENT
from clew.store.memory.session_value import SessionValue
from clew.transcript.iso_time import iso
from clew.transcript.line import line_messages
from clew.transcript.message import MessageRow
from clew.transcript.view import read_compaction

__all__ = ["Written", "is_streaming", "plan_log", "plan_stream"]

SCHEMA_VERSION: Final = 1
_STREAM: Final = frozenset({*AHEAD, "journal", "marks"})
_SETTLING: Final = frozenset({"state", "turns", "steps"})


class Written(NamedTuple):
    """Lines to append, and the memo once they are."""

    data: bytes
    memo: Memo


class _Writer:
    """Numbers the records of one unit."""

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

    def tell(self, record: r.Record, message_id: str) -> None:
        """Add a record of a message, which others can read."""
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
    """Whether these changes are a message that grows, and nothing else."""
    touched = {name for name, _ in entries}
    return touched <= _STREAM and bool(touched & {"journal", "marks"})


def plan_stream(value: SessionValue, memo: Memo, entries: Entries) -> Written:
    """The lines of a growing message, for the stream file."""
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
        # A second place for it, should the line of the turn be lost.
        record["under"] = value.turns[key].parent_turn_id
    writer.add(record)


def plan_log(value: SessionValue, memo: Memo, entries: Entries) -> Written:
    """The lines of a unit, for the log; of messages all that the stream file alone had so far."""
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
    if not memo.logged and ("row", "session") not in wanted:
        wanted["row", "session"] = (ABSENT, value.row["session"])
    for (name, key), (before, after) in wanted.items():
        if name == "messages":
            continue
        if name == "steps" and before is not ABSENT and after is not ABSENT:
            # Only what is new: a turn of many steps would cost their number squared.
            fresh = TABLES[name].encode([step for step in after if step not in before])
            writer.add({"recordType": "step", "key": key, "value": fresh, "more": True})
        elif name != "marks":
            _add_entry(writer, value, name, key, after)
    return writer.written()


def _add_messages(writer: _Writer, value: SessionValue, wanted: dict[str, tuple[Any, Any]]) -> None:
    """Messages in the order of the conversation, then summaries: whoever reads the log needs what they keep first."""
    if not wanted:
        return
    order = _order(value, wanted)
    nowhere = (_LAST, None)
    markers: list[MessageRow] = []
    for message_id in sorted(wanted, key=lambda id_: order.get(id_, nowhere)[0]):
        before, after = wanted[message_id]
        # A message that was mended is not in the files as it is here, so a difference to it would say nothing.
        mended = writer.memo.mended.pop(message_id, None) is not None
        if message_id in writer.memo.told and before is not ABSENT and not mended:
            _add_difference(writer, before, after)
        elif message_id not in order or after.role == "system" or not (r.is_marker(after) or r.says_something(after)):
            writer.add({"recordType": "aside", "value": TABLES["messages"].encode(after)})
        elif r.is_marker(after):
            markers.append(after)
        else:
            for record in r.message_records(after, after.parts, whole=True):
                writer.tell(_in_turn(record, order[after.id][1]), after.id)
    for row in markers:
        first = _first_kept(writer, row)
        for kept in _kept_before(writer, value, row, first):
            # Only for others: without parts of clew's it says nothing here that is not there already.
            more = {"copyOf": writer.memo.places[kept.id][0][0], "clew": {"id": kept.id, "parts": []}}
            for record in r.message_records(kept, kept.parts, whole=False):
                if record["recordType"] == "message":
                    writer.tell({**record, **more}, kept.id)
        writer.tell(_in_turn(r.compaction_record(row, first), order[row.id][1]), row.id)


_LAST: Final = (1 << 62, 0, 0)


def _order(value: SessionValue, wanted: Iterable[str]) -> dict[str, tuple[tuple[int, int, int], str | None]]:
    """The place in the conversation of each of these messages that has one, and the turn."""
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
    """The first record of a message says which turn holds it, should the line of the link be lost."""
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
            writer.tell(record, after.id)
    _add_metadata(writer, before, after)


def _kept_before(writer: _Writer, value: SessionValue, row: MessageRow, first_kept: int) -> Iterator[MessageRow]:
    """What a cut inside a message kept of the messages before it, the request above all: whoever keeps records from a
    number on gets none of it."""
    compaction = read_compaction(row, "")
    if compaction is None or compaction.split is None:
        return
    line = [message_id for _, message_id in line_messages(value.tree())]
    if compaction.tail_start_id in line and compaction.split.message_id in line:
        for message_id in line[line.index(compaction.tail_start_id) : line.index(compaction.split.message_id)]:
            kept, places = value.messages.get(message_id), writer.memo.places.get(message_id, ())
            if kept is not None and places and not r.is_marker(kept) and all(seq < first_kept for seq, _ in places):
                yield kept


def _first_kept(writer: _Writer, row: MessageRow) -> int:
    """The number from which on a reader keeps records."""
    compaction = read_compaction(row, "")
    if compaction is None or compaction.tail_start_id is None:
        return 1
    tail, split = compaction.tail_start_id, compaction.split
    if split is not None and split.message_id in writer.memo.places:
        kept = [seq for seq, first in writer.memo.places[split.message_id] if first >= split.from_part]
        # Of a message that was cut behind its last part nothing is kept; what comes before it is appended again.
        return kept[0] if kept else writer.memo.seq + 1
    places = writer.memo.places.get(tail)
    return places[0][0] if places else writer.memo.seq + 1
