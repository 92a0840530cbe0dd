"""Files with the rows of many sessions: JSON lines or CSV of the canonical format, or a Parquet file for each table.

Rows are written as they come, a few at a time, so that the size of a store does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Protocol

from clew.errors import NotSupported
from clew.interop.canonical import COLUMNS, canonical_line, flat

__all__ = ["TABLES", "BulkFormat", "LineFile", "ParquetFolder", "RowSink"]

BulkFormat = Literal["canonical-jsonl", "csv", "parquet"]
TABLES: Final = {"session": "sessions.parquet", "message": "messages.parquet", "part": "parts.parquet"}
_MAX_ROWS: Final = 2_000
_MAX_TEXT: Final = 4 * 1024 * 1024
"""Characters of JSON that are collected before they are written."""


class RowSink(Protocol):
    """Takes rows of sessions, messages and parts, each session's together."""

    def add(self, kind: str, row: Mapping[str, Any]) -> None: ...


class LineFile:
    """Rows as lines of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, kind: str, row: Mapping[str, Any]) -> None:
        self._file.write(canonical_line(kind, row))


class ParquetFolder:
    """Rows as three Parquet files in a folder. The files are complete once it is closed."""

    def __init__(self, folder: Path) -> None:
        try:
            self._arrow = import_module("pyarrow")
            parquet = import_module("pyarrow.parquet")
        except ImportError as error:
            raise NotSupported("Parquet needs an extra; install it: pip install 'clew-sessions[parquet]'") from error
        types = {str: self._arrow.string(), int: self._arrow.int64(), float: self._arrow.float64()}
        self._schemas = {
            kind: self._arrow.schema([(name, types[of]) for name, of in columns.items()])
            for kind, columns in COLUMNS.items()
        }
        self._writers = {
            kind: parquet.ParquetWriter(folder / name, self._schemas[kind], compression="zstd")
            for kind, name in TABLES.items()
        }
        self._rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in TABLES}
        self._text = dict.fromkeys(TABLES, 0)

    def add(self, kind: str, row: Mapping[str, Any]) -> None:
        plain = flat(row)
        self._rows[kind].append(plain)
        self._text[kind] += sum(len(value) for value in plain.values() if isinstance(value, str))
        if len(self._rows[kind]) >= _MAX_ROWS or self._text[kind] >= _MAX_TEXT:
            self._flush(kind)

    def close(self) -> None:
        for kind, writer in self._writers.items():
            self._flush(kind)
            writer.close()

    def _flush(self, kind: str) -> None:
        if self._rows[kind]:
            self._writers[kind].write_table(self._arrow.Table.from_pylist(self._rows[kind], self._schemas[kind]))
        self._rows[kind], self._text[kind] = [], 0
