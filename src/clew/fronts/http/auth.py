"""Who may ask: the Host, the Origin and who it is, of every request, before any route is looked for.

The Host check keeps out pages that had a name of theirs point at this machine; the Origin check keeps out pages of
other servers; the token, or what a host has in its place, keeps out everybody else. Only the health route and the page
with its files are answered without it, and deliveries to webhooks, which are signed; those too only by a Host of ours.
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
from clew.fronts.http.sse import STILL_GOOD

__all__ = ["KNOWN", "STRANGER", "AnyAddress", "BearerTokens", "Failures", "Guard", "check_origins", "loopback_hosts"]

log = logging.getLogger("clew.http")

STRANGER: Final = "clew.stranger"
"""In the scope of a request: whether it is answered without a token. The guard says so, nobody else."""
KNOWN: Final = "clew.known"
"""In the scope of a request: what a server wants to be called when its connection has shown the token."""

_OPEN: Final = frozenset({"/", "/api/health", "/api/health/ready"})
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
    """What a client on this machine writes into Host."""
    with_port = {f"{name}:{port}" for name in _LOOPBACK}
    return frozenset(with_port | (set(_LOOPBACK) if port == 80 else set()))


def check_origins(origins: Collection[str]) -> frozenset[str]:
    """Origins as a browser writes them. A star, and the ``null`` that any sandboxed page can have, would let in
    everybody, with the credentials of whoever looks at that page."""
    # A text is one of letters, none of which is an origin.
    for one in origins:
        if not _ORIGIN.fullmatch(one):
            raise InvalidInput(
                f"origins are a list, each such as https://example.org, without a path; not {one!r:.200}"
            )
    return frozenset(origins)


class AnyAddress(Container[str]):
    """For a server that others may reach: names given, and any address by number.

    A name can be made to point here by whoever owns it, which is what the check is against; a number cannot.
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
    """Pure ASGI, around everything. ``authenticate`` says who asks; ``hosts`` are the names it answers to, any where a
    host's own server has looked; ``origins`` are those of other pages that may call it."""

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
                    # A page that is trusted may say who it is by whatever header the host goes by.
                    wanted = headers.get("access-control-request-headers", "authorization, content-type")
                    allowed = {**_PREFLIGHT, "access-control-allow-headers": wanted}
                    await Response(None, 204, allowed)(scope, receive, send)
                    return
            refusal = self._refuse(scope, headers)
            try:
                refusal = refusal or await self._find_out(scope)
            except HTTPException as error:
                # A host's own word, in its own form.
                await PlainTextResponse(error.detail, error.status_code, error.headers)(scope, receive, send)
                return
            except Exception as error:
                log.exception("who asks could not be found out")
                refusal = InternalError(str(error))
            if refusal is not None:
                await problem(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refuse(self, scope: Scope, headers: Headers) -> ClewError | None:
        """Whatever comes by a wrong name, or from a page of nobody's."""
        hosts = [host.lower() for host in headers.getlist("host")]
        if self._hosts is not None and (len(hosts) != 1 or hosts[0] not in self._hosts):
            return ForbiddenHost("this server does not answer to that Host")
        own = {f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")}
        origins = headers.getlist("origin")
        if any(one not in self._origins and one.lower() not in own for one in origins):
            return ForbiddenHost("calls from pages of other servers are refused")
        sites = [site.strip().lower() for site in headers.getlist("sec-fetch-site")]
        # Following a link to the page itself is not a call.
        if "cross-site" in sites and route_path(scope) != "/" and not any(one in self._origins for one in origins):
            return ForbiddenHost("calls from pages of other servers are refused")
        return None

    async def _find_out(self, scope: Scope) -> ClewError | None:
        """Note who asks, unless anybody may."""
        path = route_path(scope)
        is_open = path in _OPEN or path.startswith(_ASSETS)
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
            return RateLimited("too many requests without a valid token; wait a little")
        if isinstance(self._authenticate, BearerTokens):
            return Unauthorized("this needs the token: Authorization: Bearer …; `clew url` prints it")
        return Unauthorized("nobody is logged in here")


def _with_origin(send: Send, origin: str) -> Send:
    """What a page of that origin may read."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            allowed = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]
            allowed.append((b"access-control-allow-credentials", b"true"))
            message = {**message, "headers": [*message["headers"], *allowed]}
        await send(message)

    return wrapped


class BearerTokens:
    """By the token of a request: the server's own, whose holder sees all, or an owner's, looked up anew each time."""

    def __init__(self, token: str, find_owner: Callable[[str], Owner | None] = lambda _: None) -> None:
        self._token = token.encode()
        self._find_owner = find_owner

    def __call__(self, request: HTTPConnection) -> Owner | None:
        given = request.headers.getlist("authorization")
        if len(given) != 1:
            return None
        scheme, _, value = given[0].partition(" ")
        if scheme.lower() != "bearer":
            return None
        if hmac.compare_digest(value.strip().encode("latin-1"), self._token):
            return ADMINISTRATOR
        found = self._find_owner(value.strip())
        if found is not None:
            # A stream outlives the look at its token.
            request.scope[STILL_GOOD] = lambda: self._is_good(value.strip(), found)
        return found

    def _is_good(self, token: str, owner: Owner) -> bool:
        try:
            return self._find_owner(token) == owner
        except ClewError as error:
            log.error("a stream was ended, for whose it is cannot be found out: %s", error)
            return False


class Failures:
    """Counts failed tries in a window. Whoever has the token is never held up by those who have not."""

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
