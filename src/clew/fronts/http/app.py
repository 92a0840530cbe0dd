"""The app: every route behind one guard."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.engine import Engine
from clew.errors import StoreClosed
from clew.fronts.http.auth import Guard
from clew.fronts.http.chat import Chat
from clew.fronts.http.endpoints import Endpoint, Paths, make_endpoints
from clew.fronts.http.handlers import Handlers
from clew.fronts.http.log import RequestLog
from clew.fronts.http.page import Pages
from clew.fronts.http.problem import HANDLERS, Shield, problem
from clew.fronts.http.request_body import Bodies
from clew.fronts.http.sse import Streams
from clew.fronts.web.page import Page, load_page

__all__ = ["make_app", "make_routes"]


def make_app(
    engine: Engine,
    *,
    token: str,
    hosts: Container[str],
    streams: Streams | None = None,
    workspace_root: Path | None = None,
    page: Page | None = None,
) -> ASGIApp:
    """The API over an engine, as an ASGI app.

    ``hosts`` are the Host headers it answers to, with their port. A server that wants its streams to end with it
    hands in its own ``streams`` and closes them. ``workspace_root`` is the folder that the page gives new sessions,
    ``page`` one that is served in place of the built one.
    """
    streams = Streams() if streams is None else streams
    app = Starlette(exception_handlers=HANDLERS)
    app.router = Paths(make_routes(engine, streams, workspace_root, page))
    app.state.bodies = Bodies(engine.config.server)
    return Shield(RequestLog(Guard(_Gate(app, streams), token=token, hosts=hosts)))


def make_routes(
    engine: Engine, streams: Streams, workspace_root: Path | None = None, page: Page | None = None
) -> list[Endpoint]:
    """Everything that is served."""
    own = (Pages(page or load_page()), Handlers(engine, streams, workspace_root), Chat(engine, streams))
    return make_endpoints(engine, own)


class _Gate:
    """Shut once the server is ending: what is asked for then could not be kept."""

    def __init__(self, app: ASGIApp, streams: Streams) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._streams.closing and scope["type"] == "http":
            await problem(StoreClosed("clew is shutting down"))(scope, receive, send)
            return
        await self._app(scope, receive, send)
