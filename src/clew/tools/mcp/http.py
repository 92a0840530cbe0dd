"""HTTP transport to an MCP server: streamable HTTP, to the address that was checked, with bounded answers.

The SDK follows a redirect only to the same host and port. A host name must not lead to this machine, so its address is
checked before each connection; an address of this machine that is written out is intended.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from clew.tools.mcp.wire import MAX_MESSAGE, LimitExceeded, RateLimit, Wire
from clew.tools.thread import run_in_thread

__all__ = ["open_http"]

_LOCAL_NAMES: Final = ("localhost", "ip6-localhost")
_CONNECT_S: Final = 30.0
_END_TIMEOUTS: Final = dict.fromkeys(("connect", "read", "write", "pool"), 5.0)
"""Seconds for the request that ends a session."""


@contextlib.asynccontextmanager
async def open_http(url: str, headers: dict[str, str], read_s: float, wire: Wire) -> AsyncIterator[tuple[Any, Any]]:
    """Open a connection and yield its two streams. ``headers`` go with every request, and to no other host."""
    transport = await run_in_thread(_BoundedTransport, wire, secret=bool(headers))
    timeout = httpx2.Timeout(_CONNECT_S, read=read_s)
    # Not compressed: a small answer could expand to a large one. The environment's proxies and netrc are not used.
    all_headers = {**headers, "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(headers=all_headers, timeout=timeout, transport=transport, trust_env=False) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


class _BoundedTransport(httpx2.AsyncBaseTransport):  # type: ignore[misc, unused-ignore]
    """A transport that connects to checked addresses only and limits the size of answers."""

    def __init__(self, wire: Wire, *, secret: bool) -> None:
        self._wire, self._secret = wire, secret
        self._had_event_stream = False
        self._limit = RateLimit()
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        ends = request.method == "DELETE"
        if ends and self._wire.closed.is_set():
            # A server that hung up or hangs gets no closing request.
            return httpx2.Response(204)
        host = request.url.host
        address = await _find_address(host, secret=self._secret, scheme=request.url.scheme)
        headers = request.headers.copy()
        headers["host"] = request.url.netloc.decode("ascii")
        resolved = httpx2.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host, **({"timeout": _END_TIMEOUTS} if ends else {})},
        )
        try:
            response = await self._inner.handle_async_request(resolved)
        except httpx2.HTTPError as error:
            self._close_if_event_stream(request, str(error))
            raise
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the server compresses its answer although identity was requested")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            # The SDK limits each event of a stream.
            response.stream = _BoundedBody(response.stream)
            self._close_if_event_stream(request, f"status {response.status_code}")
        else:
            self._had_event_stream = self._had_event_stream or request.method == "GET"
            response.stream = _BoundedEvents(
                response.stream, self._limit, self._wire, may_break=request.method == "GET"
            )
        return response

    def _close_if_event_stream(self, request: httpx2.Request, why: str) -> None:
        """Close the connection, to be started again, when the stream that reports changes is lost: the SDK would give
        it up silently."""
        if request.method == "GET" and self._had_event_stream:
            self._wire.close(f"it stopped reporting changes: {why}")

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedEvents(httpx2.AsyncByteStream):  # type: ignore[misc, unused-ignore]
    """A stream of events with a limit for their total. One that reports changes may be silent for long and break
    (``may_break``): that counts as its end, and the SDK opens it again."""

    def __init__(self, stream: Any, limit: RateLimit, wire: Wire, *, may_break: bool) -> None:
        self._stream, self._limit, self._wire, self._may_break = stream, limit, wire, may_break

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                # The SDK reads on when no caller waits for the answer any more.
                # An event has at least two line ends, and its data has none.
                self._limit.spend(len(piece), max(piece.count(b"\n"), piece.count(b"\r")) / 2)
                yield piece
        except LimitExceeded as error:
            self._wire.close(str(error))
            raise httpx2.RemoteProtocolError(str(error)) from error
        except httpx2.TransportError:
            if not self._may_break:
                raise

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedBody(httpx2.AsyncByteStream):  # type: ignore[misc, unused-ignore]
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
        # An address that is written out is intended, also one of this machine.
        written: IPv4Address | IPv6Address | None = ip_address(host)
    except ValueError:
        written = None
    address = written
    if address is None:
        try:
            found = await run_in_thread(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"{host} cannot be resolved: {error}") from error
        # An IPv4 address mapped into IPv6 is checked as IPv4.
        named = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
        addresses = [getattr(one, "ipv4_mapped", None) or one for one in named]
        # IPv4 first: most local servers listen there.
        address = min(addresses, key=lambda one: one.version)
        internal = next((one for one in addresses if one.is_loopback or one.is_link_local or one.is_unspecified), None)
        if internal is not None and host.lower() not in _LOCAL_NAMES:
            raise httpx2.ConnectError(
                f"{host} leads to {internal}, an address of this machine; write the address if it is intended"
            )
    if secret and scheme == "http" and not address.is_private:
        raise httpx2.ConnectError(f"credentials would go to {host} unencrypted; use https")
    return address
