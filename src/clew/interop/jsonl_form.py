"""The document as lines: one record a line, the header first, so that it can be written and read as a stream.

The header says how many records follow. A file that was cut, in the middle of a line or between two, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from clew.errors import InvalidInput
from clew.interop.document import (
    FORMAT,
    VERSION,
    BlobRecord,
    MessageRecord,
    MoveRecord,
    PromptRecord,
    QueuedRecord,
    SessionDocument,
    SessionRecord,
    TurnRecord,
)
from clew.interop.json_form import decode_value, encode_value, to_record
from clew.transcript.pruned import Pruned
from clew.transcript.turn import Step

__all__ = ["format_jsonl", "is_jsonl", "iter_jsonl", "parse_jsonl"]

_MAX_HEADER: Final = 64 * 1024
_KINDS: Final[dict[str, tuple[str, type[Any]]]] = {
    "turn": ("turns", TurnRecord),
    "message": ("messages", MessageRecord),
    "step": ("steps", Step),
    "move": ("moves", MoveRecord),
    "prune": ("prunes", Pruned),
    "prompt": ("prompts", PromptRecord),
    "blob": ("blobs", BlobRecord),
    "queued": ("queue", QueuedRecord),
}
"""The kinds of record that may come many times: the field of the document each belongs to, and its type."""


class _Header(msgspec.Struct, frozen=True):
    exporter: str
    exported_at: int
    records: int
    redacted: int = 0


def format_jsonl(document: SessionDocument) -> bytes:
    """All lines at once."""
    return b"".join(iter_jsonl(document))


def iter_jsonl(document: SessionDocument) -> Iterator[bytes]:
    """Line after line, each with its newline."""
    count = 1 + sum(len(getattr(document, field)) for field, _ in _KINDS.values())
    header = _Header(document.exporter, document.exported_at, count, document.redacted)
    yield _line("header", header, {"format": FORMAT, "version": VERSION})
    yield _line("session", document.session)
    for name, (field, _) in _KINDS.items():
        for record in getattr(document, field):
            yield _line(name, record)


def _line(name: str, record: Any, more: dict[str, Any] | None = None) -> bytes:
    body = encode_value(record)
    # The kind comes first on its line, for the eye and for a reader that looks no further.
    first = msgspec.json.encode({"record": name, **(more or {})})
    return first[:-1] + b"," + body[1:] + b"\n"


def is_jsonl(data: bytes) -> bool:
    """Whether these bytes begin as lines do. A document in one object has no ``record`` on its first line."""
    try:
        first = msgspec.json.decode(data[:_MAX_HEADER].lstrip().partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "record" in first


def parse_jsonl(lines: Iterable[bytes]) -> SessionDocument:
    """The document in these lines, each with or without its newline."""
    header: _Header | None = None
    session: SessionRecord | None = None
    found: dict[str, list[Any]] = {field: [] for field, _ in _KINDS.values()}
    records = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"line {number}"
        value = decode_value(line, where)
        name = value.get("record") if isinstance(value, dict) else None
        if header is None:
            header = _header(value, where)
            continue
        records += 1
        if name == "session" and session is None:
            session = to_record(value, SessionRecord, where)
        elif isinstance(name, str) and name in _KINDS:
            field, kind = _KINDS[name]
            found[field].append(to_record(value, kind, where))
        else:
            raise InvalidInput(f"{where} is of a kind that is not known here: {str(name)[:40]!r}", where=where)
    if header is None or session is None:
        raise InvalidInput("the file ends before it says which session it holds")
    if records != header.records:
        raise InvalidInput(f"the file holds {records} records, its header promises {header.records}: it was cut")
    fields: dict[str, Any] = {field: tuple(values) for field, values in found.items()}
    return SessionDocument(
        exporter=header.exporter,
        exported_at=header.exported_at,
        redacted=header.redacted,
        session=session,
        **fields,
    )


def _header(value: Any, where: str) -> _Header:
    if not isinstance(value, dict) or value.get("record") != "header" or value.get("format") != FORMAT:
        raise InvalidInput(f'this is not a clew session: the first line must be a header with "format": "{FORMAT}"')
    if value.get("version") != VERSION:
        raise InvalidInput(
            f"this file is of version {str(value.get('version'))[:20]}; this clew reads version {VERSION}"
        )
    return to_record(value, _Header, where)
