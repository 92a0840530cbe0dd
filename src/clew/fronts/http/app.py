"""The app: every route behind one guard."""

from __future__ import annotations

from collections.abc import Collection, Container
from pathlib import Path
from typing import Literal

from starlette.applications import Starlette
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.address_space import REQUEST_BYTES, shortage
from clew.errors import InvalidInput, StoreClosed
from clew.fronts.http.auth import BearerTokens, Guard, check_origins
from clew.fronts.http.chat import Chat
from clew.fronts.http.endpoints import Endpoint, make_endpoints
from clew.fronts.http.handlers import Handlers, Pages
from clew.fronts.http.identity import Authenticate, Engines
from clew.fronts.http.log import RequestLog
from clew.fronts.http.problem import HANDLERS, SERVERS_LOG, ServerBusy, Shield, problem
from clew.fronts.http.request_body import Bodies
from clew.fronts.http.sse import Streams
from clew.fronts.web.page import Page, load_page
from clew.session.api import Engine

__all__ = ["make_app", "make_routes"]


def make_app(
    engine: Engine,
    *,
    authenticate: Authenticate | None = None,
    token: str | None = None,
    hosts: Container[str] | None = None,
    origins: Collection[str] = (),
    create_chats: bool = True,
    streams: Streams | None = None,
    workspace_root: Path | None = None,
    page: Page | None = None,
    log_name: str = SERVERS_LOG,
) -> ASGIApp:
    """Return the API of an engine, and the page, as an ASGI app that can be mounted under any path.

    ``authenticate`` gets a request and returns its owner, who then sees only their own sessions, or None for a 401.
    Alternatively, ``token`` is one token that grants access to everything. ``hosts`` are the accepted Host headers,
    with their port, by default any; ``origins`` are the origins of other pages that may call the API, such as
    ``https://example.org``. An unknown chat is created by its first message, with the client's id as its alias, unless
    ``create_chats`` is false. Every authenticated client may answer the approvals of its sessions. A server that wants
    its streams to end with it passes its own ``streams`` and closes them. ``workspace_root`` is the folder that the
    page gives new sessions, ``page`` replaces the built page. ``log_name`` is the log that a 500 refers to.
    """
    if authenticate is None:
        if token is None:
            raise InvalidInput("pass authenticate= or token=")
        authenticate = BearerTokens(token)
    streams = Streams() if streams is None else streams
    app = Starlette(exception_handlers=HANDLERS)
    login: Literal["token", "host"] = "token" if isinstance(authenticate, BearerTokens) else "host"
    routes = make_routes(engine, streams, workspace_root, page, create_chats=create_chats, login=login)
    # A fixed last segment comes before a parameter. A redirect would echo the request's Host header; a path matches
    # exactly or not at all.
    routes.sort(key=lambda route: route.path.endswith("}"))
    app.router = Router(routes, redirect_slashes=False)
    app.state.log_name = log_name
    app.state.bodies = Bodies(engine.config.server)
    guard = Guard(_ShutdownGuard(app, streams), authenticate=authenticate, hosts=hosts, origins=check_origins(origins))
    return Shield(RequestLog(guard))


def make_routes(
    engine: Engine,
    streams: Streams,
    workspace_root: Path | None = None,
    page: Page | None = None,
    *,
    create_chats: bool = True,
    login: Literal["token", "host"] = "token",
) -> list[Endpoint]:
    """Return all routes."""
    engines = Engines(engine)
    chat = Chat(engines, streams, create=create_chats)
    handlers = Handlers(engines, streams, workspace_root, login)
    return make_endpoints(engines, (Pages(page or load_page()), handlers, chat))


class _ShutdownGuard:
    """A guard that refuses requests during shutdown, which might not save their changes, and when memory is short."""

    def __init__(self, app: ASGIApp, streams: Streams) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._streams.closing and scope["type"] == "http":
            await problem(StoreClosed("clew is shutting down"))(scope, receive, send)
            return
        if scope["type"] == "http" and (why := shortage(REQUEST_BYTES)) is not None:
            await problem(ServerBusy(f"not enough memory for another request: {why}"))(scope, receive, send)
            return
        await self._app(scope, receive, send)
