"""One run's stream, as its viewers in this process read it.

Chunks are stored once per run, in a log that all viewers read at their own pace, so a stalled viewer costs an integer.
The log is bounded: a viewer that has not read a chunk before it is dropped has to join again, and gets it from the
store. A second fold, of shown chunks only, serves viewers that join late, so they never see what is not durable. It is
updated when a viewer joins or many chunks have accumulated: most streams are watched from their first chunk on, and
joined deltas are cheap.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, cast

from clew.errors import ViewerLagged
from clew.live.base import Batch
from clew.transcript.chunk import TERMINAL_CHUNKS, Chunk, Data, Start, is_transient, joined_deltas
from clew.transcript.fold import Fold
from clew.transcript.replay import replay as replayed
from clew.transcript.stream_cursor import NumberedChunk, reset_chunk

__all__ = ["Bell", "LocalStream"]

MAX_LOG: Final = 50_000
MAX_BATCH: Final = 512
MAX_CACHED_BATCHES: Final = 8
MAX_UNFOLDED: Final = 2_048


class Bell:
    """A notifier that wakes all waiters each time it rings."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # A cancelled waiter must not stay in the list of a session on which nothing happens.
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            raise


class LocalStream:
    """One run's chunks, for as long as viewers may need them. Numbers continue from ``last_n``."""

    def __init__(
        self,
        message_id: str,
        parts: Sequence[Mapping[str, Any]] = (),
        max_log: int = MAX_LOG,
        on_end: Callable[[LocalStream], None] | None = None,
        *,
        last_n: int = 0,
    ) -> None:
        self._on_end = on_end
        self.message_id = message_id
        self.ended = False
        self.shown_n = last_n
        self._cut_error: ViewerLagged | None = None
        self._fold = Fold(message_id, parts=parts)
        self._has_started = bool(parts)
        self._terminal_chunks: list[Chunk] = []
        self._folded = 0
        self._log: list[NumberedChunk] = []
        # For each chunk of the log, the position that it belongs to, in ascending order.
        self._positions: array[int] = array("q")
        self._before = last_n
        self._dropped = 0
        self._max_log = max_log
        self._bell = Bell()
        self._batches: dict[tuple[int, int], tuple[Batch, Batch]] = {}

    def show(self, chunks: Sequence[NumberedChunk]) -> None:
        self._has_started = True
        self._log.extend(chunks)
        self._note_positions([n for n, _ in chunks])
        surplus = len(self._log) - self._max_log
        drops = surplus > self._max_log // 4
        if drops or self._dropped + len(self._log) - self._folded > MAX_UNFOLDED:
            self._update_fold()
        if drops:
            # In blocks, because deleting from the front of a list moves all of it.
            self._before = self._positions[surplus - 1]
            del self._log[:surplus], self._positions[:surplus]
            self._dropped += surplus
        self._bell.ring()

    @property
    def log_length(self) -> int:
        return len(self._log)

    def _note_positions(self, numbers: list[int | None]) -> None:
        """Add the positions of new chunks. A chunk without a number belongs to the next one; at the end, to none."""
        if None not in numbers:
            self._positions.extend(cast(list[int], numbers))
            self.shown_n = numbers[-1] or 0
            return
        self.shown_n = next((n for n in reversed(numbers) if n is not None), self.shown_n)
        position = self.shown_n + 1
        found = []
        for n in reversed(numbers):
            position = position if n is None else n
            found.append(position)
        self._positions.extend(reversed(found))

    def _find(self, after: int) -> int | None:
        """Return where in the log the chunks above a number begin; None if that is not known."""
        index = bisect_right(self._positions, after)
        known = self._before if index == 0 else self._positions[index - 1]
        return self._dropped + index if known == after <= self.shown_n else None

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts of the message as shown so far."""
        self._update_fold()
        return self._fold.parts

    def _update_fold(self) -> None:
        """Apply the chunks shown since the last call to the fold."""
        unfolded = self._log[self._folded - self._dropped :]
        self._folded = self._dropped + len(self._log)
        for chunk in joined_deltas(chunk for _, chunk in unfolded):
            self._fold.apply_shown(chunk)
            if chunk.__class__ in TERMINAL_CHUNKS:
                self._terminal_chunks.append(chunk)

    def end(self, why_not: str | None = None) -> None:
        if why_not is not None and not self.ended:
            self._cut_error = ViewerLagged(f"{why_not}; join the stream again", message_id=self.message_id)
        self.ended = True
        if self._on_end is not None:
            self._on_end(self)
        self._bell.ring()

    async def follow(self, *, replay: bool, after: int | None = None) -> AsyncIterator[Batch]:
        known = None if after is None else self._find(after)
        position, started = known or 0, bool(after)
        if known is None and (replay or after is not None):
            if after is not None:
                yield Batch([reset_chunk(self.message_id)])
            position, started = self._dropped + len(self._log), self._has_started
            if started:
                self._update_fold()
                message = replayed(self._fold.message(), open_ids=self._fold.open_ids)
                # The end of a run is not part of the message: send its terminal chunks to a viewer that joins at the
                # very end.
                yield Batch.joined([*message, *self._terminal_chunks], self.message_id, self.shown_n)
        while True:
            if position < self._dropped:
                raise ViewerLagged("this viewer fell too far behind; join the stream again", message_id=self.message_id)
            end = min(position + MAX_BATCH, self._dropped + len(self._log))
            if end > position:
                batch, continuation = self._cached_batch(position, end)
                position = end
                # For the same cached batch, a later viewer may know more.
                finished = self.ended and self._cut_error is None
                batch.is_last = continuation.is_last = finished and end == self._dropped + len(self._log)
                # The message has already been started for this viewer: skip another start chunk.
                yield continuation if started else batch
            elif self._cut_error is not None:
                raise self._cut_error
            elif self.ended:
                return
            else:
                await self._bell.wait()

    def _cached_batch(self, position: int, end: int) -> tuple[Batch, Batch]:
        """Return a batch of the log, and the same without its start chunk.

        Viewers at the same position get the same objects, so that a front encodes them only once.
        """
        cached = self._batches.get((position, end))
        if cached is None:
            found = self._log[position - self._dropped : end - self._dropped]
            batch = self._batch(found)
            began = Start in map(type, batch)
            cached = batch, self._batch([one for one in found if type(one[1]) is not Start]) if began else batch
            if len(self._batches) >= MAX_CACHED_BATCHES:
                del self._batches[next(iter(self._batches))]
            self._batches[position, end] = cached
        return cached

    def _batch(self, found: Sequence[NumberedChunk]) -> Batch:
        batch = Batch([chunk for _, chunk in found], self.message_id, [n for n, _ in found])
        if Data in map(type, batch):
            batch.numbers = [None if is_transient(chunk) else n for n, chunk in found]
        return batch
