"""Events: what happens on this host, to whoever listens. No replay: who comes late asks for the state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from clew import __version__
from clew.engine import Engine
from clew.fronts.http.route import route
from clew.fronts.http.sse import EventStream, Streams, closing, frame

__all__ = ["Events"]


class Events:
    """The host-wide event stream."""

    def __init__(self, engine: Engine, streams: Streams) -> None:
        self._engine = engine
        self._streams = streams

    def routes(self) -> list[BaseRoute]:
        return [route("/api/events", streams=True, GET=self._events)]

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
                    yield frame({"type": event.type, **event.data})
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
