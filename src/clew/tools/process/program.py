"""A program below its own supervisor, from its start to the end of all its processes.

Its output is passed on as it arrives, both streams through one pipe, which preserves their order. The supervisor
(``supervisor.py``) is the parent of all processes of the program. When the program has ended, when its time is over,
when the run is aborted and when this process dies for any reason, the supervisor ends the remaining processes,
including daemons: SIGTERM, and SIGKILL two seconds later.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Literal

import msgspec

from clew.errors import ToolFailed
from clew.platform import NO_PROGRAMS, WINDOWS
from clew.platform.processes import SIGKILL, poll_pipes, signal_group
from clew.tools.base import Signal
from clew.tools.thread import run_in_thread

__all__ = ["Ending", "Program", "pack", "programs_ended", "run_blocking", "run_program", "start_supervisor"]

# Imported, not run as a file, so that it is compiled only once.
_SUPERVISOR: Final = "import sys; sys.path.append(sys.argv[1]); import supervisor; supervisor.main()"
_FOLDER: Final = str(Path(__file__).parent)
# The supervisor's grace time, the time for SIGKILL to take effect, and a reserve for a busy machine.
_SUPERVISOR_TIMEOUT_S: Final = 10.0
_DRAIN_S: Final = 0.2
_POLL_S: Final = 0.05
_PIECE_BYTES: Final = 64 * 1024

Cause = Literal["exit", "timeout", "abort"]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program to start: ``argv``, or ``script``, a Python file of clew that needs only the standard library.

    ``stdin`` is a file to read from, None an empty one; ``handles`` stay open in the program. ``fence`` lists what the
    program may access (see ``sandbox.py``); None is everything.
    """

    argv: Sequence[str] = ()
    script: Path | None = None
    cwd: Path
    env: Mapping[str, str]
    timeout_ms: int
    stdin: IO[bytes] | None = None
    handles: tuple[int, ...] = ()
    fence: Mapping[str, Any] | None = None


class Ending(msgspec.Struct, frozen=True):
    """The end of a program. ``exit_code`` is negative for a signal, as in ``subprocess``.

    ``leftovers``: processes outlived the program and were ended. ``survivors``: names of processes that could not be
    ended. ``held``: a process still had the output open, and the rest was not read.
    """

    exit_code: int
    cause: Cause
    leftovers: bool
    held: bool
    survivors: tuple[str, ...] = ()


_stopping: set[asyncio.Future[Ending]] = set()


async def run_program(program: Program, sink: Callable[[bytes], None], signal: Signal) -> Ending:
    """Run it to its end. ``sink`` is called in another thread. A cancelled wait ends the program first, too."""
    stop = threading.Event()
    running = asyncio.ensure_future(run_in_thread(run_blocking, program, sink, stop))
    aborted = asyncio.ensure_future(signal.wait())
    try:
        await asyncio.wait({running, aborted}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            _end(running, stop)
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        _end(running, stop)
        # Bounded by the grace times; no process of the program may be alive when the caller continues.
        with suppress(Exception):
            await running
        raise
    finally:
        aborted.cancel()


async def programs_ended(timeout_s: float = _SUPERVISOR_TIMEOUT_S) -> None:
    """Wait until the programs that are being ended are gone, for a host that is about to exit."""
    loop = asyncio.get_running_loop()
    if waited_for := {one for one in _stopping if one.get_loop() is loop}:
        await asyncio.wait(waited_for, timeout=timeout_s)


def _end(running: asyncio.Future[Ending], stop: threading.Event) -> None:
    stop.set()
    _stopping.add(running)
    running.add_done_callback(_stopping.discard)


def pack(program: Program) -> bytes:
    """Encode the job for a supervisor's leash. Raises ``ToolFailed`` for a program that cannot be started anywhere."""
    try:
        for text in (*program.argv, str(program.cwd), *program.env, *program.env.values()):
            # Text that cannot be encoded, or contains NUL, fails here and not after the fork.
            if b"\0" in os.fsencode(text):
                raise ValueError("embedded null byte")
    except ValueError as error:
        raise ToolFailed(f"the program could not be started: {error}") from error
    job = marshal.dumps(
        {
            "argv": list(program.argv),
            "script": None if program.script is None else str(program.script),
            "cwd": str(program.cwd),
            "env": dict(program.env),
            "fence": None if program.fence is None else dict(program.fence),
        }
    )
    return len(job).to_bytes(4, "big") + job


def start_supervisor(
    streams: tuple[IO[bytes] | int, int, int], leash: int, reports: int, handles: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a supervisor whose program has these three streams. Blocking; raises ``ToolFailed``."""
    if WINDOWS:
        raise ToolFailed(NO_PROGRAMS)
    try:
        return subprocess.Popen(
            # Isolated, without site-packages. Its own environment is empty: the job is sent through the leash.
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _SUPERVISOR, _FOLDER, str(leash), str(reports)],
            cwd="/",
            env={},
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
            pass_fds=(leash, reports, *handles),
        )
    except (OSError, ValueError) as error:
        raise ToolFailed(f"the program could not be started: {error}") from error


def run_blocking(program: Program, sink: Callable[[bytes], None], stop: threading.Event) -> Ending:
    """Run it to its end, in this thread. Raises ``ToolFailed`` where it cannot be started."""
    handles: list[int] = []
    try:
        for _ in range(3):
            handles += os.pipe()
        output, writer, leash, leash_end, reports, reports_end = handles
        try:
            job = pack(program)
            streams = (program.stdin or subprocess.DEVNULL, writer, writer)
            supervisor = start_supervisor(streams, leash, reports_end, program.handles)
        finally:
            # Before anything is read: while this process has these ends open, the output does not end.
            for handle in (writer, leash, reports_end):
                os.close(handle)
                handles.remove(handle)
        watch = _Watch(supervisor, output, reports, leash_end, sink)
        try:
            # A supervisor that has exited already has reported why, or is detected below.
            with suppress(BrokenPipeError), open(leash_end, "wb", closefd=False) as file:
                file.write(job)
            return watch.to_the_end(time.monotonic() + program.timeout_ms / 1000, stop)
        except BaseException:
            watch.kill()
            raise
    finally:
        for handle in handles:
            os.close(handle)


class _Watch:
    """One running program, for the thread that reads its output."""

    def __init__(
        self, supervisor: subprocess.Popen[bytes], output: int, reports: int, leash: int, sink: Callable[[bytes], None]
    ) -> None:
        self._supervisor, self._output, self._reports = supervisor, output, reports
        self._leash, self._sink = leash, sink
        self._report_bytes = bytearray()
        self._open = {output, reports}
        self._poll = poll_pipes(self._open)

    def to_the_end(self, deadline: float, stop: threading.Event) -> Ending:
        cause: Cause = "exit"
        give_up_at = float("inf")
        while self._reports in self._open and (now := time.monotonic()) < give_up_at:
            if cause == "exit" and (stop.is_set() or now >= deadline):
                cause = "abort" if stop.is_set() else "timeout"
                self._send_order(b"t")
                give_up_at = now + _SUPERVISOR_TIMEOUT_S
            self._pump(_POLL_S)
        lines = [line.partition(" ") for line in self._report_bytes.decode("utf-8", "replace").splitlines()]
        report = {word: rest for word, _, rest in lines}
        survivors = tuple(rest for word, _, rest in lines if word == "left")
        if "exit" not in report and "failed" not in report:
            # Only the supervisor knows the processes; it was killed, or does not answer.
            session = report.get("began", "unknown")
            survivors += (f"whatever it started (session {session})",)
            until = time.monotonic() + 1
            with suppress(ProcessLookupError, PermissionError):
                # Repeatedly: processes that fork while they are killed are found the next time.
                while session.isdigit() and time.monotonic() < until:
                    signal_group(int(session), SIGKILL)
                    time.sleep(_POLL_S / 5)
        self._reap()
        if "failed" in report:
            raise ToolFailed(f"the program could not be started: {report['failed']}")
        # Read what is in the pipe, without waiting for processes that keep it open.
        until = time.monotonic() + _DRAIN_S
        while self._output in self._open and time.monotonic() < until:
            self._pump(_POLL_S / 5)
        is_open = self._output in self._open
        return Ending(int(report.get("exit", -SIGKILL)), cause, "ended" in report, is_open, survivors)

    def kill(self) -> None:
        """Kill all processes immediately and wait for their end."""
        self._send_order(b"k")
        until = time.monotonic() + _SUPERVISOR_TIMEOUT_S
        self._sink = lambda _: None
        while self._reports in self._open and time.monotonic() < until:
            self._pump(_POLL_S)
        self._reap()

    def _reap(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_DRAIN_S * 5)
            return
        self._supervisor.kill()
        self._supervisor.wait()

    def _send_order(self, order: bytes) -> None:
        with suppress(BrokenPipeError):
            os.write(self._leash, order)

    def _pump(self, wait_s: float) -> None:
        for handle, _ in self._poll.poll(wait_s * 1000):
            piece = os.read(handle, _PIECE_BYTES)
            if not piece:
                self._open.discard(handle)
                self._poll.unregister(handle)
            elif handle == self._output:
                self._sink(piece)
            else:
                self._report_bytes += piece
