"""Transports to an MCP server: streamable HTTP to the address that was checked, and a program's input and output.

Both are bounded, which the SDK's own are not: a connection ends with a reason when an answer or a line is too long,
when there is too much data, and when too many lines in a row are not messages.

The SDK follows a redirect only to the same host and port. A host name must not lead to this machine, so its address is
checked before each connection; an address of this machine that is written out is intended.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from clew.tools.mcp.connection import MAX_MESSAGE, LimitExceeded, RateLimit, Wire
from clew.tools.process.program import Program
from clew.tools.process.stdio_session import StdioSession, open_stdio_session
from clew.tools.thread import run_in_thread

__all__ = ["open_http", "open_stdio"]

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


_LARGE_BYTES: Final = 256 * 1024
"""From this size on, a message is parsed in a thread."""
_MAX_NOISE_LINES: Final = 200
_RESPONSE_ID: Final = re.compile(rb'\{(?:"jsonrpc": ?"2.0", ?)?"id": ?(\d{1,15}),|.*"id": ?(\d{1,15})\}', re.DOTALL)
_IGNORED_METHODS: Final = ("notifications/message", "notifications/prompts/list_changed")
_CLOSED_BY_SERVER: Final = "it hung up"

Inbound = SessionMessage | Exception


@contextlib.asynccontextmanager
async def open_stdio(program: Program, wire: Wire) -> AsyncIterator[tuple[Any, Any]]:
    """Start the program and yield the two streams of a connection. It is ended with all its processes on exit."""
    stdio = await open_stdio_session(program)
    inbound: tuple[MemoryObjectSendStream[Inbound], MemoryObjectReceiveStream[Inbound]]
    outbound: tuple[MemoryObjectSendStream[SessionMessage], MemoryObjectReceiveStream[SessionMessage]]
    inbound, outbound = anyio.create_memory_object_stream(0), anyio.create_memory_object_stream(0)
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_read(stdio, inbound[0], wire)), loop.create_task(_write(stdio, outbound[1], wire))]
    try:
        yield inbound[1], outbound[0]
    finally:
        wire_ended = wire.closed.is_set()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for stream in (*inbound, *outbound):
            stream.close()
        # Also if the caller was cancelled: a program that is not ended here would stay.
        broke_off = wire_ended and wire.why != _CLOSED_BY_SERVER
        ending = asyncio.ensure_future(stdio.end(immediately=broke_off))
        try:
            how_it_ended = await asyncio.shield(ending)
        except asyncio.CancelledError:
            how_it_ended = await ending
        # An end caused by leaving is not a failure.
        wire.why = (how_it_ended if wire.why == _CLOSED_BY_SERVER else wire.why) if wire_ended else None


async def _read(stdio: StdioSession, into: MemoryObjectSendStream[Inbound], wire: Wire) -> None:
    try:
        await _read_messages(stdio, into)
    except LimitExceeded as error:
        wire.close(str(error))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass
    finally:
        # Before pending requests fail: they report this reason.
        wire.close(_CLOSED_BY_SERVER)
        into.close()


async def _read_messages(stdio: StdioSession, into: MemoryObjectSendStream[Inbound]) -> None:
    limit = RateLimit()
    buffered, noise = bytearray(), 0
    while piece := await stdio.read():
        buffered += piece
        *lines, rest = buffered.split(b"\n") if b"\n" in piece else (buffered,)
        buffered = rest
        if len(buffered) > MAX_MESSAGE or any(len(line) > MAX_MESSAGE for line in lines):
            raise LimitExceeded(f"it sent a line of more than {MAX_MESSAGE:,} bytes")
        limit.spend(size=len(piece))
        for line in filter(None, (bytes(line).strip() for line in lines)):
            message = await _message(line)
            # Some programs print other lines between their messages.
            noise = noise + 1 if message is None else 0
            if noise > _MAX_NOISE_LINES:
                raise LimitExceeded(f"it sent {noise} lines in a row that are not messages; the last: {line[:80]!r}")
            limit.spend(messages=int(message is not None))
            if message is not None and getattr(message.message, "method", None) not in _IGNORED_METHODS:
                await into.send(message)


async def _message(line: bytes) -> SessionMessage | None:
    def parse() -> SessionMessage | None:
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
        except (ValueError, RecursionError):
            answered = _RESPONSE_ID.match(line)
        if answered is None:
            return None
        # A malformed answer still has a waiting caller, which gets an error.
        problem = types.ErrorData(code=types.PARSE_ERROR, message="its answer is not valid JSON-RPC")
        asked = int(answered[1] or answered[2])
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=asked, error=problem))

    return parse() if len(line) < _LARGE_BYTES else await run_in_thread(parse)


async def _write(stdio: StdioSession, out_of: MemoryObjectReceiveStream[SessionMessage], wire: Wire) -> None:
    try:
        async with out_of:
            async for message in out_of:
                encoded = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdio.write(encoded.encode() + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        wire.close(_CLOSED_BY_SERVER)
