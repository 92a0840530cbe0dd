"""Who may ask: the Host, the Origin and the token of every request, before any route is looked for.

The Host check keeps out pages that had a name of theirs point at this machine; the Origin check keeps out pages of
other servers; the token keeps out everybody else on the machine. Only the health route and the page with its files
are answered without a token, and deliveries to webhooks, which are signed; those too only under a Host of ours.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import time
from collections.abc import Callable, Container
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from clew.errors import ClewError
from clew.fronts.http.problem import ForbiddenHost, RateLimited, Unauthorized, problem

__all__ = ["KNOWN", "STRANGER", "AnyAddress", "Failures", "Guard", "loopback_hosts"]

STRANGER: Final = "clew.stranger"
"""In the scope of a request: whether it is answered without a token. The guard says so, nobody else."""
KNOWN: Final = "clew.known"
"""In the scope of a request: what a server wants to be called when its connection has shown the token."""

_OPEN: Final = frozenset({"/", "/api/health", "/api/health/ready"})
_ASSETS: Final = "/assets/"
_DELIVERY: Final = re.compile(r"/api/hooks/[^/]+", re.DOTALL)
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
MAX_FAILURES: Final = 30
WINDOW_S: Final = 10.0


def loopback_hosts(port: int) -> frozenset[str]:
    """What a client on this machine writes into Host."""
    with_port = {f"{name}:{port}" for name in _LOOPBACK}
    return frozenset(with_port | (set(_LOOPBACK) if port == 80 else set()))


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
    """Pure ASGI, around everything."""

    def __init__(
        self, app: ASGIApp, *, token: str, hosts: Container[str], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = hosts
        self._failures = Failures(now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[STRANGER] = True
            refusal = self._refuse(scope)
            if refusal is not None:
                await problem(refusal)(scope, receive, send)
                return
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._app(scope, receive, send)

    def _refuse(self, scope: Scope) -> ClewError | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value)
        hosts, path = headers.get(b"host", []), scope["path"]
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self._hosts:
            return ForbiddenHost("this server does not answer to that Host")
        host = hosts[0].lower()
        foreign = any(one.lower() not in (b"http://" + host, b"https://" + host) for one in headers.get(b"origin", []))
        sites = [site.strip().lower() for site in headers.get(b"sec-fetch-site", [])]
        # Following a link to the page itself is not a call.
        if foreign or (path != "/" and b"cross-site" in sites):
            return ForbiddenHost("calls from pages of other servers are refused")
        is_open = path in _OPEN or path.startswith(_ASSETS)
        if is_open and scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] == "POST" and _DELIVERY.fullmatch(path):
            return None
        given = headers.get(b"authorization", [])
        if len(given) == 1:
            scheme, _, value = given[0].partition(b" ")
            if hmac.compare_digest(value.strip(), self._token) and scheme.lower() == b"bearer":
                scope[STRANGER] = False
                if KNOWN in scope:
                    scope[KNOWN]()
                return None
        if self._failures.too_many():
            return RateLimited("too many requests without a valid token; wait a little")
        return Unauthorized("this needs the token: Authorization: Bearer …; `clew url` prints it")


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
