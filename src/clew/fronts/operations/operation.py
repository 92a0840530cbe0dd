"""An operation, and how the arguments of the facade's method are sent: in the path, the query and the body.

Fields of a query or a body are the method's parameters, under the same names. Fields with their default value are not
passed on, so that only the facade defines what a default means.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import msgspec

__all__ = ["JSON", "Arguments", "Nothing", "Operation", "PageSize"]

JSON: Final = "application/json"
PageSize = Annotated[int, msgspec.Meta(ge=1, le=500)]
"""The number of items on one page of a session."""
_ID_PARAMETER: Final = {"sessions": "session_id", "chat": "session_id", "turns": "turn_id", "schedules": "schedule_id"}


class Arguments(msgspec.Struct):
    """The fields of a query or a body."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for the facade's method."""
        given = ((name, getattr(self, name), default) for name, default in _defaults(type(self)))
        return {name: value for name, value, default in given if value != default}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Build the query or body from the arguments of a facade call."""
        names = [field.name for field in msgspec.structs.fields(cls)]
        return cls(**{name: arguments[name] for name in names if name in arguments})


@functools.cache
def _defaults(type_: type[Arguments]) -> tuple[tuple[str, Any], ...]:
    """Return each field with its default; cached, because reading annotations is slow."""
    return tuple((field.name, field.default) for field in msgspec.structs.fields(type_))


class Nothing(Arguments):
    """An empty body."""


class Operation(msgspec.Struct, frozen=True):
    """An operation.

    ``name`` is the method of the facade (``schedules.add``), ``route`` its HTTP method and path, in which ``…`` is the
    path of a session. ``answers`` are types by status, None for no content; a type with a single field is an envelope
    around the facade's result. ``takes`` is the request: the query of a GET or a DELETE, otherwise the body, which may
    be omitted if it is ``optional``. ``refusals`` are statuses in addition to the common ones. ``raw`` names the
    parameter that receives the body as bytes. ``found_first``, as in every PATCH and PUT: a missing resource is
    reported before any other error. ``streams`` is the type of one frame and ``watched_by`` the facade's iterator over
    them, where that is not ``name``. With ``media`` the response is bytes of that type, not JSON. An ``open`` operation
    needs no token. ``served`` ones exist only on the HTTP server, not as a method of the facade.
    """

    name: str
    route: str
    summary: str
    answers: Mapping[int, Any]
    takes: Any = None
    also_query: type[Arguments] | None = None
    optional: bool = False
    limit: int | None = None
    raw: str | None = None
    found_first: bool = False
    refusals: tuple[int, ...] = ()
    streams: Any = None
    watched_by: str | None = None
    media: str = JSON
    open: bool = False
    served: bool = False

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2].replace("…", "/api/sessions/{id}")

    @property
    def query(self) -> Any:
        return self.takes if self.method in ("GET", "DELETE") else self.also_query

    @property
    def body(self) -> Any:
        return None if self.method in ("GET", "DELETE") else self.takes

    @property
    def answer(self) -> Any:
        """Return the type of a successful response."""
        return next(iter(self.answers.values()))

    @property
    def envelope(self) -> str | None:
        """Return the only field of the response, if it is an envelope."""
        fields = msgspec.structs.fields(self.answer) if msgspec.inspect.is_struct_type(self.answer) else ()
        return fields[0].name if len(fields) == 1 else None

    def parameter(self, placeholder: str) -> str:
        """Return the facade's parameter for a placeholder of the path."""
        return _ID_PARAMETER.get(self.path.split("/")[2], placeholder) if placeholder == "id" else placeholder
