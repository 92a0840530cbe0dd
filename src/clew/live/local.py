"""The live layer inside one process.

Chunks are kept once per run, in a log that all viewers read at their own pace, so a stalled viewer costs an integer.
The log is bounded: what a viewer has not read when it is dropped from it, that viewer reads from the store when it
comes back. A second fold, of shown chunks only, is what a late viewer's replay is made from; so a replay never
runs ahead of what is durable. It is brought up to date when somebody comes, or many have gathered: most streams are
watched from their first chunk on, and deltas that are taken together cost next to nothing.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from clew.errors import InternalError, ViewerLagged
from clew.live.base import Batch, Event, Status
from clew.transcript.chunk import Abort, Chunk, Error, Finish, Start, ToolOutputDenied, joined_deltas
from clew.transcript.fold import Fold
from clew.transcript.part import state_of
from clew.transcript.replay import replay as replayed

__all__ = ["LocalLive", "LocalStream"]

MAX_LOG: Final = 50_000
MAX_EVENTS: Final = 10_000
MAX_BATCH: Final = 512
MAX_PIECES: Final = 8
MAX_UNFOLDED: Final = 2_048


class _Bell:
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
        self._fold = Fold(message_id, parts=parts)
        self._began = bool(parts)
        self._last: list[Chunk] = []
        self._unfolded: list[Chunk] = []
        self._log: list[Chunk] = []
        self._dropped = 0
        self._max_log = max_log
        self._bell = _Bell()
        self._pieces: dict[tuple[int, int], tuple[Batch, Batch]] = {}

    def show(self, chunks: Sequence[Chunk]) -> None:
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
            if isinstance(chunk, ToolOutputDenied):
                index = self._fold.find_tool(chunk.tool_call_id)
                if index is not None and state_of(self._fold.part(index)) == "approval-requested":
                    # A run that is aborted while it asks denies its own request; no chunk says that before this one.
                    self._fold.answer(chunk.tool_call_id, approved=False)
            self._fold.apply(chunk)
            if isinstance(chunk, (Error, Abort, Finish)):
                self._last.append(chunk)

    def end(self) -> None:
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
                # The replay began the message; a run that goes on with it says so once more.
                yield goes_on if started else batch
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
            began = any(isinstance(chunk, Start) for chunk in batch)
            piece = batch, Batch(chunk for chunk in batch if not isinstance(chunk, Start)) if began else batch
            if len(self._pieces) >= MAX_PIECES:
                del self._pieces[next(iter(self._pieces))]
            self._pieces[place, end] = piece
        return piece


class LocalLive:
    """Streams, status and events in dictionaries."""

    def __init__(self) -> None:
        self._streams: dict[str, LocalStream] = {}
        self._status: dict[str, Status] = {}
        self._status_bells: dict[str, _Bell] = {}
        self._subscribers: weakref.WeakSet[_Subscriber] = weakref.WeakSet()

    def open_stream(self, session_id: str, message_id: str, parts: Sequence[Mapping[str, Any]]) -> LocalStream:
        old = self._streams.get(session_id)
        if old is not None and not old.ended:
            raise InternalError("a stream is already open on this session", session_id=session_id)
        stream = LocalStream(message_id, parts, on_end=lambda ended: self._drop(session_id, ended))
        self._streams[session_id] = stream
        return stream

    def _drop(self, session_id: str, stream: LocalStream) -> None:
        """Those who follow it still hold it; nobody else needs to, and a long reply is megabytes."""
        if self._streams.get(session_id) is stream:
            del self._streams[session_id]

    def find_stream(self, session_id: str) -> LocalStream | None:
        return self._streams.get(session_id)

    def status(self, session_id: str) -> Status | None:
        return self._status.get(session_id)

    def set_status(self, session_id: str, status: Status) -> None:
        self._status[session_id] = status
        bell = self._status_bells.get(session_id)
        if bell is not None:
            bell.ring()

    def watch_status(self, session_id: str) -> AsyncIterator[Status]:
        # What counts as seen is taken now, not when the watcher first asks: a change in between is a change.
        return self._changes(session_id, self._status.get(session_id))

    async def _changes(self, session_id: str, seen: Status | None) -> AsyncIterator[Status]:
        bell = self._status_bells.setdefault(session_id, _Bell())
        while True:
            status = self._status.get(session_id)
            if status is not None and status != seen:
                seen = status
                yield status
            else:
                await bell.wait()

    def publish(self, event: Event) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber.push(event)

    def subscribe(self) -> AsyncIterator[Event]:
        # Listens from now on, not from when it is first asked; it is forgotten with its reader.
        subscriber = _Subscriber()
        self._subscribers.add(subscriber)
        return self._events(subscriber)

    async def _events(self, subscriber: _Subscriber) -> AsyncIterator[Event]:
        try:
            async for event in subscriber:
                yield event
        finally:
            self._subscribers.discard(subscriber)

    def forget(self, session_id: str) -> None:
        self._status.pop(session_id, None)
        self._streams.pop(session_id, None)


class _Subscriber:
    """A bounded line of events for one reader."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._lagged = False
        self._bell = _Bell()

    def push(self, event: Event) -> None:
        if len(self._events) >= MAX_EVENTS:
            self._lagged = True
        else:
            self._events.append(event)
        self._bell.ring()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self._lagged:
                raise ViewerLagged("this subscriber fell too far behind; subscribe again")
            await self._bell.wait()
