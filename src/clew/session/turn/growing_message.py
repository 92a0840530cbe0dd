"""The growing message: an assistant message as its chunks arrive, and the writes that bring the stored one up to date.

A write is either the new chunks as journal entries, or the parts that have changed with the mark of the last chunk in
them. :mod:`~clew.session.turn.fold_timing` decides which, and the recorder when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import starmap
from typing import Any, Final

import msgspec

from clew.clock import Clock, GrowingTime
from clew.ids import Mint
from clew.session.turn.fold_timing import FoldTiming
from clew.store import unit as u
from clew.transcript import chunk as c
from clew.transcript.damage import seal_of
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import from_stream

__all__ = ["GrowingMessage"]

_STARTS: Final = frozenset({c.TextStart, c.ReasoningStart, c.ToolInputStart})
_PARTLESS: Final = frozenset({c.Start, c.MessageMetadata, c.Finish, c.Abort, c.Error})


class GrowingMessage:
    """An assistant message and what of it is in no unit yet.

    ``is_stored``: it was inserted, or a unit with its insert was made. ``last_n`` is the number of its last chunk,
    ``size`` the approximate bytes of the chunks in no unit.
    """

    def __init__(
        self,
        row: MessageRow,
        turn_id: str,
        *,
        mint: Mint,
        clock: Clock,
        timing: FoldTiming,
        stored: bool = False,
        last_n: int = 0,
    ) -> None:
        self.row = row
        self.fold = row.fold()
        self.is_stored, self.last_n, self.size = stored, last_n, 0
        self._turn_id = turn_id
        self._mint, self._timing = mint, timing
        self._entries: list[tuple[int, int | None, c.Chunk]] = []
        self._parts: list[tuple[str, int]] = [(part.id, part.created_at) for part in row.parts]
        self._time = GrowingTime(clock, max((row.created_at, *(at for _, at in self._parts))))
        self._dirty: set[int] = set()
        self._metadata_dirty = False

    def apply(self, chunk: c.Chunk) -> int | None:
        """Fold a chunk; return the index of its part. Raise ``IllegalChunk``, without side effects, if it does not
        fit."""
        index = self.fold.apply(chunk)
        kind = chunk.__class__
        if kind is c.Data and chunk.transient is True:  # type: ignore[union-attr]
            # Shown at its position in the stream but never stored, so it has no number.
            return index
        self.last_n += 1
        self._entries.append((self.last_n, index, chunk))
        if index is not None:
            self._dirty.add(index)
            if index >= len(self._parts):
                self._parts.append((self._mint.part(), self._time.now_ms()))
        if isinstance(chunk, c.DELTAS):
            size = len(chunk.delta if isinstance(chunk, (c.TextDelta, c.ReasoningDelta)) else chunk.input_text_delta)
            self._timing.grown += size
            self._timing.unfolded += size
            self.size += size + 64
        elif kind in _STARTS:
            self.size += 64
        else:
            self._timing.unfolded += 256
            self.size += 256
            self._timing.due = True
            self._metadata_dirty = self._metadata_dirty or kind in _PARTLESS
        return index

    def deny(self, tool_call_id: str, reason: str, note: Mapping[str, Any]) -> None:
        """Write a denial into the call that waits for an answer."""
        self._dirty.add(self.fold.answer(tool_call_id, approved=False, reason=reason, note=note))

    @property
    def has_chunks(self) -> bool:
        """Return whether chunks are in no unit yet."""
        return bool(self._entries)

    @property
    def has_parts(self) -> bool:
        """Return whether parts have changed since the last fold."""
        return bool(self._dirty)

    @property
    def can_fold(self) -> bool:
        """Return whether a fold would change the stored message, apart from new chunks."""
        return self.is_stored and (bool(self._dirty) or self._metadata_dirty)

    def dirty_size(self) -> int:
        """Return the number of characters a fold would write."""
        return sum(self.fold.text_length(index) for index in self._dirty)

    def take_writes(self, *, fold: bool, seal: bool) -> list[u.Write]:
        """Return the writes of everything in no unit yet: as parts with ``fold``, else as journal entries."""
        writes: list[u.Write] = []
        row, entries, now = self.row, self._entries, 0
        parts: tuple[PartRow, ...] = ()
        if fold:
            now = self._time.now_ms()
            parts = self._part_rows(sorted(self._dirty), now)
        if not self.is_stored and entries:
            metadata = {**row.metadata, **from_stream(self.fold.metadata)} if fold else row.metadata
            writes.append(u.InsertMessage(msgspec.structs.replace(row, parts=parts, metadata=metadata)))
            writes.append(u.LinkMessage(self._turn_id, row.id))
            self.is_stored = True
        else:
            if parts:
                writes.append(u.PutParts(row.id, parts))
            if fold and self._metadata_dirty and self.is_stored:
                writes.append(u.PatchMessage(row.id, now, from_stream(self.fold.metadata)))
        if fold and self.is_stored:
            # Parts and mark in one unit: recovery applies only entries above the mark, and never a chunk twice.
            writes.append(u.MarkFolded(row.id, self.last_n))
            self._timing.note_fold()
            self._dirty.clear()
            self._metadata_dirty = False
        elif entries:
            writes.append(u.AppendChunks(row.id, tuple(starmap(u.JournalEntry, entries))))
        if seal and self.is_stored:
            writes.append(u.SealMessage(row.id, seal_of(self.fold.parts)))
        self._entries, self.size = [], 0
        return writes

    def whole(self) -> tuple[MessageRow, u.LinkMessage, u.MarkFolded]:
        """Return the row with all its parts, its link and the mark of its last chunk."""
        parts = self._part_rows(range(len(self._parts)), self._time.now_ms())
        row = msgspec.structs.replace(self.row, parts=parts)
        return row, u.LinkMessage(self._turn_id, row.id), u.MarkFolded(row.id, self.last_n)

    def drop_chunks(self) -> None:
        """Forget the chunks in no unit: they will not be stored."""
        self._entries.clear()

    def _part_rows(self, indexes: Iterable[int], now: int) -> tuple[PartRow, ...]:
        found = ((index, *self._parts[index]) for index in indexes)
        return tuple(PartRow(id_, index, self.fold.part(index), at, now) for index, id_, at in found)
