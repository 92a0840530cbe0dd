"""A session as a sequence of entries, from which the formats of other programs are written.

The reverse of :mod:`clew.interop.programs.import_session`: turns become prompts, answers step by step, and compactions.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from heapq import heapify, heappop, heappush
from typing import Any, Literal

import msgspec
import orjson

from clew.errors import InvalidInput
from clew.interop.programs.foreign import LINE_IDS
from clew.interop.programs.import_report import Program
from clew.interop.programs.import_session import BROKE_OFF
from clew.interop.programs.remainder import REST, merged
from clew.transcript import part as p
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import text_at
from clew.transcript.portable import LEFT_BEHIND, Blob, PortableSession, tree_of
from clew.transcript.session import Model, read_model
from clew.transcript.turn import Step, Turn
from clew.transcript.turn_state import OPEN
from clew.transcript.view import compaction_data

__all__ = [
    "ExportedEntry",
    "Remainders",
    "as_lines",
    "base64_of",
    "export_entries",
    "ids_in",
    "named",
    "origin_of",
    "own_id",
    "parent_of",
    "preserved_fields",
    "results_of",
    "rewritten",
    "title_of",
    "unknown_keys_of",
]


class ExportedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of an export. ``key`` identifies it, ``after`` is the key of the entry it follows, ``tail`` that of the
    first entry that a compaction left unsummarised. ``last``: it is the last of its turn."""

    kind: Literal["prompt", "aside", "answer", "compaction"]
    key: str
    after: str | None
    turn: Turn
    row: MessageRow
    parts: tuple[PartRow, ...]
    step: Step | None = None
    model: Model
    tail: str | None = None
    last: bool = False

    @property
    def at(self) -> int:
        return self.parts[0].created_at if self.kind == "answer" and self.parts else self.row.created_at

    @property
    def ended_at(self) -> int:
        return max([self.at, *(part.updated_at for part in self.parts)])

    @property
    def is_stopped(self) -> bool:
        """Whether its turn was aborted, and no call without a result shows that already."""
        calls = sum(p.is_call(part.data) for part in self.parts)
        is_cut = self.turn.stopped == BROKE_OFF and calls > sum(1 for _ in results_of(self))
        return self.last and self.turn.status == "aborted" and not is_cut


def export_entries(portable: PortableSession) -> tuple[list[ExportedEntry], str | None]:
    """Return all entries in the order of their turns, and the key of the one at the head."""
    exporter = _Exporter(portable)
    for turn in exporter.turns_in_order():
        exporter.export_entries(turn)
    return exporter.entries, exporter.tips.get(exporter.end or "")


def _end_of(portable: PortableSession) -> str | None:
    """Return the turn at the end of the line: a turn that runs, or was killed, is not the head yet."""
    head = portable.session.head_turn_id
    return next((turn.id for turn in portable.turns if turn.status in OPEN and turn.parent_turn_id == head), head)


class _Exporter:
    def __init__(self, portable: PortableSession) -> None:
        self._portable = portable
        self._rows = {row.id: row for row in portable.messages}
        self._steps: dict[str, dict[int, Step]] = {}
        for step in portable.steps:
            self._steps.setdefault(step.turn_id, {})[step.index] = step
        self._keys: dict[str, tuple[str | None, str]] = {}
        self.end = _end_of(portable)
        self.tips: dict[str, str | None] = {}
        self.entries: list[ExportedEntry] = []

    def turns_in_order(self) -> Iterator[Turn]:
        """Yield the turns by time, parents first. The end of the line comes last if it has no children."""
        turns = tree_of(self._portable).turns
        head = self.end
        below: dict[str | None, list[Turn]] = {}
        for turn in turns.values():
            below.setdefault(turn.parent_turn_id, []).append(turn)
        is_end = head in turns and head not in below
        # Structure before time: another program may stamp a child before its parent.
        ready = [(*_created_at(turn), turn.id) for turn in below.get(None, ())]
        heapify(ready)
        while ready:
            turn = turns[heappop(ready)[-1]]
            if not (is_end and turn.id == head):
                yield turn
            for child in below.get(turn.id, ()):
                heappush(ready, (*_created_at(child), child.id))
        if is_end and head is not None:
            yield turns[head]

    def export_entries(self, turn: Turn) -> None:
        tip = self.tips.get(turn.parent_turn_id or "")
        number, first = 0, len(self.entries)
        for id_ in self._portable.links.get(turn.id, ()):
            row = self._rows[id_]
            if self._keys.get(id_, ("", ""))[0] == tip and id_ in self._keys:
                # One prompt with two answers.
                tip = self._keys[id_][1]
                continue
            start = tip
            for entry in self._entries_of(turn, row, number):
                self.entries.append(msgspec.structs.replace(entry, after=tip))
                tip = entry.key
                number += entry.kind == "answer"
            if tip is not None and row.role == "user":
                self._keys[id_] = start, tip
        if len(self.entries) > first:
            self.entries[-1] = msgspec.structs.replace(self.entries[-1], last=True)
        self.tips[turn.id] = tip

    def _entries_of(self, turn: Turn, row: MessageRow, number: int) -> Iterator[ExportedEntry]:
        again = sum(entry.row.id == row.id for entry in self.entries) and f"@{turn.id}"
        key, model = f"{row.id}{again or ''}", self._model(row)
        compaction = compaction_data(row)
        if row.role != "assistant" or compaction is not None:
            kind: Any = "compaction" if compaction is not None else "prompt" if row.is_prompt else "aside"
            tail = self._tail(row.id, compaction) if compaction is not None else None
            yield ExportedEntry(
                kind=kind, key=key, after=None, turn=turn, row=row, parts=row.parts, model=model, tail=tail
            )
            return
        steps = self._steps.get(turn.id, {})
        groups: list[list[PartRow]] = []
        for part in row.parts:
            if part.type == p.STEP_START or not groups:
                groups.append([])
            groups[-1].append(part)
        for index, group in enumerate(groups):
            step = steps.get(number + index)
            step = step if step is not None and step.message_id == row.id else None
            name = f"{key}/{group[0].index}"
            asked = step.model if step is not None else model
            yield ExportedEntry(
                kind="answer", key=name, after=None, turn=turn, row=row, parts=tuple(group), step=step, model=asked
            )

    def _tail(self, marker: str, about: Mapping[str, Any]) -> str | None:
        start, split = about.get("tail_start_id"), about.get("split")
        if start == marker or start not in self._rows:
            return None
        if self._rows[start].role == "user":
            return str(start)
        from_part = split.get("from_part") if isinstance(split, Mapping) and split.get("message_id") == start else 0
        return f"{start}/{from_part}"

    def _model(self, row: MessageRow) -> Model:
        try:
            return read_model(row.asked_model) if row.asked_model is not None else self._portable.session.model
        except (InvalidInput, ValueError):
            # Another program's, which only its own rows name so.
            return self._portable.session.model


def _created_at(turn: Turn) -> tuple[int, int]:
    return turn.created_at, turn.depth


def _records(parts: tuple[PartRow, ...], program: Program) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in parts:
        preserved = p.data_of(part.data, p.PRESERVED_PART)
        if preserved is not None and preserved.get("program") == program and isinstance(preserved.get("records"), list):
            found += [record for record in preserved["records"] if isinstance(record, dict)]
    return found


def preserved_fields(parts: tuple[PartRow, ...], program: Program) -> list[dict[str, Any]]:
    """Return that program's records that were preserved with these parts."""
    return [record for record in _records(parts, program) if record.get("type") not in (LINE_IDS, REST)]


class Remainders:
    """The remainders stored with one message, to be put back into its lines."""

    def __init__(self, parts: tuple[PartRow, ...], program: Program, names: Mapping[str, str]) -> None:
        self._records = [record for record in _records(parts, program) if record.get("type") == REST]
        self._ids = next(ids_in(parts, program), [])
        self._names = names

    def put(self, line: dict[str, Any], call_id: str | None = None, *, later: bool = False) -> dict[str, Any]:
        """Return a line with its unknown keys: the line of a result, the first of the message, or a ``later`` one."""
        for record in self._records:
            id_, first = record.get("uuid", record.get("id")), record.get("at")
            is_here = id_ in (self._ids[1:] if later else self._ids) if call_id is None else True
            if record.get("call_id") == call_id and is_here:
                rest = rewritten(record.get(REST), self._names)
                line = merged(line, rest, first if isinstance(first, int) else 0)
        return line


def ids_in(parts: tuple[PartRow, ...], program: Program) -> Iterator[list[str]]:
    """Yield the ids that the lines of these parts had in that program's file, the first line's first."""
    for record in _records(parts, program):
        ids = record.get("ids") if record.get("type") == LINE_IDS else None
        if isinstance(ids, list) and ids and all(isinstance(id_, str) for id_ in ids):
            yield ids


def rewritten(value: Any, names: Mapping[str, str]) -> Any:
    """Return a preserved value in which every id that the new file replaces is replaced, at any depth."""
    if isinstance(value, dict):
        return {key: rewritten(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [rewritten(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def unknown_keys_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the unknown keys of a message as older versions stored them. A complete line has more keys than these."""
    message = record.get("message") if record.get("type") == "message" and len(record) == 3 else None
    return message if isinstance(message, dict) else {}


def results_of(entry: ExportedEntry) -> Iterator[tuple[PartRow, list[PartRow]]]:
    """Yield the calls of an answer that have a result, with the files of the result."""
    for part in entry.parts:
        id_ = p.call_id_of(part.data)
        if id_ is None or p.is_open_call(part.data) or p.error_text(part.data) == LEFT_BEHIND:
            continue
        yield part, [file for file in entry.parts if p.giver_of(file.data) == id_]


def base64_of(part: p.Part, blobs: Mapping[str, Blob]) -> tuple[str, str] | None:
    """Return the media type and the base64 of a file part; None if its blob is missing."""
    blob = blobs.get(p.blob_of(part) or "")
    return (blob.media_type, base64.b64encode(blob.data).decode()) if blob is not None else None


def own_id(portable: PortableSession, program: Program) -> str:
    """Return the session's id in that program: the original one, or one derived from its id in clew."""
    return origin_of(portable, program, "id") or named(portable.session.id)


def origin_of(portable: PortableSession, program: Program, key: str) -> str | None:
    """Return a field of the stored origin; None if the session was not imported from that program."""
    origin = portable.session.metadata.get("came_from")
    is_from = isinstance(origin, Mapping) and origin.get("program") == program
    return text_at(origin, key) if isinstance(origin, Mapping) and is_from else None


def parent_of(portable: PortableSession, program: Program) -> str | None:
    """Return the id of the session it was forked from in that program, if it was imported from there."""
    return origin_of(portable, program, "parent")


def title_of(portable: PortableSession) -> str | None:
    """Return the title, unless it is the start of the first prompt, which every program shows by itself."""
    first_text = next((text for row in portable.messages if row.is_prompt for text in row.texts), "")
    title = portable.session.title
    return None if title is None or title == p.first_words(first_text, len(title)) else title


def as_lines(records: Iterable[dict[str, Any]]) -> bytes:
    """Return the records as JSON lines. A line that could not be read on import is written unchanged."""
    lines = (record["unread"].encode() if "unread" in record else orjson.dumps(record) for record in records)
    return b"".join(line.replace(b"\n", b" ") + b"\n" for line in lines)


def named(key: str) -> str:
    """Return a UUID derived from the key."""
    digits = sha256(key.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"
