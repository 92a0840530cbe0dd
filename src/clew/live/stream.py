"""One run's stream, as the viewers of a process read it.

Chunks are kept once per run, in a log that all viewers read at their own pace, so a stalled viewer costs an integer.
The log is bounded: what a viewer has not read when it is dropped from it, that viewer reads from the store when it
comes back. A second fold, of shown chunks only, is what a late viewer's replay is made from; so a replay never
runs ahead of what is durable. It is brought up to date when somebody comes, or many have gathered: most streams are
watched from their first chunk on, and deltas that are taken together cost next to nothing.
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
MAX_PIECES: Final = 8
MAX_UNFOLDED: Final = 2_048


class Bell:
    """Wakes everybody who waits, each time it is rung."""

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
            # Whoever leaves a session on which nothing happens must not stay on its list.
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            raise


class LocalStream:
    """One run's chunks, kept while somebody may still want them."""

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
        self._broke_off: ViewerLagged | None = None
        self._fold = Fold(message_id, parts=parts)
        self._began = bool(parts)
        self._last: list[Chunk] = []
        self._unfolded: list[Chunk] = []
        self._log: list[Chunk] = []
        self._dropped = 0
        self._max_log = max_log
        self._bell = Bell()
        self._pieces: dict[tuple[int, int], tuple[Batch, Batch]] = {}

    def show(self, chunks: Sequence[Chunk], through: int | None = None) -> None:
        self._unfolded += chunks
        if len(self._unfolded) > MAX_UNFOLDED:
            self._fold_up()
        self._began = True
        self._log.extend(chunks)
        surplus = len(self._log) - self._max_log
        if surplus > self._max_log // 4:
            # In blocks, since cutting a list at its front moves all of it.
            del self._log[:surplus]
            self._dropped += surplus
        self._bell.ring()

    def _fold_up(self) -> None:
        """Take what was shown since the last time into the fold."""
        chunks, self._unfolded = self._unfolded, []
        for chunk in joined_deltas(chunks):
            self._fold.apply_shown(chunk)
            if isinstance(chunk, (Error, Abort, Finish)):
                self._last.append(chunk)

    def end(self, why_not: str | None = None) -> None:
        if why_not is not None and not self.ended:
            self._broke_off = ViewerLagged(f"{why_not}; join the stream again", message_id=self.message_id)
        self.ended = True
        if self._on_end is not None:
            self._on_end(self)
        self._bell.ring()

    async def follow(self, *, replay: bool) -> AsyncIterator[Sequence[Chunk]]:
        place = 0
        started = False
        if replay:
            place = self._dropped + len(self._log)
            if self._began:
                started = True
                self._fold_up()
                # How a run ended is in no part: a viewer who comes at the very end is told all the same.
                yield [*replayed(self._fold.message(), open_ids=self._fold.open_ids), *self._last]
        while True:
            if place < self._dropped:
                raise ViewerLagged("this viewer fell too far behind; join the stream again", message_id=self.message_id)
            end = min(place + MAX_BATCH, self._dropped + len(self._log))
            if end > place:
                batch, goes_on = self._piece(place, end)
                place = end
                # Of two viewers who get the same piece, the one who gets it later may know more.
                over = self.ended and self._broke_off is None
                batch.is_last = goes_on.is_last = over and end == self._dropped + len(self._log)
                # The replay began the message; a run that goes on with it says so once more.
                yield goes_on if started else batch
            elif self._broke_off is not None:
                raise self._broke_off
            elif self.ended:
                return
            else:
                await self._bell.wait()

    def _piece(self, place: int, end: int) -> tuple[Batch, Batch]:
        """A piece of the log, and the same for somebody whose message has begun.

        Viewers who are equally far get the same, so that what a front makes of it is made once.
        """
        piece = self._pieces.get((place, end))
        if piece is None:
            batch = Batch(self._log[place - self._dropped : end - self._dropped])
            began = Start in map(type, batch)
            piece = batch, Batch(chunk for chunk in batch if not isinstance(chunk, Start)) if began else batch
            if len(self._pieces) >= MAX_PIECES:
                del self._pieces[next(iter(self._pieces))]
            self._pieces[place, end] = piece
        return piece
