"""One operation, and how the arguments of the facade's method travel: in the path, the query and the body.

Fields of a query or a body are the method's parameters, under the same names. What is left at its default is not
passed on, so that the facade alone says what a default means.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import msgspec

__all__ = ["JSON", "Arguments", "Nothing", "Operation", "PageSize"]

JSON: Final = "application/json"
PageSize = Annotated[int, msgspec.Meta(ge=1, le=500)]
"""How much of a session one page may hold."""
_OWNER_ID: Final = {"sessions": "session_id", "chat": "session_id", "turns": "turn_id", "schedules": "schedule_id"}


class Arguments(msgspec.Struct):
    """What a query or a body holds."""

    def arguments(self) -> dict[str, Any]:
        """As the facade's method takes it."""
        given = ((name, getattr(self, name), default) for name, default in _defaults(type(self)))
        return {name: value for name, value, default in given if value != default}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """The other way: made of what the facade's method was called with."""
        names = [field.name for field in msgspec.structs.fields(cls)]
        return cls(**{name: arguments[name] for name in names if name in arguments})


@functools.cache
def _defaults(type_: type[Arguments]) -> tuple[tuple[str, Any], ...]:
    """Each field with what it is when nobody says; read from annotations, which takes long."""
    return tuple((field.name, field.default) for field in msgspec.structs.fields(type_))


class Nothing(Arguments):
    """A body that says nothing."""


class Operation(msgspec.Struct, frozen=True):
    """``name`` is the method of the facade (``schedules.add``), ``route`` its method and path over HTTP, in which ``…``
    is the path of a session.

    ``answers`` are types by status, None for no content; one with a single field is an envelope round what the facade
    returns. ``takes`` is what is sent: the query of a GET or a DELETE, else the body, which may be left out where it is
    ``optional``. ``refusals`` are statuses beside those that go without saying. ``raw`` names the parameter that takes
    the body's bytes as they are. ``found_first``, as every PATCH and PUT: what is not there is refused as that,
    whatever else was sent. ``streams`` is the type of one frame and ``watched_by`` the facade's iterator over them,
    where that is not ``name``. With ``media`` an answer is bytes of that kind, not JSON. An ``open`` one is answered
    without a token. ``served`` ones are of the HTTP server alone: no method of the facade.
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
        """The type of a good answer."""
        return next(iter(self.answers.values()))

    @property
    def envelope(self) -> str | None:
        """The one field of the answer, where it is an envelope."""
        fields = msgspec.structs.fields(self.answer) if msgspec.inspect.is_struct_type(self.answer) else ()
        return fields[0].name if len(fields) == 1 else None

    def parameter(self, placeholder: str) -> str:
        """What the facade calls a placeholder of the path."""
        return _OWNER_ID.get(self.path.split("/")[2], placeholder) if placeholder == "id" else placeholder
