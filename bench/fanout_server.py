"""The servers of P10, each in its own process: ``python -m bench.fanout_server SERVER VIEWERS FRAMES PACE_MS``.

``clew`` is the whole server: a scripted model, the recorder on a SQLite file, and the app with its guard. ``bare`` is a
Starlette stream of the same bytes, one frame per send. ``joined`` encodes every frame once and sends queued frames
together. All three run under uvicorn with the settings of ``clew serve``. The first line printed is the address, the
second the CPU time from the moment all viewers are connected until the last has left.
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
"""Frames sent without a pace before yielding to the event loop; a model that streams does the same."""


class _ViewerCount:
    """Counts the viewers. The stream begins when all are connected; CPU time is measured until all have left."""

    def __init__(self, viewers: int, count: Callable[[], int]) -> None:
        self._viewers = viewers
        self._count = count
        self._cpu = 0.0

    async def all_connected(self) -> None:
        while self._count() < self._viewers:  # noqa: ASYNC110  # clew counts its streams and sends no event
            await asyncio.sleep(0.01)
        self._cpu = time.process_time()

    async def all_left(self) -> float:
        """Wait until all have left and return the CPU seconds since all were connected."""
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
    """A model that waits until all viewers are connected."""

    def __init__(self, connected: _ViewerCount, frames: int, pace_ms: float) -> None:
        self._connected = connected
        self._frames, self._pace_ms = frames, pace_ms

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        yield c.TextStart("t1")
        await self._connected.all_connected()
        async for _ in _paced(self._frames, self._pace_ms):
            yield _DELTA
        yield c.TextEnd("t1")
        yield StepEnd(usage=Usage(1, 1))

    async def close(self) -> None:
        pass


class _Bare:
    """Streams the frames to every viewer, once all are connected."""

    def __init__(self, viewers: int, frames: int, pace_ms: float) -> None:
        self._open = 0
        self._frames, self._pace_ms = frames, pace_ms
        self._frame = b"data: %b\n\n" % c.encode_chunk(_DELTA)
        self._begun: asyncio.Event = asyncio.Event()
        self.connected = _ViewerCount(viewers, lambda: self._open)
        self._log: list[bytes] = []
        self._more: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def app(self, *, joined: bool) -> ASGIApp:
        async def stream(_: Request) -> StreamingResponse:
            source = self._joined() if joined else self._alone()
            return StreamingResponse(source, media_type="text/event-stream", headers=_HEADERS)

        return Starlette(routes=[Route("/", stream)])

    async def talk(self, *, joined: bool) -> None:
        await self.connected.all_connected()
        self._begun.set()
        if not joined:
            return
        async for _ in _paced(self._frames, self._pace_ms):
            self._log.append(self._frame)
            if self._pace_ms or len(self._log) % _STREAK == 0:
                self._notify()
        self._notify()

    def _notify(self) -> None:
        more, self._more = self._more, asyncio.get_running_loop().create_future()
        more.set_result(None)

    async def _alone(self) -> AsyncIterator[bytes]:
        with self._counted():
            yield b": hello\n\n"
            await self._begun.wait()
            for _ in range(self._frames):
                yield self._frame

    async def _joined(self) -> AsyncIterator[bytes]:
        with self._counted():
            yield b": hello\n\n"
            position = 0
            while position < self._frames:
                waiting = self._log[position : position + 512]
                if waiting:
                    position += len(waiting)
                    yield b"".join(waiting)
                else:
                    await self._more

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
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
            await _up(bare.app(joined=server == "joined"), listener, {"port": port, "path": "/"}, bare.connected)
            await talking
            return
        streams = Streams()
        connected = _ViewerCount(viewers, lambda: streams.count)
        providers = FakeProviders(_Talker(connected, frames, pace_ms))
        url = f"sqlite:///{Path(folder)}/store.db"
        async with clew.open(url, config=clew.Config(), providers=providers) as engine:
            app = make_app(engine, token=TOKEN, hosts=loopback_hosts(port), streams=streams)
            session = await engine.create_session(title="bench")
            await engine.submit(session.id, "go")
            await _up(app, listener, {"port": port, "path": f"/api/chat/{session.id}/stream"}, connected)


async def _up(app: ASGIApp, listener: socket.socket, address: dict[str, object], connected: _ViewerCount) -> None:
    # The bare app requires no token, so all of its viewers count as strangers.
    limits = ServerConfig(max_strangers=100_000)
    server = Server(app, listener, limits, lambda: print(orjson.dumps(address).decode(), flush=True))
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    print(orjson.dumps({"cpu": await connected.all_left()}).decode(), flush=True)
    server.should_exit = True
    await serving


def main() -> None:
    server, viewers, frames, pace_ms = sys.argv[1:]
    asyncio.run(_serve(server, int(viewers), int(frames), float(pace_ms)))


if __name__ == "__main__":
    main()
