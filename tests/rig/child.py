"""Children to kill: starts :mod:`tests.rig.streamer` as a process, listens to it, kills it, remembers what it said.

A child runs in a process group of its own and is only ever killed by its pid. What it reported before it died is
read to the end: bytes in a pipe survive the one who wrote them. A line that a kill cut short is left out, since
nobody was shown it.
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
from tests.rig.nursery import Forked
from tests.rig.streamer import Orders, StreamOf

__all__ = ["Child", "ChildFailed", "KillPlan", "Orders", "Refusal", "StreamOf", "random_plan"]

_PATIENCE_S = 60.0

Env: TypeAlias = Mapping[str, str]


class ChildFailed(AssertionError):
    """A child ended in a way nobody asked for; carries what it wrote to standard error."""


class KillPlan(msgspec.Struct, frozen=True):
    """When to kill: ``delay_ms`` after the child was started, was ready, or had shown ``acks`` chunks."""

    after: Literal["start", "ready", "acks"]
    delay_ms: float = 0.0
    acks: int = 0


def random_plan(random: Random) -> KillPlan:
    """A moment to kill at: now and then while the store is opened and recovered, mostly in the middle of streams."""
    kind = random.random()
    if kind < 0.1:
        return KillPlan("start", delay_ms=random.uniform(0.0, 60.0))
    if kind < 0.4:
        return KillPlan("ready", delay_ms=random.uniform(0.0, 150.0))
    return KillPlan("acks", delay_ms=random.choice((0.0, random.uniform(0.0, 5.0))), acks=random.randint(1, 600))


class Refusal(msgspec.Struct, frozen=True):
    """The error a child ended with: its code, its sentence, and what it is about."""

    code: str
    message: str
    ids: dict[str, str]


class Child:
    """One life of the streamer. Use it as a context manager: whatever happens, the process is gone afterwards."""

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
        words = msgspec.json.encode(orders).decode()
        return Forked("tests.rig.streamer", words, env=environment, errors=self._errors)

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

    # Listening

    def wait_until(self, happened: Callable[[Child], bool]) -> None:
        """Listen until it has happened; a child that ends before is an error."""
        if not self._listen(happened, time.monotonic() + _PATIENCE_S):
            raise ChildFailed(f"the child did not get there ({self.how_it_ended()})")

    def _listen(self, happened: Callable[[Child], bool], deadline: float) -> bool:
        """Take reports until ``happened``, the deadline, or the end of the child; whether it has happened."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while not happened(self):
            left = deadline - time.monotonic()
            if self._ended or left <= 0:
                return False
            if select.select([pipe], [], [], left)[0]:
                self._take(os.read(pipe, 1 << 16))
        return True

    def _take(self, data: bytes) -> None:
        if not data:
            self._ended = True
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._note(msgspec.json.decode(line))

    def _note(self, line: list[Any]) -> None:
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
                raise ChildFailed(f"the child said {line!r}")

    # Ending

    def go_on(self) -> None:
        """Let a child that waits go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    def kill(self) -> None:
        """SIGKILL, then hear what it had said and wait until it is gone. Does nothing to one that is gone."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self._hear_out()

    def kill_by(self, plan: KillPlan) -> None:
        """Kill at the moment of the plan, or hear it out when it ends before."""
        moment = self._started
        if plan.after == "ready":
            self._listen(lambda child: child.ready, self._started + _PATIENCE_S)
            moment = time.monotonic()
        elif plan.after == "acks":
            self._listen(lambda child: child.acks >= plan.acks, self._started + _PATIENCE_S)
            moment = time.monotonic()
        self._listen(lambda _: False, moment + plan.delay_ms / 1000.0)
        self.kill()
        if not self.was_killed:
            raise ChildFailed(f"the child was to be killed, but {self.how_it_ended()}")

    def wait(self) -> int:
        """Hear the child out and return its exit code; minus the number of the signal that killed it."""
        if not self._listen(lambda child: child._ended, time.monotonic() + _PATIENCE_S):
            self.kill()
            raise ChildFailed(f"the child did not end by itself ({self.how_it_ended()})")
        self._hear_out()
        return self._process.wait()

    @property
    def was_killed(self) -> bool:
        return self._process.returncode == -signal.SIGKILL

    @property
    def mid_stream(self) -> bool:
        """Whether it died with a stream that somebody was shown the beginning of, and not the end."""
        return any(chunks and id_ not in self.settled for id_, chunks in self.shown.items())

    def _hear_out(self) -> None:
        self._listen(lambda _: False, time.monotonic() + _PATIENCE_S)
        self._process.wait()

    def how_it_ended(self) -> str:
        """Its exit code, the error it reported, and what it wrote to standard error: for whoever has to debug."""
        code = self._process.poll()
        self._errors.seek(0)
        return f"exit code {code}, refusal {self.refusal}, {self._errors.read().decode(errors='replace')[-4000:]!r}"
