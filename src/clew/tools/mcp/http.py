"""The wire to a server at an address: streamable HTTP, to the very address that was looked at, never too much of it.

The SDK follows a redirect only where it stays with the same host and port. A name that somebody else gave must not
lead to this machine, so the address it stands for is looked at before each connection; one that is written as this
machine's own is meant.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from clew.tools.mcp.wire import MAX_MESSAGE, Budget, Flood, Wire
from clew.tools.thread import run_in_thread

__all__ = ["open_http"]

_LOCAL: Final = ("localhost", "ip6-localhost")
_CONNECT_S: Final = 30.0
_ENDING: Final = dict.fromkeys(("connect", "read", "write", "pool"), 5.0)
"""Seconds for the request that ends a session."""


@contextlib.asynccontextmanager
async def open_http(url: str, headers: dict[str, str], read_s: float, wire: Wire) -> AsyncIterator[tuple[Any, Any]]:
    """The two streams of a connection. ``headers`` go with every request, and to no other host."""
    transport = await run_in_thread(_Bounded, wire, secret=bool(headers))
    timeout = httpx2.Timeout(_CONNECT_S, read=read_s)
    # Not compressed: a small answer could be a large one. Neither proxies nor netrc are taken from the environment.
    told = {**headers, "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(headers=told, timeout=timeout, transport=transport, trust_env=False) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncBaseTransport):  # type: ignore[misc, unused-ignore]
    """Goes to an address that may be gone to, and cuts an answer that is too large."""

    def __init__(self, wire: Wire, *, secret: bool) -> None:
        self._wire, self._secret = wire, secret
        self._tells = False
        self._budget = Budget()
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        ends = request.method == "DELETE"
        if ends and self._wire.closed.is_set():
            # A server that broke off or hangs gets no closing request.
            return httpx2.Response(204)
        host = request.url.host
        address = await _find_address(host, secret=self._secret, scheme=request.url.scheme)
        headers = request.headers.copy()
        headers["host"] = request.url.netloc.decode("ascii")
        there = httpx2.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host, **({"timeout": _ENDING} if ends else {})},
        )
        try:
            response = await self._inner.handle_async_request(there)
        except httpx2.HTTPError as error:
            self._lost(request, str(error))
            raise
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the server compresses its answer, which nobody asked for")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            # Of a stream each event is bounded, by the SDK.
            response.stream = _Counted(response.stream)
            self._lost(request, f"status {response.status_code}")
        else:
            self._tells = self._tells or request.method == "GET"
            response.stream = _Streamed(response.stream, self._budget, self._wire, may_break=request.method == "GET")
        return response

    def _lost(self, request: httpx2.Request, why: str) -> None:
        """The stream over which the server tells of changes was there, and cannot be had again. The SDK would give it
        up without a word; so the connection is one that broke, and is begun again."""
        if request.method == "GET" and self._tells:
            self._wire.close(f"it does not tell of changes any more: {why}")

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Streamed(httpx2.AsyncByteStream):  # type: ignore[misc, unused-ignore]
    """A stream of events, of which all together are bounded as those of a program are. One over which changes are told
    may say nothing for long (``may_break``): when it breaks off it has ended, and the SDK asks for it again."""

    def __init__(self, stream: Any, budget: Budget, wire: Wire, *, may_break: bool) -> None:
        self._stream, self._budget, self._wire, self._may_break = stream, budget, wire, may_break

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                # The SDK reads on when nobody waits for an answer any more.
                # An event has two ends of lines at least, and there are none within what it says.
                self._budget.take(len(piece), max(piece.count(b"\n"), piece.count(b"\r")) / 2)
                yield piece
        except Flood as error:
            self._wire.close(str(error))
            raise httpx2.RemoteProtocolError(str(error)) from error
        except httpx2.TransportError:
            if not self._may_break:
                raise

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Counted(httpx2.AsyncByteStream):  # type: ignore[misc, unused-ignore]
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_MESSAGE:
                raise httpx2.RemoteProtocolError(f"the answer is larger than {MAX_MESSAGE:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _find_address(host: str, *, secret: bool, scheme: str) -> IPv4Address | IPv6Address:
    try:
        # Written out as an address, or as this machine: whoever wrote it means it.
        written: IPv4Address | IPv6Address | None = ip_address(host)
    except ValueError:
        written = None
    address = written
    if address is None:
        try:
            found = await run_in_thread(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"{host} is not known: {error}") from error
        # One of IPv4 in the clothes of IPv6 is looked at as what it is.
        named = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
        addresses = [getattr(one, "ipv4_mapped", None) or one for one in named]
        # IPv4 first: what listens on localhost mostly does so there.
        address = min(addresses, key=lambda one: one.version)
        inward = next((one for one in addresses if one.is_loopback or one.is_link_local or one.is_unspecified), None)
        if inward is not None and host.lower() not in _LOCAL:
            raise httpx2.ConnectError(
                f"{host} leads to {inward}, which is this machine's own; write that if it is meant"
            )
    if secret and scheme == "http" and not address.is_private:
        raise httpx2.ConnectError(f"what proves who you are would go to {host} in the clear; use https")
    return address
