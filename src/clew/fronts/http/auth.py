"""The guard: checks Host, Origin and credentials of every request before it is routed.

The Host check stops DNS rebinding, where a page points a name of its own at this machine; the Origin check stops pages
of other servers; the token, or the host's authentication, stops everyone else. Only the health routes, the page with
its files, and signed webhook deliveries need no credentials; they too are answered only under an accepted Host.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Callable, Collection, Container
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.errors import ClewError, InternalError, InvalidInput
from clew.fronts.http.identity import ADMINISTRATOR, IDENTITY, Authenticate, Owner, identify, route_path
from clew.fronts.http.problem import ForbiddenHost, RateLimited, Unauthorized, problem
from clew.fronts.http.sse import STILL_VALID

__all__ = ["KNOWN", "STRANGER", "AnyAddress", "BearerTokens", "Failures", "Guard", "check_origins", "loopback_hosts"]

log = logging.getLogger("clew.http")

STRANGER: Final = "clew.stranger"
"""Scope key: whether the request is unauthenticated. Set only by the guard."""
KNOWN: Final = "clew.known"
"""Scope key: a callback for when the connection has sent a valid token."""

_PUBLIC_PATHS: Final = frozenset({"/", "/api/health", "/api/health/ready"})
_ASSETS: Final = "/assets/"
_DELIVERY: Final = re.compile(r"/api/hooks/[^/]+", re.DOTALL)
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@*\s]+", re.ASCII)
_PREFLIGHT: Final = {
    "access-control-allow-methods": "GET, POST, PUT, PATCH, DELETE",
    "access-control-max-age": "600",
}
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
MAX_FAILURES: Final = 30
WINDOW_S: Final = 10.0


def loopback_hosts(port: int) -> frozenset[str]:
    """Return the Host headers of clients on this machine."""
    with_port = {f"{name}:{port}" for name in _LOOPBACK}
    return frozenset(with_port | (set(_LOOPBACK) if port == 80 else set()))


def check_origins(origins: Collection[str]) -> frozenset[str]:
    """Validate origins as browsers write them.

    A star, and the ``null`` of sandboxed pages, would admit every page, with the credentials of its visitor.
    """
    # A plain string is iterated by letter, and no letter is an origin.
    for one in origins:
        if not _ORIGIN.fullmatch(one):
            raise InvalidInput(
                f"origins must be a list of origins such as https://example.org, without a path; got {one!r:.200}"
            )
    return frozenset(origins)


class AnyAddress(Container[str]):
    """The hosts of a server that other machines can reach: the given names, and any IP address.

    A name can be pointed at this machine by its owner, which the check is meant to stop; an IP address cannot.
    """

    def __init__(self, port: int, names: frozenset[str]) -> None:
        self._port = port
        self._names = names

    def __contains__(self, host: object) -> bool:
        address, _, port = host.rpartition(":") if isinstance(host, str) else ("", "", "")
        try:
            ipaddress.ip_address(address.removeprefix("[").removesuffix("]"))
        except ValueError:
            return host in self._names
        return port == str(self._port) or host in self._names


class Guard:
    """Pure ASGI middleware around everything. ``authenticate`` identifies the client; ``hosts`` are the accepted Host
    headers, or None where the host's own server checks them; ``origins`` are those of other pages that may call the
    API.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticate: Authenticate,
        hosts: Container[str] | None,
        origins: Container[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._hosts = hosts
        self._origins = origins
        self._failures = Failures(now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http":
            scope[STRANGER] = True
            headers = Headers(scope=scope)
            origin = headers.get("origin", "")
            if origin in self._origins and len(headers.getlist("origin")) == 1:
                send = _with_origin(send, origin)
                if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                    # An allowed page may authenticate by any header that the host uses.
                    wanted = headers.get("access-control-request-headers", "authorization, content-type")
                    allowed = {**_PREFLIGHT, "access-control-allow-headers": wanted}
                    await Response(None, 204, allowed)(scope, receive, send)
                    return
            refusal = self._check_source(scope, headers)
            try:
                refusal = refusal or await self._authenticate_request(scope)
            except HTTPException as error:
                # Raised by the host's own authentication: keep its response.
                await PlainTextResponse(error.detail, error.status_code, error.headers)(scope, receive, send)
                return
            except Exception as error:
                log.exception("authenticating a request failed")
                refusal = InternalError(str(error))
            if refusal is not None:
                await problem(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check_source(self, scope: Scope, headers: Headers) -> ClewError | None:
        """Refuse requests with a wrong Host, or from a page of another server."""
        hosts = [host.lower() for host in headers.getlist("host")]
        if self._hosts is not None and (len(hosts) != 1 or hosts[0] not in self._hosts):
            return ForbiddenHost("this server does not answer to that Host")
        own = {f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")}
        origins = headers.getlist("origin")
        if any(one not in self._origins and one.lower() not in own for one in origins):
            return ForbiddenHost("requests from pages of other servers are refused")
        sites = [site.strip().lower() for site in headers.getlist("sec-fetch-site")]
        # Following a link to the page itself is allowed.
        if "cross-site" in sites and route_path(scope) != "/" and not any(one in self._origins for one in origins):
            return ForbiddenHost("requests from pages of other servers are refused")
        return None

    async def _authenticate_request(self, scope: Scope) -> ClewError | None:
        """Store the identity of the client; refuse it if the route needs one."""
        path = route_path(scope)
        is_open = path in _PUBLIC_PATHS or path.startswith(_ASSETS)
        if is_open and scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] == "POST" and _DELIVERY.fullmatch(path):
            return None
        owner = await identify(self._authenticate, scope)
        if owner is not None:
            scope[STRANGER] = False
            scope[IDENTITY] = owner
            if KNOWN in scope:
                scope[KNOWN]()
            return None
        if self._failures.too_many():
            return RateLimited("too many requests without a valid token; try again later")
        if isinstance(self._authenticate, BearerTokens):
            return Unauthorized("a token is required: Authorization: Bearer …; `clew url` prints it")
        return Unauthorized("not logged in")


def _with_origin(send: Send, origin: str) -> Send:
    """Add the CORS headers for an allowed origin to the response."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            allowed = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]
            allowed.append((b"access-control-allow-credentials", b"true"))
            message = {**message, "headers": [*message["headers"], *allowed]}
        await send(message)

    return wrapped


class BearerTokens:
    """Authentication by token: the server's own grants access to everything; owners' tokens are looked up each time."""

    def __init__(self, token: str, find_owner: Callable[[str], Owner | None] = lambda _: None) -> None:
        self._token = token.encode()
        self._find_owner = find_owner

    def __call__(self, request: HTTPConnection) -> Owner | None:
        values = request.headers.getlist("authorization")
        if len(values) != 1:
            return None
        scheme, _, value = values[0].partition(" ")
        if scheme.lower() != "bearer":
            return None
        if hmac.compare_digest(value.strip().encode("latin-1"), self._token):
            return ADMINISTRATOR
        owner = self._find_owner(value.strip())
        if owner is not None:
            # A stream outlives this check of its token.
            request.scope[STILL_VALID] = lambda: self._still_valid(value.strip(), owner)
        return owner

    def _still_valid(self, token: str, owner: Owner) -> bool:
        try:
            return self._find_owner(token) == owner
        except ClewError as error:
            log.error("closed a stream whose token could not be checked: %s", error)
            return False


class Failures:
    """A counter of failed attempts in a time window. Requests with a valid token are never limited by it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = now()
        self._count = 0

    def too_many(self) -> bool:
        now = self._now()
        if now - self._since > WINDOW_S:
            self._since, self._count = now, 0
        self._count += 1
        return self._count > MAX_FAILURES
