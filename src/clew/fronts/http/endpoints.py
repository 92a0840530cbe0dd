"""Endpoints: the table of operations as routes.

Most operations are answered alike: the request is read into the arguments of the facade's method, the method is called,
and its result is returned as JSON. A front's own handlers answer the rest: streams, files, and the server's own state.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from clew.actor import ADMIN, acting_as
from clew.fronts.http.answer import answer, answer_messages, no_content
from clew.fronts.http.identity import Engines
from clew.fronts.http.log import about_session
from clew.fronts.http.request_body import MAX_BODY, read_body, read_bytes
from clew.fronts.http.request_query import read_query
from clew.fronts.operations import results as r
from clew.fronts.operations.conversion import show
from clew.fronts.operations.table import OPERATIONS, Operation
from clew.session.api import Engine

__all__ = ["Endpoint", "Handler", "make_endpoints"]

Handler: TypeAlias = Callable[[Request], Awaitable[Any]]
_Uploads: TypeAlias = WeakValueDictionary[str | None, asyncio.Lock]
"""A lock for each owner who uploads a file."""
_LOOKUPS: Final = {"session_id": "get_session", "schedule_id": "schedules.get", "name": "webhooks.get"}


class Endpoint(Route):
    """A path with all its methods, so that a 405 lists all allowed ones."""

    def __init__(self, path: str, operations: Sequence[Operation], handlers: Sequence[Handler]) -> None:
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


def make_endpoints(engines: Engines, handler_objects: Iterable[object]) -> list[Endpoint]:
    """Return all operations, answered by the facade, or by the method of that name of one of ``handler_objects``."""
    handlers = {
        name: getattr(one, name) for one in handler_objects for name in vars(type(one)) if not name.startswith("_")
    }
    endpoints: list[Endpoint] = []
    uploads = _Uploads()
    for path, group in itertools.groupby(OPERATIONS, key=lambda operation: operation.path):
        operations = tuple(group)
        answering: list[Handler] = []
        for operation in operations:
            handler = handlers.pop(operation.name.replace(".", "_"), None)
            if handler is None and operation.served:
                raise TypeError(f"no handler for {operation.name}")
            answering.append(handler or _call_facade(engines, operation, uploads))
        endpoints.append(Endpoint(path, operations, answering))
    if handlers:
        raise TypeError(f"not in the table of operations: {', '.join(handlers)}")
    return endpoints


def _call_facade(engines: Engines, operation: Operation, uploads: _Uploads) -> Handler:
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
