"""The wire: requests to a clew server on this machine, over HTTP/1.1, one connection each.

Only what clew's own server speaks: JSON bodies, problems, and server-sent events. A refusal is raised as the error it
was on the other side; a server that is gone is a store that cannot be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from clew import errors as e
from clew.store.owner import is_loopback

__all__ = ["Gone", "Unauthorized", "Wire", "segment"]

T = TypeVar("T")

_CONNECT_S: Final = 3.0
_PATIENCE_S: Final = 10.0
_LONGEST_LINE: Final = 1024 * 1024
_ABOUT: Final = frozenset({"type", "title", "status", "detail", "code"})


class Gone(e.StoreUnavailable):
    """The server that has the store does not answer any more."""


class Unauthorized(e.PermissionDenied):
    code = "unauthorized"


# The error of each code; where a kind and its root share one, the kind.
_ERRORS: Final[list[type[e.ClewError]]] = [*(getattr(e, name) for name in e.__all__), Unauthorized]
_KINDS: Final = {kind.code: kind for kind in sorted(_ERRORS, key=lambda kind: len(kind.__mro__))}
_BY_STATUS: Final[dict[int, type[e.ClewError]]] = {403: e.PermissionDenied, 404: e.NotFound, 409: e.Conflict}


class Wire:
    """Talks to one server, whose process is named where it is known. The token goes into a header and nowhere else."""

    def __init__(self, url: str, token: str, pid: int | None = None) -> None:
        if not (token.isascii() and token.isprintable()):
            raise e.InvalidInput("the token is not one that can be sent; see CLEW_TOKEN")
        if not is_loopback(url):
            raise e.StoreUnavailable(f"the store's owner says it is at {url!r}, which is no address of this machine")
        place = urlsplit(url)
        self._host, self._port, self._netloc = str(place.hostname), int(place.port or 0), place.netloc
        self._token, self.url, self._pid = token, url, pid

    async def probe(self) -> None:
        """Ask whether somebody is there, without the token; :class:`Gone` when no answer comes in a few seconds.

        A process that was stopped still has its socket, so a connection alone says nothing.
        """
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(self._host, self._port, limit=_LONGEST_LINE)
                try:
                    head = f"GET /api/health HTTP/1.1\r\nHost: {self._netloc}\r\nConnection: close\r\n\r\n"
                    writer.write(head.encode())
                    await _head(reader)
                finally:
                    writer.transport.abort()
        except TimeoutError as error:
            raise Gone(
                f"the server at {self.url} has the store open and has not answered for {_CONNECT_S:g} seconds; "
                f"it may be stopped or overloaded: let {'it' if self._pid is None else f'process {self._pid}'} go on, "
                "or end it"
            ) from error
        except (OSError, EOFError, ValueError) as error:
            raise self._gone(error) from error

    def _gone(self, error: Exception) -> Gone:
        return Gone(f"the server at {self.url} does not answer: {str(error) or type(error).__name__}")

    async def _awaited(self, reading: Awaitable[T]) -> T:
        """What is read, however long it takes, as long as the server answers others."""
        task = asyncio.ensure_future(reading)
        try:
            while not (await asyncio.wait({task}, timeout=_PATIENCE_S))[0]:
                await self.probe()
            return await task
        finally:
            task.cancel()

    async def send(
        self, method: str, path: str, body: bytes | None = None, query: Mapping[str, Any] | None = None
    ) -> tuple[Mapping[str, str], bytes]:
        """The headers and the body of an answer; a refusal is raised."""
        async with self._exchange(method, path, body, query, "application/json") as (status, headers, reader):
            answer = b"".join([piece async for piece in self._pieces(reader, headers)])
        if status >= 400:
            _refuse(status, answer)
        return headers, answer

    async def frames(self, path: str) -> AsyncGenerator[bytes, None]:
        """The ``data:`` of each event of a stream, until it ends; nothing where there is none."""
        async with self._exchange("GET", path, None, None, "text/event-stream") as (status, headers, reader):
            if status >= 400:
                _refuse(status, b"".join([piece async for piece in self._pieces(reader, headers)]))
            rest = b""
            async for piece in self._pieces(reader, headers):
                *whole, rest = (rest + piece).split(b"\n\n")
                for frame in whole:
                    if frame.startswith(b"data: "):
                        yield frame[6:]

    @contextlib.asynccontextmanager
    async def _exchange(
        self, method: str, path: str, body: bytes | None, query: Mapping[str, Any] | None, accept: str
    ) -> AsyncIterator[tuple[int, dict[str, str], asyncio.StreamReader]]:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        given |= {name: str(value).lower() for name, value in given.items() if isinstance(value, bool)}
        target = f"{path}?{urlencode(given)}" if given else path
        data = body or b""
        writer = None
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(self._host, self._port, limit=_LONGEST_LINE)
            head = [
                f"{method} {target} HTTP/1.1",
                f"Host: {self._netloc}",
                f"Authorization: Bearer {self._token}",
                f"Accept: {accept}",
                "Content-Type: application/json",
                f"Content-Length: {len(data)}",
                "Connection: close",
            ]
            writer.write("\r\n".join([*head, "", ""]).encode() + data)
            await writer.drain()
            yield *await self._awaited(_head(reader)), reader
        except (OSError, EOFError, ValueError) as error:
            raise self._gone(error) from error
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _pieces(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self._awaited(reader.readline()), 16):
                yield await self._awaited(reader.readexactly(size))
                await self._awaited(reader.readexactly(2))
        elif length := int(headers.get("content-length", "0")):
            yield await self._awaited(reader.readexactly(length))


def segment(value: str) -> str:
    """An id as a part of a path. One that would be several parts, or none, was not given out by clew."""
    if "/" in value or value in ("", ".", ".."):
        raise e.InvalidId(f"{value!r} cannot be an id here")
    return quote(value, safe="")


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return int(first.split(" ", 2)[1]), headers


def _refuse(status: int, body: bytes) -> NoReturn:
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = {}
    kind = _KINDS.get(str(problem.get("code"))) or _BY_STATUS.get(status, e.Invalid if status < 500 else e.StoreError)
    ids = {name: value for name, value in problem.items() if name not in _ABOUT}
    raise kind(str(problem.get("detail") or f"the server answered {status}"), **ids)
