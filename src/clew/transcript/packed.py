"""Packed rows: the messages of a session on its way from a file to a store, each made anew whenever it is asked for.

As values they take several times as much memory as the file they came from. Packed they lie in a temporary file, where
they are more than a little, and in memory where there is no room for one.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, overload

import msgspec

from clew.errors import InternalError
from clew.transcript.message import MessageRow, PartRow, Role

__all__ = ["PackedParts", "PackedRows", "mapped", "sorted_rows"]

_Part: TypeAlias = tuple[str, int, dict[str, Any], int, int]
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack_row: Final = msgspec.msgpack.Decoder(tuple[str, str, Role, int, int, dict[str, Any], list[_Part]]).decode
_unpack_parts: Final = msgspec.msgpack.Decoder(list[_Part]).decode
_UNPACKABLE: Final = (OverflowError, RecursionError, TypeError, UnicodeError)
"""What is raised for values that no store keeps; they are refused by whoever checks the row."""
_IN_MEMORY: Final = 1 << 20
_AT_ONCE: Final = 1 << 18
"""So many bytes are read at once by whoever goes through all rows."""


class _Spool:
    """Bytes one after the other, the newest in memory and the others in a file that has no name."""

    def __init__(self) -> None:
        self.size = 0
        self._newest = bytearray()
        self._spilled = 0
        self._file: int | None = None
        self._has_room = True

    def add(self, data: bytes) -> None:
        self._newest += data
        self.size += len(data)
        if self._has_room and len(self._newest) >= _IN_MEMORY:
            self._spill()

    def read(self, begin: int, end: int) -> bytes:
        """What was added from there to there, by whole additions."""
        found = b""
        if self._file is not None and begin < self._spilled:
            found = os.pread(self._file, min(end, self._spilled) - begin, begin)
        found += self._newest[max(begin - self._spilled, 0) : max(end - self._spilled, 0)]
        if len(found) != end - begin:
            raise InternalError("a temporary file was cut")
        return found

    def _spill(self) -> None:
        try:
            if self._file is None:
                file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # as long as this is there
                weakref.finalize(self, file.close)
                self._file = file.fileno()
            written = 0
            while written < len(self._newest):
                written += os.pwrite(self._file, memoryview(self._newest)[written:], self._spilled + written)
        except OSError:
            self._has_room = False
            return
        self._spilled += len(self._newest)
        self._newest = bytearray()


class PackedRows(Sequence[MessageRow]):
    """Rows in their order. Nothing of one is shared with the same row asked for another time."""

    def __init__(self, rows: Iterable[MessageRow] = ()) -> None:
        self._spool = _Spool()
        self._ends = array("Q", (0,))
        self._odd: dict[int, MessageRow] = {}
        for row in rows:
            try:
                self._spool.add(_pack((*msgspec.structs.astuple(row)[:-1], _plain(row.parts))))
            except _UNPACKABLE:
                self._odd[len(self)] = row
            self._ends.append(self._spool.size)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> MessageRow: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[MessageRow]: ...

    def __getitem__(self, place: int | slice) -> MessageRow | Sequence[MessageRow]:
        if isinstance(place, slice):
            return tuple(self[n] for n in range(len(self))[place])
        place = range(len(self))[place]
        return self._row(place, self._spool.read(self._ends[place], self._ends[place + 1]))

    def __iter__(self) -> Iterator[MessageRow]:
        place, ends = 0, self._ends
        while place < len(self):
            begin, last = ends[place], place + 1
            while last < len(self) and ends[last + 1] - begin <= _AT_ONCE:
                last += 1
            held = memoryview(self._spool.read(begin, ends[last]))
            for n in range(place, last):
                yield self._row(n, held[ends[n] - begin : ends[n + 1] - begin])
            place = last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | PackedRows) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def _row(self, place: int, packed: bytes | memoryview) -> MessageRow:
        if (odd := self._odd.get(place)) is not None:
            return odd
        id_, session_id, role, created_at, updated_at, metadata, parts = _unpack_row(packed)
        rows = tuple(PartRow(*part) for part in parts)
        return MessageRow(id_, session_id, role, created_at, updated_at, metadata, rows)


class PackedParts:
    """Parts of messages that are not whole yet, packed a few at a time."""

    def __init__(self) -> None:
        self._spool = _Spool()
        self._ends = array("Q", (0,))
        self._odd: dict[int, tuple[PartRow, ...]] = {}

    def add(self, parts: Iterable[PartRow]) -> int:
        """Keep these; their number."""
        number, parts = len(self._ends) - 1, tuple(parts)
        try:
            self._spool.add(_pack(_plain(parts)))
        except _UNPACKABLE:
            self._odd[number] = parts
        self._ends.append(self._spool.size)
        return number

    def get(self, number: int) -> tuple[PartRow, ...]:
        if (odd := self._odd.get(number)) is not None:
            return odd
        packed = self._spool.read(self._ends[number], self._ends[number + 1])
        return tuple(PartRow(*part) for part in _unpack_parts(packed))


def mapped(rows: Sequence[MessageRow], change: Callable[[MessageRow], MessageRow]) -> Sequence[MessageRow]:
    """The rows, each changed; packed where they were."""
    return _as(rows, map(change, rows))


def sorted_rows(rows: Sequence[MessageRow]) -> Sequence[MessageRow]:
    """The rows in the order of (created_at, id); packed where they were."""
    order = [(row.created_at, row.id, place) for place, row in enumerate(rows)]
    return _as(rows, (rows[place] for _, _, place in sorted(order)))


def _as(rows: Sequence[MessageRow], made: Iterable[MessageRow]) -> Sequence[MessageRow]:
    return PackedRows(made) if isinstance(rows, PackedRows) else tuple(made)


def _plain(parts: Iterable[PartRow]) -> list[tuple[Any, ...]]:
    return [msgspec.structs.astuple(part) for part in parts]
