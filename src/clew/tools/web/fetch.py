"""Fetching of a URL: each hop is parsed, permitted, resolved, checked, and fetched from the checked address.

A name is resolved once per hop, and the connection goes to one of the checked addresses, so a different second answer
(rebinding) has no effect. One refused address refuses the host. Neither proxies nor the host's own cookies or
credentials are used.

Each hop is one HTTP/1.1 request over one connection. The size of an answer is limited before and after decompression,
so neither an endless body nor a decompression bomb fills the memory.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, TypeAlias

import msgspec

from clew.errors import ToolFailed
from clew.tools.thread import run_in_thread
from clew.tools.web.url import Address, AddressPolicy, Url, join_url, parse_url, public_only
from clew.transcript.rule import Target

__all__ = ["Fetcher", "Limits", "Page", "Resolve", "resolve_name"]

Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[Address]]]
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_ADDRESSES: Final = 3
_MAX_LINE: Final = 16 * 1024
_MAX_HEADERS: Final = 200
_MAX_INTERIM: Final = 5
_PIECE: Final = 64 * 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: (.*))?", re.DOTALL)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?", re.DOTALL)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a fetch."""

    redirects: int = 5
    connect_s: float = 10.0
    total_s: float = 30.0
    max_bytes: int = 5 * 1024 * 1024


class Page(msgspec.Struct, frozen=True):
    """The last answer, with its URL."""

    url: Url
    answer: _Answer


async def resolve_name(host: str) -> Sequence[Address]:
    """Resolve a name with the system's resolver; in a thread, because it blocks and cannot be interrupted."""

    def look_up() -> Sequence[Address]:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))

    return await run_in_thread(look_up)


class Fetcher:
    """A client for pages. ``policy`` decides which addresses are refused; tests that need loopback replace it."""

    def __init__(
        self,
        *,
        policy: AddressPolicy = public_only,
        resolve: Resolve = resolve_name,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._policy = policy
        self._resolve = resolve
        self._tls = tls

    async def get(self, text: str, permit: Callable[[Target], Awaitable[None]]) -> Page:
        """Follow ``text`` to its answer. Raises ``ToolFailed``, and what ``permit`` raises."""
        try:
            async with asyncio.timeout(self.limits.total_s):
                url = parse_url(text)
                for _ in range(self.limits.redirects + 1):
                    # Before the name is resolved: a query would reveal a host that is not allowed.
                    await permit(Target("web_fetch", "host", url.host))
                    answer = await self._fetch(url)
                    location = answer.headers.get("location")
                    if answer.status not in _REDIRECTS or not location:
                        return Page(url, answer)
                    # Headers were decoded byte by byte; decode a location in UTF-8.
                    url = join_url(url, location.encode("latin-1").decode("utf-8", "replace"))
                raise ToolFailed(f"the page redirects more than {self.limits.redirects} times")
        except TimeoutError as error:
            raise ToolFailed(f"the page did not arrive within {self.limits.total_s:g} s") from error

    async def _fetch(self, url: Url) -> _Answer:
        """Return the answer of the first reachable address, after all of them were checked."""
        addresses: Sequence[Address] = [] if url.address is None else [url.address]
        if url.address is None:
            try:
                async with asyncio.timeout(self.limits.connect_s):
                    addresses = await self._resolve(url.host)
            except TimeoutError as error:
                raise ToolFailed(f"the name {url.host} was not resolved in time") from error
            except (OSError, UnicodeError, ValueError) as error:
                raise ToolFailed(f"the name {url.host} cannot be resolved: {error}") from error
        # One refused address refuses the host: its name server must not choose which address is used.
        for address in addresses:
            if reason := self._policy(address):
                raise ToolFailed(f"{url.host} is not fetched: its address {address} {reason}")
        if url.scheme == "https" and self._tls is None:
            # Loading the certificates is slow; it is done once.
            self._tls = await run_in_thread(ssl.create_default_context)
        tls = self._tls if url.scheme == "https" else None
        last_error = _Unreachable(f"{url.host} has no address")
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                return await _exchange(
                    url, address, tls=tls, max_bytes=self.limits.max_bytes, connect_s=self.limits.connect_s
                )
            except _Unreachable as error:
                last_error = error
        raise last_error


class _Unreachable(ToolFailed):
    """This address could not be connected to; another one of the host may."""


class _Answer(msgspec.Struct, frozen=True):
    """An HTTP answer. ``cut``: the body was longer than allowed. ``broken``: it ended before it was complete."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes
    cut: bool = False
    broken: bool = False


async def _exchange(
    url: Url, address: Address, *, tls: ssl.SSLContext | None, max_bytes: int, connect_s: float
) -> _Answer:
    """GET ``url`` from ``address``. The certificate is checked for the URL's host, not for the address."""
    try:
        async with asyncio.timeout(connect_s):
            reader, writer = await asyncio.open_connection(
                str(address),
                url.port,
                ssl=tls,
                server_hostname=url.host if tls is not None else None,
                limit=_MAX_LINE,
            )
    except TimeoutError as error:
        raise _Unreachable(f"{url.host} did not answer within {connect_s:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise ToolFailed(f"the certificate of {url.host} is not valid: {error.verify_message}") from error
    except OSError as error:
        raise _Unreachable(f"{url.host} cannot be reached: {error.strerror or error}") from error
    try:
        lines = (
            f"GET {url.request} HTTP/1.1",
            f"Host: {url.authority}",
            "User-Agent: clew",
            "Accept: text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1",
            "Accept-Encoding: gzip, deflate",
            "Connection: close\r\n\r\n",
        )
        writer.write("\r\n".join(lines).encode("ascii"))
        await writer.drain()
        return await _answer(reader, max_bytes)
    except asyncio.IncompleteReadError as error:
        raise ToolFailed(f"{url.host} closed the connection before its answer was complete") from error
    except (OSError, zlib.error) as error:
        raise ToolFailed(f"the answer of {url.host} broke off: {error}") from error
    finally:
        # No orderly close: a server that does not close its side must not delay the tool.
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader, max_bytes: int) -> _Answer:
    for _ in range(_MAX_INTERIM):
        match = _STATUS.fullmatch(await _line(reader))
        if match is None:
            raise ToolFailed("the server does not speak HTTP/1.1")
        status, reason = int(match[1]), (match[2] or b"").decode("latin-1")[:100]
        headers = await _headers(reader)
        if status >= 200:
            break
    else:
        raise ToolFailed("the server only sends interim answers")
    if status in (204, 304):
        return _Answer(status, reason, headers, b"")
    return _Answer(status, reason, headers, *await _body(reader, headers, max_bytes))


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS):
        line = await _line(reader)
        if not line:
            return headers
        name, colon, value = line.partition(b":")
        if not colon or name != name.strip():
            raise ToolFailed("the server sent a header that cannot be read")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        if key == "content-length" and headers.get(key, text) != text:
            raise ToolFailed("the server gave two lengths for one answer")
        headers[key] = (
            f"{headers[key]}, {text}" if key in ("transfer-encoding", "content-encoding") and key in headers else text
        )
    raise ToolFailed(f"the server sent more than {_MAX_HEADERS} headers")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise ToolFailed(f"the server sent a header of more than {_MAX_LINE:,} bytes") from error
    return line.removesuffix(b"\n").removesuffix(b"\r")


async def _body(reader: asyncio.StreamReader, headers: dict[str, str], max_bytes: int) -> tuple[bytes, bool, bool]:
    """Return the body, whether it was cut, and whether it ended early. Never decompresses more than needed."""
    content_encoding = headers.get("content-encoding", "")
    coding = content_encoding.lower().strip()
    if coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise ToolFailed(f"the server sent a content coding that was not asked for: {content_encoding[:50]}")
    inflate = None
    if coding not in ("", "identity"):
        inflate = zlib.decompressobj(zlib.MAX_WBITS if coding == "deflate" else 16 + zlib.MAX_WBITS)
    data = bytearray()
    received = 0
    try:
        async for piece in _pieces(reader, headers):
            room = max_bytes + 1 - len(data)
            try:
                data += piece[:room] if inflate is None else inflate.decompress(piece, room)
            except zlib.error:
                if received or coding != "deflate":
                    raise
                # "deflate" means zlib's format, and many servers send the bare one.
                inflate = zlib.decompressobj(-zlib.MAX_WBITS)
                data += inflate.decompress(piece, room)
            received += len(piece)
            # Counted before and after decompression, against endless bodies and decompression bombs.
            if len(data) > max_bytes or received > max_bytes:
                return bytes(data[:max_bytes]), True, False
    except asyncio.IncompleteReadError:
        return bytes(data), False, True
    return bytes(data), False, inflate is not None and not inflate.eof and received > 0


async def _pieces(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    coding = headers.get("transfer-encoding", "").lower()
    length = headers.get("content-length")
    if coding not in ("", "identity", "chunked"):
        raise ToolFailed(f"the server sent a transfer coding that is not understood: {coding[:50]}")
    if coding == "chunked":
        # At the chunk of no size trailers may follow; the connection is closed anyway.
        while size := await _chunk_size(reader):
            async for piece in _exactly(reader, size):
                yield piece
            if await _line(reader):
                raise ToolFailed("the server sent a chunk that cannot be read")
    elif length is None:
        while piece := await reader.read(_PIECE):
            yield piece
    elif not re.fullmatch(r"[0-9]{1,18}", length, re.ASCII):
        raise ToolFailed("the server sent a length that is not a number")
    else:
        async for piece in _exactly(reader, int(length)):
            yield piece


async def _chunk_size(reader: asyncio.StreamReader) -> int:
    match = _CHUNK.fullmatch(await _line(reader))
    if match is None:
        raise ToolFailed("the server sent a chunk that cannot be read")
    return int(match[1], 16)


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size > 0:
        piece = await reader.read(min(size, _PIECE))
        if not piece:
            raise asyncio.IncompleteReadError(b"", size)
        size -= len(piece)
        yield piece
