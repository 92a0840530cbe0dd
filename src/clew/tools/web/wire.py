"""One HTTP/1.1 request over one connection, with a bounded answer.

The caller has chosen the address; no name is resolved here. The size of an answer is limited before and after
decompression, so neither an endless body nor a decompression bomb fills the memory.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import msgspec

from clew.errors import ToolFailed
from clew.tools.web.address import Address
from clew.tools.web.url import Url

__all__ = ["Answer", "Unreachable", "exchange"]

_MAX_LINE: Final = 16 * 1024
_MAX_HEADERS: Final = 200
_MAX_INTERIM: Final = 5
_PIECE: Final = 64 * 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: (.*))?", re.DOTALL)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?", re.DOTALL)


class Unreachable(ToolFailed):
    """This address could not be connected to; another one of the host may."""


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer. ``cut``: the body was longer than allowed. ``broken``: it ended before it was complete."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes
    cut: bool = False
    broken: bool = False


async def exchange(
    url: Url, address: Address, *, tls: ssl.SSLContext | None, max_bytes: int, connect_s: float
) -> Answer:
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
        raise Unreachable(f"{url.host} did not answer within {connect_s:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise ToolFailed(f"the certificate of {url.host} is not valid: {error.verify_message}") from error
    except OSError as error:
        raise Unreachable(f"{url.host} cannot be reached: {error.strerror or error}") from error
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


async def _answer(reader: asyncio.StreamReader, max_bytes: int) -> Answer:
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
        return Answer(status, reason, headers, b"")
    return Answer(status, reason, headers, *await _body(reader, headers, max_bytes))


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
