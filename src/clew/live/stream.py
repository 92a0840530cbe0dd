"""One run's stream, as its viewers in this process read it.

Chunks are stored once per run, in a log that all viewers read at their own pace, so a stalled viewer costs an integer.
The log is bounded: a viewer that has not read a chunk before it is dropped has to join again, and gets it from the
store. A second fold, of shown chunks only, serves viewers that join late, so they never see what is not durable. It is
updated when a viewer joins or many chunks have accumulated: most streams are watched from their first chunk on, and
joined deltas are cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from clew.errors import ViewerLagged
from clew.live.base import Batch
from clew.transcript.chunk import Abort, Chunk, Error, Finish, Start, joined_deltas
from clew.transcript.fold import Fold
from clew.transcript.replay import replay as replayed

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
    """One run's chunks, for as long as viewers may need them."""

    def __init__(
        self,
        message_id: str,
        parts: Sequence[Mapping[str, Any]],
        max_log: int = MAX_LOG,
        on_end: Callable[[LocalStream], None] | None = None,
    ) -> None:
        self._on_end = on_end
        self.message_id = message_id
        self.ended = False
        self._cut_error: ViewerLagged | None = None
        self._fold = Fold(message_id, parts=parts)
        self._has_started = bool(parts)
        self._terminal_chunks: list[Chunk] = []
        self._unfolded: list[Chunk] = []
        self._log: list[Chunk] = []
        self._dropped = 0
        self._max_log = max_log
        self._bell = Bell()
        self._batches: dict[tuple[int, int], tuple[Batch, Batch]] = {}

    def show(self, chunks: Sequence[Chunk], through: int | None = None) -> None:
        self._unfolded += chunks
        if len(self._unfolded) > MAX_UNFOLDED:
            self._update_fold()
        self._has_started = True
        self._log.extend(chunks)
        surplus = len(self._log) - self._max_log
        if surplus > self._max_log // 4:
            # In blocks, because deleting from the front of a list moves all of it.
            del self._log[:surplus]
            self._dropped += surplus
        self._bell.ring()

    def _update_fold(self) -> None:
        """Apply the chunks shown since the last call to the fold."""
        chunks, self._unfolded = self._unfolded, []
        for chunk in joined_deltas(chunks):
            self._fold.apply_shown(chunk)
            if isinstance(chunk, (Error, Abort, Finish)):
                self._terminal_chunks.append(chunk)

    def end(self, why_not: str | None = None) -> None:
        if why_not is not None and not self.ended:
            self._cut_error = ViewerLagged(f"{why_not}; join the stream again", message_id=self.message_id)
        self.ended = True
        if self._on_end is not None:
            self._on_end(self)
        self._bell.ring()

    async def follow(self, *, replay: bool) -> AsyncIterator[Sequence[Chunk]]:
        position = 0
        started = False
        if replay:
            position = self._dropped + len(self._log)
            if self._has_started:
                started = True
                self._update_fold()
                # The end of a run is not part of the message: send its terminal chunks to a viewer that joins at the
                # very end.
                yield [*replayed(self._fold.message(), open_ids=self._fold.open_ids), *self._terminal_chunks]
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
            batch = Batch(self._log[position - self._dropped : end - self._dropped])
            began = Start in map(type, batch)
            cached = batch, Batch(chunk for chunk in batch if not isinstance(chunk, Start)) if began else batch
            if len(self._batches) >= MAX_CACHED_BATCHES:
                del self._batches[next(iter(self._batches))]
            self._batches[position, end] = cached
        return cached
