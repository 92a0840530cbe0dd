"""Operations: what a method of a path takes and answers, said beside its handler.

The OpenAPI document is made of these and of nothing else, and no handler can be served without one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request

__all__ = ["JSON", "Handler", "Operation", "operation", "operation_of"]

JSON: Final = "application/json"
Handler: TypeAlias = Callable[[Request], Awaitable[Any]]
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """``answers`` are types by status, None for no content; ``refusals`` statuses beside those every route has.

    ``streams`` is the type of one frame. With ``media`` an answer is bytes of that kind, not JSON. An ``open`` one is
    answered without a token.
    """

    summary: str
    answers: Mapping[int, Any]
    refusals: tuple[int, ...] = ()
    body: Any = None
    body_optional: bool = False
    query: type[msgspec.Struct] | None = None
    streams: Any = None
    media: str = JSON
    open: bool = False


def operation(
    summary: str,
    answers: Mapping[int, Any],
    *,
    refuses: tuple[int, ...] = (),
    body: Any = None,
    body_optional: bool = False,
    query: type[msgspec.Struct] | None = None,
    streams: Any = None,
    media: str = JSON,
    open: bool = False,
) -> Callable[[H], H]:
    """Say what a handler takes and answers."""
    said = Operation(
        summary=summary,
        answers=dict(answers),
        refusals=refuses,
        body=body,
        body_optional=body_optional,
        query=query,
        streams=streams,
        media=media,
        open=open,
    )

    def mark(handler: H) -> H:
        handler.operation = said  # type: ignore[attr-defined]  # functions carry attributes
        return handler

    return mark


def operation_of(handler: Handler) -> Operation:
    """What was said of a handler; one of which nothing was said cannot be served."""
    said = getattr(handler, "operation", None)
    if not isinstance(said, Operation):
        raise TypeError(f"{handler!r} does not say what it takes and answers")
    return said
