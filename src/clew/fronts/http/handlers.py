"""Operations that HTTP answers in its own way: event streams, files, deliveries, the server's own state,
and the page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from clew import __version__
from clew.errors import Conflict, NotFound, SignatureInvalid, StoreError
from clew.fronts.http.answer import HEADERS, PiecewiseResponse, answer
from clew.fronts.http.auth import Failures
from clew.fronts.http.identity import Engines
from clew.fronts.http.openapi import make_document
from clew.fronts.http.problem import RateLimited, problem
from clew.fronts.http.request import read_body, read_bytes, read_query
from clew.fronts.http.sse import EventStream, Streams, closing, frame
from clew.fronts.operations.operation import Nothing
from clew.fronts.operations.results import Health, ServerShape, SessionList, show_session
from clew.fronts.operations.sessions import ExportQuery
from clew.fronts.samples import fill
from clew.fronts.web import Page, PageFile
from clew.interop.formats import FORMATS
from clew.session.api import Engine
from clew.transcript.session import Session
from clew.triggers.router import Duplicate
from clew.triggers.webhooks import MAX_DELIVERY, Challenge

__all__ = ["MAX_EVENT", "Handlers", "Pages"]

MAX_EVENT: Final = 256 * 1024
_MAX_SHORT_VALUE_BYTES: Final = 4 * 1024
# Bytes from a user or a tool under our own origin: never rendered as a page, never run.
_INERT: Final = {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}
_DELIVERY_STATUS: Final[dict[type, int]] = {Challenge: 200, Duplicate: 208}
_IMMUTABLE: Final = "private, max-age=31536000, immutable"


class Handlers:
    """The handlers, one method for each operation, by its name."""

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
        self._examples_task: asyncio.Task[list[Session]] | None = None
        self._unsigned_deliveries = Failures(time.monotonic)

    # The server's own state

    async def health(self, _: Request) -> Any:
        # Answered without a token: report the kind of store, not its location.
        return answer(Health(__version__, self._engine.store.url.partition(":")[0], self._login))

    async def ready(self, request: Request) -> Any:
        try:
            await self._engine.check_ready()
        except StoreError as error:
            # Also for a full disk: load balancers expect a 503.
            return problem(error, status=503)
        return await self.health(request)

    async def metrics(self, request: Request) -> Any:
        media = "text/plain; version=0.0.4; charset=utf-8"
        return PiecewiseResponse(self._engines.of(request).metrics().encode(), 200, {**HEADERS, "content-type": media})

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
        """Create the sample sessions, as ``clew demo`` does; concurrent requests share one run."""
        await read_body(request, Nothing, optional=True)
        if self._workspace_root is None:
            raise Conflict(
                "the folder this server was started in is gone, and the sample sessions need it as their workspace"
            )
        if self._engines.owner_of(request) is not None:
            raise Conflict(
                "only the administrator can create the sample sessions: they use the folder this server was started in"
            )
        if self._examples_task is None:
            self._examples_task = asyncio.get_running_loop().create_task(fill(self._engine, self._workspace_root))
            self._examples_task.add_done_callback(self._on_examples_done)
        # A disconnecting client must not cancel the run for the others.
        made = await asyncio.shield(self._examples_task)
        return answer(SessionList([show_session(one, await self._engine.get_status(one.id)) for one in made]))

    def _on_examples_done(self, task: asyncio.Task[list[Session]]) -> None:
        self._examples_task = None
        if not task.cancelled():
            # Mark the exception as retrieved, for when no request waits any more.
            task.exception()

    # Files

    async def blob(self, request: Request) -> Any:
        blob = await self._engines.of(request).blob(request.path_params["sha256"])
        headers = {"cache-control": _IMMUTABLE, "content-disposition": "attachment", **_INERT}
        return PiecewiseResponse(blob.data, 200, headers, media_type=blob.media_type)

    async def export(self, request: Request) -> Any:
        engine = self._engines.of(request)
        session = await engine.get_session(request.path_params["id"])
        wanted = read_query(request, ExportQuery)
        data = await engine.export(session.id, wanted.format, redact=wanted.redact, hidden=wanted.hidden)
        export_format = FORMATS[wanted.format]
        disposition = {"content-disposition": f'attachment; filename="{session.id}{export_format.suffix}"'}
        return PiecewiseResponse(data, 200, {**HEADERS, **_INERT, **disposition}, media_type=export_format.media_type)

    # Streams start with the current state or event; nothing earlier is sent

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
            next_event = asyncio.ensure_future(anext(events))
            try:
                # Subscribe before the greeting: events after it must not be missed.
                await asyncio.sleep(0)
                yield frame({"type": "hello", "version": __version__})
                while True:
                    event = await next_event
                    next_event = asyncio.ensure_future(anext(events))
                    data = frame({"type": event.type, **event.data})
                    if len(data) > MAX_EVENT:
                        # Reduce an event that is too large to its short values, and mark it as cut.
                        values = event.data.items()
                        short_values = {
                            name: value
                            for name, value in values
                            if len(msgspec.json.encode(value)) <= _MAX_SHORT_VALUE_BYTES
                        }
                        data = frame({"type": event.type, **short_values, "cut": True})
                    yield data
            finally:
                next_event.cancel()
                await asyncio.gather(next_event, return_exceptions=True)

    # Webhook deliveries are signed and need no token

    async def webhooks_deliver(self, request: Request) -> Any:
        body = await read_bytes(request, MAX_DELIVERY)
        headers = list(request.headers.items())
        try:
            receipt = await self._engine.webhooks.deliver(request.path_params["name"], body, headers)
            return answer(receipt, _DELIVERY_STATUS.get(type(receipt), 202))
        except SignatureInvalid:
            if self._unsigned_deliveries.too_many():
                raise RateLimited("too many deliveries without a valid signature; try again later") from None
            raise


class AssetNotFound(NotFound):
    code = "asset_not_found"


class Pages:
    """The handlers of the page at ``/`` and its files below ``/assets/``, which need no token.

    Nothing in a request becomes a path.
    """

    def __init__(self, page: Page) -> None:
        self._page = page

    async def page(self, request: Request) -> Any:
        return _serve(request, self._page.index)

    async def asset(self, request: Request) -> Any:
        file = self._page.assets.get(request.path_params["file"])
        if file is None:
            raise AssetNotFound("the page has no such file")
        return _serve(request, file)


def _serve(request: Request, file: PageFile) -> Response:
    etags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if file.headers["etag"] in etags or etags == ["*"]:
        return Response(None, 304, file.headers)
    return PiecewiseResponse(file.data, 200, {**file.headers, "content-type": file.media_type})
