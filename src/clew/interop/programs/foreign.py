"""A foreign session: what another program's file says, in clew's words, before it becomes a session.

Readers fill a :class:`Reading`, entry by entry in the order of the file; what they have no place for they keep with the
entry it stands behind, and name. Nothing a file holds goes without a word.
"""

from __future__ import annotations

import base64
import binascii
import io
import itertools
import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, BinaryIO, Final, Literal, Protocol

import msgspec
import orjson

from clew.interop.programs.import_report import Fate, Program, Remark
from clew.interop.programs.remainder import REST, ignore, paths_of, peek, plain, rest_of, tracked
from clew.transcript.iso_time import milliseconds
from clew.transcript.part import call_id_of, first_words, is_call, is_open_call, stored_file, texts_of
from clew.transcript.portable import Blob
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from clew.transcript.value_check import clean_value

__all__ = [
    "FILE_END",
    "FORKED",
    "LINE_IDS",
    "MAX_KEPT",
    "Entry",
    "Foreign",
    "LineReader",
    "Reading",
    "Record",
    "call_part",
    "count",
    "lines_of",
    "money",
    "read_json",
    "read_lines",
    "sealed",
    "text",
    "time_of",
    "used",
]

Record = dict[str, Any]
MAX_TEXT: Final = 4 * 1024 * 1024
"""Characters of one text. A part may hold 20 MB, and a character takes up to four bytes."""
MAX_KEPT: Final = 4 * 1024 * 1024
"""Bytes of one record that is kept as it is."""
FILE_END: Final = b"\f"
"""A line between two files of one session, that says nothing to anybody."""
LINE_IDS: Final = "line-ids"
"""A kept record: the ids that the lines of an entry had, which other kept records may name."""
WRITTEN_BACK: Final = frozenset({"claude-code", "pi"})
"""Programs whose sessions are exported again, with ids of lines that are new."""
FORKED: Final = "it was forked from another session: what both hold is counted in both"
_MAX_TIME: Final = 253_402_300_799_999
"""The last moment of the year 9999."""
_MAX_TOKENS: Final = 1 << 31
"""More than any call used; sums of such counts are still counts of tokens."""
_LEVELS: Final = 10
"""So deep inside a message a record may come to stand."""
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,100}", re.ASCII)


class Entry(msgspec.Struct, kw_only=True):
    """One thing in the tree of a file. ``aside``: said by nobody, though the model was sent it. ``note``: a place in
    the tree without a message. ``tail`` names the first entry that a compaction kept."""

    id: str
    parent: str | None
    at: int
    kind: Literal["prompt", "answer", "aside", "compaction", "note"]
    parts: list[dict[str, Any]] = []
    model: Model | None = None
    usage: Usage | None = None
    cost_usd: float = 0.0
    finish: str | None = None
    stopped: Literal["aborted", "failed"] | None = None
    why: str | None = None
    ended_at: int = 0
    tail: str | None = None
    summary: dict[str, Any] = {}
    noted: dict[str, Any] = {}
    """Of an answer: what the program says of the call, for the step."""
    kept: list[Record] = []


class Foreign(msgspec.Struct, kw_only=True):
    """A whole session of another program. ``parent_id`` is the session it was forked from, or is a subagent of."""

    program: Program
    id: str
    entries: list[Entry]
    remarks: list[Remark]
    blobs: dict[str, Blob]
    title: str | None = None
    folder: str | None = None
    version: str | None = None
    parent_id: str | None = None
    is_subagent: bool = False
    created_at: int = 0
    archived: bool = False
    branch: str | None = None
    """The branch of git it was last seen on."""
    head: str | None = None
    """The entry it stands at; without one, the last."""

    @property
    def turns(self) -> int:
        return sum(entry.kind == "prompt" for entry in self.entries)

    @property
    def first_words(self) -> str:
        """What was said first, for where nobody gave it a title."""
        prompts = (said for entry in self.entries if entry.kind == "prompt" for said in texts_of(entry.parts))
        return first_words(next(prompts, ""), 80)

    @property
    def updated_at(self) -> int:
        return max([self.created_at, *(max(entry.at, entry.ended_at) for entry in self.entries)])


class Reading:
    """What a reader has found so far of one session."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.entries: dict[str, Entry] = {}
        self.blobs: dict[str, Blob] = {}
        self._said_as: dict[str, str] = {}
        self._calls: dict[str, tuple[Entry, int]] = {}
        self._remarks: dict[tuple[str, Fate], Remark] = {}
        self._before: list[Record] = []
        self._held: list[tuple[str, Record, str]] = []
        self.last: Entry | None = None
        self.begins: bytes = b""
        """How the file begins: by that a session is known that has no id."""

    # The tree

    def add(self, entry: Entry, where: str | None = None) -> Entry:
        """Put an entry into the tree. One whose parent is not there follows what stands before it."""
        if entry.id in self.entries or entry.id in self._said_as:
            entry.id = f"{entry.id}/{len(self.entries)}"
            self.remark("two lines with one id", "changed", where)
        entry.parent = self.known(entry.parent, where)
        if self._before and entry.kind != "note":
            entry.kept, self._before = [*self._before, *entry.kept], []
        self.entries[entry.id] = self.last = entry
        self.index(entry)
        return entry

    def known(self, parent: str | None, where: str | None = None) -> str | None:
        """The entry that a name means; where there is none, the one before, and that is told."""
        if parent is None or parent in self.entries:
            return parent
        if parent in self._said_as:
            return self._said_as[parent]
        if self.last is None:
            self.remark("its beginning is not in this file", "lost", where)
            return None
        self.remark("follows something that is not in the file: put behind what stands before it", "changed", where)
        return self.last.id

    def has(self, id_: str | None) -> bool:
        return id_ is not None and (id_ in self.entries or id_ in self._said_as)

    def alias(self, id_: str | None, entry: Entry) -> None:
        """Another name in the file for the same entry."""
        if id_ is not None and id_ != entry.id:
            self._said_as.setdefault(id_, entry.id)

    def find(self, id_: str | None) -> Entry | None:
        return self.entries.get(self._said_as.get(id_ or "", id_ or ""))

    # Calls and what came of them

    def index(self, entry: Entry, first: int = 0) -> None:
        """Know the calls among its parts, from that one on."""
        for place, part in enumerate(entry.parts[first:], first):
            id_ = call_id_of(part)
            if id_ is not None:
                self._calls[id_] = entry, place

    def call_entry(self, call_id: object) -> Entry | None:
        """The answer that made a call."""
        found = self._calls.get(call_id) if isinstance(call_id, str) else None
        return found[0] if found is not None else None

    def result(self, call_id: object, came: dict[str, Any], at: int, files: list[dict[str, Any]] | None = None) -> bool:
        """Give a call its result, ``files`` beside it; False where there is no such call, or it has one already."""
        found = self._calls.get(call_id) if isinstance(call_id, str) else None
        if found is None:
            return False
        entry, place = found
        if not is_call(entry.parts[place]) or not is_open_call(entry.parts[place]):
            return False
        entry.parts[place] = {**entry.parts[place], **came}
        entry.ended_at = max(entry.ended_at, at)
        for part in files or ():
            own = part.get("providerMetadata", {}).get("clew", {})
            part["providerMetadata"] = {"clew": {**own, "result_of": call_id}}
            entry.parts.append(part)
        return True

    # What has no place

    def remark(self, what: str, fate: Fate, where: str | None = None) -> None:
        known = self._remarks.get((what, fate))
        if known is None:
            self._remarks[what, fate] = Remark(what, fate, 1, where)
        else:
            self._remarks[what, fate] = msgspec.structs.replace(known, count=known.count + 1)

    def keep(self, what: str, record: Record, where: str, entry: Entry | None = None) -> None:
        """Keep a record as it is, with the entry it stands behind, and name it."""
        record = plain(record)
        if len(orjson.dumps(record)) > MAX_KEPT:
            self.remark(f"{what}, larger than is kept", "lost", where)
            return
        self.remark(what, "kept", where)
        entry = entry or self.last
        while entry is not None and entry.kind == "note":
            entry = self.entries.get(entry.parent or "")
        (self._before if entry is None else entry.kept).append(record)

    def hold(self, what: str, record: Record, where: str) -> None:
        """Keep a record with an entry that is still being made; :meth:`settle` says which it came to be."""
        self._held.append((what, plain(record), where))

    def hold_rest(self, what: str, record: Record, known: frozenset[str], where: str, **names: Any) -> None:
        """Hold the keys that nobody here knows, and that say something."""
        ignore(record, *known)
        rest = plain(
            {key: value for key, value in record.items() if key not in known and value not in (None, "", [], {}, False)}
        )
        ignore(record, *rest)
        if rest:
            self.hold(f"{what}: {', '.join(sorted(rest))[:80]}", {**names, **rest}, where)

    def keep_rest(self, record: Record, where: str, entry: Entry | None = None, **names: Any) -> None:
        """Keep the keys of a record that were not read, in their place. A repetition of the last ones is left out."""
        rest = rest_of(record)
        entry = entry or self.last
        if rest is None:
            return
        if "content" not in (rest.get("message") or ()):
            names.pop("at", None)
        kept = {"type": REST, **names, REST: rest}
        if entry is not None and entry.kept and {**entry.kept[-1], **_names_in(kept)} == kept:
            return
        what = ", ".join(dict.fromkeys(paths_of(rest)))[:80]
        self.keep(f"keys without a place: {what}", kept, where, entry)

    def settle(self, entry: Entry | None) -> None:
        """What was held belongs to this entry."""
        held, self._held = self._held, []
        for what, record, where in held:
            self.keep(what, record, where, entry)

    # Parts

    def text_part(self, said: object, where: str, kind: str = "text", **more: Any) -> dict[str, Any]:
        """A text, or a reasoning, as a part."""
        return {"type": kind, "text": self.cut(said if isinstance(said, str) else "", where), **more}

    def cut(self, said: str, where: str) -> str:
        if len(said) <= MAX_TEXT:
            return said
        self.remark(f"texts of more than {MAX_TEXT:,} characters, cut there", "lost", where)
        return said[:MAX_TEXT]

    def file_part(self, media_type: object, data: object, where: str, name: object = None) -> dict[str, Any] | None:
        """A file that stands in the record as base64; None, and told, where it does not read."""
        try:
            held = base64.b64decode(data, validate=True) if isinstance(data, str) and data else None
        except (binascii.Error, ValueError):
            held = None
        if held is None or len(held) > 3 * MAX_TEXT or not isinstance(media_type, str):
            self.remark("files that do not read", "changed", where)
            return None
        media_type = media_type.partition(";")[0].strip().lower()
        if not _MEDIA_TYPE.fullmatch(media_type):
            media_type = "application/octet-stream"
        digest = sha256(held).hexdigest()
        self.blobs[digest] = Blob(digest, media_type, held)
        named = {"filename": name} if isinstance(name, str) and name else {}
        return stored_file({"type": "file", **named}, digest, media_type, {"size": len(held)})

    def url_part(self, url: object, where: str, media_type: str = "image/png") -> dict[str, Any] | None:
        """A file that is named by a ``data:`` URL; None for any other, which nobody fetches."""
        head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
        if not head.startswith("data:") or not comma or not head.endswith(";base64"):
            return None
        return self.file_part(head[5:-7] or media_type, data, where)

    def done(self, session_id: str | None, **more: Any) -> Foreign:
        """All that was read, as one value."""
        if session_id is None:
            session_id = f"unnamed-{sha256(self.begins).hexdigest()[:32]}"
            self.remark("it has no id: it is known by how its file begins", "changed")
        self.settle(self.last)
        entries = list(self.entries.values())
        if entries and entries[-1].kind == "compaction" and not entries[-1].summary.get("summary"):
            # Its summary is still to come, or never did.
            entries.pop()
            self.remark("a compaction at its end that has no summary", "lost")
        for entry in entries:
            if (tail := self.find(entry.tail)) is not None:
                entry.tail = tail.id
            if entry.kind == "compaction" and not entry.summary.get("summary"):
                # An empty summary would stand for all that was said before.
                entry.kind, kept = "note", entry.kept
                for record in kept:
                    self.keep("compactions without a summary: what came before them is sent whole", record, "", entry)
        if self.program in WRITTEN_BACK and not more.get("is_subagent"):
            for entry in entries:
                if entry.kind != "note":
                    entry.kept.append({"type": LINE_IDS, "ids": [entry.id]})
            for alias, id_ in self._said_as.items():
                if (known := self.entries.get(id_)) is not None and known.kind != "note":
                    known.kept[-1]["ids"].append(alias)
        if more.get("head") not in {entry.id for entry in entries}:
            more.pop("head", None)
        made = more.pop("created_at", 0) or min((entry.at for entry in entries), default=0)
        if self._before:
            for record in self._before:
                self.remark(f"records of a session in which nobody said anything ({record.get('type')})", "lost")
        return Foreign(
            program=self.program,
            id=session_id,
            entries=entries,
            remarks=list(self._remarks.values()),
            blobs=self.blobs,
            created_at=made,
            **more,
        )


def _names_in(record: Record) -> Record:
    return {key: record[key] for key in ("id", "uuid") if key in record}


def call_part(name: object, call_id: object, given: Any, provider: str | None = None, **noted: Any) -> dict[str, Any]:
    """A call that has no result yet."""
    called = name if isinstance(name, str) and name else "unknown"
    part = {"type": f"tool-{called}", "toolCallId": call_id, "state": "input-available", "input": given}
    kept = {key: value for key, value in noted.items() if value is not None}
    return {**part, "callProviderMetadata": {provider: kept}} if provider and kept else part


def sealed(provider: str, **noted: Any) -> dict[str, Any]:
    """What a provider wants to see again of a reasoning, under its name."""
    kept = {key: value for key, value in noted.items() if isinstance(value, str) and value}
    return {"providerMetadata": {provider: kept}} if kept else {}


# Lines


class LineReader(Protocol):
    """Reads a file line by line: all of it is one session."""

    reading: Reading

    def take(self, record: Record, where: str) -> None: ...

    def done(self) -> Foreign: ...


def read_lines(data: bytes | BinaryIO, reader: LineReader) -> list[Foreign]:
    """The session in these lines."""
    for where, record in lines_of(data, reader.reading):
        reader.take(record, where)
    return [reader.done()]


def lines_of(data: bytes | BinaryIO, reading: Reading) -> Iterator[tuple[str, Record]]:
    """The records of a file of JSON lines, each with where it stands. What does not read is told and kept as text."""
    # One at a time: all lines of a large file would be the file once more.
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    following = file.readline().removeprefix(b"\xef\xbb\xbf")
    for number in itertools.count(1):
        if not following:
            return
        read, following = following, file.readline()
        line = read.removesuffix(b"\n")
        if not line.strip():
            continue
        where = f"line {number}"
        reading.begins = reading.begins or line
        value = read_json(line)
        if value is None and (line is read or following.removesuffix(b"\n") == FILE_END):
            # It is being written, or was when a process died. Whole, it is another line.
            reading.remark("a last line that is not whole", "lost", where)
            continue
        if isinstance(value, dict):
            cleaned, replaced = clean_value(value, _LEVELS)
            if replaced:
                reading.remark("values that no store can keep, replaced", "changed", where)
            yield where, tracked(cleaned)
        else:
            what = "lines that are no JSON" if value is None else "lines that are no object"
            reading.keep(what, {"unread": clean_value(line.decode(errors="replace"))[0]}, where)


def read_json(data: bytes) -> Any:
    """JSON as other programs write it, half of a surrogate pair and all; None for what is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data.decode(errors="surrogatepass"))
    except (ValueError, RecursionError):
        return None


# Values of anybody's


def text(value: object, key: str) -> str | None:
    """The text under a key of a record; None for what is not there, empty, or no text."""
    found = peek(value, key) if isinstance(value, dict) else None
    if isinstance(found, str):
        ignore(value, key)
    return found if isinstance(found, str) and found else None


def count(value: object, key: str) -> int:
    """The count under a key of a record; 0 for what is none."""
    found = peek(value, key) if isinstance(value, dict) else None
    number = isinstance(found, int | float) and not isinstance(found, bool) and found == found
    if number:
        ignore(value, key)
    return int(min(max(found, 0), _MAX_TOKENS)) if number and found is not None else 0


def used(usage: Usage) -> Usage | None:
    """What a call used; none where nothing was counted."""
    return usage if usage.total else None


def money(value: object, key: str) -> float:
    found = peek(value, key) if isinstance(value, dict) else None
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if number:
        ignore(value, key)
    return float(found) if number and found is not None and 0 <= found <= 1e9 else 0.0


def time_of(value: object, otherwise: int) -> int:
    """A time as a file writes it: ISO text, or epoch milliseconds."""
    at = milliseconds(int(value) if isinstance(value, float) and abs(value) < _MAX_TIME else value)
    return at if at is not None and 0 < at <= _MAX_TIME else otherwise
