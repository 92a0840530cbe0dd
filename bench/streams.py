"""P4 and P5: chunks through the recorder, as fast as it takes them and at a steady pace, to disk and to a viewer."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from bench import talk
from bench.measure import PEER_CHUNKS_PER_S, Bench, Goal, Line, percentile, ratios, settle
from bench.raw import RawChunks, RawGroup, raw_id
from clew.clock import Clock, SystemClock
from clew.ids import Mint
from clew.live.local import LocalStream
from clew.runtime.admission import assistant_row
from clew.runtime.recorder import Recorder
from clew.store.base import Store
from clew.store.sql.sqlite.opening import open_sqlite
from clew.testing.scribe import OpenedTurn, Scribe
from clew.transcript import chunk as c

__all__ = ["PER_SECOND", "STREAMS", "Pace", "Streams", "in_tasks", "in_ticks", "measure_pace", "measure_rate"]

Pace: TypeAlias = Callable[[float, Callable[[int, int], None]], Awaitable[int]]
"""How chunks arrive: it is given the seconds and what writes a chunk, and says how many it wrote."""
Shown: TypeAlias = Callable[[int, Sequence[c.Chunk]], None]
"""Called with the number of a stream and its chunks that may be shown."""

STREAMS = 100
PER_SECOND = 100
_DELTA = c.TextDelta("t1", talk.DELTA)


class Streams:
    """Recorders, each on a turn of its own session, with their text begun and everything so far durable."""

    def __init__(self, opened: Sequence[OpenedTurn], recorders: Sequence[Recorder]) -> None:
        self._opened = opened
        self.recorders = recorders

    @classmethod
    async def make(
        cls,
        store: Store,
        count: int,
        on_shown: Shown | None = None,
        clock: Clock | None = None,
    ) -> Streams:
        clock = clock or SystemClock()
        mint = Mint(clock)
        opened = [await (await Scribe.create(store, mint=mint, clock=clock)).prompt("go on") for _ in range(count)]
        recorders = [_recorder(turn, n, on_shown) for n, turn in enumerate(opened)]
        for recorder in recorders:
            await recorder.send(c.Start(recorder.message.id))
            await recorder.send(c.StartStep())
            await recorder.send(c.TextStart("t1"))
        await asyncio.gather(*(recorder.flush() for recorder in recorders))
        return cls(opened, recorders)

    async def finish(self) -> None:
        """End every text, and every turn with it."""
        for recorder in self.recorders:
            recorder.write(c.TextEnd("t1"))
            recorder.write(c.FinishStep())
            recorder.write(c.Finish("stop"))
        closing = zip(self._opened, self.recorders, strict=True)
        await asyncio.gather(*(recorder.close(*turn.settling()) for turn, recorder in closing))


def _recorder(turn: OpenedTurn, number: int, on_shown: Shown | None) -> Recorder:
    scribe = turn.scribe
    shown = None if on_shown is None else lambda chunks: on_shown(number, chunks)
    return Recorder(
        scribe.store,
        assistant_row(scribe.session_id, scribe.mint.message(), scribe.clock.now_ms(), {}),
        turn_id=turn.id,
        epoch=turn.epoch,
        mint=scribe.mint,
        clock=scribe.clock,
        on_shown=shown,
    )


# P4


async def measure_rate(bench: Bench) -> list[Line]:
    chunks = bench.size(20_000, 5_000)
    lines: list[Line] = []
    for streams, turn_each in ((1, False), (STREAMS, False), (1, True)):
        raw: list[float] = []
        ours: list[float] = []
        for _ in range(bench.rounds):
            raw.append(_raw_rate(bench, streams, chunks))
            ours.append(await _rate(bench, streams, chunks, turn_each=turn_each))
        name = "1 stream" if streams == 1 else f"{streams} streams"
        if turn_each:
            what = f"recorder, {name}, each chunk in its own turn of the loop"
            lines.append(Line("P4", what, "chunks/s", raw, ours, ratios(ours, raw)))
            continue
        lines.append(Line("P4", f"recorder, {name}", "chunks/s", raw, ours, ratios(ours, raw), Goal("≥", 0.5)))
        peer = (PEER_CHUNKS_PER_S,) * len(ours)
        what = f"recorder, {name} ÷ best peer (raw: the peer)"
        lines.append(Line("P4", what, "chunks/s", peer, ours, ratios(ours, peer), Goal("≥", 20)))
    return lines


def _raw_rate(bench: Bench, streams: int, chunks: int) -> float:
    floor = RawChunks(bench.path("p4-raw"))
    ids = [raw_id("msg", n) for n in range(streams)]
    settle()
    begin = time.perf_counter()
    for n, stream in enumerate(talk.stepping(streams, chunks)):
        floor.append(ids[stream], n, talk.DELTA)
    took = time.perf_counter() - begin
    floor.close()
    return chunks / took


async def _rate(bench: Bench, streams: int, chunks: int, *, turn_each: bool) -> float:
    """From the first chunk until all are shown and every turn is settled."""
    counted = [0] * streams

    def count(stream: int, shown: Sequence[c.Chunk]) -> None:
        counted[stream] += len(shown)

    store = await open_sqlite(bench.path("p4-clew"))
    made = await Streams.make(store, streams, count)
    settle()
    begin = time.perf_counter()
    if streams == 1:
        recorder = made.recorders[0]
        for _ in range(chunks):
            await recorder.send(_DELTA)
            if turn_each:
                await asyncio.sleep(0)
    else:
        for _ in range(chunks // streams):
            for recorder in made.recorders:
                await recorder.send(_DELTA)
            await asyncio.sleep(0)
    await made.finish()
    took = time.perf_counter() - begin
    await store.close()
    # Beside the deltas: start, start-step, text-start, text-end, finish-step, finish.
    assert sum(counted) == chunks + 6 * streams, (sum(counted), chunks)
    return chunks / took


# P5


async def measure_pace(bench: Bench) -> list[Line]:
    seconds = bench.size(5, 1)
    raw: list[tuple[float, float]] = []
    durable: list[tuple[float, float]] = []
    viewed: list[tuple[float, float]] = []
    for _ in range(bench.rounds):
        raw.append(await _raw_pace(bench, seconds))
        durable.append(await _pace(bench, seconds))
        viewed.append(await _viewed_pace(bench, seconds))
    lines: list[Line] = []
    load = f"{STREAMS} streams × {PER_SECOND} chunks/s for {seconds} s"
    for what, ours, limit in (
        ("arrival → durable", durable, 3),
        ("arrival → viewer in process (raw: durable)", viewed, 5),
    ):
        for place, name in ((0, "p50"), (1, "p99")):
            floor, mine = [both[place] for both in raw], [both[place] for both in ours]
            goal = Goal("≤", limit) if name == "p99" else None
            lines.append(Line("P5", f"{load}, {what}, {name}", "ms", floor, mine, ratios(mine, floor), goal))
    return lines


async def in_tasks(seconds: float, write: Callable[[int, int], None]) -> int:
    """Call ``write(stream, n)`` from a task for each stream, as its chunks fall due; how many there were.

    The streams are evenly out of step. Whenever the loop wakes, for a commit too, what is due by then is written.
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
    """The same chunks from one task that wakes about every millisecond, so that each commit finds several."""
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


async def _raw_pace(bench: Bench, seconds: float) -> tuple[float, float]:
    floor = RawGroup(bench.path("p5-raw"))
    ids = [raw_id("msg", n) for n in range(STREAMS)]
    settle()
    await in_tasks(seconds, lambda stream, n: floor.write(ids[stream], n, talk.DELTA))
    await floor.drain()
    floor.close()
    return _figures(floor.latencies)


async def _pace(bench: Bench, seconds: float) -> tuple[float, float]:
    arrived: list[deque[float]] = [deque() for _ in range(STREAMS)]
    latencies: list[float] = []

    def shown(stream: int, chunks: Sequence[c.Chunk]) -> None:
        now = time.perf_counter()
        waiting = arrived[stream]
        latencies.extend(now - waiting.popleft() for _ in range(min(len(chunks), len(waiting))))

    store = await open_sqlite(bench.path("p5-clew"))
    made = await Streams.make(store, STREAMS, shown)
    recorders = made.recorders

    def write(stream: int, n: int) -> None:
        arrived[stream].append(time.perf_counter())
        recorders[stream].write(_DELTA)

    settle()
    total = await in_tasks(seconds, write)
    await asyncio.gather(*(recorder.flush() for recorder in recorders))
    assert len(latencies) == total
    await made.finish()
    await store.close()
    return _figures(latencies)


async def _viewed_pace(bench: Bench, seconds: float) -> tuple[float, float]:
    """The same with a viewer on each stream, who has a chunk when it has come out of the live layer."""
    arrived: list[deque[float]] = [deque() for _ in range(STREAMS)]
    latencies: list[float] = []
    live: dict[int, LocalStream] = {}

    def show(stream: int, chunks: Sequence[c.Chunk]) -> None:
        if stream not in live:
            assert isinstance(chunks[0], c.Start)
            live[stream] = LocalStream(str(chunks[0].message_id), ())
        live[stream].show(chunks)

    store = await open_sqlite(bench.path("p5-viewers"))
    made = await Streams.make(store, STREAMS, show)
    recorders = made.recorders

    async def view(number: int) -> None:
        waiting = arrived[number]
        async for chunks in live[number].follow(replay=True):
            now = time.perf_counter()
            latencies.extend(now - waiting.popleft() for _ in range(min(len(chunks), len(waiting))))

    def write(stream: int, n: int) -> None:
        arrived[stream].append(time.perf_counter())
        recorders[stream].write(_DELTA)

    viewers = [asyncio.get_running_loop().create_task(view(number)) for number in range(STREAMS)]
    await asyncio.sleep(0)
    settle()
    total = await in_tasks(seconds, write)
    await made.finish()
    for stream in live.values():
        stream.end()
    await asyncio.gather(*viewers)
    assert len(latencies) == total
    await store.close()
    return _figures(latencies)


def _figures(latencies: Sequence[float]) -> tuple[float, float]:
    return percentile(latencies, 0.5) * 1000, percentile(latencies, 0.99) * 1000
