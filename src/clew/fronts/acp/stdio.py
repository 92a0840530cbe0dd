"""stdin and stdout of this process as the two ends of a connection. They are nobody else's from then on: what is
printed goes to stderr, and whoever reads, a program that was started too, finds nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

from clew.fronts.acp.rpc import Read, Write
from clew.tools.thread import run_in_thread

__all__ = ["own_stdio"]

_PIECE = 1 << 16


def own_stdio() -> tuple[Read, Write]:
    """How to read and how to write, as long as this process is there: what it prints at its very end is no message,
    either, so nothing is put back."""
    loop = asyncio.get_running_loop()
    given, out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(64)

    def pump() -> None:
        # A thread of its own: a file or a terminal cannot be waited for as a pipe can, and it ends with the process.
        piece = b"-"
        while piece:
            room.acquire()
            try:
                piece = os.read(given, _PIECE)
            except OSError:
                piece = b""
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

    threading.Thread(target=pump, daemon=True, name="clew-acp-stdin").start()

    async def read() -> bytes:
        piece = await pieces.get()
        room.release()
        return piece

    def write_all(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(out, view) :]

    async def write(data: bytes) -> None:
        # Not in the loop's own threads, which are waited for at the end: the other side may never read this.
        await run_in_thread(write_all, data)

    return read, write
