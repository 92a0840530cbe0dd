"""The wire: requests to a clew server, over HTTP/1.1, one connection each.

Only what clew's own server speaks: JSON bodies, problems, and server-sent events. A refusal is raised as the error it
was on the other side; a server that is gone is a store that cannot be reached; an answer that clew's server does not
give is one that somebody else has given. No redirect is followed and no proxy asked, so the token goes nowhere else.
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
from clew.fit import fit_json
from clew.store.owner import is_loopback

__all__ = ["BadAnswer", "Gone", "Unauthorized", "Wire", "segment"]

T = TypeVar("T")

_CONNECT_S: Final = 3.0
_PATIENCE_S: Final = 10.0
_LONGEST_LINE: Final = 1024 * 1024
_LARGEST_FRAME: Final = 64 * 1024 * 1024
_LARGEST_BODY: Final = 1024 * 1024 * 1024
"""Far above what is exported of any session; whoever sends more does not stop."""
_PIECE: Final = 1024 * 1024
_ABOUT: Final = frozenset({"type", "title", "status", "detail", "code"})


class Gone(e.StoreUnavailable):
    """The server that has the store does not answer any more."""


class BadAnswer(e.StoreUnavailable):
    """What answered is no clew server, or something in between spoke for it; trying again would not help."""

    code = "bad_answer"


class Unauthorized(e.PermissionDenied):
    """The server does not know the token."""

    code = "unauthorized"


# The error of each code; where a kind and its root share one, the kind.
_ERRORS: Final[list[type[e.ClewError]]] = [*(getattr(e, name) for name in e.__all__), Unauthorized]
_KINDS: Final = {kind.code: kind for kind in sorted(_ERRORS, key=lambda kind: len(kind.__mro__))}
_BY_STATUS: Final[dict[int, type[e.ClewError]]] = {403: e.PermissionDenied, 404: e.NotFound, 409: e.Conflict}


class Wire:
    """Talks to one server, whose process is named where it is known.

    The server of a store must be on this machine; another one is whoever the caller names (``anywhere``).
    ``timeout`` is how long a connection may take, and how long the server may be silent before it is asked whether it
    is there at all.
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
            raise e.InvalidInput("the token is not one that can be sent; see CLEW_TOKEN")
        if not anywhere and not is_loopback(url):
            raise e.StoreUnavailable(f"the store's owner says it is at {url!r}, which is no address of this machine")
        place = urlsplit(url)
        try:
            port = place.port or (443 if place.scheme == "https" else 80)
        except ValueError as error:
            raise e.InvalidInput(f"{url!r} is no address: {error}") from error
        if place.scheme not in ("http", "https") or not place.hostname or place.query or place.fragment:
            raise e.InvalidInput(f"{url!r} is no address of a server; one is http://host:port, or https://host/path")
        if place.username is not None or not url.isascii() or not url.isprintable() or " " in url:
            raise e.InvalidInput("the address of a server holds no name, no password and nothing but ASCII")
        self._host, self._port, self._netloc = place.hostname, port, place.netloc
        self._base = place.path.rstrip("/")
        self._tls = (tls or ssl.create_default_context()) if place.scheme == "https" else None
        self._token, self.url, self._pid = token, url, pid
        self._connect_s, self._patience_s = timeout or _CONNECT_S, timeout or _PATIENCE_S
        self._writers: set[asyncio.StreamWriter] = set()
        self._closed = False

    def close(self) -> None:
        """Leave every exchange that goes on; nothing is asked from now on."""
        self._closed = True
        for writer in self._writers:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection, gone afterwards; whatever breaks on it says so in clew's words."""
        if self._closed:
            raise e.StoreClosed("this client is closed")
        writer = None
        try:
            async with asyncio.timeout(self._connect_s):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, limit=_LONGEST_LINE, ssl=self._tls
                )
            self._writers.add(writer)
            yield reader, writer
        except (ssl.SSLError, asyncio.LimitOverrunError) as error:
            raise self.bad(error) from error
        except (OSError, EOFError) as error:
            if self._closed:
                raise e.StoreClosed("this client was closed meanwhile") from error
            raise self._gone(error) from error
        except ValueError as error:
            raise self.bad(error) from error
        finally:
            if writer is not None:
                self._writers.discard(writer)
                writer.transport.abort()

    async def probe(self) -> None:
        """Ask whether somebody is there, without the token; :class:`Gone` when no answer comes in a few seconds.

        A process that was stopped still has its socket, so a connection alone says nothing.
        """
        try:
            async with asyncio.timeout(self._connect_s), self._connected() as (reader, writer):
                head = f"GET {self._base}/api/health HTTP/1.1\r\nHost: {self._netloc}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                await _head(reader)
                # Some say that an answer comes, and nothing more.
                await reader.read(1)
        except TimeoutError as error:
            raise Gone(
                f"the server at {self.url} has the store open and has not answered for {self._connect_s:g} seconds; "
                f"it may be stopped or overloaded: let {'it' if self._pid is None else f'process {self._pid}'} go on, "
                "or end it"
            ) from error

    def _gone(self, error: Exception) -> Gone:
        return Gone(f"the server at {self.url} does not answer: {str(error) or type(error).__name__}")

    def bad(self, why: object) -> BadAnswer:
        return BadAnswer(f"what answers at {self.url} is no clew server, or one of another version: {why}")

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """What an answer says is being read; one that makes no sense is told as that."""
        try:
            yield
        except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self.bad(f"its answer makes no sense: {error}") from error

    async def _awaited(self, reading: Awaitable[T]) -> T:
        """What is read, however long it takes, as long as the server answers others."""
        task = asyncio.ensure_future(reading)
        try:
            while not (await asyncio.wait({task}, timeout=self._patience_s))[0]:
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
        """The headers and the body of an answer; a refusal is raised, and so is a status that is none of the good."""
        async with self._exchange(method, path, body, query, "application/json") as (status, headers, reader):
            answer = await self._body(reader, headers)
            self._check(status, headers, answer)
            if good is not None and status not in good:
                raise self.bad(f"it says {status} to {method} {path}")
        return headers, answer

    async def frames(self, path: str, query: Mapping[str, Any] | None = None) -> AsyncGenerator[bytes, None]:
        """The ``data:`` of each event of a stream, until it ends; nothing where there is none."""
        async with self._exchange("GET", path, None, query, "text/event-stream") as (status, headers, reader):
            streams = headers.get("content-type", "").startswith("text/event-stream")
            if status == 204:
                return
            if status != 200 or not streams:
                answer = await self._body(reader, headers)
                self._check(status, headers, answer)
                raise self.bad(f"it has no stream at {path}")
            held = bytearray()
            async for piece in self._pieces(reader, headers):
                # What was looked through is not looked through again: a frame may be large.
                begin = max(len(held) - 1, 0)
                held += piece
                while (end := held.find(b"\n\n", begin)) >= 0:
                    frame, begin = bytes(held[:end]), 0
                    del held[: end + 2]
                    if frame.startswith(b"data: "):
                        yield frame[6:]
                if len(held) > _LARGEST_FRAME:
                    raise self.bad("an event of its stream has no end")

    def _check(self, status: int, headers: Mapping[str, str], answer: bytes) -> None:
        if 300 <= status < 400:
            raise self.bad(f"it says {status} and to look at {headers.get('location', 'nowhere')!r}, which is not done")
        if status >= 400:
            self._refuse(status, answer)

    def _refuse(self, status: int, body: bytes) -> NoReturn:
        try:
            problem = fit_json(body, dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            problem = {}
        code = problem.get("code")
        if not isinstance(code, str):
            # clew's own refusals all have one. A proxy's 404 is no word on a session; what it says of a server that is
            # being started again passes.
            if status == 401:
                raise Unauthorized(f"what answers at {self.url} does not know the token")
            if status < 500:
                raise self.bad(f"it says {status}")
            raise e.StoreError(f"the server answered {status}")
        kind = _KINDS.get(code) or _BY_STATUS.get(status, e.Invalid if status < 500 else e.StoreError)
        error = kind(str(problem.get("detail") or f"the server answered {status}"))
        error.ids |= {name: value for name, value in problem.items() if name not in _ABOUT and value is not None}
        if code != kind.code:
            # What only servers refuse has no class of its own, and a code all the same.
            vars(error)["code"] = code
        raise error

    @contextlib.asynccontextmanager
    async def _exchange(
        self, method: str, path: str, body: bytes | None, query: Mapping[str, Any] | None, accept: str
    ) -> AsyncIterator[tuple[int, dict[str, str], asyncio.StreamReader]]:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        given |= {name: str(value).lower() for name, value in given.items() if isinstance(value, bool)}
        target = self._base + (f"{path}?{urlencode(given)}" if given else path)
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
            # Not waited for: who refuses a body without reading all of it says why.
            yield *await self._awaited(_head(reader)), reader

    async def _body(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
        held = bytearray()
        async for piece in self._pieces(reader, headers):
            held += piece
            if len(held) > _LARGEST_BODY:
                raise self.bad("its answer has no end")
        return bytes(held)

    async def _exactly(self, reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
        """So many bytes, piece by piece: how many are said to come is not believed before they have."""
        if size < 0:
            raise ValueError(f"{size} is no length")
        while size:
            piece = await self._awaited(reader.read(min(size, _PIECE)))
            if not piece:
                raise EOFError("the connection was cut")
            size -= len(piece)
            yield piece

    async def _pieces(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while line := await self._awaited(reader.readline()):
                if not (size := int(line.partition(b";")[0], 16)):
                    return
                async for piece in self._exactly(reader, size):
                    yield piece
                await self._awaited(reader.readexactly(2))
            raise EOFError("the connection was cut")
        elif "content-length" in headers:
            async for piece in self._exactly(reader, int(headers["content-length"])):
                yield piece
        else:
            while piece := await self._awaited(reader.read(65536)):
                yield piece


def segment(value: str) -> str:
    """An id as a part of a path. One that would be several parts, or none, was not given out by clew."""
    if "/" in value or value in ("", ".", ".."):
        raise e.InvalidId(f"{value!r} cannot be an id here")
    return quote(value, safe="")


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    if not first.startswith("HTTP/1."):
        raise ValueError(f"{first[:60]!r} is no HTTP")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return int(first.split(" ", 2)[1]), headers
