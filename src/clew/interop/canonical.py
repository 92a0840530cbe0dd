"""The canonical inspection format: a session as the rows of the three shared tables, as JSON, JSON lines or CSV.

A row has the columns of its table, in their order. In JSON the value of a column named ``*_json`` is the JSON value
itself; in a table (CSV, Parquet) it is its text. Rules and snapshots stay on their host, as in every export.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Final, Protocol

import msgspec

from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import SNAPSHOT_KEY
from clew.transcript.model_call import sum_usage, with_usage
from clew.transcript.portable import PortableSession, with_bytes
from clew.transcript.session import Session

__all__ = [
    "COLUMNS",
    "CSV_COLUMNS",
    "CsvLines",
    "JsonLines",
    "RowSink",
    "add_message",
    "flat",
    "format_canonical_json",
    "format_canonical_jsonl",
    "format_csv",
    "session_row",
]

Columns = Mapping[str, Any]


COLUMNS: Final[Mapping[str, Columns]] = {
    "session": {
        **dict.fromkeys(("id", "agent", "workspace_root", "model_json", "parent_id", "parent_message_id"), str),
        **dict.fromkeys(("permissions_json", "metadata_json"), str),
        **dict.fromkeys(("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write"), int),
        "total_tokens": int,
        "cost_usd": float,
        "created_at": int,
        "updated_at": int,
        "archived_at": int,
    },
    "message": {
        **dict.fromkeys(("id", "session_id", "role", "metadata_json"), str),
        **dict.fromkeys(("created_at", "updated_at"), int),
    },
    "part": {
        **dict.fromkeys(("id", "message_id", "session_id"), str),
        "index": int,
        "type": str,
        "data_json": str,
        "tool_call_id": str,
        "tool_state": str,
        **dict.fromkeys(("created_at", "updated_at"), int),
    },
}
"""The columns of each table with their types, in the order of the tables."""
_OF_MESSAGE: Final = ("role", "metadata_json", "created_at", "updated_at")
CSV_COLUMNS: Final = (*COLUMNS["part"], *(f"message_{name}" for name in _OF_MESSAGE))
"""The columns of a CSV export: those of a part, then those of its message."""
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet reads a cell that begins so as a formula."""


# Rows


def session_row(session: Session) -> dict[str, Any]:
    """Return the row of a session, with its sums as stored and without its rules."""
    plain = msgspec.structs.asdict(session)
    plain |= {"model_json": msgspec.to_builtins(session.model), "permissions_json": []}
    plain["metadata_json"] = _sorted_keys(session.metadata)
    return {name: plain[name] for name in COLUMNS["session"]}


def _message_row(row: MessageRow) -> dict[str, Any]:
    """Return the row of a message, without its parts and its snapshot."""
    metadata = {key: value for key, value in row.metadata.items() if key != SNAPSHOT_KEY}
    plain = {**msgspec.structs.asdict(row), "metadata_json": _sorted_keys(metadata)}
    return {name: plain[name] for name in COLUMNS["message"]}


def _part_row(row: MessageRow, part: PartRow) -> dict[str, Any]:
    """Return the row of a part of this message. A part that is still being written may have no id yet."""
    return {
        "id": part.id or None,
        "message_id": row.id,
        "session_id": row.session_id,
        "index": part.index,
        "type": part.type,
        "data_json": part.data,
        "tool_call_id": part.tool_call_id,
        "tool_state": part.tool_state,
        "created_at": part.created_at,
        "updated_at": part.updated_at,
    }


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for a table: JSON columns as text."""
    return {
        name: msgspec.json.encode(value).decode() if name.endswith("_json") and value is not None else value
        for name, value in row.items()
    }


def _sorted_keys(value: dict[str, Any]) -> Any:
    # Equal metadata gives equal bytes. The keys of a part keep their order, which is part of its value.
    return msgspec.Raw(msgspec.json.encode(value, order="sorted"))


# Exports of one session


def format_canonical_json(portable: PortableSession) -> bytes:
    """Return ``{"session": …, "messages": [{"message": …, "parts": […]}]}``, followed by a newline."""
    file = io.BytesIO()
    file.write(b'{"session":' + msgspec.json.encode(_session(portable)) + b',"messages":[')
    for n, (row, parts) in enumerate(_messages(portable)):
        item = {"message": _message_row(row), "parts": [_part_row(row, part) for part in parts]}
        file.write((b"," if n else b"") + msgspec.json.encode(item))
    file.write(b"]}\n")
    return file.getvalue()


def format_canonical_jsonl(portable: PortableSession) -> bytes:
    """Return a line for the session, then for each message one and one for each of its parts."""
    file = io.BytesIO()
    lines = JsonLines(file)
    lines.add("session", _session(portable))
    for row, parts in _messages(portable):
        add_message(lines, row, parts)
    return file.getvalue()


def format_csv(portable: PortableSession) -> bytes:
    """Return a header and one record for each part, with its message's columns. Files are named, not included."""
    file = io.BytesIO()
    lines = CsvLines(file)
    for row in portable.messages:
        add_message(lines, row, row.parts)
    return file.getvalue()


def _session(portable: PortableSession) -> dict[str, Any]:
    return session_row(with_usage(portable.session, sum_usage(portable.messages)))


def _messages(portable: PortableSession) -> Iterator[tuple[MessageRow, Iterable[PartRow]]]:
    """Yield the messages with their parts; the bytes of files are in the parts."""
    blobs = {blob.sha256: blob for blob in portable.blobs}
    for row in portable.messages:
        yield row, (msgspec.structs.replace(part, data=with_bytes(part.data, blobs)) for part in row.parts)


# Rows as lines


class RowSink(Protocol):
    """Takes rows of sessions, messages and parts, each session's together."""

    def add(self, kind: str, row: Mapping[str, Any]) -> None: ...


def add_message(sink: RowSink, row: MessageRow, parts: Iterable[PartRow]) -> None:
    """Add the row of a message and those of its parts."""
    sink.add("message", _message_row(row))
    for part in parts:
        sink.add("part", _part_row(row, part))


class JsonLines:
    """Rows as lines of JSON."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, kind: str, row: Mapping[str, Any]) -> None:
        self._file.write(msgspec.json.encode({"type": kind, "data": row}) + b"\n")


class CsvLines:
    """Rows of messages, each followed by those of its parts, as a record for each part."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._about: list[Any] = []
        self._write(CSV_COLUMNS)

    def add(self, kind: str, row: Mapping[str, Any]) -> None:
        if kind == "message":
            plain = flat(row)
            self._about = [plain[name] for name in _OF_MESSAGE]
        elif kind == "part":
            self._write((*flat(row).values(), *self._about))

    def _write(self, cells: Iterable[Any]) -> None:
        record = io.StringIO(newline="")
        csv.writer(record).writerow(map(_cell, cells))
        self._file.write(record.getvalue().encode())


def _cell(value: Any) -> Any:
    """Return a cell that no spreadsheet executes.

    Only text that is in ``data_json`` too can begin like a formula, such as a call's id; that column is always exact.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value
