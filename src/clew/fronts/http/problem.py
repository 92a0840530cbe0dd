"""Problem documents: the HTTP form of errors.

Every refusal is ``application/problem+json`` with a stable ``code``, one sentence in ``detail`` and the ids it is
about. The table maps error classes to statuses; the nearest base class decides. Unexpected errors become a 500 with a
generic sentence: the details are in the log.
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
from clew.session.hooks import HookRefused
from clew.transcript.value_check import clean_value

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
    """The request cannot be parsed: not JSON, or not an object."""


class BodyTooLarge(e.Invalid):
    """A body over its limit."""

    code = "body_too_large"


class BodyTooSlow(e.Invalid):
    """A body that was not complete in time, or was dropped to make room for others."""

    code = "body_too_slow"


class ServerBusy(e.ClewError):
    """The request is valid, but there is no capacity for it now."""

    code = "server_busy"


class Unauthorized(e.ClewError):
    """No token, or an invalid one."""

    code = "unauthorized"


class ForbiddenHost(e.ClewError):
    """The request came under a Host, or from a page, that this server does not accept."""

    code = "forbidden_host"


class RateLimited(e.ClewError):
    """More than 30 requests without a valid token, or unsigned deliveries, in 10 seconds. Others are not delayed."""

    code = "rate_limited"


class _Missing(e.NotFound):
    """No route matches the path."""


class _WrongMethod(e.Invalid):
    """The path does not support this method; ``Allow`` lists those it does."""

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
    # A missing key or a prompt that is too large is detected before anything runs: the request is wrong.
    e.RunError: 422,
    e.CompactionError: 422,
    # The request is valid: the snapshot layer failed.
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
    """Return the HTTP status of an error."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def problem(error: e.ClewError, log_name: str = SERVERS_LOG, status: int | None = None) -> Response:
    """Return the problem document of an error. ``log_name`` is the log that an unexpected error refers to."""
    status = status or status_of(error)
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _internal_detail(log_name) if isinstance(error, e.InternalError) else str(error),
        "code": error.code,
    }
    body |= {name: value for name, value in error.ids.items() if name not in _RESERVED}
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, ServerBusy | e.ReplicaAway):
        headers["retry-after"] = "1"
    if isinstance(error, BodyTooLarge | BodyTooSlow | ServerBusy):
        # The rest of the body will not be read.
        headers["connection"] = "close"
    # The message may quote invalid text that was refused.
    content = msgspec.json.encode(clean_value(body)[0])
    return Response(content, status, headers, media_type="application/problem+json")


def _internal_detail(log_name: str) -> str:
    return f"internal error; see {log_name} for details"


def raw_problem(error: e.ClewError, *headers: tuple[bytes, bytes]) -> bytes:
    """Return the problem as raw response bytes, for a connection without a parsed request."""
    answer = problem(error)
    first = f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()
    lines = [first, *(b"%b: %b" % header for header in (*answer.raw_headers, *headers))]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


def _log_of(request: Request) -> str:
    # A host's own app that uses these handlers has no log name.
    return getattr(request.app.state, "log_name", SERVERS_LOG)


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, e.ClewError):
        if status_of(error) == 500:
            log.error("a request failed: %s", error, exc_info=error)
        return problem(error, _log_of(request))
    if isinstance(error, ClientDisconnect):
        # The client is gone and reads no response; this is for the log.
        return problem(BadRequest("the body was cut off"))
    if not isinstance(error, HTTPException):
        return problem(e.InternalError("unexpected"), _log_of(request))
    # Raised by the router.
    if error.status_code != 405:
        return problem(_Missing("nothing exists at this path"))
    answer = problem(_WrongMethod(f"{request.method} is not allowed for this path"))
    answer.headers["allow"] = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    return answer


HANDLERS: Final[Mapping[Any, ExceptionHandler]] = dict.fromkeys(
    (e.ClewError, HTTPException, ClientDisconnect, Exception), _on_error
)


class Shield:
    """The outermost middleware: errors that nothing else handled are logged once and never reach the server."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnected = False

        async def receive_tracked() -> Message:
            nonlocal disconnected
            message = await receive()
            disconnected = disconnected or message["type"] == "http.disconnect"
            return message

        try:
            await self._app(scope, receive_tracked, send)
        except Exception:
            # A disconnecting client is not an error.
            if not disconnected:
                log.exception("a request failed unexpectedly")
