"""A program below its own supervisor, from its start to the death of all that it started.

Its output is handed on as it comes, both streams through one pipe, so that their order is kept. The supervisor
(``supervisor.py``) is the parent of everything the program starts. When the program has ended, when its time is over,
when the run is aborted and when this process dies, by whatever, the supervisor ends what is left, daemons included:
SIGTERM, and SIGKILL two seconds later. What is run, and what its output means, is not known here.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import select
import signal as signals
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
from clew.tools.base import Signal
from clew.tools.thread import run_in_thread

__all__ = ["Ending", "Program", "pack", "programs_ended", "run_blocking", "run_program", "start_supervisor"]

# Imported, not run as a file: so it is compiled once and not each time.
_SUPERVISOR: Final = "import sys; sys.path.append(sys.argv[1]); import supervisor; supervisor.main()"
_FOLDER: Final = str(Path(__file__).parent)
# The supervisor's grace, the time it gives SIGKILL to work, and some for a machine that has much to do.
_LATEST_S: Final = 10.0
_DRAIN_S: Final = 0.2
_TICK_S: Final = 0.05
_PIECE: Final = 64 * 1024

Cause = Literal["exit", "timeout", "abort"]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What to start: ``argv``, or ``script``, a file of ours in Python that needs nothing but the standard library.

    ``stdin`` is a file to read from, None an empty one; ``handles`` stay open in the program. ``fence`` is what
    ``sandbox.py`` says the program may touch; None is everything.
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
    """How it ended. ``exit_code`` is negative for a signal, as in ``subprocess``.

    ``leftovers``: processes outlived the program and were ended. ``left``: what could not be ended, by name. ``held``:
    something still held the output open and was no longer listened to.
    """

    exit_code: int
    cause: Cause
    leftovers: bool
    held: bool
    left: tuple[str, ...] = ()


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
        # Bounded by the grace times; nothing of the program may be alive when the caller goes on.
        with suppress(Exception):
            await running
        raise
    finally:
        aborted.cancel()


async def programs_ended(timeout_s: float = _LATEST_S) -> None:
    """Wait until the programs that are being ended are gone: for a host that is about to go itself."""
    loop = asyncio.get_running_loop()
    if waited_for := {one for one in _stopping if one.get_loop() is loop}:
        await asyncio.wait(waited_for, timeout=timeout_s)


def _end(running: asyncio.Future[Ending], stop: threading.Event) -> None:
    stop.set()
    _stopping.add(running)
    running.add_done_callback(_stopping.discard)


def pack(program: Program) -> bytes:
    """What a supervisor is told through its leash. Raises ``ToolFailed`` for what could not be started anywhere."""
    try:
        for text in (*program.argv, str(program.cwd), *program.env, *program.env.values()):
            # What cannot become bytes, or holds their end, is found here and not behind the fork.
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
    """A supervisor whose program has these three streams. Blocking; raises ``ToolFailed``."""
    try:
        return subprocess.Popen(
            # Isolated, without site-packages. Its own environment is empty: what it runs is told through the leash.
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
        output, writer, leash, leash_held, reports, told = handles
        try:
            job = pack(program)
            streams = (program.stdin or subprocess.DEVNULL, writer, writer)
            supervisor = start_supervisor(streams, leash, told, program.handles)
        finally:
            # Before anything is read: only the far side may hold these ends, or the end of the output never comes.
            for handle in (writer, leash, told):
                os.close(handle)
                handles.remove(handle)
        watch = _Watch(supervisor, output, reports, leash_held, sink)
        try:
            # A supervisor that is gone already has reported why, or will be found out.
            with suppress(BrokenPipeError), open(leash_held, "wb", closefd=False) as file:
                file.write(job)
            return watch.to_the_end(time.monotonic() + program.timeout_ms / 1000, stop)
        except BaseException:
            watch.kill()
            raise
    finally:
        for handle in handles:
            os.close(handle)


class _Watch:
    """One running program, seen from the thread that reads it."""

    def __init__(
        self, supervisor: subprocess.Popen[bytes], output: int, reports: int, leash: int, sink: Callable[[bytes], None]
    ) -> None:
        self._supervisor, self._output, self._reports = supervisor, output, reports
        self._leash, self._sink = leash, sink
        self._said = bytearray()
        self._poll = select.poll()
        self._open = {output, reports}
        for handle in self._open:
            os.set_blocking(handle, False)
            self._poll.register(handle, select.POLLIN)

    def to_the_end(self, deadline: float, stop: threading.Event) -> Ending:
        cause: Cause = "exit"
        give_up_at = float("inf")
        while self._reports in self._open and (now := time.monotonic()) < give_up_at:
            if cause == "exit" and (stop.is_set() or now >= deadline):
                cause = "abort" if stop.is_set() else "timeout"
                self._order(b"t")
                give_up_at = now + _LATEST_S
            self._pump(_TICK_S)
        lines = [line.partition(" ") for line in self._said.decode("utf-8", "replace").splitlines()]
        said = {word: rest for word, _, rest in lines}
        left = tuple(rest for word, _, rest in lines if word == "left")
        if "exit" not in said and "failed" not in said:
            # The supervisor is the only one who knew; it was killed, or does not answer.
            session = said.get("began", "unknown")
            left += (f"whatever it started (session {session})",)
            until = time.monotonic() + 1
            with suppress(ProcessLookupError, PermissionError):
                # Again and again: what forks while it is killed is met the next time.
                while session.isdigit() and time.monotonic() < until:
                    os.killpg(int(session), signals.SIGKILL)
                    time.sleep(_TICK_S / 5)
        self._bury()
        if "failed" in said:
            raise ToolFailed(f"the program could not be started: {said['failed']}")
        # What is still in the pipe is taken; whoever keeps it open is not waited for.
        until = time.monotonic() + _DRAIN_S
        while self._output in self._open and time.monotonic() < until:
            self._pump(_TICK_S / 5)
        held = self._output in self._open
        return Ending(int(said.get("exit", -signals.SIGKILL)), cause, "ended" in said, held, left)

    def kill(self) -> None:
        """End everything at once and wait for it."""
        self._order(b"k")
        until = time.monotonic() + _LATEST_S
        self._sink = lambda _: None
        while self._reports in self._open and time.monotonic() < until:
            self._pump(_TICK_S)
        self._bury()

    def _bury(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_DRAIN_S * 5)
            return
        self._supervisor.kill()
        self._supervisor.wait()

    def _order(self, order: bytes) -> None:
        with suppress(BrokenPipeError):
            os.write(self._leash, order)

    def _pump(self, wait_s: float) -> None:
        for handle, _ in self._poll.poll(wait_s * 1000):
            piece = os.read(handle, _PIECE)
            if not piece:
                self._open.discard(handle)
                self._poll.unregister(handle)
            elif handle == self._output:
                self._sink(piece)
            else:
                self._said += piece
