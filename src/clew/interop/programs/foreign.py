"""A foreign session: the contents of another program's file in a common form, before it becomes a session of clew.

Readers fill a :class:`Reading`, entry by entry in the order of the file. Records that clew has no place for are
preserved with the entry they follow, and reported: nothing in a file is dropped silently.
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
    "MAX_PRESERVED_BYTES",
    "Entry",
    "ForeignSession",
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
    "unpacked",
    "used",
]

Record = dict[str, Any]
MAX_TEXT: Final = 4 * 1024 * 1024
"""Characters of one text. A part may hold 20 MB, and a character takes up to four bytes."""
MAX_PRESERVED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one record that is preserved unchanged."""
FILE_END: Final = b"\f"
"""A line that separates two files of one session."""
LINE_IDS: Final = "line-ids"
"""The type of a preserved record with the ids of an entry's lines, which other preserved records may refer to."""
WRITTEN_BACK: Final = frozenset({"claude-code", "pi"})
"""Programs that clew exports to. An export has new line ids."""
FORKED: Final = "forked from another session: usage in the shared part is counted in both"
_MAX_TIME: Final = 253_402_300_799_999
"""The last moment of the year 9999."""
_MAX_TOKENS: Final = 1 << 31
"""More than any call uses. A larger count is damage, and would overflow sums."""
_LEVELS: Final = 10
"""Levels of nesting that are left for the message a record is stored in."""
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,100}", re.ASCII)


class Entry(msgspec.Struct, kw_only=True):
    """One entry in the tree of a file. ``aside``: text sent to the model that neither user nor model wrote. ``note``: a
    position in the tree without a message. ``tail`` is the id of the first entry that a compaction left
    unsummarised."""

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
    summary: dict[str, Any] | None = None
    noted: dict[str, Any] | None = None
    """Metadata of the model call that produced an answer, stored with the step."""
    preserved: list[Record] = []
    line_ids: tuple[str, ...] = ()
    """The ids of its lines, for a program whose sessions are exported again."""


class ForeignSession(msgspec.Struct, kw_only=True):
    """A session of another program. ``parent_id`` is the session it was forked from or is a subagent of."""

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
    """The git branch last recorded in it."""
    head: str | None = None
    """The id of the current entry; None for the last."""

    @property
    def turns(self) -> int:
        return sum(entry.kind == "prompt" for entry in self.entries)

    @property
    def first_words(self) -> str:
        """Return the start of the first prompt, for a session without a title."""
        prompts = (entry for entry in self.entries if entry.kind == "prompt")
        return first_words(next((said for one in prompts for said in texts_of(map(unpacked, one.parts))), ""), 80)

    @property
    def updated_at(self) -> int:
        return max([self.created_at, *(max(entry.at, entry.ended_at) for entry in self.entries)])


class Reading:
    """The state of reading one session."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.entries: dict[str, Entry] = {}
        self.blobs: dict[str, Blob] = {}
        self._aliases: dict[str, str] = {}
        self._calls: dict[str, tuple[Entry, int]] = {}
        self._remarks: dict[tuple[str, Fate], Remark] = {}
        self._leading: list[Record] = []
        self._deferred: list[tuple[str, Record, str]] = []
        self.last: Entry | None = None
        self.begins: bytes = b""
        """The first line of the file, which identifies a session without an id."""

    # The tree

    def add(self, entry: Entry, where: str | None = None) -> Entry:
        """Add an entry to the tree. One whose parent is missing follows the preceding entry."""
        if entry.id in self.entries or entry.id in self._aliases:
            entry.id = f"{entry.id}/{len(self.entries)}"
            self.remark("two lines with one id", "changed", where)
        parent = self.known(entry.parent, where)
        # Share the string with the parent: a large file names each entry twice.
        entry.parent = self.entries[parent].id if parent in self.entries else parent
        if self._leading and entry.kind != "note":
            entry.preserved, self._leading = [*self._leading, *entry.preserved], []
        self.entries[entry.id] = self.last = entry
        self.index(entry)
        return entry

    def known(self, parent: str | None, where: str | None = None) -> str | None:
        """Return the entry that an id refers to; if there is none, report it and return the preceding entry."""
        if parent is None or parent in self.entries:
            return parent
        if parent in self._aliases:
            return self._aliases[parent]
        if self.last is None:
            self.remark("the beginning is not in this file", "lost", where)
            return None
        self.remark("follows an entry that is not in the file: placed after the preceding entry", "changed", where)
        return self.last.id

    def has(self, id_: str | None) -> bool:
        return id_ is not None and (id_ in self.entries or id_ in self._aliases)

    def alias(self, id_: str | None, entry: Entry) -> None:
        """Register another id for the same entry."""
        if id_ is not None and id_ != entry.id:
            self._aliases.setdefault(id_, entry.id)

    def find(self, id_: str | None) -> Entry | None:
        return self.entries.get(self._aliases.get(id_ or "", id_ or ""))

    # Calls and their results

    def index(self, entry: Entry, first: int = 0) -> None:
        """Register the calls among an entry's parts, starting at part ``first``."""
        for position, part in enumerate(entry.parts[first:], first):
            pack_texts(part)
            id_ = call_id_of(part)
            if id_ is not None:
                self._calls[id_] = entry, position

    def call_entry(self, call_id: object) -> Entry | None:
        """Return the answer that made a call."""
        found = self._calls.get(call_id) if isinstance(call_id, str) else None
        return found[0] if found is not None else None

    def result(
        self, call_id: object, outcome: dict[str, Any], at: int, files: list[dict[str, Any]] | None = None
    ) -> bool:
        """Store a call's result, with ``files`` next to it; False if there is no such call or it already has a
        result."""
        found = self._calls.get(call_id) if isinstance(call_id, str) else None
        if found is None:
            return False
        entry, position = found
        if not is_call(entry.parts[position]) or not is_open_call(entry.parts[position]):
            return False
        entry.parts[position] = {**entry.parts[position], **outcome}
        pack_texts(entry.parts[position])
        entry.ended_at = max(entry.ended_at, at)
        for part in files or ():
            own = part.get("providerMetadata", {}).get("clew", {})
            part["providerMetadata"] = {"clew": {**own, "result_of": call_id}}
            entry.parts.append(part)
        return True

    # Records without a counterpart

    def remark(self, what: str, fate: Fate, where: str | None = None) -> None:
        known = self._remarks.get((what, fate))
        if known is None:
            self._remarks[what, fate] = Remark(what, fate, 1, where)
        else:
            self._remarks[what, fate] = msgspec.structs.replace(known, count=known.count + 1)

    def preserve(self, what: str, record: Record, where: str, entry: Entry | None = None) -> None:
        """Preserve a record unchanged with the entry it follows, and report it."""
        record = plain(record)
        if len(orjson.dumps(record)) > MAX_PRESERVED_BYTES:
            self.remark(f"{what}, too large to preserve", "lost", where)
            return
        self.remark(what, "kept", where)
        entry = entry or self.last
        while entry is not None and entry.kind == "note":
            entry = self.entries.get(entry.parent or "")
        (self._leading if entry is None else entry.preserved).append(record)

    def defer(self, what: str, record: Record, where: str) -> None:
        """Preserve a record with an entry that is not complete yet; :meth:`attach_deferred` names the entry."""
        self._deferred.append((what, plain(record), where))

    def defer_rest(self, what: str, record: Record, known: frozenset[str], where: str, **names: Any) -> None:
        """Defer the unknown keys of a record that have a value."""
        ignore(record, *known)
        rest = plain(
            {key: value for key, value in record.items() if key not in known and value not in (None, "", [], {}, False)}
        )
        ignore(record, *rest)
        if rest:
            self.defer(f"{what}: {', '.join(sorted(rest))[:80]}", {**names, **rest}, where)

    def preserve_rest(self, record: Record, where: str, entry: Entry | None = None, **names: Any) -> None:
        """Preserve the keys of a record that were not read, unless the same keys were preserved last."""
        rest = rest_of(record)
        entry = entry or self.last
        if rest is None:
            return
        if "content" not in (rest.get("message") or ()):
            names.pop("at", None)
        remainder = {"type": REST, **names, REST: rest}
        if entry is not None and entry.preserved and {**entry.preserved[-1], **_names_in(remainder)} == remainder:
            return
        what = ", ".join(dict.fromkeys(paths_of(rest)))[:80]
        self.preserve(f"unsupported keys: {what}", remainder, where, entry)

    def attach_deferred(self, entry: Entry | None) -> None:
        """Preserve all deferred records with this entry."""
        deferred, self._deferred = self._deferred, []
        for what, record, where in deferred:
            self.preserve(what, record, where, entry)

    # Parts

    def text_part(self, value: object, where: str, kind: str = "text", **more: Any) -> dict[str, Any]:
        """Return a text or reasoning part."""
        return {"type": kind, "text": self.cut(value if isinstance(value, str) else "", where), **more}

    def cut(self, value: str, where: str) -> str:
        if len(value) <= MAX_TEXT:
            return value
        self.remark(f"texts longer than {MAX_TEXT:,} characters, truncated", "lost", where)
        return value[:MAX_TEXT]

    def file_part(self, media_type: object, data: object, where: str, name: object = None) -> dict[str, Any] | None:
        """Return a part for a base64 file of a record; if it cannot be decoded, report it and return None."""
        try:
            content = base64.b64decode(data, validate=True) if isinstance(data, str) and data else None
        except (binascii.Error, ValueError):
            content = None
        if content is None or len(content) > 3 * MAX_TEXT or not isinstance(media_type, str):
            self.remark("unreadable files", "changed", where)
            return None
        media_type = media_type.partition(";")[0].strip().lower()
        if not _MEDIA_TYPE.fullmatch(media_type):
            media_type = "application/octet-stream"
        digest = sha256(content).hexdigest()
        self.blobs[digest] = Blob(digest, media_type, content)
        named = {"filename": name} if isinstance(name, str) and name else {}
        return stored_file({"type": "file", **named}, digest, media_type, {"size": len(content)})

    def url_part(self, url: object, where: str, media_type: str = "image/png") -> dict[str, Any] | None:
        """Return a part for a ``data:`` URL; None for any other URL, which is not fetched."""
        head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
        if not head.startswith("data:") or not comma or not head.endswith(";base64"):
            return None
        return self.file_part(head[5:-7] or media_type, data, where)

    def done(self, session_id: str | None, **more: Any) -> ForeignSession:
        """Return the complete session."""
        if session_id is None:
            session_id = f"unnamed-{sha256(self.begins).hexdigest()[:32]}"
            self.remark("no session id: identified by the start of the file", "changed")
        self.attach_deferred(self.last)
        entries = list(self.entries.values())
        if entries and entries[-1].kind == "compaction" and not (entries[-1].summary or {}).get("summary"):
            # Its summary was never written.
            entries.pop()
            self.remark("a compaction at the end without a summary", "lost")
        for entry in entries:
            if (tail := self.find(entry.tail)) is not None:
                entry.tail = tail.id
            if entry.kind == "compaction" and not (entry.summary or {}).get("summary"):
                # An empty summary would replace the whole conversation before it.
                entry.kind, records = "note", entry.preserved
                for record in records:
                    self.preserve(
                        "compactions without a summary: the messages before them are sent in full", record, "", entry
                    )
        aliases: dict[str, list[str]] = {}
        if self.program in WRITTEN_BACK and not more.get("is_subagent"):
            for entry in entries:
                if entry.kind != "note":
                    entry.line_ids = (entry.id,)
            for alias, id_ in self._aliases.items():
                if (known := self.entries.get(id_)) is not None and known.kind != "note":
                    aliases.setdefault(id_, []).append(alias)
            for id_, more_ids in aliases.items():
                self.entries[id_].line_ids = (id_, *more_ids)
        if more.get("head") not in {entry.id for entry in entries}:
            more.pop("head", None)
        made = more.pop("created_at", 0) or min((entry.at for entry in entries), default=0)
        if self._leading:
            for record in self._leading:
                self.remark(f"records of a session without messages ({record.get('type')})", "lost")
        return ForeignSession(
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


_TEXTS: Final = ("text", "output", "errorText")


def pack_texts(part: dict[str, Any]) -> None:
    """Hold the texts of a part as UTF-8 until it is stored: one wide character makes a text four times as large."""
    for key in _TEXTS:
        value = part.get(key)
        if isinstance(value, str) and not value.isascii():
            part[key] = value.encode()


def unpacked(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part with its texts as they were."""
    packed = {key: part[key].decode() for key in _TEXTS if isinstance(part.get(key), bytes)}
    return {**part, **packed} if packed else part


def call_part(name: object, call_id: object, given: Any, provider: str | None = None, **noted: Any) -> dict[str, Any]:
    """Return the part of a call without a result."""
    called = name if isinstance(name, str) and name else "unknown"
    part = {"type": f"tool-{called}", "toolCallId": call_id, "state": "input-available", "input": given}
    metadata = {key: value for key, value in noted.items() if value is not None}
    return {**part, "callProviderMetadata": {provider: metadata}} if provider and metadata else part


def sealed(provider: str, **noted: Any) -> dict[str, Any]:
    """Return the metadata that a provider requires to be sent back with reasoning, under its name."""
    metadata = {key: value for key, value in noted.items() if isinstance(value, str) and value}
    return {"providerMetadata": {provider: metadata}} if metadata else {}


# Lines


class LineReader(Protocol):
    """A reader of a file that is one session, line by line."""

    reading: Reading

    def take(self, record: Record, where: str) -> None: ...

    def done(self) -> ForeignSession: ...


def read_lines(data: bytes | BinaryIO, reader: LineReader) -> list[ForeignSession]:
    """Return the session in these lines."""
    for where, record in lines_of(data, reader.reading):
        reader.take(record, where)
    return [reader.done()]


def lines_of(data: bytes | BinaryIO, reading: Reading) -> Iterator[tuple[str, Record]]:
    """Yield the records of a JSON Lines file with their positions. Preserve and report lines that are not objects."""
    # One line at a time: a list of all lines would double the memory that a large file takes.
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
            # The line is being written, or its writer died. A later import reads it in full.
            reading.remark("an incomplete last line", "lost", where)
            continue
        if isinstance(value, dict):
            cleaned, replaced = clean_value(value, _LEVELS)
            if replaced:
                reading.remark("values that cannot be stored, replaced", "changed", where)
            yield where, tracked(cleaned)
        else:
            what = "lines that are not JSON" if value is None else "lines that are not a JSON object"
            reading.preserve(what, {"unread": clean_value(line.decode(errors="replace"))[0]}, where)


def read_json(data: bytes) -> Any:
    """Parse JSON, lone surrogates included, as other programs write it; return None if it is invalid."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data.decode(errors="surrogatepass"))
    except (ValueError, RecursionError):
        return None


# Untrusted values


def text(value: object, key: str) -> str | None:
    """Return the text under a key of a record; None if it is missing, empty or not a text."""
    found = peek(value, key) if isinstance(value, dict) else None
    if isinstance(found, str):
        ignore(value, key)
    return found if isinstance(found, str) and found else None


def count(value: object, key: str) -> int:
    """Return the count under a key of a record; 0 if there is none."""
    found = peek(value, key) if isinstance(value, dict) else None
    number = isinstance(found, int | float) and not isinstance(found, bool) and found == found
    if number:
        ignore(value, key)
    return int(min(max(found, 0), _MAX_TOKENS)) if number and found is not None else 0


def used(usage: Usage) -> Usage | None:
    """Return the usage of a call; None if nothing was counted."""
    return usage if usage.total else None


def money(value: object, key: str) -> float:
    found = peek(value, key) if isinstance(value, dict) else None
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if number:
        ignore(value, key)
    return float(found) if number and found is not None and 0 <= found <= 1e9 else 0.0


def time_of(value: object, otherwise: int) -> int:
    """Return epoch milliseconds of a time, which is ISO text or epoch milliseconds itself."""
    at = milliseconds(int(value) if isinstance(value, float) and abs(value) < _MAX_TIME else value)
    return at if at is not None and 0 < at <= _MAX_TIME else otherwise
