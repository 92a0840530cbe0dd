"""The wire: requests to a clew server over HTTP/1.1, one connection each.

It supports only what clew's own server speaks: JSON bodies, problems, and server-sent events. A refusal is raised as
the error it was on the server; an unreachable server is an unavailable store; a response that clew's server would not
send is a :class:`BadAnswer`. Redirects and proxies are not followed, so the token goes nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Collection, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from clew import errors as e
from clew.convert import convert_json
from clew.store.owner import is_loopback

__all__ = ["BadAnswer", "Gone", "Unauthorized", "Wire", "segment"]

T = TypeVar("T")

_CONNECT_S: Final = 3.0
_SILENCE_S: Final = 10.0
_MAX_LINE_BYTES: Final = 1024 * 1024
_MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
_MAX_BODY_BYTES: Final = 1024 * 1024 * 1024
"""Far above the size of any export; a larger response is treated as endless."""
_READ_BYTES: Final = 1024 * 1024
_PROBLEM_FIELDS: Final = frozenset({"type", "title", "status", "detail", "code"})


class Gone(e.StoreUnavailable):
    """The server that has the store no longer responds."""


class BadAnswer(e.StoreUnavailable):
    """A response that is not from a clew server, or was changed on the way; a retry would not help."""

    code = "bad_answer"


class Unauthorized(e.PermissionDenied):
    """The server does not accept the token."""

    code = "unauthorized"


# The error class of each code; if several share one, the most derived.
_ERRORS: Final[list[type[e.ClewError]]] = [*(getattr(e, name) for name in e.__all__), Unauthorized]
_KINDS: Final = {kind.code: kind for kind in sorted(_ERRORS, key=lambda kind: len(kind.__mro__))}
_BY_STATUS: Final[dict[int, type[e.ClewError]]] = {403: e.PermissionDenied, 404: e.NotFound, 409: e.Conflict}


class Wire:
    """The connection settings of one server, whose process id is given if it is known.

    The server of a store must be on this machine; with ``anywhere`` the caller chose the address. ``timeout`` is how
    long a connection may take, and how long the server may be silent before it is probed.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        pid: int | None = None,
        *,
        anywhere: bool = False,
        timeout: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if token is not None and not (token.isascii() and token.isprintable()):
            raise e.InvalidInput("the token contains characters that cannot be sent; check CLEW_TOKEN")
        if not anywhere and not is_loopback(url):
            raise e.StoreUnavailable(f"the store's owner announced {url!r}, which is not an address of this machine")
        parts = urlsplit(url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise e.InvalidInput(f"{url!r} is not a valid address: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise e.InvalidInput(f"{url!r} is not a server address; use http://host:port or https://host/path")
        if parts.username is not None or not url.isascii() or not url.isprintable() or " " in url:
            raise e.InvalidInput("a server address must be ASCII, without a user name or password")
        self._host, self._port, self._netloc = parts.hostname, port, parts.netloc
        self._base = parts.path.rstrip("/")
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._token, self.url, self._pid = token, url, pid
        self._connect_s, self._silence_s = timeout or _CONNECT_S, timeout or _SILENCE_S
        self._writers: set[asyncio.StreamWriter] = set()
        self._closed = False

    def close(self) -> None:
        """Abort all open requests; later ones are refused."""
        self._closed = True
        for writer in self._writers:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Open a connection and close it on exit; its errors are raised as clew's."""
        if self._closed:
            raise e.StoreClosed("this client is closed")
        writer = None
        try:
            async with asyncio.timeout(self._connect_s):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, limit=_MAX_LINE_BYTES, ssl=self._tls
                )
            self._writers.add(writer)
            yield reader, writer
        except (ssl.SSLError, asyncio.LimitOverrunError) as error:
            raise self.bad(error) from error
        except (OSError, EOFError) as error:
            if self._closed:
                raise e.StoreClosed("this client was closed during the request") from error
            raise self._gone(error) from error
        except ValueError as error:
            raise self.bad(error) from error
        finally:
            if writer is not None:
                self._writers.discard(writer)
                writer.transport.abort()

    async def probe(self) -> None:
        """Check without the token that the server responds; raise :class:`Gone` if it does not within a few seconds.

        A stopped process still has its socket, so a connection alone proves nothing.
        """
        try:
            async with asyncio.timeout(self._connect_s), self._connected() as (reader, writer):
                head = f"GET {self._base}/api/health HTTP/1.1\r\nHost: {self._netloc}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                await _head(reader)
                # Some servers send a head and then nothing.
                await reader.read(1)
        except TimeoutError as error:
            raise Gone(
                f"the server at {self.url} has the store open and has not responded for {self._connect_s:g} seconds; "
                "it may be suspended or overloaded: resume or kill "
                f"{'it' if self._pid is None else f'process {self._pid}'}"
            ) from error

    def _gone(self, error: Exception) -> Gone:
        return Gone(f"the server at {self.url} does not respond: {str(error) or type(error).__name__}")

    def bad(self, why: object) -> BadAnswer:
        return BadAnswer(f"the server at {self.url} is not a clew server, or has another version: {why}")

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Raise :class:`BadAnswer` for errors while a response is interpreted."""
        try:
            yield
        except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self.bad(f"invalid response: {error}") from error

    async def _read_probing(self, reading: Awaitable[T]) -> T:
        """Return what is read, however long it takes, as long as the server responds to probes."""
        task = asyncio.ensure_future(reading)
        try:
            while not (await asyncio.wait({task}, timeout=self._silence_s))[0]:
                await self.probe()
            return await task
        finally:
            task.cancel()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        query: Mapping[str, Any] | None = None,
        *,
        good: Collection[int] | None = None,
    ) -> tuple[Mapping[str, str], bytes]:
        """Return the headers and the body of a response; raise a refusal, or a status that is not in ``good``."""
        async with self._exchange(method, path, body, query, "application/json") as (status, headers, reader):
            answer = await self._body(reader, headers)
            self._check(status, headers, answer)
            if good is not None and status not in good:
                raise self.bad(f"it answered {status} to {method} {path}")
        return headers, answer

    async def frames(
        self, path: str, query: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[tuple[str | None, bytes], None]:
        """Yield the ``id:`` and the ``data:`` of each event of a stream, until it ends; nothing if there is no
        stream."""
        async with self._exchange("GET", path, None, query, "text/event-stream") as (status, headers, reader):
            streams = headers.get("content-type", "").startswith("text/event-stream")
            if status == 204:
                return
            if status != 200 or not streams:
                answer = await self._body(reader, headers)
                self._check(status, headers, answer)
                raise self.bad(f"it has no stream at {path}")
            buffer = bytearray()
            async for piece in self._pieces(reader, headers):
                # Do not scan the same bytes again: a frame may be large.
                start = max(len(buffer) - 1, 0)
                buffer += piece
                while (end := buffer.find(b"\n\n", start)) >= 0:
                    frame, start = bytes(buffer[:end]), 0
                    del buffer[: end + 2]
                    id_, _, data = frame.rpartition(b"\n")
                    if data.startswith(b"data: "):
                        yield id_[4:].decode() if id_.startswith(b"id: ") else None, data[6:]
                if len(buffer) > _MAX_FRAME_BYTES:
                    raise self.bad("an event of its stream is too large")

    def _check(self, status: int, headers: Mapping[str, str], answer: bytes) -> None:
        if 300 <= status < 400:
            raise self.bad(
                f"it answered {status}, a redirect to {headers.get('location', 'nowhere')!r}, which is not followed"
            )
        if status >= 400:
            self._refuse(status, answer)

    def _refuse(self, status: int, body: bytes) -> NoReturn:
        try:
            problem = convert_json(body, dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            problem = {}
        code = problem.get("code")
        if not isinstance(code, str):
            # clew's own refusals all have a code. A proxy's 404 says nothing about a session; its error for a
            # restarting server is temporary.
            if status == 401:
                raise Unauthorized(f"the server at {self.url} does not accept the token")
            if status < 500:
                raise self.bad(f"it answered {status}")
            raise e.StoreError(f"the server answered {status}")
        kind = _KINDS.get(code) or _BY_STATUS.get(status, e.Invalid if status < 500 else e.StoreError)
        error = kind(str(problem.get("detail") or f"the server answered {status}"))
        error.ids |= {
            name: value for name, value in problem.items() if name not in _PROBLEM_FIELDS and value is not None
        }
        if code != kind.code:
            # Errors that only servers raise have a code but no class here.
            vars(error)["code"] = code
        raise error

    @contextlib.asynccontextmanager
    async def _exchange(
        self, method: str, path: str, body: bytes | None, query: Mapping[str, Any] | None, accept: str
    ) -> AsyncIterator[tuple[int, dict[str, str], asyncio.StreamReader]]:
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        parameters |= {name: str(value).lower() for name, value in parameters.items() if isinstance(value, bool)}
        target = self._base + (f"{path}?{urlencode(parameters)}" if parameters else path)
        data = body or b""
        head = [
            f"{method} {target} HTTP/1.1",
            f"Host: {self._netloc}",
            *([] if self._token is None else [f"Authorization: Bearer {self._token}"]),
            f"Accept: {accept}",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
            "Connection: close",
        ]
        async with self._connected() as (reader, writer):
            writer.write("\r\n".join([*head, "", ""]).encode() + data)
            # Not drained: a server may refuse a body without reading all of it, and say why.
            yield *await self._read_probing(_head(reader)), reader

    async def _body(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
        buffer = bytearray()
        async for piece in self._pieces(reader, headers):
            buffer += piece
            if len(buffer) > _MAX_BODY_BYTES:
                raise self.bad("its response is too large")
        return bytes(buffer)

    async def _exactly(self, reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
        """Yield so many bytes in pieces; the announced length is not trusted for allocation."""
        if size < 0:
            raise ValueError(f"{size} is not a valid length")
        while size:
            piece = await self._read_probing(reader.read(min(size, _READ_BYTES)))
            if not piece:
                raise EOFError("the connection was cut")
            size -= len(piece)
            yield piece

    async def _pieces(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while line := await self._read_probing(reader.readline()):
                if not (size := int(line.partition(b";")[0], 16)):
                    return
                async for piece in self._exactly(reader, size):
                    yield piece
                await self._read_probing(reader.readexactly(2))
            raise EOFError("the connection was cut")
        elif "content-length" in headers:
            async for piece in self._exactly(reader, int(headers["content-length"])):
                yield piece
        else:
            while piece := await self._read_probing(reader.read(65536)):
                yield piece


def segment(value: str) -> str:
    """Quote an id as a segment of a path. Ids that would be several segments, or none, were not assigned by clew."""
    if "/" in value or value in ("", ".", ".."):
        raise e.InvalidId(f"{value!r} is not a valid id")
    return quote(value, safe="")


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    if not first.startswith("HTTP/1."):
        raise ValueError(f"{first[:60]!r} is not HTTP")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return int(first.split(" ", 2)[1]), headers
