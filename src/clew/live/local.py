"""The live layer of a single process: streams, status, events and signals in dictionaries."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from clew.errors import InternalError, ViewerLagged
from clew.live.base import Event, Listening, Signal, Status
from clew.live.stream import Bell, LocalStream

__all__ = ["LocalLive"]

MAX_EVENTS: Final = 10_000
MAX_ENDED: Final = 16
MAX_ENDED_LOG: Final = 2_048
"""How many ended streams are remembered, and of which length: most clients that were cut off come back soon."""


class LocalLive:
    """Streams, status and events in dictionaries."""

    reaches_others = False

    def __init__(self) -> None:
        self._streams: dict[str, LocalStream] = {}
        self._ended: dict[str, LocalStream] = {}
        self._status: dict[str, Status] = {}
        self._status_bells: dict[str, Bell] = {}
        self._subscribers: weakref.WeakSet[_Subscriber] = weakref.WeakSet()
        self._signal_readers: weakref.WeakSet[_SignalReader] = weakref.WeakSet()

    def open_stream(
        self, session_id: str, message_id: str, parts: Sequence[Mapping[str, Any]], *, epoch: int = 0, last_n: int = 0
    ) -> LocalStream:
        self._check_free(session_id)
        stream = LocalStream(message_id, parts, on_end=lambda ended: self._drop(session_id, ended), last_n=last_n)
        self._streams[session_id] = stream
        return stream

    def _check_free(self, session_id: str) -> None:
        old = self._streams.get(session_id)
        if old is not None and not old.ended:
            raise InternalError("a stream is already open on this session", session_id=session_id)

    def _drop(self, session_id: str, stream: LocalStream) -> None:
        """Forget an ended stream, a long one at once. Its viewers still reference it."""
        if self._streams.get(session_id) is stream:
            del self._streams[session_id]
            self._ended.pop(session_id, None)
            if stream.log_length <= MAX_ENDED_LOG:
                self._ended[session_id] = stream
            while len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def find_stream(self, session_id: str) -> LocalStream | None:
        return self._streams.get(session_id)

    def find_ended(self, session_id: str) -> LocalStream | None:
        return self._ended.get(session_id)

    def listen(self, session_id: str) -> Listening:
        raise InternalError("this live layer does not reach other processes", session_id=session_id)

    def status(self, session_id: str) -> Status | None:
        return self._status.get(session_id)

    def set_status(self, session_id: str, status: Status) -> None:
        self._status[session_id] = status
        bell = self._status_bells.get(session_id)
        if bell is not None:
            bell.ring()

    def watch_status(self, session_id: str) -> AsyncIterator[Status | None]:
        # Read the current status now, not when the watcher first iterates: a change in between must be reported.
        return self._changes(session_id, self._status.get(session_id))

    async def _changes(self, session_id: str, last_seen: Status | None) -> AsyncIterator[Status | None]:
        bell = self._status_bells.setdefault(session_id, Bell())
        while True:
            status = self._status.get(session_id)
            if status is not None and status != last_seen:
                last_seen = status
                yield status
            else:
                await bell.wait()

    def publish(self, event: Event) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber.push(event)

    def subscribe(self) -> AsyncIterator[Event]:
        # Subscribed from now on, not from the first iteration; dropped with its reader.
        subscriber = _Subscriber()
        self._subscribers.add(subscriber)
        return self._events(subscriber)

    async def _events(self, subscriber: _Subscriber) -> AsyncIterator[Event]:
        try:
            async for event in subscriber:
                yield event
        finally:
            self._subscribers.discard(subscriber)

    def signal(self, signal: Signal) -> None:
        for reader in tuple(self._signal_readers):
            reader.push(signal)

    def signals(self) -> AsyncIterator[Signal]:
        reader = _SignalReader()
        self._signal_readers.add(reader)
        return aiter(reader)

    def forget(self, session_id: str) -> None:
        self._status.pop(session_id, None)
        self._streams.pop(session_id, None)
        self._ended.pop(session_id, None)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass


class _Subscriber:
    """A bounded event queue for one reader."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._lagged = False
        self._bell = Bell()

    def push(self, event: Event) -> None:
        if len(self._events) >= MAX_EVENTS:
            self._lagged = True
        else:
            self._events.append(event)
        self._bell.ring()

    def mark_lagged(self) -> None:
        """Note that events may have been missed: the reader is disconnected after those already queued."""
        self._lagged = True
        self._bell.ring()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self._lagged:
                raise ViewerLagged("this subscriber fell too far behind; subscribe again")
            await self._bell.wait()


class _SignalReader:
    """Signals not read yet, each once: at most as many as there are sessions."""

    def __init__(self) -> None:
        self._waiting: dict[Signal, None] = {}
        self._bell = Bell()

    def push(self, signal: Signal) -> None:
        self._waiting[signal] = None
        self._bell.ring()

    async def __aiter__(self) -> AsyncIterator[Signal]:
        while True:
            while self._waiting:
                signal = next(iter(self._waiting))
                del self._waiting[signal]
                yield signal
            await self._bell.wait()
