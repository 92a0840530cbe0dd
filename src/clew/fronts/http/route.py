"""One path, its methods, and who answers each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.routing import Route

__all__ = ["Handler", "route"]

Handler: TypeAlias = Callable[[Request], Awaitable[Any]]


def route(path: str, *, streams: bool = False, **methods: Handler) -> Route:
    """A route for all methods of a path at once, so that a wrong one is told all that are right.

    One that ``streams`` has no HEAD: its answer would have no end.
    """

    async def dispatch(request: Request) -> Any:
        return await methods["GET" if request.method == "HEAD" else request.method](request)

    made = Route(path, dispatch, methods=sorted(methods))
    if streams and made.methods is not None:
        made.methods.discard("HEAD")
    return made
