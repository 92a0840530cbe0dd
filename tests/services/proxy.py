"""A proxy between a replica and its servers, whose connections can break, stall, or lose a reply."""

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

# PostgreSQL's ReadyForQuery message, which completes a reply.
READY = b"Z\x00\x00\x00\x05"
T = TypeVar("T")


class _Connection:
    """A connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.swallow = False
        self.cut_off = False

    def cut(self) -> None:
        """Reset both ends, as when a machine disappears; data in transit is lost."""
        self.cut_off = True
        for writer in (self.client, self.server):
            end = writer.get_extra_info("socket")
            if end is not None and end.family in (socket.AF_INET, socket.AF_INET6):
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """A loopback address for a server on a socket. It runs in its own thread, so any test can use it.

    ``cut``: connections break, new ones are refused. ``stall``: they stay, and no data passes. ``restore`` ends both;
    data that was held back passes then. Each can be called repeatedly.
    """

    def __init__(self, target: Path) -> None:
        self._target = str(target)
        self._loop = asyncio.new_event_loop()
        self._connections: set[_Connection] = set()
        self._refuses = False
        self._swallows: tuple[bytes, bytes] | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._flows = asyncio.Event()
        self._flows.set()
        self.dropped = threading.Event()
        self._server = self._do(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.sockets[0].getsockname()

    # ---------------------------------------------------------------- for tests

    def cut(self) -> None:
        self._run(self._cut)

    def stall(self) -> None:
        self._run(self._flows.clear)

    def restore(self) -> None:
        self._run(self._restore)

    def drop_reply(self, containing: bytes = b"", until: bytes = READY) -> None:
        """Pass the next request that contains these bytes, drop its reply, and cut the connection, once.

        ``dropped`` is set then. The text of a statement is only in the request that prepares it. For Valkey, whose
        replies have no end marker, ``until`` is empty: any reply.
        """
        self.dropped.clear()
        self._run(lambda: setattr(self, "_swallows", (containing, until)))

    @property
    def connections(self) -> int:
        return len(self._connections)

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

    # ---------------------------------------------------------------- in the thread

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _run(self, act: Callable[[], object]) -> None:
        """Run a function in the thread and wait for it."""

        async def call() -> None:
            act()

        self._do(call())

    def _cut(self) -> None:
        self._refuses = True
        for connection in tuple(self._connections):
            connection.cut()

    def _restore(self) -> None:
        self._refuses = False
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._refuses:
            client.transport.abort()
            return
        try:
            from_server, server = await asyncio.open_unix_connection(self._target)
        except OSError:
            client.transport.abort()
            return
        connection = _Connection(client, server)
        self._connections.add(connection)
        try:
            await asyncio.gather(self._requests(connection, reader), self._replies(connection, from_server))
        except OSError:
            connection.cut()
        finally:
            self._connections.discard(connection)
            client.close()
            server.close()

    async def _requests(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            await self._flows.wait()
            if connection.cut_off:
                return
            if self._swallows is not None and self._swallows[0] in data:
                connection.swallow = True
            connection.server.write(data)
            await connection.server.drain()
        connection.server.write_eof()

    async def _replies(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        swallowed = b""
        while data := await reader.read(65536):
            await self._flows.wait()
            if connection.cut_off:
                return
            if connection.swallow:
                swallowed += data
                if self._swallows is None or self._swallows[1] in swallowed:
                    self._swallows = None
                    connection.cut()
                    self.dropped.set()
                    return
                continue
            connection.client.write(data)
            await connection.client.drain()
        if not connection.cut_off:
            connection.client.write_eof()
