"""Event streams: what a session is doing, and what happens on this host, to whoever listens.

There is no replay: who comes late asks for the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request

from clew import __version__
from clew.engine import Engine
from clew.fronts.http.answer import answer
from clew.fronts.http.endpoints import Handler
from clew.fronts.http.sse import EventStream, Streams, closing, frame
from clew.live.base import Event

__all__ = ["MAX_EVENT", "EventStreams"]

MAX_EVENT: Final = 256 * 1024
_SHORT: Final = 4 * 1024


class EventStreams:
    """Streams without an end of their own."""

    def __init__(self, engine: Engine, streams: Streams) -> None:
        self._engine = engine
        self._streams = streams

    def handlers(self) -> Mapping[str, Handler]:
        return {"get_status": self._status, "subscribe": self._events}

    async def _status(self, request: Request) -> Any:
        session_id = request.path_params["id"]
        status = await self._engine.get_status(session_id)
        if "text/event-stream" not in request.headers.get("accept", ""):
            return answer(status)
        return EventStream(self._status_frames(session_id), self._streams, finite=False)

    async def _status_frames(self, session_id: str) -> AsyncGenerator[bytes, None]:
        async with closing(self._engine.watch_status(session_id)) as statuses:
            async for status in statuses:
                yield frame(status)

    async def _events(self, _: Request) -> Any:
        return EventStream(self._event_frames(), self._streams, finite=False)

    async def _event_frames(self) -> AsyncGenerator[bytes, None]:
        async with closing(self._engine.subscribe()) as events:
            coming = asyncio.ensure_future(anext(events))
            try:
                # Listening comes before the greeting: what a client does after it must not be missed.
                await asyncio.sleep(0)
                yield frame({"type": "hello", "version": __version__})
                while True:
                    event = await coming
                    coming = asyncio.ensure_future(anext(events))
                    yield _event_frame(event)
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


def _event_frame(event: Event) -> bytes:
    """The frame of an event; of one that is too large, what is short in it, and that something is missing."""
    whole = frame({"type": event.type, **event.data})
    if len(whole) <= MAX_EVENT:
        return whole
    short = {name: value for name, value in event.data.items() if len(msgspec.json.encode(value)) <= _SHORT}
    return frame({"type": event.type, **short, "cut": True})
