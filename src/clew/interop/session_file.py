"""clew's own export format, which can be imported again: one JSON object, or JSON lines with one record each.

Equal sessions result in equal bytes: keys are sorted, except inside parts. The model is shown a prefix of a pruned
output's JSON, so the order of a part's keys is part of its value.

A file is untrusted until every check has passed.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.errors import InvalidInput, UnsupportedValue
from clew.interop.canonical_import import is_canonical, is_canonical_line, read_canonical, read_canonical_lines
from clew.interop.density import check_density
from clew.interop.validate_import import check_portable, decode_json, read_record
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.packed import PackedRows
from clew.transcript.portable import AT_HOME, EXPORTER, Blob, PortableSession, Prompt, Queued, tree_of
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Step, Turn

__all__ = ["MAX_FILE_BYTES", "format_json", "format_jsonl", "iter_jsonl", "parse_session"]

FORMAT: Final = "clew-session"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 256 * 1024 * 1024
_MAX_HEADER: Final = 512 * 1024
_KINDS: Final = {
    "turn": "turns",
    "message": "messages",
    "step": "steps",
    "move": "moves",
    "prune": "prunes",
    "prompt": "prompts",
    "blob": "blobs",
    "queued": "queue",
}
"""The kinds of record that may occur many times, each with its field of the session."""
_LISTS: Final = frozenset(_KINDS.values())
_RAW_VALUES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_HEADER: Final = ("exporter", "exported_at", "redacted")


# Written


def format_json(portable: PortableSession) -> bytes:
    """Return the session as one object, followed by a newline."""
    whole: dict[str, Any] = {"format": FORMAT, "version": VERSION, "session": _plain(portable, portable.session)}
    whole |= {name: getattr(portable, name) for name in _HEADER}
    lists = {field: getattr(portable, field) for field in _KINDS.values()}
    # Row by row: a single call that encodes or joins everything would block all other threads until its end.
    file = io.BytesIO()
    for name in sorted({*whole, *lists}):
        file.write((b"," if file.tell() else b"{") + msgspec.json.encode(name) + b":")
        if name in whole:
            file.write(msgspec.json.encode(whole[name], order="sorted"))
            continue
        file.write(b"[")
        for n, row in enumerate(lists[name]):
            file.write((b"," if n else b"") + msgspec.json.encode(_plain(portable, row), order="sorted"))
        file.write(b"]")
    file.write(b"}\n")
    return file.getvalue()


def format_jsonl(portable: PortableSession) -> bytes:
    """Return the session as lines."""
    file = io.BytesIO()
    for line in iter_jsonl(portable):
        file.write(line)
    return file.getvalue()


def iter_jsonl(portable: PortableSession) -> Iterator[bytes]:
    """Yield lines with their newlines. The header has the number of records, so that a truncated file is refused."""
    count = 1 + sum(len(getattr(portable, field)) for field in _KINDS.values())
    header = {name: getattr(portable, name) for name in _HEADER}
    yield _line({"record": "header", "format": FORMAT, "version": VERSION}, {**header, "records": count})
    yield _line({"record": "session"}, _plain(portable, portable.session))
    for kind, field in _KINDS.items():
        for row in getattr(portable, field):
            yield _line({"record": kind}, _plain(portable, row))


def _line(first: dict[str, Any], body: dict[str, Any]) -> bytes:
    # The kind comes first on its line, for people and for readers that only need the kind.
    return msgspec.json.encode(first)[:-1] + b"," + msgspec.json.encode(body, order="sorted")[1:] + b"\n"


def _plain(portable: PortableSession, row: Any) -> dict[str, Any]:
    """Return a row without the fields that are not exported."""
    stays = AT_HOME.get(type(row), frozenset())
    built = {name: value for name, value in msgspec.structs.asdict(row).items() if name not in stays}
    if isinstance(row, Turn):
        built["messages"] = portable.links.get(row.id, ())
    elif isinstance(row, MessageRow):
        built["parts"] = [_plain(portable, part) for part in row.parts]
    elif isinstance(row, PartRow):
        built |= {"id": row.id or None, "data": msgspec.Raw(msgspec.json.encode(row.data))}
    return built


# Read


def parse_session(data: bytes, *, max_bytes: int = MAX_FILE_BYTES) -> PortableSession:
    """Return the valid session in these bytes, JSON or lines.

    Raises :class:`InvalidInput` or :class:`UnsupportedValue` with the position of the error.
    """
    if len(data) > max_bytes:
        raise UnsupportedValue(f"the file is larger than {max_bytes} bytes")
    data = data.removeprefix(b"\xef\xbb\xbf")  # some editors begin a file with it
    if not data.lstrip()[:1] == b"{":
        # For a file of another format, the position of a JSON error would not help.
        raise InvalidInput(
            "this is not a clew session: only exports as json, jsonl, canonical-json or canonical-jsonl can be imported"
        )
    first = _first_line(data)
    in_canonical_lines = is_canonical_line(first)
    in_lines = in_canonical_lines or (isinstance(first, dict) and "record" in first)
    check_density(data, lines=in_lines)
    if in_canonical_lines:
        portable = read_canonical_lines(data)
    else:
        portable = _parse_lines(data) if in_lines else _parse_object(data)
    check_portable(portable)
    return msgspec.structs.replace(portable, turns=tuple(tree_of(portable).turns.values()))


def _first_line(data: bytes) -> Any:
    """Return the value on the first line, None if it is none. A session in one object, on one line or many, has no
    ``record`` there, nor a ``type``."""
    try:
        return msgspec.json.decode(data[:_MAX_HEADER].lstrip().partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None


class _Header(msgspec.Struct, frozen=True):
    exported_at: int
    exporter: str = EXPORTER
    redacted: int = 0
    records: int | None = None


class _Items(msgspec.Struct, frozen=True):
    """The records of a list, parsed one by one: all together they take several times the memory of the file."""

    field: str
    held: Sequence[Any]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for index, item in enumerate(self.held):
            where = f"{self.field}[{index}]"
            yield where, decode_json(item, where) if isinstance(item, msgspec.Raw) else item


class _Lines(msgspec.Struct, frozen=True):
    """The records of lines, parsed one by one. ``places`` has the number, start and end of each line."""

    data: bytes
    places: array[int]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        numbers = iter(self.places)
        for number, begin, end in zip(numbers, numbers, numbers, strict=True):
            where = f"line {number}"
            yield where, decode_json(self.data[begin:end], where)


def _parse_object(data: bytes) -> PortableSession:
    value = _read_raw(data)
    if value is None:
        value = decode_json(data, "the file")
    if is_canonical(value):
        return read_canonical(value)
    header = _read_header(value, "the file must be an object", "the file")
    records: dict[str, Iterable[tuple[str, Any]]] = {}
    for field in _KINDS.values():
        items = value.get(field, [])
        if not isinstance(items, list):
            raise InvalidInput(f"{field} is not valid in a clew session: it is not a list", where=field)
        records[field] = _Items(field, items)
    return _assemble(header, ("session", value.get("session")), records)


def _read_raw(data: bytes) -> dict[str, Any] | None:
    """Return the object with the records of its lists unparsed; None if anything in it is invalid."""
    try:
        raw = _RAW_VALUES.decode(data)
        lists = {field: _RAW_ITEMS.decode(raw.pop(field)) for field in _LISTS & raw.keys()}
        for items in lists.values():
            for item in items:
                msgspec.json.decode(item)
        return {name: msgspec.json.decode(item) for name, item in raw.items()} | lists
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None


def _parse_lines(data: bytes) -> PortableSession:
    header: _Header | None = None
    session: tuple[str, Any] | None = None
    records = {field: _Lines(data, array("Q")) for field in _KINDS.values()}
    count = number = 0
    end = -1
    while end < len(data):
        number, begin = number + 1, end + 1
        end = data.find(b"\n", begin)
        end = len(data) if end < 0 else end
        line = data[begin:end]
        if not line.strip():
            continue
        where = f"line {number}"
        value = decode_json(line, where)
        if header is None:
            header = _read_header(value, "the first line must be a header", where)
            continue
        count += 1
        kind = value.get("record") if isinstance(value, dict) else None
        if kind == "session" and session is None:
            session = where, value
        elif isinstance(kind, str) and kind in _KINDS:
            records[_KINDS[kind]].places.extend((number, begin, end))
        else:
            raise InvalidInput(f"{where} is of an unknown kind: {str(kind)[:40]!r}", where=where)
    if header is None or session is None:
        raise InvalidInput("the file ends before the session record")
    if count != header.records:
        raise InvalidInput(f"the file is truncated: it has {count} records, its header says {header.records}")
    return _assemble(header, session, records)


def _read_header(value: Any, what: str, where: str) -> _Header:
    if not isinstance(value, dict) or value.get("format") != FORMAT or value.get("record", "header") != "header":
        raise InvalidInput(f'this is not a clew session: {what} with "format": "{FORMAT}"')
    if value.get("version") != VERSION:
        raise InvalidInput(
            f"this file is of version {str(value.get('version'))[:20]}; this clew reads version {VERSION}"
        )
    return read_record(value, _Header, where)


def _assemble(
    header: _Header, session: tuple[str, Any], records: Mapping[str, Iterable[tuple[str, Any]]]
) -> PortableSession:
    """Return the session, with derived fields filled in. Consistency is not checked here."""
    row = read_record(session[1], Session, session[0])
    turns: list[Turn] = []
    links: dict[str, tuple[str, ...]] = {}
    for where, value in records["turns"]:
        if isinstance(value, dict) and not {"kind", "status"} <= value.keys():
            raise InvalidInput(f"{where} is not valid in a clew session: it has no kind or no status", where=where)
        turns.append(read_record(value, Turn, where, session_id=row.id))
        links[turns[-1].id] = read_record(value.get("messages", []), tuple[str, ...], where)

    def message(where: str, value: Any) -> MessageRow:
        given = read_record(value, dict[str, Any], where)
        held = read_record(given.pop("parts", []), list[dict[str, Any]], where)
        if any(part.get("id") == "" for part in held):
            raise InvalidInput(f"{where} is not valid in a clew session: '' is not a part id", where=where)
        # A part that is still being written has no id yet.
        parts = tuple(
            read_record({**part, "id": ""} if part.get("id", 0) is None else part, PartRow, where, index=index)
            for index, part in enumerate(held)
        )
        read = read_record({"metadata": {}, **given}, MessageRow, where, session_id=row.id)
        return msgspec.structs.replace(read, parts=parts)

    messages = PackedRows(message(where, value) for where, value in records["messages"])
    moves: list[HeadMove] = []
    for seq, (where, value) in enumerate(records["moves"], start=1):
        at = moves[-1].to_turn_id if moves else None
        moves.append(read_record(value, HeadMove, where, seq=seq, session_id=row.id, from_turn_id=at))
    return PortableSession(
        exporter=header.exporter,
        exported_at=header.exported_at,
        redacted=header.redacted,
        session=row,
        turns=tuple(turns),
        links=links,
        messages=messages,
        moves=tuple(moves),
        steps=tuple(read_record(value, Step, where) for where, value in records["steps"]),
        prunes=tuple(read_record(value, Pruned, where) for where, value in records["prunes"]),
        prompts=tuple(read_record(value, Prompt, where) for where, value in records["prompts"]),
        blobs=tuple(read_record(value, Blob, where) for where, value in records["blobs"]),
        queue=tuple(read_record(value, Queued, where) for where, value in records["queue"]),
    )
