"""Endpoints: the table of operations as routes.

Most operations are answered alike: the request is read into the arguments of the facade's method, the method is called,
and its result is returned as JSON. A front's own handlers answer the rest: streams, files, and the server's own state.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from clew.actor import ADMIN, acting_as
from clew.convert import convert
from clew.fronts.http.answer import answer, answer_messages, json_response, no_content
from clew.fronts.http.identity import Engines, route_path
from clew.fronts.http.kept_answers import KeptAnswers, Place
from clew.fronts.http.log import about_session
from clew.fronts.http.request_body import MAX_BODY, read_body, read_bytes
from clew.fronts.http.request_query import read_query
from clew.fronts.operations import OPERATIONS, Operation
from clew.fronts.operations import results as r
from clew.session.api import Engine

__all__ = ["Endpoint", "Handler", "Paths", "make_endpoints"]

Handler: TypeAlias = Callable[[Request], Awaitable[Any]]
_Uploads: TypeAlias = WeakValueDictionary[str | None, asyncio.Lock]
"""A lock for each owner who uploads a file."""
_SHOW_SECRET: Final = ("webhooks.add", "webhooks.rotate")
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


class Paths(Router):
    """A router that finds candidates by the number of segments and the last segment, instead of trying every route."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        # A redirect would echo the request's Host header; a path matches exactly or not at all.
        super().__init__(endpoints, redirect_slashes=False)
        self._alike: dict[tuple[int, str], Router] = {}
        for shape in {_shape(endpoint.path) for endpoint in endpoints if not endpoint.path.endswith("}")}:
            candidates = [one for one in endpoints if _may_match(one.path, shape)]
            # A fixed last segment with its own route takes precedence over a parameter.
            fixed = {one.path.rpartition("/")[0] for one in candidates if _shape(one.path) == shape}
            matching = [
                one for one in candidates if _shape(one.path) == shape or one.path.rpartition("/")[0] not in fixed
            ]
            self._alike[shape] = Router(matching, redirect_slashes=False)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        matching = self._alike.get(_shape(route_path(scope))) if scope["type"] == "http" else None
        if matching is not None:
            await matching.app(scope, receive, send)
        else:
            await super().app(scope, receive, send)


def _shape(path: str) -> tuple[int, str]:
    return path.count("/"), path.rpartition("/")[2]


def _may_match(template: str, shape: tuple[int, str]) -> bool:
    """Return whether a path of this shape can match the template; a ``path`` parameter spans any number of segments."""
    slashes, last = _shape(template)
    return ":path}" in template or (slashes == shape[0] and (last == shape[1] or last.endswith("}")))


def make_endpoints(engines: Engines, handler_objects: Iterable[object]) -> list[Endpoint]:
    """Return all operations, answered by the facade, or by the method of that name of one of ``handler_objects``."""
    handlers = {
        name: getattr(one, name) for one in handler_objects for name in vars(type(one)) if not name.startswith("_")
    }
    endpoints: list[Endpoint] = []
    cache, uploads = KeptAnswers(engines.whole), _Uploads()
    for path, group in itertools.groupby(OPERATIONS, key=lambda operation: operation.path):
        operations = tuple(group)
        answering: list[Handler] = []
        for operation in operations:
            handler = handlers.pop(operation.name.replace(".", "_"), None)
            if handler is None and operation.served:
                raise TypeError(f"no handler for {operation.name}")
            answering.append(handler or _call_facade(engines, operation, cache, uploads))
        endpoints.append(Endpoint(path, operations, answering))
    if handlers:
        raise TypeError(f"not in the table of operations: {', '.join(handlers)}")
    return endpoints


def _call_facade(engines: Engines, operation: Operation, cache: KeptAnswers, uploads: _Uploads) -> Handler:
    async def answer_with(engine: Engine, arguments: dict[str, Any], place: Place | None) -> Any:
        with acting_as(engine.owner or ADMIN, "http"):
            called = attrgetter(operation.name)(engine)(**arguments)
            if operation.raw is not None:
                # Drop this reference, so that the method can free the body as soon as it is parsed.
                arguments.pop(operation.raw)
            value = await called
        if operation.answer is None:
            return no_content()
        if operation.answer is r.MessageList:
            response = await answer_messages(value)
        else:
            shown = await _show(engine, operation, arguments, value)
            started = isinstance(shown, r.RewoundShape) and shown.message_id is not msgspec.UNSET
            response = answer(shown, list(operation.answers)[-1 if started else 0])
        if place is not None:
            cache.keep(place, value, bytes(response.body))
        return response

    async def handle(request: Request) -> Any:
        engine = engines.of(request)
        # Cached responses were made for the administrator.
        place = cache.place(request, operation) if engine is engines.whole else None
        cached = cache.find(place) if place is not None else None
        if cached is not None:
            return json_response(cached)
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
                return await answer_with(engine, arguments, place)
        elif operation.body is not None:
            body = await read_body(request, operation.body, limit=limit, optional=operation.optional)
            arguments |= body.arguments()
        return await answer_with(engine, arguments, place)

    return handle


async def _show(engine: Engine, operation: Operation, arguments: Mapping[str, Any], value: Any) -> Any:
    """Return the facade's result in the shape the operation answers with."""
    kind = operation.answer
    if kind is r.SessionShape:
        return r.show_session(value, await engine.get_status(value.id))
    if kind is r.SessionPage:
        checked = None if value.unsettled is None else value.unsettled | (value.failed or frozenset())
        statuses = await engine.statuses((one.id for one in value.sessions), unsettled=checked)
        return r.SessionPage([r.show_session(one, statuses[one.id]) for one in value.sessions], value.next_cursor)
    if kind is r.QueueShape:
        status = await engine.get_status(arguments["session_id"])
        return r.QueueShape(value, status.paused, status.paused_by)
    if kind is r.RewoundShape:
        return r.show_rewound(value)
    if kind is r.WebhookShape:
        return r.show_webhook(value, secret=operation.name in _SHOW_SECRET)
    if kind is r.WebhookList:
        return r.WebhookList([r.show_webhook(webhook) for webhook in value])
    if kind is r.RuleList:
        return convert({"rules": value}, r.RuleList, from_attributes=True)
    if kind in (r.SubmissionShape, r.ExplainedShape):
        return convert(value, kind, from_attributes=True)
    return value if operation.envelope is None else kind(value)
