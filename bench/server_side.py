"""The servers of SERVER, each in its own process: ``python -m bench.server_side SERVER TASK PATH``.

``clew`` is the whole server on a SQLite file, with a scripted model. ``bare`` is Starlette with the same bytes from
memory. ``durable`` also has a writer thread: a prompt is synced before its answer, and a word is committed before it
is sent. All run under uvicorn with the settings of ``clew serve``. The task is ``reply`` (a short answer, as fast as
possible), ``there`` (the same on an existing store), or a number of streams that begin together and send a word every
20 ms. The first line printed is the address.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Final

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from bench import talk
from bench.fill import add_sessions, fill_turns
from bench.grow_side import open_long
from bench.http_client import TOKEN
from bench.process import raise_file_limit
from bench.raw import connect
from clew.config import ServerConfig
from clew.fronts.http.app import make_app
from clew.fronts.http.auth import loopback_hosts
from clew.fronts.http.serve import Server
from clew.fronts.http.sse import Streams
from clew.providers.base import ModelRequest, StepEnd
from clew.transcript import chunk as c
from clew.transcript.usage import Usage

__all__ = ["PACE_S", "REPLY", "SECONDS", "bound", "main"]

PACE_S: Final = 0.02
SECONDS: Final = 4.0
REPLY: Final = 20
"""Number of words of a short answer."""
_SESSIONS: Final = 1_000
_TURNS: Final = 20
_HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class _Words:
    """The words to stream. A paced word is the time at which it was due, so that a viewer can compute its delay."""

    def __init__(self, streams: int) -> None:
        self._streams = streams
        self._started = 0
        self._begun = asyncio.Event()
        self._begin = 0.0

    async def stream(self) -> AsyncIterator[str]:
        if not self._streams:
            for _ in range(REPLY):
                yield talk.DELTA
            return
        number = self._started
        self._started += 1
        if self._started == self._streams:
            self._begin = time.perf_counter() + 0.3
            self._begun.set()
        await self._begun.wait()
        for n in range(int(SECONDS / PACE_S)):
            due = self._begin + (n + number / self._streams) * PACE_S
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            yield f"{due:014.6f} "


class _Model:
    def __init__(self, words: _Words) -> None:
        self._words = words

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        yield c.TextStart("t1")
        async for word in self._words.stream():
            yield c.TextDelta("t1", word)
        yield c.TextEnd("t1")
        yield StepEnd(usage=Usage(1, 1))

    async def close(self) -> None:
        pass


class _Writer:
    """A writer thread that commits queued data as one row, synced if it contains a prompt."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path, "NORMAL")
        self._connection.execute("CREATE TABLE journal (n INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self._queue: queue.SimpleQueue[tuple[bytes, bool, asyncio.Future[None]]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, daemon=True).start()

    def write(self, data: bytes, *, sync: bool = False) -> asyncio.Future[None]:
        future = self._loop.create_future()
        self._queue.put((data, sync, future))
        return future

    def _run(self) -> None:
        execute = self._connection.execute
        while True:
            group = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    group.append(self._queue.get_nowait())
            execute(f"PRAGMA synchronous = {'FULL' if any(sync for _, sync, _ in group) else 'NORMAL'}")
            execute("BEGIN IMMEDIATE")
            execute("INSERT INTO journal (data) VALUES (?)", (b"\n".join(data for data, *_ in group),))
            execute("COMMIT")
            self._loop.call_soon_threadsafe(_acknowledge, [future for *_, future in group])


def _acknowledge(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def _bare(words: _Words, folder: Path, writer: _Writer | None) -> ASGIApp:
    listed, page = (folder / "list.json").read_bytes(), (folder / "page.json").read_bytes()

    async def frames(body: dict[str, Any]) -> AsyncIterator[bytes]:
        if writer is not None:
            await writer.write(orjson.dumps(body["messages"]), sync=True)
        yield b'data: {"type":"start"}\n\n'
        async for word in words.stream():
            frame = b"data: %b\n\n" % c.encode_chunk(c.TextDelta("t1", word))
            if writer is not None:
                await writer.write(frame)
            yield frame

    async def chat(request: Request) -> Response:
        body = orjson.loads(await request.body())
        return StreamingResponse(frames(body), media_type="text/event-stream", headers=_HEADERS)

    async def sessions(_: Request) -> Response:
        return Response(listed, media_type="application/json")

    async def messages(_: Request) -> Response:
        return Response(page, media_type="application/json")

    return Starlette(
        routes=[
            Route("/api/chat", chat, methods=["POST"]),
            Route("/api/sessions", sessions),
            Route("/api/sessions/{id}/messages", messages),
        ]
    )


def bound() -> socket.socket:
    """Return a socket with an explicit protocol: asyncio sets TCP_NODELAY only on such a socket."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    return listener


async def _serve(server: str, task: str, path: Path) -> None:
    words = _Words(0 if task in ("reply", "there") else int(task))
    with bound() as listener:
        port = listener.getsockname()[1]
        if server != "clew":
            writer = _Writer(path) if server == "durable" else None
            await _up(_bare(words, path.parent, writer), listener, {"port": port})
            return
        async with open_long(path, _Model(words)) as engine:
            last = ""
            if task == "reply":
                await add_sessions(engine.store, engine.mint, _SESSIONS, lambda n: {"title": f"Session {n}"})
                last = await add_sessions(engine.store, engine.mint, 1, lambda _: {"title": "the last"})
                await fill_turns(engine.store, engine.mint, last, range(_TURNS))
            app = make_app(engine, token=TOKEN, hosts=loopback_hosts(port), streams=Streams())
            await _up(app, listener, {"port": port, "session": last})


async def _up(app: ASGIApp, listener: socket.socket, address: dict[str, object]) -> None:
    limits = ServerConfig(max_strangers=100_000)
    server = Server(app, listener, limits, lambda: print(orjson.dumps(address).decode(), flush=True))
    await server.serve(sockets=[listener])


def main() -> None:
    server, task, path = sys.argv[1:]
    raise_file_limit()
    asyncio.run(_serve(server, task, Path(path)))


if __name__ == "__main__":
    main()
