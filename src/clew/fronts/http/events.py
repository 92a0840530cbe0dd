"""Events: what happens on this host, to whoever listens; what comes in from outside, and the ledger of it.

The stream has no replay: who comes late asks for the state. The ledger is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.routing import BaseRoute

from clew import __version__
from clew.dispatch.events import EventList
from clew.dispatch.router import Received
from clew.engine import Engine
from clew.fronts.http import query
from clew.fronts.http.answer import answer
from clew.fronts.http.body import read
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.http.shapes import EventFrame, ModelName, RoutingBody, routed
from clew.fronts.http.sse import EventStream, Streams, closing, frame
from clew.live.base import Event

__all__ = ["MAX_EVENT", "Events"]

MAX_EVENT: Final = 256 * 1024
MAX_EVENT_BODY: Final = 2 * 1024 * 1024
_SHORT: Final = 4 * 1024


class NewEvent(msgspec.Struct):
    """Something that happened elsewhere. The rest is for a session that has to be made for it."""

    source: str
    source_id: str
    routing: RoutingBody
    type: str | None = None
    text: str | None = None
    payload: Any = None
    model: ModelName | None = None
    agent: str | None = None
    workspace_root: str | None = None
    title: str | None = None


class LedgerQuery(msgspec.Struct):
    """Which events of the ledger are listed."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str | None = None
    session: str | None = None
    source: str | None = None
    turn: str | None = None
    direction: Literal["in", "out"] | None = None


class Events:
    """The host-wide event stream, and the events ledger."""

    def __init__(self, engine: Engine, streams: Streams) -> None:
        self._engine = engine
        self._streams = streams

    def routes(self) -> list[BaseRoute]:
        return [
            route("/api/events", GET=self._events, POST=self._receive),
            route("/api/events/ledger", GET=self._ledger),
        ]

    @operation(
        "Take an event in and start, or queue, its turn. The same again is answered alike.",
        {202: Received},
        body=NewEvent,
        refuses=(404, 409),
    )
    async def _receive(self, request: Request) -> Any:
        body = await read(request, NewEvent, limit=MAX_EVENT_BODY)
        routing = routed(body.routing, body.model, body.agent, body.workspace_root, body.title)
        received = await self._engine.events.receive(
            body.source, body.source_id, routing, text=body.text, payload=body.payload, type=body.type
        )
        return answer(received, 202)

    @operation(
        "What came in and what went out for it, newest first.", {200: EventList}, query=LedgerQuery, refuses=(400, 404)
    )
    async def _ledger(self, request: Request) -> Any:
        asked = query.read(request, LedgerQuery)
        page = await self._engine.events.list(
            limit=asked.limit,
            cursor=asked.cursor,
            session_id=asked.session,
            source=asked.source,
            turn_id=asked.turn,
            direction=asked.direction,
        )
        return answer(page)

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
