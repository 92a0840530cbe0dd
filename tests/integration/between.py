"""Somebody between a client and its server, who cuts connections, loses answers, and leads to another server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

__all__ = ["Between", "between"]


class Between:
    """``limits`` are bytes of answers after which connections are cut, one for each stream that is asked for; ``lost``
    are beginnings of requests whose next answer does not arrive. ``asked`` are the first lines of those that were
    carried over."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.limits: Iterator[int] = iter(())
        self.lost: list[bytes] = []
        self.asked: asyncio.Queue[bytes] = asyncio.Queue()
        self.cuts = 0
        self.url = ""
        self.carrying: set[asyncio.Task[None]] = set()

    async def cut(self, path: bytes) -> None:
        """Cut all there are, and wait until somebody asks for that path again."""
        while not self.asked.empty():
            self.asked.get_nowait()
        for task in self.carrying:
            task.cancel()
        while path not in await self.asked.get():
            pass

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self.carry(reader, writer))
        self.carrying.add(task)
        task.add_done_callback(self.carrying.discard)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, away = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            length = next((int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")), 0)
            # One request a connection; and whom the server answers is known by its name.
            named = b"\r\n".join([lines[0], b"Connection: close", *lines[1:]])
            named = named.replace(self.url[7:].encode(), b"127.0.0.1:%d" % self.target, 1)
            away.write(named + (await reader.readexactly(length) if length else b""))
            self.asked.put_nowait(lines[0])
            limit = next(self.limits, None) if b"/stream" in head.split(b"\r\n")[0] else None
            is_lost = next((one for one in self.lost if head.startswith(one)), None)
            sent = 0
            while piece := await there.read(65536):
                if is_lost is not None:
                    self.lost.remove(is_lost)
                    break
                if limit is not None and sent + len(piece) > limit:
                    writer.write(piece[: limit - sent])
                    await writer.drain()
                    break
                writer.write(piece)
                sent += len(piece)
            else:
                self.cuts -= 1
            self.cuts += 1
            # In order, so that what was written arrives: a stream that was cut has no end all the same.
            writer.close()
            await writer.wait_closed()
        except (OSError, EOFError):
            pass
        finally:
            away.transport.abort()
            writer.transport.abort()


@contextlib.asynccontextmanager
async def between(port: int) -> AsyncIterator[Between]:
    made = Between(port)
    server = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for task in made.carrying:
            task.cancel()
        await asyncio.gather(*made.carrying, return_exceptions=True)
