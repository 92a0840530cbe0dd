"""A program in a session and process group of its own, from its start to the death of all that is in it.

Its output is handed on as it comes, both streams through one pipe, so that their order is kept. When the time is
over or the run is aborted the whole group gets SIGTERM, and SIGKILL two seconds later; so do the further groups a
shell with job control makes. What the program leaves running ends with it; a process that left the session (a daemon)
may keep the pipe open, and is no longer listened to once the others are dead. What is run, and what its output
means, is not known here.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal as signals
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Final, Literal

import msgspec

from clew.errors import ToolFailed
from clew.tools.base import Signal
from clew.tools.thread import run_in_thread

__all__ = ["Ending", "Program", "run_program"]

KILL_AFTER_S: Final = 2.0
_DRAIN_S: Final = 0.2
_TICK_S: Final = 0.05
_PIECE: Final = 64 * 1024


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What to start. ``stdin`` is a file to read from, None an empty one; ``handles`` stay open in the program."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    timeout_ms: int
    stdin: IO[bytes] | None = None
    handles: tuple[int, ...] = ()


class Ending(msgspec.Struct, frozen=True):
    """How it ended. ``exit_code`` is negative for a signal, as in ``subprocess``.

    ``leftovers``: processes outlived the program and were ended. ``held``: something that had left the session still
    held the output open and was no longer listened to.
    """

    exit_code: int
    cause: Literal["exit", "timeout", "abort"]
    leftovers: bool
    held: bool


async def run_program(program: Program, sink: Callable[[bytes], None], signal: Signal) -> Ending:
    """Run it to its end. ``sink`` is called in another thread. A cancelled wait kills the group first, too."""
    stop = threading.Event()
    running = asyncio.ensure_future(run_in_thread(partial(_run, program, sink, stop)))
    aborted = asyncio.ensure_future(signal.wait())
    try:
        await asyncio.wait({running, aborted}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            stop.set()
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        # Bounded by the two grace times; nothing of the group may be alive when the caller goes on.
        with suppress(Exception):
            await running
        raise
    finally:
        aborted.cancel()


def _run(program: Program, sink: Callable[[bytes], None], stop: threading.Event) -> Ending:
    reader, writer = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                program.argv,
                cwd=program.cwd,
                env=dict(program.env),
                stdin=program.stdin or subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                start_new_session=True,
                pass_fds=program.handles,
            )
        except (OSError, ValueError) as error:
            raise ToolFailed(f"the program could not be started: {error}") from error
        finally:
            os.close(writer)
        os.set_blocking(reader, False)
        watch = _Watch(process, reader, sink, stop)
        try:
            return watch.to_the_end(time.monotonic() + program.timeout_ms / 1000)
        except BaseException:
            watch.kill()
            raise
    finally:
        os.close(reader)


class _Watch:
    """One running group, seen from the thread that reads it."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: int, sink: Callable[[bytes], None], stop: threading.Event
    ) -> None:
        self._process = process
        self._reader = reader
        self._sink = sink
        self._stop = stop
        self._open = True
        self._poll = select.poll()
        self._poll.register(reader, select.POLLIN)

    def to_the_end(self, deadline: float) -> Ending:
        cause: Literal["exit", "timeout", "abort"] = "exit"
        kill_at: float | None = None
        while (code := self._process.poll()) is None:
            now = time.monotonic()
            if cause == "exit" and (self._stop.is_set() or now >= deadline):
                cause = "abort" if self._stop.is_set() else "timeout"
                self._send(signals.SIGTERM)
                kill_at = now + KILL_AFTER_S
            elif kill_at is not None and now >= kill_at:
                self._send(signals.SIGKILL)
                kill_at = now + KILL_AFTER_S
            self._pump(_TICK_S)
        leftovers = self._end_group(at_once=cause != "exit")
        return Ending(code, cause, leftovers, self._drain())

    def kill(self) -> None:
        self._send(signals.SIGKILL)
        self._process.wait()

    def _end_group(self, *, at_once: bool) -> bool:
        """End what the program left behind. It gets a moment to end by itself, as the last of a pipeline does."""
        term_at = time.monotonic() + (0.0 if at_once else _DRAIN_S)
        kill_at = give_up_at = float("inf")
        sent = False
        while _living_groups(self._process.pid) and (now := time.monotonic()) < give_up_at:
            if now >= kill_at:
                self._send(signals.SIGKILL)
                kill_at, give_up_at = float("inf"), now + KILL_AFTER_S
            elif now >= term_at:
                self._send(signals.SIGTERM)
                sent, term_at, kill_at = True, float("inf"), now + KILL_AFTER_S
            self._pump(_TICK_S / 5)
        return sent

    def _drain(self) -> bool:
        """Take what is still in the pipe; True when somebody who left the session keeps it open."""
        until = time.monotonic() + _DRAIN_S
        while self._open and time.monotonic() < until:
            self._pump(_TICK_S / 5)
        return self._open

    def _pump(self, wait_s: float) -> None:
        if not self._open:
            # Nothing more to read: only the end of the program, or of its group, is waited for.
            time.sleep(wait_s / 5)
            return
        if not self._poll.poll(wait_s * 1000):
            return
        piece = os.read(self._reader, _PIECE)
        if piece:
            self._sink(piece)
        else:
            self._open = False

    def _send(self, number: signals.Signals) -> None:
        for group in _living_groups(self._process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)


def _living_groups(session: int) -> set[int]:
    """The process groups of the session that have somebody alive in them; a shell with job control makes several.

    Read from /proc, because for the kernel a dead process counts until its parent has taken note of it, which in a
    container may be never. While one of them lives its number cannot become somebody else's.
    """
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return _own_group(session)
    groups = set()
    for number in numbers:
        try:
            stat = Path("/proc", number, "stat").read_bytes()
        except OSError:
            continue
        # The name may hold anything; after its last parenthesis come state, parent, group and session.
        state, _, group, its_session = stat.rpartition(b")")[2].split()[:4]
        if int(its_session) == session and state not in (b"Z", b"X"):
            groups.add(int(group))
    return groups


def _own_group(session: int) -> set[int]:
    """Without /proc the kernel's answer about the first group has to do."""
    try:
        os.killpg(session, 0)
    except ProcessLookupError:
        return set()
    except PermissionError:
        pass  # It lives, under another user.
    return {session}
