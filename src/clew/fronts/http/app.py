"""The app: the table of operations as routes, behind one guard.

Most operations are answered alike: the request is read into the arguments of the engine's method, the method is called,
and its result is returned as JSON. Handlers answer the rest: streams, files, and the server's own state.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.actor import ADMIN, acting_as
from clew.address_space import REQUEST_BYTES, shortage
from clew.errors import InvalidInput, StoreClosed
from clew.fronts.http.answer import answer, answer_messages, no_content
from clew.fronts.http.auth import BearerTokens, Guard, check_origins
from clew.fronts.http.chat import Chat
from clew.fronts.http.handlers import Handlers, Pages
from clew.fronts.http.identity import Authenticate, Engines
from clew.fronts.http.log import RequestLog, about_session
from clew.fronts.http.problem import HANDLERS, SERVERS_LOG, ServerBusy, Shield, problem
from clew.fronts.http.request import MAX_BODY, Bodies, read_body, read_bytes, read_query
from clew.fronts.http.sse import Streams
from clew.fronts.operations import results as r
from clew.fronts.operations.conversion import show
from clew.fronts.operations.table import OPERATIONS, Operation
from clew.fronts.web import Page, load_page
from clew.session.api import Engine

__all__ = ["make_app", "make_endpoints", "make_routes"]

_Handler: TypeAlias = Callable[[Request], Awaitable[Any]]
_Uploads: TypeAlias = WeakValueDictionary[str | None, asyncio.Lock]
"""A lock for each owner who uploads a file."""
_LOOKUPS: Final = {"session_id": "get_session", "schedule_id": "schedules.get", "name": "webhooks.get"}


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
) -> list[_Endpoint]:
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


class _Endpoint(Route):
    """A path with all its methods, so that a 405 lists all allowed ones."""

    def __init__(self, path: str, operations: Sequence[Operation], handlers: Sequence[_Handler]) -> None:
        by_method = {operation.method: handler for operation, handler in zip(operations, handlers, strict=True)}
        of_session = "{id}" in path and operations[0].parameter("id") == "session_id"

        async def dispatch(request: Request) -> Any:
            if of_session:
                about_session(request, request.path_params["id"])
            return await by_method["GET" if request.method == "HEAD" else request.method](request)

        super().__init__(path, dispatch, methods=list(by_method))

        async def answered(scope: Scope, receive: Receive, send: Send) -> None:
            await (await dispatch(Request(scope, receive, send)))(scope, receive, send)

        # Bypass Starlette's wrapper, which would add exception handling around each request: the app has one handler
        # for all.
        self.app = answered
        if self.methods is not None and any(operation.streams is not None for operation in operations):
            # The response to a HEAD request would never end.
            self.methods.discard("HEAD")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match whatever the method is, which is refused here: no other path is meant."""
        match, child_scope = super().matches(scope)
        return Match.FULL if match is Match.PARTIAL else match, child_scope


def make_endpoints(engines: Engines, handler_objects: Iterable[object]) -> list[_Endpoint]:
    """Return all operations, answered by the facade, or by the method of that name of one of ``handler_objects``."""
    handlers = {
        name: getattr(one, name) for one in handler_objects for name in vars(type(one)) if not name.startswith("_")
    }
    endpoints: list[_Endpoint] = []
    uploads = _Uploads()
    for path, group in itertools.groupby(OPERATIONS, key=lambda operation: operation.path):
        operations = tuple(group)
        answering: list[_Handler] = []
        for operation in operations:
            handler = handlers.pop(operation.name.replace(".", "_"), None)
            if handler is None and operation.served:
                raise TypeError(f"no handler for {operation.name}")
            answering.append(handler or _call_facade(engines, operation, uploads))
        endpoints.append(_Endpoint(path, operations, answering))
    if handlers:
        raise TypeError(f"not in the table of operations: {', '.join(handlers)}")
    return endpoints


def _call_facade(engines: Engines, operation: Operation, uploads: _Uploads) -> _Handler:
    async def answer_with(engine: Engine, arguments: dict[str, Any]) -> Any:
        with acting_as(engine.owner or ADMIN, "http"):
            called = attrgetter(operation.name)(engine)(**arguments)
            if operation.raw is not None:
                # Drop this reference, so that the method can free the body as soon as it is parsed.
                arguments.pop(operation.raw)
            value = await called
        if operation.answer is None:
            return no_content()
        if operation.answer is r.MessageList:
            return await answer_messages(value)
        shown = await show(engine, operation, arguments, value)
        started = isinstance(shown, r.RewoundShape) and shown.message_id is not msgspec.UNSET
        return answer(shown, list(operation.answers)[-1 if started else 0])

    async def handle(request: Request) -> Any:
        engine = engines.of(request)
        arguments: dict[str, Any] = {operation.parameter(name): one for name, one in request.path_params.items()}
        if arguments and (operation.found_first or operation.method in ("PATCH", "PUT")):
            name, value = next(iter(arguments.items()))
            await attrgetter(_LOOKUPS[name])(engine)(value)
        if operation.query is not None:
            arguments |= read_query(request, operation.query).arguments()
        limit = operation.limit or MAX_BODY
        if operation.raw is not None:
            # Read one large body per owner at a time; the next waits until it is processed.
            async with uploads.setdefault(engine.owner, asyncio.Lock()):
                arguments[operation.raw] = await read_bytes(request, limit)
                return await answer_with(engine, arguments)
        elif operation.body is not None:
            body = await read_body(request, operation.body, limit=limit, optional=operation.optional)
            arguments |= body.arguments()
        return await answer_with(engine, arguments)

    return handle
