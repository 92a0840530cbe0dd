"""Processes to kill: starts :mod:`tests.rig.streamer`, reads its reports, kills it, and records the reports.

A child runs in its own process group and is only killed by its pid. Its reports are read to the end: bytes in a pipe
outlive the writer. A line that a kill cut short is dropped, since it was never complete.
"""

from __future__ import annotations

import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Literal, TypeAlias

import msgspec

from clew.transcript.chunk import Chunk, parse_chunk
from tests.rig.fork_server import Forked
from tests.rig.streamer import Orders, StreamOf

__all__ = ["Child", "ChildFailed", "KillPlan", "Orders", "Refusal", "StreamOf", "random_plan"]

_PATIENCE_S = 60.0

Env: TypeAlias = Mapping[str, str]


class ChildFailed(AssertionError):
    """A child ended unexpectedly; the message has its standard error."""


class KillPlan(msgspec.Struct, frozen=True):
    """The time of a kill: ``delay_ms`` after the child was started, was ready, or had shown ``acks`` chunks."""

    after: Literal["start", "ready", "acks"]
    delay_ms: float = 0.0
    acks: int = 0


def random_plan(random: Random) -> KillPlan:
    """Return a time to kill: sometimes while the store opens and recovers, mostly in the middle of streams."""
    kind = random.random()
    if kind < 0.1:
        return KillPlan("start", delay_ms=random.uniform(0.0, 60.0))
    if kind < 0.4:
        return KillPlan("ready", delay_ms=random.uniform(0.0, 150.0))
    return KillPlan("acks", delay_ms=random.choice((0.0, random.uniform(0.0, 5.0))), acks=random.randint(1, 600))


class Refusal(msgspec.Struct, frozen=True):
    """The error of a child: its code, message and ids."""

    code: str
    message: str
    ids: dict[str, str]


class Child:
    """A process of the streamer. As a context manager it is always killed at the end."""

    def __init__(self, orders: Orders, *, failpoints: str = "", env: Env | None = None) -> None:
        self.ready = False
        self.up = False
        self.staged = False
        self.streams: dict[str, StreamOf] = {}
        self.shown: dict[str, list[Chunk]] = {}
        self.steps: dict[str, int] = {}
        self.settled: set[str] = set()
        self.refusal: Refusal | None = None
        self.acks = 0
        self._rest = b""
        self._ended = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the child is
        self._process = self._start(orders, failpoints, env or {})
        self._started = time.monotonic()

    def _start(self, orders: Orders, failpoints: str, env: Env) -> Forked:
        environment = {**os.environ, **env}
        environment.pop("CLEW_FAILPOINTS", None)
        if failpoints:
            environment["CLEW_FAILPOINTS"] = failpoints
        argument = msgspec.json.encode(orders).decode()
        return Forked("tests.rig.streamer", argument, env=environment, errors=self._errors)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()

    # Reading reports

    def wait_until(self, happened: Callable[[Child], bool]) -> None:
        """Read reports until the condition holds; a child that ends before is an error."""
        if not self._read_until(happened, time.monotonic() + _PATIENCE_S):
            raise ChildFailed(f"the child ended before the condition held ({self.how_it_ended()})")

    def _read_until(self, happened: Callable[[Child], bool], deadline: float) -> bool:
        """Read reports until the condition holds, the deadline, or the end; return whether it holds."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while not happened(self):
            left = deadline - time.monotonic()
            if self._ended or left <= 0:
                return False
            if select.select([pipe], [], [], left)[0]:
                self._receive(os.read(pipe, 1 << 16))
        return True

    def _receive(self, data: bytes) -> None:
        if not data:
            self._ended = True
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._record(msgspec.json.decode(line))

    def _record(self, line: list[Any]) -> None:
        match line:
            case ["shown", message_id, chunks]:
                self.shown[message_id] += [parse_chunk(chunk) for chunk in chunks]
                self.acks += len(chunks)
            case ["stream", of]:
                stream = msgspec.convert(of, StreamOf)
                self.streams[stream.message_id] = stream
                self.shown[stream.message_id] = []
            case ["settled", message_id]:
                self.settled.add(message_id)
            case ["step", message_id]:
                self.steps[message_id] = len(self.shown[message_id])
            case ["ready"]:
                self.ready = True
            case ["up"]:
                self.up = True
            case ["staged"]:
                self.staged = True
            case ["refused", code, message, ids]:
                self.refusal = Refusal(code, message, ids)
            case _:
                raise ChildFailed(f"unexpected report: {line!r}")

    # Ending

    def go_on(self) -> None:
        """Let a waiting child continue."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    def kill(self) -> None:
        """Send SIGKILL, read its last reports and wait for its end. Does nothing if it has ended."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self._read_to_end()

    def kill_by(self, plan: KillPlan) -> None:
        """Kill it as planned, or fail if it ends before."""
        moment = self._started
        if plan.after == "ready":
            self._read_until(lambda child: child.ready, self._started + _PATIENCE_S)
            moment = time.monotonic()
        elif plan.after == "acks":
            self._read_until(lambda child: child.acks >= plan.acks, self._started + _PATIENCE_S)
            moment = time.monotonic()
        self._read_until(lambda _: False, moment + plan.delay_ms / 1000.0)
        self.kill()
        if not self.was_killed:
            raise ChildFailed(f"the child ended before it was killed: {self.how_it_ended()}")

    def wait(self) -> int:
        """Read all reports and return the exit code; negative for a signal."""
        if not self._read_until(lambda child: child._ended, time.monotonic() + _PATIENCE_S):
            self.kill()
            raise ChildFailed(f"the child did not end ({self.how_it_ended()})")
        self._read_to_end()
        return self._process.wait()

    @property
    def was_killed(self) -> bool:
        return self._process.returncode == -signal.SIGKILL

    @property
    def mid_stream(self) -> bool:
        """Return whether it died in a stream of which a beginning was shown, but not the end."""
        return any(chunks and id_ not in self.settled for id_, chunks in self.shown.items())

    def _read_to_end(self) -> None:
        self._read_until(lambda _: False, time.monotonic() + _PATIENCE_S)
        self._process.wait()

    def how_it_ended(self) -> str:
        """Return its exit code, reported error and standard error, for debugging."""
        code = self._process.poll()
        self._errors.seek(0)
        return f"exit code {code}, refusal {self.refusal}, {self._errors.read().decode(errors='replace')[-4000:]!r}"
