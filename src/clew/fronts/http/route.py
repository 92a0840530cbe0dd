"""One path, its methods, and who answers each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from clew.fronts.http.log import about_session
from clew.fronts.http.operation import Handler, Operation, operation_of

__all__ = ["Served", "route"]


class Served(Route):
    """A path with what is said of its methods."""

    def __init__(self, path: str, methods: Mapping[str, Handler]) -> None:
        self.operations: dict[str, Operation] = {method: operation_of(methods[method]) for method in sorted(methods)}

        of_session = path.startswith(("/api/sessions/{id}", "/api/chat/{id}"))

        async def dispatch(request: Request) -> Any:
            if of_session:
                about_session(request, request.path_params["id"])
            return await methods["GET" if request.method == "HEAD" else request.method](request)

        super().__init__(path, dispatch, methods=sorted(methods))
        if self.methods is not None and any(one.streams is not None for one in self.operations.values()):
            # The answer to a HEAD would have no end.
            self.methods.discard("HEAD")


def route(path: str, **methods: Handler) -> Served:
    """A route for all methods of a path at once, so that a wrong one is told all that are right."""
    return Served(path, methods)
