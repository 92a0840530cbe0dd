"""A program below its own supervisor that is talked with for as long as it lives; it ends as any other tool's does.

Its input, its output and its errors are three pipes. What it writes to its errors is read and forgotten, but for the
last of it. What is said is not known here.
"""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from clew.tools.process.program import Program, pack, start_supervisor
from clew.tools.thread import run_in_thread

__all__ = ["StdioSession", "open_stdio_session"]

_PIECE: Final = 64 * 1024
_LAST_WORDS: Final = 2_000
_BY_ITSELF_S: Final = 1.0
"""How long it has to end once its input is closed, which is how it is told to."""
_LATEST_S: Final = 10.0


class _Started(msgspec.Struct, frozen=True):
    supervisor: subprocess.Popen[bytes]
    input: int
    output: int
    errors: int
    leash: int
    reports: int

    def abandon(self) -> None:
        """Nobody takes it: without its leash the supervisor ends everything."""
        for handle in (self.leash, self.input, self.output, self.errors, self.reports):
            os.close(handle)


async def open_stdio_session(program: Program) -> StdioSession:
    """Start the program. Raises ``ToolFailed``."""
    starting = asyncio.ensure_future(run_in_thread(_start, program))
    try:
        started = await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(
            lambda done: None if done.cancelled() or done.exception() else done.result().abandon()
        )
        raise
    reading = [asyncio.StreamReader(limit=_PIECE) for _ in range(3)]
    loop = asyncio.get_running_loop()
    transports: list[asyncio.BaseTransport] = []
    for stream, handle in zip(reading, (started.output, started.errors, started.reports), strict=True):
        protocol = functools.partial(asyncio.StreamReaderProtocol, stream)
        transports.append((await loop.connect_read_pipe(protocol, os.fdopen(handle, "rb", buffering=0)))[0])
    file = os.fdopen(started.input, "wb", buffering=0)
    transport, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, file)
    writing = asyncio.StreamWriter(transport, flow, None, loop)
    return StdioSession(started, reading, writing, [*transports, transport])


def _start(program: Program) -> _Started:
    job = pack(program)
    handles: list[int] = []
    try:
        for _ in range(5):
            handles += os.pipe()
        their_input, our_input, our_output, their_output, our_errors, their_errors = handles[:6]
        their_leash, our_leash, our_reports, their_reports = handles[6:]
        supervisor = start_supervisor((their_input, their_output, their_errors), their_leash, their_reports)
        with suppress(BrokenPipeError), open(our_leash, "wb", closefd=False) as file:
            file.write(job)
    except BaseException:
        for handle in handles:
            os.close(handle)
        raise
    for handle in (their_input, their_output, their_errors, their_leash, their_reports):
        os.close(handle)
    return _Started(supervisor, our_input, our_output, our_errors, our_leash, our_reports)


class StdioSession:
    """One program that runs. ``read`` and ``write`` go on until it ends; ``end`` it once."""

    def __init__(
        self,
        started: _Started,
        reading: Sequence[asyncio.StreamReader],
        writing: asyncio.StreamWriter,
        transports: Sequence[asyncio.BaseTransport],
    ) -> None:
        self._started = started
        self._transports = transports
        self._input = writing
        self._last_words = self._reports = b""
        self._output, errors, reports = reading
        loop = asyncio.get_running_loop()
        self._hearing = loop.create_task(self._hear(errors))
        self._over = loop.create_task(self._watch(reports))

    async def read(self) -> bytes:
        """What it says next; nothing when it says no more."""
        return await self._output.read(_PIECE)

    async def write(self, data: bytes) -> None:
        """Raises ``OSError`` when nobody hears it any more."""
        self._input.write(data)
        await self._input.drain()

    async def end(self, *, at_once: bool = False) -> str:
        """End it with all that it started, and say how it ended, with its last words."""
        self._input.close()
        await asyncio.wait({self._over}, timeout=0 if at_once else _BY_ITSELF_S)
        if not self._over.done():
            with suppress(OSError):
                os.write(self._started.leash, b"t")
            await asyncio.wait({self._over}, timeout=_LATEST_S)
        os.close(self._started.leash)
        if not self._over.done():
            self._started.supervisor.kill()
        await run_in_thread(self._started.supervisor.wait)
        await asyncio.wait({self._hearing}, timeout=0.2)
        for task in (self._hearing, self._over):
            task.cancel()
        for transport in self._transports:
            transport.close()
        return self._told()

    def _told(self) -> str:
        said = dict(line.partition(" ")[::2] for line in self._reports.decode("utf-8", "replace").splitlines())
        words = self._last_words.decode("utf-8", "replace").strip()
        how = f"it could not be started: {said['failed']}" if "failed" in said else ""
        if not how:
            code = int(said.get("exit", "-9"))
            how = f"it ended with exit code {code}" if code >= 0 else f"it was ended by signal {-code}"
        return f"{how}; its last words: {words}" if words else how

    async def _hear(self, errors: asyncio.StreamReader) -> None:
        while piece := await errors.read(_PIECE):
            self._last_words = (self._last_words + piece)[-_LAST_WORDS:]

    async def _watch(self, reports: asyncio.StreamReader) -> None:
        while piece := await reports.read(_PIECE):
            self._reports = (self._reports + piece)[-_PIECE:]
