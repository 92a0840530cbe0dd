"""The wire to a server that is a program: a message a line, over its input and output.

The SDK's own transport reads lines of any length and takes as many as come. This one counts: a line that is too long,
more than a server could have to say, and line after line that is no message end the connection with a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.shared.message import SessionMessage

from clew.tools.mcp.wire import MAX_MESSAGE, Budget, Flood, Wire
from clew.tools.process.program import Program
from clew.tools.process.stdio_session import StdioSession, open_stdio_session
from clew.tools.thread import run_in_thread

__all__ = ["open_stdio"]

_LARGE: Final = 256 * 1024
"""From here on a message is read beside the loop."""
_NOISE: Final = 200
_ANSWERED: Final = re.compile(rb'\{(?:"jsonrpc": ?"2.0", ?)?"id": ?(\d{1,15}),|.*"id": ?(\d{1,15})\}', re.DOTALL)
_UNHEARD: Final = ("notifications/message", "notifications/prompts/list_changed")
_HUNG_UP: Final = "it hung up"

Inbound = SessionMessage | Exception


@contextlib.asynccontextmanager
async def open_stdio(program: Program, wire: Wire) -> AsyncIterator[tuple[Any, Any]]:
    """The two streams of a connection to the program, which is ended with all it started when this is left."""
    stdio = await open_stdio_session(program)
    inbound: tuple[MemoryObjectSendStream[Inbound], MemoryObjectReceiveStream[Inbound]]
    outbound: tuple[MemoryObjectSendStream[SessionMessage], MemoryObjectReceiveStream[SessionMessage]]
    inbound, outbound = anyio.create_memory_object_stream(0), anyio.create_memory_object_stream(0)
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_read(stdio, inbound[0], wire)), loop.create_task(_write(stdio, outbound[1], wire))]
    try:
        yield inbound[1], outbound[0]
    finally:
        wire_ended = wire.closed.is_set()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for stream in (*inbound, *outbound):
            stream.close()
        # Also where whoever left was cancelled: a program that is not ended here would stay.
        broke_off = wire_ended and wire.why != _HUNG_UP
        ending = asyncio.ensure_future(stdio.end(at_once=broke_off))
        try:
            told = await asyncio.shield(ending)
        except asyncio.CancelledError:
            told = await ending
        # What comes of leaving is no reason.
        wire.why = (told if wire.why == _HUNG_UP else wire.why) if wire_ended else None


async def _read(stdio: StdioSession, into: MemoryObjectSendStream[Inbound], wire: Wire) -> None:
    try:
        await _take(stdio, into)
    except Flood as error:
        wire.close(str(error))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass
    finally:
        # Before whoever waits for an answer hears that none will come: they ask why.
        wire.close(_HUNG_UP)
        into.close()


async def _take(stdio: StdioSession, into: MemoryObjectSendStream[Inbound]) -> None:
    budget = Budget()
    left, noise = bytearray(), 0
    while piece := await stdio.read():
        left += piece
        *lines, rest = left.split(b"\n") if b"\n" in piece else (left,)
        left = rest
        if len(left) > MAX_MESSAGE or any(len(line) > MAX_MESSAGE for line in lines):
            raise Flood(f"it sent a line of more than {MAX_MESSAGE:,} bytes")
        budget.take(size=len(piece))
        for line in filter(None, (bytes(line).strip() for line in lines)):
            message = await _message(line)
            # What a program prints beside its messages is noise, and some do.
            noise = noise + 1 if message is None else 0
            if noise > _NOISE:
                raise Flood(f"it sent {noise} lines in a row that are no messages; the last: {line[:80]!r}")
            budget.take(messages=int(message is not None))
            if message is not None and getattr(message.message, "method", None) not in _UNHEARD:
                await into.send(message)


async def _message(line: bytes) -> SessionMessage | None:
    def parse() -> SessionMessage | None:
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
        except (ValueError, RecursionError):
            answered = _ANSWERED.match(line)
        if answered is None:
            return None
        # An answer that does not read is one all the same: whoever waits for it is told.
        problem = types.ErrorData(code=types.PARSE_ERROR, message="its answer does not read as JSON-RPC")
        asked = int(answered[1] or answered[2])
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=asked, error=problem))

    return parse() if len(line) < _LARGE else await run_in_thread(parse)


async def _write(stdio: StdioSession, out_of: MemoryObjectReceiveStream[SessionMessage], wire: Wire) -> None:
    try:
        async with out_of:
            async for message in out_of:
                said = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdio.write(said.encode() + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        wire.close(_HUNG_UP)
