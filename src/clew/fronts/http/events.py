"""Events: what happens on this host, to whoever listens. No replay: who comes late asks for the state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute

from clew import __version__
from clew.engine import Engine
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.http.shapes import EventFrame
from clew.fronts.http.sse import EventStream, Streams, closing, frame
from clew.live.base import Event

__all__ = ["MAX_EVENT", "Events"]

MAX_EVENT: Final = 256 * 1024
_SHORT: Final = 4 * 1024


class Events:
    """The host-wide event stream."""

    def __init__(self, engine: Engine, streams: Streams) -> None:
        self._engine = engine
        self._streams = streams

    def routes(self) -> list[BaseRoute]:
        return [route("/api/events", GET=self._events)]

    @operation("What happens on this host, from now on.", {200: None}, streams=EventFrame)
    async def _events(self, _: Request) -> Any:
        return EventStream(self._frames(), self._streams, finite=False)

    async def _frames(self) -> AsyncGenerator[bytes, None]:
        async with closing(self._engine.subscribe()) as events:
            coming = asyncio.ensure_future(anext(events))
            try:
                # Listening comes before the greeting: what a client does after it must not be missed.
                await asyncio.sleep(0)
                yield frame({"type": "hello", "version": __version__})
                while True:
                    event = await coming
                    coming = asyncio.ensure_future(anext(events))
                    yield _framed(event)
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


def _framed(event: Event) -> bytes:
    """The frame of an event; of one that is too large, what is short in it, and that something is missing."""
    whole = frame({"type": event.type, **event.data})
    if len(whole) <= MAX_EVENT:
        return whole
    short = {name: value for name, value in event.data.items() if len(msgspec.json.encode(value)) <= _SHORT}
    return frame({"type": event.type, **short, "cut": True})
