"""What lies between a replica and its servers, and can fail: connections that break, stand still, or lose a reply."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

__all__ = ["Proxy"]

# PostgreSQL's word that it is done with all it was asked; a reply is whole with it.
READY = b"Z\x00\x00\x00\x05"
T = TypeVar("T")


class _Line:
    """One connection through the proxy. Bytes pass while ``flows`` is set."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.swallow = False
        self.gone = False

    def cut(self) -> None:
        """As by a machine that is gone: what was under way is lost, and both ends are told so at once."""
        self.gone = True
        for writer in (self.client, self.server):
            end = writer.get_extra_info("socket")
            if end is not None and end.family in (socket.AF_INET, socket.AF_INET6):
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """A loopback address for the server behind a socket. In a thread of its own, so any test can use it.

    ``cut``: connections break, new ones are refused. ``stall``: they stay, and nothing passes either way. ``mend``
    ends both; what was held back by a stall passes then. Each may be told many times.
    """

    def __init__(self, behind: Path) -> None:
        self._behind = str(behind)
        self._loop = asyncio.new_event_loop()
        self._lines: set[_Line] = set()
        self._refuses = False
        self._swallows: tuple[bytes, bytes] | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._flows = asyncio.Event()
        self._flows.set()
        self.dropped = threading.Event()
        self._server = self._do(asyncio.start_server(self._take, "127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.sockets[0].getsockname()

    # ---------------------------------------------------------------- what a test does

    def cut(self) -> None:
        self._tell(self._cut)

    def stall(self) -> None:
        self._tell(self._flows.clear)

    def mend(self) -> None:
        self._tell(self._mend)

    def drop_reply(self, containing: bytes = b"", until: bytes = READY) -> None:
        """The next request that holds these bytes passes, its reply does not: after it the connection is cut, once.

        ``dropped`` is set then. A statement's text is in the first request only that prepares it. For Valkey, whose
        replies have no such end, ``until`` is empty: any reply.
        """
        self.dropped.clear()
        self._tell(lambda: setattr(self, "_swallows", (containing, until)))

    @property
    def connections(self) -> int:
        return len(self._lines)

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            self._cut()
            self._flows.set()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------- in its thread

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _tell(self, act: Callable[[], object]) -> None:
        """Done when this returns."""

        async def acted() -> None:
            act()

        self._do(acted())

    def _cut(self) -> None:
        self._refuses = True
        for line in tuple(self._lines):
            line.cut()

    def _mend(self) -> None:
        self._refuses = False
        self._flows.set()

    async def _take(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._refuses:
            client.transport.abort()
            return
        try:
            from_server, server = await asyncio.open_unix_connection(self._behind)
        except OSError:
            client.transport.abort()
            return
        line = _Line(client, server)
        self._lines.add(line)
        try:
            await asyncio.gather(self._requests(line, reader), self._replies(line, from_server))
        except OSError:
            line.cut()
        finally:
            self._lines.discard(line)
            client.close()
            server.close()

    async def _requests(self, line: _Line, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            await self._flows.wait()
            if line.gone:
                return
            if self._swallows is not None and self._swallows[0] in data:
                line.swallow = True
            line.server.write(data)
            await line.server.drain()
        line.server.write_eof()

    async def _replies(self, line: _Line, reader: asyncio.StreamReader) -> None:
        swallowed = b""
        while data := await reader.read(65536):
            await self._flows.wait()
            if line.gone:
                return
            if line.swallow:
                swallowed += data
                if self._swallows is None or self._swallows[1] in swallowed:
                    self._swallows = None
                    line.cut()
                    self.dropped.set()
                    return
                continue
            line.client.write(data)
            await line.client.drain()
        if not line.gone:
            line.client.write_eof()
