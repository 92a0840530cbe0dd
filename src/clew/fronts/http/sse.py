"""Server-sent events: ``data:`` frames from a source to one client, for as long as both last.

A client that leaves detaches and nothing more: its source is closed, and whatever the source watched goes on. A
client that does not read is waited for by nobody but its own task. Frames that wait together are sent together. A
comment every 15 seconds keeps proxies from giving up. A server that ends says so through :class:`Streams`: streams
that end by themselves get a moment to do it, the others end at once.
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
    "STILL_GOOD",
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
"""In the scope of a request: how the server itself takes what is sent."""
STILL_GOOD: Final = "clew.still_good"
"""In the scope of a request: what says whether its token still counts; asked at every heartbeat of a stream."""
_HEAD_S: Final = 0.02
"""How long the head of an answer waits for its first piece, to go along with it."""
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
    """One frame. JSON holds no line break, so one line is always enough."""
    return b"data: %b\n\n" % _encode(value)


def closing(source: AsyncIterator[T]) -> contextlib.aclosing[AsyncGenerator[T, None]]:
    """Close a source when it is left. The engine's iterators are generators, whatever their contracts promise."""
    return contextlib.aclosing(cast(AsyncGenerator[T, None], source))


class Last(bytes):
    """What ends a stream: nothing comes behind it."""


async def chunk_frames(batches: AsyncIterator[Sequence[Chunk]]) -> AsyncGenerator[bytes, None]:
    """A chat stream: what waits together as one piece, ``[DONE]`` at the end, with the last one where that is known."""
    async with closing(batches) as source:
        async for batch in source:
            data = batch.encoded if isinstance(batch, Batch) else None
            if data is None:
                data = b"".join([b"data: %b\n\n" % encode_chunk(chunk) for chunk in batch])
                if isinstance(batch, Batch):
                    # Whoever else looks at this run and is as far sends the same bytes.
                    batch.encoded = data
            if isinstance(batch, Batch) and batch.is_last:
                yield Last(data + _DONE)
                return
            yield data
    yield Last(_DONE)


class Streams:
    """The streams of one server, so that it can end them: from ``close`` on every one, also a later one, ends."""

    def __init__(self, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.heartbeat_s = heartbeat_s
        self.closing = False
        self._open: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        """How many are open now."""
        return len(self._open)

    def add(self) -> asyncio.Future[None]:
        """For a stream that begins: what is done once it has to end."""
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
    """An SSE response. ``finite``: the source ends by itself and gets a moment to do so when the server ends."""

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
        self._turn = asyncio.Lock()
        self._begun = self._over = False
        self._beating: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        # Whoever stands between looks at the head of an answer alone: a stream's many bodies go past them.
        body: Send = scope.get(BODY_SEND, send)
        pump = loop.create_task(self._pump(send, body))
        gone = loop.create_task(_until_gone(receive))

        def begin_to_beat() -> None:
            self._beating = loop.create_task(self._beat(send, body, scope.get(STILL_GOOD), pump))

        # A timer, and a task once it is due: most answers are over before.
        timer = loop.call_later(_HEAD_S, begin_to_beat)
        ending = self._streams.add()
        try:
            await asyncio.wait({pump, gone, ending}, return_when=asyncio.FIRST_COMPLETED)
            if self._finite and not pump.done() and not gone.done():
                await asyncio.wait({pump, gone}, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams.remove(ending)
            timer.cancel()
            tasks = [pump, gone, *([self._beating] if self._beating is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if pump.cancelled():
            if self._streams.closing:
                # The client may be one that does not read; nobody waits for it now.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WRITE_S):
                        await self._write(send, body, b"", more=False)
        elif (error := pump.exception()) is not None:
            if not isinstance(error, ClewError):
                raise error
            # Cut, not finished: the client sees a broken stream and joins again.
            log.info("a viewer was let go of: %s", error)

    async def _pump(self, send: Send, body: Send) -> None:
        async with closing(self._source) as source:
            try:
                async for data in source:
                    await self._write(send, body, data, more=not isinstance(data, Last))
            except Exception:
                # What breaks off has begun.
                await self._write(send, body, b"")
                raise
        await self._write(send, body, b"", more=False)

    async def _beat(
        self, send: Send, body: Send, still_good: Callable[[], bool] | None, pump: asyncio.Task[None]
    ) -> None:
        """The head, where nothing has come for a while that it could go along with; then a comment now and then, for as
        long as whoever began it may be shown it."""
        await self._write(send, body, b"")
        while True:
            await asyncio.sleep(self._streams.heartbeat_s)
            if still_good is not None and not still_good():
                pump.cancel()
            if not self._turn.locked():
                # Who does not take what is there needs no comment either.
                await self._write(send, body, _COMMENT)

    async def _write(self, send: Send, body: Send, data: bytes, *, more: bool = True) -> None:
        """The next piece, behind the head; the head alone where there is nothing to send."""
        async with self._turn:
            if not self._begun:
                self._begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            if not self._over and (data or not more):
                self._over = not more
                await body({"type": "http.response.body", "body": data, "more_body": more})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
