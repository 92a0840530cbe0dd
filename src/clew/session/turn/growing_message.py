"""The growing message: an assistant message as its chunks arrive, and the writes that bring the stored one up to date.

A write is either the new chunks as journal entries, or the parts that have changed with the mark of the last chunk in
them. Parts are written at the end of a part or a step, whenever the text has doubled, after some time, and at the end;
a part of more than 64 KB otherwise only once a quarter of it is new, so the cost of a reply stays proportional to its
length. The time is ``parts_lag_ms`` for a few KB, then in proportion to the length: a second at 64 KB, then five for
each 64 KB. So a program that reads the parts alone is about that far behind. Streams due at the same time take turns,
and wait for up to a second while the store is busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import starmap
from typing import Any, Final

import msgspec

from clew.clock import Clock, GrowingTime
from clew.ids import Mint
from clew.store import unit as u
from clew.transcript import chunk as c
from clew.transcript.damage import seal_of
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import from_stream

__all__ = ["FOLD_TURN_MS", "FoldTiming", "GrowingMessage"]

_STARTS: Final = frozenset({c.TextStart, c.ReasoningStart, c.ToolInputStart})
_PARTLESS: Final = frozenset({c.Start, c.MessageMetadata, c.Finish, c.Abort, c.Error})
_FOLD_CHARS: Final = 1024
_FOLD_MS: Final = 1_000
_FOLD_MS_PER_LONG_TEXT: Final = 5_000
_LONG_TEXT_CHARS: Final = 64 * 1024
_FOLD_SHARE: Final = 4
_FOLD_PATIENCE: Final = 3
FOLD_TURN_MS: Final = 20


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


class FoldTiming:
    """The text since the last fold, and whether the next fold is due.

    ``grown`` counts the characters since then, ``unfolded`` those that are only in the journal. ``due`` requests a fold
    regardless of both. Streams that start together get different ``phase`` values, or their folds would delay the
    chunks of all of them.
    """

    def __init__(self, clock: Clock, phase: float, lag_ms: float = _FOLD_MS) -> None:
        self._clock = clock
        self._lag_ms = min(lag_ms, _FOLD_MS) if lag_ms > 0 else _FOLD_MS
        self.grown = self.unfolded = 0
        self.due = False
        self._folded_chars = 0
        self._folded_at = clock.monotonic_ms() - self._lag_ms * phase

    def note_fold(self) -> None:
        """Start again after a fold."""
        self._folded_chars += self.grown
        self.grown = self.unfolded = 0
        self._folded_at = self._clock.monotonic_ms()
        self.due = False

    def wants_fold(self, dirty_size: Callable[[], int], takes_fold: Callable[[], bool]) -> bool:
        """Return whether to fold now.

        A fold rewrites whole parts: folding after every small addition would cost the square of a long part's length.
        """
        waited = self._clock.monotonic_ms() - self._folded_at
        due = self.due or self.grown >= max(_FOLD_CHARS, self._folded_chars)
        if not due and waited < self._lag_ms:
            return False
        size = dirty_size()
        limit = self.limit_ms(size)
        if waited < limit and not (due and (size <= _LONG_TEXT_CHARS or self.unfolded * _FOLD_SHARE >= size)):
            return False
        return waited >= max(limit, _FOLD_MS) * _FOLD_PATIENCE or takes_fold()

    def is_over(self, size: int) -> bool:
        """Return whether this many characters have been unfolded for the maximum time."""
        return self._clock.monotonic_ms() - self._folded_at >= self.limit_ms(size)

    def limit_ms(self, size: int) -> float:
        """Return how long this many characters may stay unfolded, in proportion to their number."""
        times = size // _LONG_TEXT_CHARS
        return _FOLD_MS_PER_LONG_TEXT * times if times else max(self._lag_ms, _FOLD_MS * size / _LONG_TEXT_CHARS)
