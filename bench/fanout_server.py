"""The servers of P10, each in a process of its own: ``python -m bench.fanout_server SERVER VIEWERS FRAMES PACE_MS``.

``clew`` is the whole server: a scripted model, the recorder on a SQLite file, the app behind its guard. ``bare`` is a
Starlette stream of the same bytes, a frame a send. ``joined`` is the same, written with care: every frame is encoded
once, and what waits is sent together. All three run under uvicorn as ``clew serve`` sets it up. The first line printed
says where to ask, the second what it cost, from the moment all viewers are there until the last has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

import clew
from bench import talk
from bench.http_client import TOKEN
from bench.server_side import bound
from clew.config import ServerConfig
from clew.fronts.http.app import make_app
from clew.fronts.http.auth import loopback_hosts
from clew.fronts.http.serve import Server
from clew.fronts.http.sse import Streams
from clew.providers.base import ModelRequest, StepEnd
from clew.testing.scripted import FakeProviders
from clew.transcript import chunk as c
from clew.transcript.usage import Usage

__all__ = ["main"]

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}
_DELTA = c.TextDelta("t1", talk.DELTA)
_STREAK = 64
"""Frames in a row, when there is no pace, before other work gets its turn; a model that streams does the same."""


class _Crowd:
    """Who is there. The stream begins when all are, and what it costs is counted until all have left."""

    def __init__(self, viewers: int, count: Callable[[], int]) -> None:
        self._viewers = viewers
        self._count = count
        self._cpu = 0.0

    async def there(self) -> None:
        while self._count() < self._viewers:  # noqa: ASYNC110  # nobody says so: clew only counts its streams
            await asyncio.sleep(0.01)
        self._cpu = time.process_time()

    async def gone(self) -> float:
        """CPU seconds since all were there."""
        while not self._cpu or self._count():  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.01)
        return time.process_time() - self._cpu


async def _paced(frames: int, pace_ms: float) -> AsyncIterator[None]:
    for n in range(frames):
        if pace_ms:
            await asyncio.sleep(pace_ms / 1000)
        elif n % _STREAK == 0:
            await asyncio.sleep(0)
        yield


class _Talker:
    """A model that waits until everybody looks."""

    def __init__(self, crowd: _Crowd, frames: int, pace_ms: float) -> None:
        self._crowd = crowd
        self._frames, self._pace_ms = frames, pace_ms

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        yield c.TextStart("t1")
        await self._crowd.there()
        async for _ in _paced(self._frames, self._pace_ms):
            yield _DELTA
        yield c.TextEnd("t1")
        yield StepEnd(usage=Usage(1, 1))

    async def close(self) -> None:
        pass


class _Bare:
    """Streams the frames to everybody who asks, once all have."""

    def __init__(self, viewers: int, frames: int, pace_ms: float) -> None:
        self._open = 0
        self._frames, self._pace_ms = frames, pace_ms
        self._frame = b"data: %b\n\n" % c.encode_chunk(_DELTA)
        self._begun: asyncio.Event = asyncio.Event()
        self.crowd = _Crowd(viewers, lambda: self._open)
        self._log: list[bytes] = []
        self._more: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def app(self, *, joined: bool) -> ASGIApp:
        async def stream(_: Request) -> StreamingResponse:
            source = self._joined() if joined else self._alone()
            return StreamingResponse(source, media_type="text/event-stream", headers=_HEADERS)

        return Starlette(routes=[Route("/", stream)])

    async def talk(self, *, joined: bool) -> None:
        await self.crowd.there()
        self._begun.set()
        if not joined:
            return
        async for _ in _paced(self._frames, self._pace_ms):
            self._log.append(self._frame)
            if self._pace_ms or len(self._log) % _STREAK == 0:
                self._ring()
        self._ring()

    def _ring(self) -> None:
        more, self._more = self._more, asyncio.get_running_loop().create_future()
        more.set_result(None)

    async def _alone(self) -> AsyncIterator[bytes]:
        with self._looking():
            yield b": hello\n\n"
            await self._begun.wait()
            for _ in range(self._frames):
                yield self._frame

    async def _joined(self) -> AsyncIterator[bytes]:
        with self._looking():
            yield b": hello\n\n"
            place = 0
            while place < self._frames:
                waiting = self._log[place : place + 512]
                if waiting:
                    place += len(waiting)
                    yield b"".join(waiting)
                else:
                    await self._more

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


async def _serve(server: str, viewers: int, frames: int, pace_ms: float) -> None:
    with bound() as listener, tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        port = listener.getsockname()[1]
        if server != "clew":
            bare = _Bare(viewers, frames, pace_ms)
            talking = asyncio.get_running_loop().create_task(bare.talk(joined=server == "joined"))
            await _up(bare.app(joined=server == "joined"), listener, {"port": port, "path": "/"}, bare.crowd)
            await talking
            return
        streams = Streams()
        crowd = _Crowd(viewers, lambda: streams.count)
        providers = FakeProviders(_Talker(crowd, frames, pace_ms))
        url = f"sqlite:///{Path(folder)}/store.db"
        async with clew.open(url, config=clew.Config(), providers=providers) as engine:
            app = make_app(engine, token=TOKEN, hosts=loopback_hosts(port), streams=streams)
            session = await engine.create_session(title="bench")
            await engine.submit(session.id, "go")
            await _up(app, listener, {"port": port, "path": f"/api/chat/{session.id}/stream"}, crowd)


async def _up(app: ASGIApp, listener: socket.socket, where: dict[str, object], crowd: _Crowd) -> None:
    # The bare app asks for no token, so all of its viewers are strangers.
    limits = ServerConfig(max_strangers=100_000)
    server = Server(app, listener, limits, lambda: print(orjson.dumps(where).decode(), flush=True))
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    print(orjson.dumps({"cpu": await crowd.gone()}).decode(), flush=True)
    server.should_exit = True
    await serving


def main() -> None:
    server, viewers, frames, pace_ms = sys.argv[1:]
    asyncio.run(_serve(server, int(viewers), int(frames), float(pace_ms)))


if __name__ == "__main__":
    main()
