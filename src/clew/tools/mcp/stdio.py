"""Stdio transport to an MCP server that is a program: one message per line, over its input and output.

The SDK's own transport has no limits. This one ends the connection with a reason when a line is too long, when there
is too much data, and when too many lines in a row are not messages.
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

from clew.tools.mcp.wire import MAX_MESSAGE, LimitExceeded, RateLimit, Wire
from clew.tools.process.program import Program
from clew.tools.process.stdio_session import StdioSession, open_stdio_session
from clew.tools.thread import run_in_thread

__all__ = ["open_stdio"]

_LARGE_BYTES: Final = 256 * 1024
"""From this size on, a message is parsed in a thread."""
_MAX_NOISE_LINES: Final = 200
_RESPONSE_ID: Final = re.compile(rb'\{(?:"jsonrpc": ?"2.0", ?)?"id": ?(\d{1,15}),|.*"id": ?(\d{1,15})\}', re.DOTALL)
_IGNORED_METHODS: Final = ("notifications/message", "notifications/prompts/list_changed")
_CLOSED_BY_SERVER: Final = "it hung up"

Inbound = SessionMessage | Exception


@contextlib.asynccontextmanager
async def open_stdio(program: Program, wire: Wire) -> AsyncIterator[tuple[Any, Any]]:
    """Start the program and yield the two streams of a connection. It is ended with all its processes on exit."""
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
        # Also if the caller was cancelled: a program that is not ended here would stay.
        broke_off = wire_ended and wire.why != _CLOSED_BY_SERVER
        ending = asyncio.ensure_future(stdio.end(immediately=broke_off))
        try:
            how_it_ended = await asyncio.shield(ending)
        except asyncio.CancelledError:
            how_it_ended = await ending
        # An end caused by leaving is not a failure.
        wire.why = (how_it_ended if wire.why == _CLOSED_BY_SERVER else wire.why) if wire_ended else None


async def _read(stdio: StdioSession, into: MemoryObjectSendStream[Inbound], wire: Wire) -> None:
    try:
        await _read_messages(stdio, into)
    except LimitExceeded as error:
        wire.close(str(error))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass
    finally:
        # Before pending requests fail: they report this reason.
        wire.close(_CLOSED_BY_SERVER)
        into.close()


async def _read_messages(stdio: StdioSession, into: MemoryObjectSendStream[Inbound]) -> None:
    limit = RateLimit()
    buffered, noise = bytearray(), 0
    while piece := await stdio.read():
        buffered += piece
        *lines, rest = buffered.split(b"\n") if b"\n" in piece else (buffered,)
        buffered = rest
        if len(buffered) > MAX_MESSAGE or any(len(line) > MAX_MESSAGE for line in lines):
            raise LimitExceeded(f"it sent a line of more than {MAX_MESSAGE:,} bytes")
        limit.spend(size=len(piece))
        for line in filter(None, (bytes(line).strip() for line in lines)):
            message = await _message(line)
            # Some programs print other lines between their messages.
            noise = noise + 1 if message is None else 0
            if noise > _MAX_NOISE_LINES:
                raise LimitExceeded(f"it sent {noise} lines in a row that are not messages; the last: {line[:80]!r}")
            limit.spend(messages=int(message is not None))
            if message is not None and getattr(message.message, "method", None) not in _IGNORED_METHODS:
                await into.send(message)


async def _message(line: bytes) -> SessionMessage | None:
    def parse() -> SessionMessage | None:
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
        except (ValueError, RecursionError):
            answered = _RESPONSE_ID.match(line)
        if answered is None:
            return None
        # A malformed answer still has a waiting caller, which gets an error.
        problem = types.ErrorData(code=types.PARSE_ERROR, message="its answer is not valid JSON-RPC")
        asked = int(answered[1] or answered[2])
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=asked, error=problem))

    return parse() if len(line) < _LARGE_BYTES else await run_in_thread(parse)


async def _write(stdio: StdioSession, out_of: MemoryObjectReceiveStream[SessionMessage], wire: Wire) -> None:
    try:
        async with out_of:
            async for message in out_of:
                encoded = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdio.write(encoded.encode() + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        wire.close(_CLOSED_BY_SERVER)
