"""The live layer inside one process: streams, status, events and signals in dictionaries."""

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


class LocalLive:
    """Streams, status and events in dictionaries."""

    reaches_others = False

    def __init__(self) -> None:
        self._streams: dict[str, LocalStream] = {}
        self._status: dict[str, Status] = {}
        self._status_bells: dict[str, Bell] = {}
        self._subscribers: weakref.WeakSet[_Subscriber] = weakref.WeakSet()
        self._signalled: weakref.WeakSet[_Signalled] = weakref.WeakSet()

    def open_stream(
        self, session_id: str, message_id: str, parts: Sequence[Mapping[str, Any]], *, epoch: int = 0, last_n: int = 0
    ) -> LocalStream:
        self._check_free(session_id)
        stream = LocalStream(message_id, parts, on_end=lambda ended: self._drop(session_id, ended))
        self._streams[session_id] = stream
        return stream

    def _check_free(self, session_id: str) -> None:
        old = self._streams.get(session_id)
        if old is not None and not old.ended:
            raise InternalError("a stream is already open on this session", session_id=session_id)

    def _drop(self, session_id: str, stream: LocalStream) -> None:
        """Those who follow it still hold it; nobody else needs to, and a long reply is megabytes."""
        if self._streams.get(session_id) is stream:
            del self._streams[session_id]

    def find_stream(self, session_id: str) -> LocalStream | None:
        return self._streams.get(session_id)

    def listen(self, session_id: str) -> Listening:
        raise InternalError("nothing runs elsewhere", session_id=session_id)

    def status(self, session_id: str) -> Status | None:
        return self._status.get(session_id)

    def set_status(self, session_id: str, status: Status) -> None:
        self._status[session_id] = status
        bell = self._status_bells.get(session_id)
        if bell is not None:
            bell.ring()

    def watch_status(self, session_id: str) -> AsyncIterator[Status | None]:
        # What counts as seen is taken now, not when the watcher first asks: a change in between is a change.
        return self._changes(session_id, self._status.get(session_id))

    async def _changes(self, session_id: str, seen: Status | None) -> AsyncIterator[Status | None]:
        bell = self._status_bells.setdefault(session_id, Bell())
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

    def signal(self, signal: Signal) -> None:
        for reader in tuple(self._signalled):
            reader.push(signal)

    def signals(self) -> AsyncIterator[Signal]:
        reader = _Signalled()
        self._signalled.add(reader)
        return aiter(reader)

    def forget(self, session_id: str) -> None:
        self._status.pop(session_id, None)
        self._streams.pop(session_id, None)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass


class _Subscriber:
    """A bounded line of events for one reader."""

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

    def lag(self) -> None:
        """It may have missed some: it is let go of once it has read those it has."""
        self._lagged = True
        self._bell.ring()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self._lagged:
                raise ViewerLagged("this subscriber fell too far behind; subscribe again")
            await self._bell.wait()


class _Signalled:
    """Signals that one reader has not taken yet, each once: as many as there are sessions, at most."""

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
