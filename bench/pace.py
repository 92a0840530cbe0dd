"""P5, P6 and PACE: 100 streams at a steady pace: the latency of their chunks, and their cost in CPU and bytes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import clew
from bench import talk
from bench.measure import Bench, Goal, Line, percentile, ratios, settle
from bench.process import written_bytes
from bench.raw import RawChunks, RawJournal, raw_id
from bench.streams import DELTA_CHUNK, STREAMS, Streams
from clew.live.stream import LocalStream
from clew.providers.base import ModelRequest, StepEnd
from clew.store.base import Store
from clew.store.sql.sqlite.opening import open_sqlite
from clew.testing.scripted import FakeProviders
from clew.transcript import chunk as c
from clew.transcript.usage import Usage

__all__ = ["PER_SECOND", "in_tasks", "in_ticks", "measure"]

PER_SECOND: Final = 100
Pace: TypeAlias = Callable[[float, Callable[[int, int], None]], Awaitable[int]]
"""Produces chunks: called with the duration and a function that writes a chunk; returns the number of chunks."""


@dataclass(frozen=True, slots=True)
class Paced:
    """Milliseconds until a chunk is durable or shown, percent of a core, and bytes written per byte of text."""

    p50: float
    p99: float
    cpu: float
    written: float


class _Side(Protocol):
    """A receiver of chunks. ``latencies`` has the seconds until each chunk was durable or shown."""

    latencies: list[float]

    def write(self, stream: int, n: int) -> None: ...
    async def drain(self) -> None: ...
    async def close(self) -> None: ...


async def measure(bench: Bench) -> list[Line]:
    seconds = bench.size(2, 1)
    sides: dict[str, Callable[[Bench], Awaitable[_Side]]] = {
        "thread": _thread,
        "inline": _inline,
        "recorder": _recorders,
        "viewers": _viewers,
    }
    took: dict[str, list[Paced]] = {name: [] for name in (*sides, "engine")}
    ticked: dict[str, list[Paced]] = {"thread": [], "recorder": []}
    for _ in range(bench.rounds):
        for name, make in sides.items():
            took[name].append(await _run(await make(bench), in_tasks, seconds))
        took["engine"].append(await _engine(bench, seconds))
        for name in ticked:
            ticked[name].append(await _run(await sides[name](bench), in_ticks, bench.size(2, 1)))
    load = f"{STREAMS} streams × {PER_SECOND} chunks/s"
    floor = took["thread"]
    lines = [
        _line("P5", f"{load}, arrival → durable, p50", "ms", floor, took["recorder"], "p50"),
        _line("P5", f"{load}, arrival → durable, p99", "ms", floor, took["recorder"], "p99", Goal("≤", 2)),
        _line("P5", f"{load}, arrival → viewer in process, p50", "ms", floor, took["viewers"], "p50"),
        _line("P5", f"{load}, arrival → viewer in process, p99", "ms", floor, took["viewers"], "p99", Goal("≤", 5)),
        _line("PACE", f"{load}, CPU", "%", floor, took["recorder"], "cpu", Goal("≤", 2.5)),
        _line("PACE", f"{load}, written per byte of text", "bytes", floor, took["recorder"], "written", Goal("≤", 2)),
        _line("PACE", f"{load}, through the whole engine to a viewer, p50", "ms", floor, took["engine"], "p50"),
        _line("PACE", f"{load}, through the whole engine to a viewer, p99", "ms", floor, took["engine"], "p99"),
        _line("PACE", f"{load}, through the whole engine to a viewer, CPU", "%", floor, took["engine"], "cpu"),
        _line("PACE", f"{load}, through the whole engine, written per byte", "bytes", floor, took["engine"], "written"),
    ]
    inline = took["inline"]
    for name, unit, of in (("p99", "ms", "p99"), ("CPU", "%", "cpu"), ("written per byte of text", "bytes", "written")):
        lines.append(_line("PACE", f"{load}, {name} (raw: inline, no thread)", unit, inline, took["recorder"], of))
    what = f"written per byte of text, {load} in ticks of 1 ms"
    raw, ours = ([one.written for one in ticked[name]] for name in ("thread", "recorder"))
    lines.append(Line("P6", what, "bytes", raw, ours, ours, Goal("≤", 150, " B")))
    lines.append(_line("PACE", f"{load} in ticks of 1 ms, CPU", "%", ticked["thread"], ticked["recorder"], "cpu"))
    return lines


def _line(
    id_: str, what: str, unit: str, raw: Sequence[Paced], ours: Sequence[Paced], of: str, goal: Goal | None = None
) -> Line:
    floor, values = ([float(getattr(one, of)) for one in side] for side in (raw, ours))
    return Line(id_, what, unit, floor, values, ratios(values, floor), goal)


# How chunks arrive


async def in_tasks(seconds: float, write: Callable[[int, int], None]) -> int:
    """Call ``write(stream, n)`` from one task per stream when a chunk is due; return the number of chunks.

    The streams are evenly staggered. Whenever the event loop wakes up, all chunks that are due are written.
    """
    begin = time.perf_counter()
    count = int(seconds * PER_SECOND)

    async def stream(number: int) -> None:
        for n in range(count):
            due = begin + (n + number / STREAMS) / PER_SECOND
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            write(number, n)

    await asyncio.gather(*(stream(number) for number in range(STREAMS)))
    return count * STREAMS


async def in_ticks(seconds: float, write: Callable[[int, int], None]) -> int:
    """Write the same chunks from one task that wakes about every millisecond, so that each commit has several."""
    rate = STREAMS * PER_SECOND
    total = int(seconds * rate)
    begin = time.perf_counter()
    done = 0
    while done < total:
        due = min(int((time.perf_counter() - begin) * rate), total)
        while done < due:
            write(done % STREAMS, done // STREAMS)
            done += 1
        await asyncio.sleep(0.0005)
    return total


async def _run(side: _Side, pace: Pace, seconds: float) -> Paced:
    settle()
    cpu, written, begin = time.process_time(), written_bytes(), time.perf_counter()
    total = await pace(seconds, side.write)
    await side.drain()
    paced = _paced(side.latencies, total, cpu, written, begin)
    await side.close()
    return paced


def _paced(latencies: Sequence[float], total: int, cpu: float, written: float, begin: float) -> Paced:
    if len(latencies) != total:
        raise RuntimeError(f"{len(latencies)} of {total} chunks arrived")
    return Paced(
        percentile(latencies, 0.5) * 1000,
        percentile(latencies, 0.99) * 1000,
        (time.process_time() - cpu) / (time.perf_counter() - begin) * 100,
        (written_bytes() - written) / (total * len(talk.DELTA)),
    )


# Receivers


class _Thread:
    """The floor: a journal behind a thread."""

    def __init__(self, bench: Bench) -> None:
        self._journal = RawJournal(bench.path("pace-thread"))
        self.latencies, self.write, self.drain = self._journal.latencies, self._journal.write, self._journal.drain

    async def close(self) -> None:
        self._journal.close()


async def _thread(bench: Bench) -> _Side:
    return _Thread(bench)


class _Inline:
    """The other floor: each chunk in its own commit, synchronously on the event loop."""

    def __init__(self, bench: Bench) -> None:
        self._chunks = RawChunks(bench.path("pace-inline"))
        self._ids = [raw_id("msg", n) for n in range(STREAMS)]
        self.latencies: list[float] = []

    def write(self, stream: int, n: int) -> None:
        begin = time.perf_counter()
        self._chunks.append(self._ids[stream], n, talk.DELTA)
        self.latencies.append(time.perf_counter() - begin)

    async def drain(self) -> None:
        pass

    async def close(self) -> None:
        self._chunks.close()


async def _inline(bench: Bench) -> _Side:
    return _Inline(bench)


@dataclass(slots=True)
class _Recorders:
    """clew's recorders. A chunk counts when it may be shown; with ``live``, when a viewer of its stream received it."""

    store: Store
    latencies: list[float] = field(default_factory=list)
    arrived: list[deque[float]] = field(default_factory=lambda: [deque() for _ in range(STREAMS)])
    live: dict[int, LocalStream] = field(default_factory=dict)
    viewers: list[asyncio.Task[None]] = field(default_factory=list)
    streams: Streams | None = None

    def write(self, stream: int, n: int) -> None:
        assert self.streams is not None
        self.arrived[stream].append(time.perf_counter())
        self.streams.recorders[stream].write(DELTA_CHUNK)

    def received(self, stream: int, chunks: Sequence[c.Chunk]) -> None:
        now, waiting = time.perf_counter(), self.arrived[stream]
        self.latencies.extend(now - waiting.popleft() for _ in range(min(len(chunks), len(waiting))))

    def show(self, stream: int, chunks: Sequence[c.Chunk]) -> None:
        if stream not in self.live:
            assert isinstance(chunks[0], c.Start)
            self.live[stream] = LocalStream(str(chunks[0].message_id), ())
        # These streams have no transient chunks.
        self.live[stream].show(list(enumerate(chunks, self.live[stream].shown_n + 1)))

    async def view(self, stream: int) -> None:
        async for chunks in self.live[stream].follow(replay=True):
            self.received(stream, chunks)

    async def drain(self) -> None:
        assert self.streams is not None
        await asyncio.gather(*(recorder.flush() for recorder in self.streams.recorders))
        while self.viewers and any(self.arrived):  # noqa: ASYNC110  # viewers send no event
            await asyncio.sleep(0)

    async def close(self) -> None:
        assert self.streams is not None
        await self.streams.finish()
        for stream in self.live.values():
            stream.end()
        await asyncio.gather(*self.viewers)
        await self.store.close()


async def _recorders(bench: Bench) -> _Recorders:
    side = _Recorders(await open_sqlite(bench.path("pace-clew")))
    side.streams = await Streams.make(side.store, STREAMS, side.received)
    return side


async def _viewers(bench: Bench) -> _Recorders:
    side = _Recorders(await open_sqlite(bench.path("pace-viewers")))
    side.streams = await Streams.make(side.store, STREAMS, side.show)
    side.viewers = [asyncio.get_running_loop().create_task(side.view(number)) for number in range(STREAMS)]
    await asyncio.sleep(0)
    return side


# The whole engine


class _Pacer:
    """A model whose streams begin together when all were requested, and record when each word was sent."""

    def __init__(self, seconds: float) -> None:
        self.count = int(seconds * PER_SECOND)
        self.sent_at: dict[int, deque[float]] = {}
        self.begun = asyncio.Event()
        self.begin = 0.0
        self.cpu = self.written = 0.0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        number = int(request.messages[-1].parts[-1]["text"])
        sent_at = self.sent_at[number] = deque()
        yield c.TextStart("t1")
        if len(self.sent_at) == STREAMS:
            settle()
            # By then every stream has sent its first chunk.
            self.begin = time.perf_counter() + 0.2
            self.cpu, self.written = time.process_time(), written_bytes()
            self.begun.set()
        await self.begun.wait()
        for n in range(self.count):
            due = self.begin + (n + number / STREAMS) / PER_SECOND
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            sent_at.append(time.perf_counter())
            yield DELTA_CHUNK
        yield c.TextEnd("t1")
        yield StepEnd(usage=Usage(1, 1))

    async def close(self) -> None:
        pass


async def _engine(bench: Bench, seconds: float) -> Paced:
    model = _Pacer(seconds)
    latencies: list[float] = []
    result: list[Paced] = []
    total = model.count * STREAMS

    async with AsyncExitStack() as stack:
        url = f"sqlite:///{bench.path('pace-engine')}"
        engine = await stack.enter_async_context(clew.open(url, config=clew.Config(), providers=FakeProviders(model)))

        async def view(number: int) -> None:
            session = await engine.create_session(title="bench")
            async for chunk in engine.run(session.id, str(number)):
                if chunk["type"] == "text-delta":
                    now = time.perf_counter()
                    words = len(chunk["delta"]) // len(talk.DELTA)
                    latencies.extend(now - model.sent_at[number].popleft() for _ in range(words))
                    if len(latencies) == total:
                        result.append(_paced(latencies, total, model.cpu, model.written, model.begin))

        await asyncio.gather(*map(view, range(STREAMS)))
    return result[0]
