"""Rows of many sessions as Parquet: a file for each table, written a few rows at a time."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from clew.errors import NotSupported
from clew.interop.canonical import COLUMNS, flat

__all__ = ["ParquetFolder"]

_TABLES: Final = {"session": "sessions.parquet", "message": "messages.parquet", "part": "parts.parquet"}
_MAX_ROWS: Final = 2_000
_MAX_TEXT: Final = 4 * 1024 * 1024
"""Characters of JSON that are collected before they are written."""


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
            for kind, name in _TABLES.items()
        }
        self._rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _TABLES}
        self._text = dict.fromkeys(_TABLES, 0)

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
