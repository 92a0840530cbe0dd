"""Packed rows: the messages of a session between a file and a store, decoded each time they are read.

Decoded, they take several times as much memory as the file they came from. Packed rows beyond a small buffer are in a
temporary file, or in memory if there is no disk space for one.
"""

from __future__ import annotations

import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, overload

import msgspec

from clew.errors import InternalError
from clew.platform.files import pread, pwrite
from clew.transcript.message import MessageRow, PartRow, Role

__all__ = ["PackedParts", "PackedRows", "mapped", "sorted_rows"]

_Part: TypeAlias = tuple[str, int, dict[str, Any], int, int]
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack_row: Final = msgspec.msgpack.Decoder(tuple[str, str, Role, int, int, dict[str, Any], list[_Part]]).decode
_unpack_parts: Final = msgspec.msgpack.Decoder(list[_Part]).decode
_PACK_ERRORS: Final = (OverflowError, RecursionError, TypeError, UnicodeError)
"""Raised for values that no store can hold; the row is rejected later, when it is checked."""
_MAX_MEMORY_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 18
"""Bytes read at a time when iterating over all rows."""


class _Spool:
    """An append-only buffer: the newest bytes in memory, the others in an unnamed file."""

    def __init__(self) -> None:
        self.size = 0
        self._newest = bytearray()
        self._spilled = 0
        self._file: int | None = None
        self._has_room = True

    def add(self, data: bytes) -> None:
        self._newest += data
        self.size += len(data)
        if self._has_room and len(self._newest) >= _MAX_MEMORY_BYTES:
            self._spill()

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes in a range that spans whole additions."""
        found = b""
        if self._file is not None and begin < self._spilled:
            found = pread(self._file, min(end, self._spilled) - begin, begin)
        found += self._newest[max(begin - self._spilled, 0) : max(end - self._spilled, 0)]
        if len(found) != end - begin:
            raise InternalError("a temporary file was truncated")
        return found

    def _spill(self) -> None:
        try:
            if self._file is None:
                file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed with the spool
                weakref.finalize(self, file.close)
                self._file = file.fileno()
            written = 0
            while written < len(self._newest):
                written += pwrite(self._file, memoryview(self._newest)[written:], self._spilled + written)
        except OSError:
            self._has_room = False
            return
        self._spilled += len(self._newest)
        self._newest = bytearray()


class PackedRows(Sequence[MessageRow]):
    """A sequence of packed rows. Each access returns a new row that shares nothing with earlier ones."""

    def __init__(self, rows: Iterable[MessageRow] = ()) -> None:
        self._spool = _Spool()
        self._ends = array("Q", (0,))
        self._odd: dict[int, MessageRow] = {}
        for row in rows:
            try:
                self._spool.add(_pack((*msgspec.structs.astuple(row)[:-1], _plain(row.parts))))
            except _PACK_ERRORS:
                self._odd[len(self)] = row
            self._ends.append(self._spool.size)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> MessageRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[MessageRow]: ...

    def __getitem__(self, index: int | slice) -> MessageRow | Sequence[MessageRow]:
        if isinstance(index, slice):
            return tuple(self[n] for n in range(len(self))[index])
        index = range(len(self))[index]
        return self._row(index, self._spool.read(self._ends[index], self._ends[index + 1]))

    def __iter__(self) -> Iterator[MessageRow]:
        at, ends = 0, self._ends
        while at < len(self):
            begin, last = ends[at], at + 1
            while last < len(self) and ends[last + 1] - begin <= _READ_BYTES:
                last += 1
            data = memoryview(self._spool.read(begin, ends[last]))
            for n in range(at, last):
                yield self._row(n, data[ends[n] - begin : ends[n + 1] - begin])
            at = last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | PackedRows) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def _row(self, index: int, packed: bytes | memoryview) -> MessageRow:
        if (odd := self._odd.get(index)) is not None:
            return odd
        id_, session_id, role, created_at, updated_at, metadata, parts = _unpack_row(packed)
        rows = tuple(PartRow(*part) for part in parts)
        return MessageRow(id_, session_id, role, created_at, updated_at, metadata, rows)


class PackedParts:
    """Parts of incomplete messages, packed a few at a time."""

    def __init__(self) -> None:
        self._spool = _Spool()
        self._ends = array("Q", (0,))
        self._odd: dict[int, tuple[PartRow, ...]] = {}

    def add(self, parts: Iterable[PartRow]) -> int:
        """Store these parts and return their number."""
        number, parts = len(self._ends) - 1, tuple(parts)
        try:
            self._spool.add(_pack(_plain(parts)))
        except _PACK_ERRORS:
            self._odd[number] = parts
        self._ends.append(self._spool.size)
        return number

    def get(self, number: int) -> tuple[PartRow, ...]:
        if (odd := self._odd.get(number)) is not None:
            return odd
        packed = self._spool.read(self._ends[number], self._ends[number + 1])
        return tuple(PartRow(*part) for part in _unpack_parts(packed))


def mapped(rows: Sequence[MessageRow], change: Callable[[MessageRow], MessageRow]) -> Sequence[MessageRow]:
    """Return the rows, each changed; packed if they were."""
    return _like(rows, map(change, rows))


def sorted_rows(rows: Sequence[MessageRow]) -> Sequence[MessageRow]:
    """Return the rows in the order of (created_at, id); packed if they were."""
    order = [(row.created_at, row.id, index) for index, row in enumerate(rows)]
    return _like(rows, (rows[index] for _, _, index in sorted(order)))


def _like(rows: Sequence[MessageRow], new: Iterable[MessageRow]) -> Sequence[MessageRow]:
    return PackedRows(new) if isinstance(rows, PackedRows) else tuple(new)


def _plain(parts: Iterable[PartRow]) -> list[tuple[Any, ...]]:
    return [msgspec.structs.astuple(part) for part in parts]
