"""Server-sent events: ``data:`` frames from a source to one client, until either ends.

A client that disconnects only closes its source; whatever the source watched continues. A slow client delays only its
own task. Frames that are ready together are sent together. A comment every 15 seconds keeps proxies from timing out. A
server that shuts down says so through :class:`Streams`: finite streams get a moment to end, the others end immediately.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from starlette.types import Receive, Scope, Send

from clew.errors import ClewError
from clew.live.base import Batch
from clew.transcript.chunk import Chunk, encode_chunk

__all__ = [
    "BODY_SEND",
    "CHAT_HEADERS",
    "HEARTBEAT_S",
    "SSE_HEADERS",
    "STILL_VALID",
    "EventStream",
    "Streams",
    "chunk_frames",
    "closing",
    "frame",
]

log = logging.getLogger("clew.http")

HEARTBEAT_S: Final = 15.0
GRACE_S: Final = 1.5
BODY_SEND: Final = "clew.body_send"
"""Scope key: the server's own ``send``."""
STILL_VALID: Final = "clew.still_good"
"""Scope key: a function that tells whether the token is still valid; called at every heartbeat of a stream."""
_HEAD_S: Final = 0.02
"""Time the response head waits for the first piece, to be sent together with it."""
_LAST_WRITE_S: Final = 0.5
_COMMENT: Final = b": keep-alive\n\n"
_DONE: Final = b"data: [DONE]\n\n"
SSE_HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "connection": "keep-alive",
    "x-accel-buffering": "no",
    "x-content-type-options": "nosniff",
}
CHAT_HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
_encode = msgspec.json.Encoder().encode
T = TypeVar("T")


def frame(value: Any) -> bytes:
    """Encode one frame. JSON contains no line breaks, so one line is enough."""
    return b"data: %b\n\n" % _encode(value)


def closing(source: AsyncIterator[T]) -> contextlib.aclosing[AsyncGenerator[T, None]]:
    """Close a source on exit. The engine's iterators are generators, whatever their annotations say."""
    return contextlib.aclosing(cast(AsyncGenerator[T, None], source))


class LastFrame(bytes):
    """The final piece of a stream."""


async def chunk_frames(batches: AsyncIterator[Sequence[Chunk]]) -> AsyncGenerator[bytes, None]:
    """Yield a chat stream: available chunks as one piece, ``[DONE]`` with the last one where that is known."""
    async with closing(batches) as source:
        async for batch in source:
            data = batch.encoded if isinstance(batch, Batch) else None
            if data is None:
                if isinstance(batch, Batch):
                    # Other viewers of this run at the same position send the same bytes.
                    data = batch.encoded = b"".join(map(_frame, batch, batch.cursors()))
                else:
                    data = b"".join(map(_frame, batch))
            if isinstance(batch, Batch) and batch.is_last:
                yield LastFrame(data + _DONE)
                return
            yield data
    yield LastFrame(_DONE)


def _frame(chunk: Chunk, cursor: str | None = None) -> bytes:
    """Encode one chunk, with the position after it as the event's id."""
    if cursor is None:
        return b"data: %b\n\n" % encode_chunk(chunk)
    return b"id: %b\ndata: %b\n\n" % (cursor.encode(), encode_chunk(chunk))


class Streams:
    """The streams of one server. After ``close``, every one ends, including new ones."""

    def __init__(self, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.heartbeat_s = heartbeat_s
        self.closing = False
        self._open: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        """Return the number of open streams."""
        return len(self._open)

    def add(self) -> asyncio.Future[None]:
        """Register a stream; the returned future is done when it has to end."""
        ending = asyncio.get_running_loop().create_future()
        self._open.add(ending)
        if self.closing:
            ending.set_result(None)
        return ending

    def remove(self, ending: asyncio.Future[None]) -> None:
        self._open.discard(ending)

    def close(self) -> None:
        self.closing = True
        for ending in self._open:
            if not ending.done():
                ending.set_result(None)


class EventStream:
    """An SSE response. ``finite``: the source ends by itself and gets a moment to do so on shutdown."""

    def __init__(
        self,
        source: AsyncGenerator[bytes, None],
        streams: Streams,
        *,
        finite: bool,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._source = source
        self._streams = streams
        self._finite = finite
        self._headers = [(k.encode(), v.encode()) for k, v in {**SSE_HEADERS, **(headers or {})}.items()]
        self._write_lock = asyncio.Lock()
        self._head_sent = self._body_ended = False
        self._heartbeat: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        # Middleware needs only the response head: body pieces bypass it.
        body: Send = scope.get(BODY_SEND, send)
        pump = loop.create_task(self._pump(send, body))
        disconnected = loop.create_task(_wait_disconnected(receive))

        def start_heartbeat() -> None:
            self._heartbeat = loop.create_task(self._send_heartbeats(send, body, scope.get(STILL_VALID), pump))

        # A timer first, and a task only when it is due: most responses end sooner.
        timer = loop.call_later(_HEAD_S, start_heartbeat)
        ending = self._streams.add()
        try:
            await asyncio.wait({pump, disconnected, ending}, return_when=asyncio.FIRST_COMPLETED)
            if self._finite and not pump.done() and not disconnected.done():
                await asyncio.wait({pump, disconnected}, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams.remove(ending)
            timer.cancel()
            tasks = [pump, disconnected, *([self._heartbeat] if self._heartbeat is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if pump.cancelled():
            if self._streams.closing:
                # The client may not be reading: do not wait for it.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WRITE_S):
                        await self._write(send, body, b"", more=False)
        elif (error := pump.exception()) is not None:
            if not isinstance(error, ClewError):
                raise error
            # Cut, not finished: the client sees a broken stream and joins again.
            log.info("disconnected a viewer: %s", error)

    async def _pump(self, send: Send, body: Send) -> None:
        async with closing(self._source) as source:
            try:
                async for data in source:
                    await self._write(send, body, data, more=not isinstance(data, LastFrame))
            except Exception:
                # A stream that fails has started: send its head.
                await self._write(send, body, b"")
                raise
        await self._write(send, body, b"", more=False)

    async def _send_heartbeats(
        self, send: Send, body: Send, still_valid: Callable[[], bool] | None, pump: asyncio.Task[None]
    ) -> None:
        """Send the head if no data has carried it, then comments at intervals while the token is valid."""
        await self._write(send, body, b"")
        while True:
            await asyncio.sleep(self._streams.heartbeat_s)
            if still_valid is not None and not still_valid():
                pump.cancel()
            if not self._write_lock.locked():
                # A client that does not read its data needs no comment.
                await self._write(send, body, _COMMENT)

    async def _write(self, send: Send, body: Send, data: bytes, *, more: bool = True) -> None:
        """Send the next piece after the head; only the head if there is no data."""
        async with self._write_lock:
            if not self._head_sent:
                self._head_sent = True
                await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            if not self._body_ended and (data or not more):
                self._body_ended = not more
                await body({"type": "http.response.body", "body": data, "more_body": more})


async def _wait_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
