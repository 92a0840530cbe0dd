"""What HTTP answers in its own way: streams of events, files, deliveries, and what the server says about itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request

from clew import __version__
from clew.dispatch.router import Duplicate
from clew.dispatch.webhooks import MAX_DELIVERY, Challenge
from clew.engine import Engine
from clew.errors import Conflict, SignatureInvalid, StoreError
from clew.fronts.http.answer import HEADERS, InPieces, answer
from clew.fronts.http.auth import Failures
from clew.fronts.http.identity import Engines
from clew.fronts.http.openapi import make_document
from clew.fronts.http.problem import RateLimited, problem
from clew.fronts.http.request_body import read_body, read_bytes
from clew.fronts.http.request_query import read_query
from clew.fronts.http.sse import EventStream, Streams, closing, frame
from clew.fronts.operations.operation import Nothing
from clew.fronts.operations.results import Health, ServerShape, SessionList, show_session
from clew.fronts.operations.sessions import ExportQuery
from clew.fronts.samples import fill
from clew.interop.formats import FORMATS
from clew.transcript.session import Session

__all__ = ["MAX_EVENT", "Handlers"]

MAX_EVENT: Final = 256 * 1024
_SHORT: Final = 4 * 1024
# Bytes of a user or a tool under our own address: never a page, never a script.
_INERT: Final = {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}
_DELIVERED: Final[dict[type, int]] = {Challenge: 200, Duplicate: 208}
_FOR_GOOD: Final = "private, max-age=31536000, immutable"


class Handlers:
    """One method for each operation, by its name."""

    def __init__(
        self,
        engines: Engines,
        streams: Streams,
        workspace_root: Path | None,
        login: Literal["token", "host"] = "token",
    ) -> None:
        self._login = login
        self._engines = engines
        self._engine = engines.whole
        self._streams = streams
        self._workspace_root = workspace_root
        self._filling: asyncio.Task[list[Session]] | None = None
        self._unsigned = Failures(time.monotonic)

    # The server about itself

    async def health(self, _: Request) -> Any:
        # Asked without a token: the kind of store, not where it lies.
        return answer(Health(__version__, self._engine.store.url.partition(":")[0], self._login))

    async def ready(self, request: Request) -> Any:
        try:
            await self._engine.check_ready()
        except StoreError as error:
            # Also for a full disk: a load balancer looks for a 503.
            return problem(error, status=503)
        return await self.health(request)

    async def metrics(self, request: Request) -> Any:
        media = "text/plain; version=0.0.4; charset=utf-8"
        return InPieces(self._engines.of(request).figures().encode(), 200, {**HEADERS, "content-type": media})

    async def server(self, request: Request) -> Any:
        store, root, owner = self._engine.store, self._workspace_root, self._engines.owner_of(request)
        if owner is not None:
            root = Path(owner.roots[0]) if owner.roots else None
        return answer(
            ServerShape(
                __version__,
                store.url.partition(":")[0],
                str(root) if root is not None else None,
                store.capabilities.chunk_durable,
                store.capabilities.search,
                await self._engine.losses() if owner is None else (),
                owner.name if owner is not None else None,
                self._engine.dispatcher.fires,
            )
        )

    async def document(self, _: Request) -> Any:
        return answer(make_document())

    async def examples(self, request: Request) -> Any:
        """What ``clew demo`` does, made for whoever asks first; who asks meanwhile waits for the same ones."""
        await read_body(request, Nothing, optional=True)
        if self._workspace_root is None:
            raise Conflict("the folder this server was started in is gone, and the samples need one to work in")
        if self._engines.owner_of(request) is not None:
            raise Conflict("the samples work in the folder this server was started in; its administrator can make them")
        if self._filling is None:
            self._filling = asyncio.get_running_loop().create_task(fill(self._engine, self._workspace_root))
            self._filling.add_done_callback(self._filled)
        # Whoever leaves does not take the samples away from the others.
        made = await asyncio.shield(self._filling)
        return answer(SessionList([show_session(one, await self._engine.get_status(one.id)) for one in made]))

    def _filled(self, task: asyncio.Task[list[Session]]) -> None:
        self._filling = None
        if not task.cancelled():
            # Looked at here, for when nobody waits any more.
            task.exception()

    # Files

    async def blob(self, request: Request) -> Any:
        blob = await self._engines.of(request).blob(request.path_params["sha256"])
        headers = {"cache-control": _FOR_GOOD, "content-disposition": "attachment", **_INERT}
        return InPieces(blob.data, 200, headers, media_type=blob.media_type)

    async def export(self, request: Request) -> Any:
        engine = self._engines.of(request)
        session = await engine.get_session(request.path_params["id"])
        wanted = read_query(request, ExportQuery)
        data = await engine.export(session.id, wanted.format, redact=wanted.redact, hidden=wanted.hidden)
        form = FORMATS[wanted.format]
        named = {"content-disposition": f'attachment; filename="{session.id}{form.suffix}"'}
        return InPieces(data, 200, {**HEADERS, **_INERT, **named}, media_type=form.media_type)

    # Streams: there is no replay, who comes late asks for the state

    async def get_status(self, request: Request) -> Any:
        engine, session_id = self._engines.of(request), request.path_params["id"]
        status = await engine.get_status(session_id)
        if "text/event-stream" not in request.headers.get("accept", ""):
            return answer(status)
        return EventStream(self._status_frames(engine, session_id), self._streams, finite=False)

    async def _status_frames(self, engine: Engine, session_id: str) -> AsyncGenerator[bytes, None]:
        async with closing(engine.watch_status(session_id)) as statuses:
            async for status in statuses:
                yield frame(status)

    async def subscribe(self, request: Request) -> Any:
        return EventStream(self._event_frames(self._engines.of(request)), self._streams, finite=False)

    async def _event_frames(self, engine: Engine) -> AsyncGenerator[bytes, None]:
        async with closing(engine.subscribe()) as events:
            coming = asyncio.ensure_future(anext(events))
            try:
                # Listening comes before the greeting: what a client does after it must not be missed.
                await asyncio.sleep(0)
                yield frame({"type": "hello", "version": __version__})
                while True:
                    event = await coming
                    coming = asyncio.ensure_future(anext(events))
                    whole = frame({"type": event.type, **event.data})
                    if len(whole) > MAX_EVENT:
                        # Of one that is too large, what is short in it, and that something is missing.
                        values = event.data.items()
                        short = {name: value for name, value in values if len(msgspec.json.encode(value)) <= _SHORT}
                        whole = frame({"type": event.type, **short, "cut": True})
                    yield whole
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    # Deliveries: no token, but a signature

    async def webhooks_deliver(self, request: Request) -> Any:
        body = await read_bytes(request, MAX_DELIVERY)
        headers = list(request.headers.items())
        try:
            taken = await self._engine.webhooks.deliver(request.path_params["name"], body, headers)
            return answer(taken, _DELIVERED.get(type(taken), 202))
        except SignatureInvalid:
            if self._unsigned.too_many():
                raise RateLimited("too many deliveries that are not signed; wait a little") from None
            raise
