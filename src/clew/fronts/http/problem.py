"""Problems: how an error leaves over HTTP.

Every refusal is ``application/problem+json`` with a stable ``code``, one sentence in ``detail`` and the ids it is
about. The table says which status a kind of error has; the nearest class in it decides. What nobody foresaw is a
500 with a sentence that gives nothing away: the log has the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from clew import errors as e
from clew.runtime.hooks import HookRefused
from clew.transcript.gate import clean_value

__all__ = [
    "HANDLERS",
    "SERVERS_LOG",
    "BadRequest",
    "BodyTooLarge",
    "BodyTooSlow",
    "ForbiddenHost",
    "RateLimited",
    "ServerBusy",
    "Shield",
    "Unauthorized",
    "problem",
    "raw_problem",
    "status_of",
]

log = logging.getLogger("clew.http")


class BadRequest(e.Invalid):
    """The request cannot be read at all: not JSON, or not an object."""


class BodyTooLarge(e.Invalid):
    code = "body_too_large"


class BodyTooSlow(e.Invalid):
    """A body that was not there in time, or that had to make room for others."""

    code = "body_too_slow"


class ServerBusy(e.ClewError):
    """Nothing is wrong with the request; there is no room for it now."""

    code = "server_busy"


class Unauthorized(e.ClewError):
    code = "unauthorized"


class ForbiddenHost(e.ClewError):
    """The request came through a name or from a page that is not this server's own."""

    code = "forbidden_host"


class RateLimited(e.ClewError):
    code = "rate_limited"


class _Missing(e.NotFound):
    """A path nobody serves."""


class _WrongMethod(e.Invalid):
    code = "method_not_allowed"


_STATUS: Final[dict[type[e.ClewError], int]] = {
    e.ClewError: 500,
    e.NotFound: 404,
    e.Conflict: 409,
    e.Invalid: 422,
    e.InvalidId: 400,
    BadRequest: 400,
    BodyTooLarge: 413,
    BodyTooSlow: 408,
    ServerBusy: 503,
    _WrongMethod: 405,
    Unauthorized: 401,
    ForbiddenHost: 403,
    RateLimited: 429,
    e.PermissionDenied: 403,
    e.SignatureInvalid: 401,
    HookRefused: 422,
    # A model that has no key or a prompt that fits no window is found out before anything runs: the request is wrong.
    e.RunError: 422,
    e.CompactionError: 422,
    # Nothing is wrong with the request: the layer that keeps the files could not do it.
    e.SnapshotFailed: 503,
    e.StoreError: 503,
    e.NotSupported: 422,
    e.StaleEpoch: 409,
    e.RowUndecodable: 500,
    e.StorageFull: 507,
    e.InternalError: 500,
}
_RESERVED: Final = frozenset({"type", "title", "status", "detail", "code"})
SERVERS_LOG: Final = "the server's log"


def status_of(error: e.ClewError) -> int:
    """The HTTP status of an error."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def problem(error: e.ClewError, log_name: str = SERVERS_LOG, status: int | None = None) -> Response:
    """The problem document of an error. ``log_name`` is where to look for what nobody foresaw."""
    status = status or status_of(error)
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _unforeseen(log_name) if isinstance(error, e.InternalError) else str(error),
        "code": error.code,
    }
    body |= {name: value for name, value in error.ids.items() if name not in _RESERVED}
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, ServerBusy | e.ReplicaAway):
        headers["retry-after"] = "1"
    if isinstance(error, BodyTooLarge | BodyTooSlow | ServerBusy):
        # The rest of the body is not going to be read.
        headers["connection"] = "close"
    # A sentence may quote what was refused for being no proper text.
    content = msgspec.json.encode(clean_value(body)[0])
    return Response(content, status, headers, media_type="application/problem+json")


def _unforeseen(log_name: str) -> str:
    return f"something went wrong inside clew; {log_name} has more"


def raw_problem(error: e.ClewError, *headers: tuple[bytes, bytes]) -> bytes:
    """The same as bytes for a connection on which nothing has been understood yet."""
    answer = problem(error)
    first = f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()
    lines = [first, *(b"%b: %b" % header for header in (*answer.raw_headers, *headers))]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


def _log_of(request: Request) -> str:
    # A host's own app, which has these handlers too, says nothing of a log.
    return getattr(request.app.state, "log_name", SERVERS_LOG)


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, e.ClewError):
        if status_of(error) == 500:
            log.error("a request failed: %s", error, exc_info=error)
        return problem(error, _log_of(request))
    if isinstance(error, ClientDisconnect):
        # Half a body is none. Nobody hears this; the log has it.
        return problem(BadRequest("the body broke off"))
    if not isinstance(error, HTTPException):
        return problem(e.InternalError("unforeseen"), _log_of(request))
    # What the router itself refuses.
    if error.status_code != 405:
        return problem(_Missing("there is nothing at this path"))
    answer = problem(_WrongMethod(f"{request.method} is not for this path"))
    answer.headers["allow"] = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    return answer


HANDLERS: Final[Mapping[Any, ExceptionHandler]] = dict.fromkeys(
    (e.ClewError, HTTPException, ClientDisconnect, Exception), _on_error
)


class Shield:
    """The outermost wall: what got past everything else is logged once and never reaches the server."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = False

        async def watched() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or message["type"] == "http.disconnect"
            return message

        try:
            await self._app(scope, watched, send)
        except Exception:
            # A client that leaves in the middle of its own request is nobody's failure.
            if not gone:
                log.exception("a request failed in an unforeseen way")
