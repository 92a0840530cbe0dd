"""A program below its own supervisor that a caller talks to until it ends; it is ended like any other tool's program.

Its stdin, stdout and stderr are three pipes. Of stderr only the end is stored.
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

_PIECE_BYTES: Final = 64 * 1024
_MAX_LAST_ERRORS: Final = 2_000
_GRACE_S: Final = 1.0
"""Seconds to end by itself after its input was closed."""
_TERMINATE_S: Final = 10.0


class _Started(msgspec.Struct, frozen=True):
    supervisor: subprocess.Popen[bytes]
    input: int
    output: int
    errors: int
    leash: int
    reports: int

    def abandon(self) -> None:
        """End everything: the supervisor does so once its leash is closed."""
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
    reading = [asyncio.StreamReader(limit=_PIECE_BYTES) for _ in range(3)]
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
    """One running program. ``read`` and ``write`` until it ends; call ``end`` once."""

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
        self._last_errors = self._reports = b""
        self._output, errors, reports = reading
        loop = asyncio.get_running_loop()
        self._error_reader = loop.create_task(self._read_errors(errors))
        self._watcher = loop.create_task(self._watch(reports))

    async def read(self) -> bytes:
        """Return the next piece of its output; empty at the end."""
        return await self._output.read(_PIECE_BYTES)

    async def write(self, data: bytes) -> None:
        """Write to its input. Raises ``OSError`` when the input is closed."""
        self._input.write(data)
        await self._input.drain()

    async def end(self, *, immediately: bool = False) -> str:
        """End it with all its processes and return how it ended, with the end of its errors."""
        self._input.close()
        await asyncio.wait({self._watcher}, timeout=0 if immediately else _GRACE_S)
        if not self._watcher.done():
            with suppress(OSError):
                os.write(self._started.leash, b"t")
            await asyncio.wait({self._watcher}, timeout=_TERMINATE_S)
        os.close(self._started.leash)
        if not self._watcher.done():
            self._started.supervisor.kill()
        await run_in_thread(self._started.supervisor.wait)
        await asyncio.wait({self._error_reader}, timeout=0.2)
        for task in (self._error_reader, self._watcher):
            task.cancel()
        for transport in self._transports:
            transport.close()
        return self._describe_end()

    def _describe_end(self) -> str:
        reports_by_key = dict(
            line.partition(" ")[::2] for line in self._reports.decode("utf-8", "replace").splitlines()
        )
        last_output = self._last_errors.decode("utf-8", "replace").strip()
        how = f"it could not be started: {reports_by_key['failed']}" if "failed" in reports_by_key else ""
        if not how:
            code = int(reports_by_key.get("exit", "-9"))
            how = f"it ended with exit code {code}" if code >= 0 else f"it was ended by signal {-code}"
        return f"{how}; its last errors: {last_output}" if last_output else how

    async def _read_errors(self, errors: asyncio.StreamReader) -> None:
        while piece := await errors.read(_PIECE_BYTES):
            self._last_errors = (self._last_errors + piece)[-_MAX_LAST_ERRORS:]

    async def _watch(self, reports: asyncio.StreamReader) -> None:
        while piece := await reports.read(_PIECE_BYTES):
            self._reports = (self._reports + piece)[-_PIECE_BYTES:]
