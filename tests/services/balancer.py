"""A TCP balancer in front of several replicas: each connection goes to the next one that accepts it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

__all__ = ["balanced"]


@contextlib.asynccontextmanager
async def balanced(ports: list[int]) -> AsyncIterator[int]:
    """Start the balancer and yield its port. It is unaware of sessions and HTTP."""
    turns = itertools.count()

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        first = next(turns)
        for port in (ports[(first + n) % len(ports)] for n in range(len(ports))):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        raise ConnectionRefusedError("no replica accepts connections")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def forward(reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            from_replica, replica = await connect()
        except OSError:
            client.transport.abort()
            return
        try:
            await asyncio.gather(copy(reader, replica), copy(from_replica, client))
        except OSError:
            pass
        finally:
            client.transport.abort()
            replica.transport.abort()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
