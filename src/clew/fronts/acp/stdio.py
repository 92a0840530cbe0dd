"""stdin and stdout of this process as the two ends of a connection, reserved for it: from then on prints go to
stderr, and stdin is empty for other code and for child processes."""

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
    """Return the read and write functions. The descriptors are not restored: prints at interpreter exit are no messages
    either."""
    loop = asyncio.get_running_loop()
    given, out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(64)

    def pump() -> None:
        # A daemon thread: an event loop cannot wait for a file or terminal, and a read cannot be cancelled.
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
        # Not in the loop's executor, which is joined at the end: the peer may never read this.
        await run_in_thread(write_all, data)

    return read, write
