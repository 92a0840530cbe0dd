"""P4 and ACK: chunks through the recorder as fast as possible, without and with waiting for acknowledgements."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from bench import talk
from bench.measure import Bench, Goal, Line, ratios, settle
from bench.raw import RawChunks, RawJournal, Sync, raw_id
from clew.clock import Clock, SystemClock
from clew.ids import Mint
from clew.session.prompt.admission import assistant_row
from clew.session.turn.recorder import Recorder
from clew.store.base import Store
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.testing.scribe import OpenedTurn, Scribe
from clew.transcript import chunk as c

__all__ = [
    "DELTA_CHUNK",
    "STREAMS",
    "Streams",
    "acknowledged_on",
    "acknowledged_rate",
    "measure_acknowledged",
    "measure_rate",
]

Shown: TypeAlias = Callable[[int, Sequence[c.Chunk]], None]
"""Called with the number of a stream and the chunks that may be shown."""

STREAMS = 100
DELTA_CHUNK = c.TextDelta("t1", talk.DELTA)


class Streams:
    """Recorders, each on a turn of its own session, with an open text part and everything so far durable."""

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
        """End every text and every turn."""
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
    for streams, yielding in ((1, False), (STREAMS, False), (1, True)):
        raw: list[float] = []
        ours: list[float] = []
        for _ in range(bench.rounds):
            raw.append(_raw_rate(bench, streams, chunks))
            ours.append(await _rate(bench, streams, chunks, yielding=yielding))
        name = "1 stream" if streams == 1 else f"{streams} streams"
        if yielding:
            what = f"recorder, {name}, each chunk in its own iteration of the loop"
            lines.append(Line("P4", what, "chunks/s", raw, ours, ratios(ours, raw)))
            continue
        lines.append(Line("P4", f"recorder, {name}", "chunks/s", raw, ours, ratios(ours, raw), Goal("≥", 0.5)))
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


async def _rate(bench: Bench, streams: int, chunks: int, *, yielding: bool) -> float:
    """Return the chunks per second, from the first chunk until every turn is settled."""
    counted = [0] * streams

    def count(stream: int, shown: Sequence[c.Chunk]) -> None:
        counted[stream] += len(shown)

    store = await open_sqlite(bench.path("p4-clew"))
    opened = await Streams.make(store, streams, count)
    settle()
    begin = time.perf_counter()
    if streams == 1:
        recorder = opened.recorders[0]
        for _ in range(chunks):
            await recorder.send(DELTA_CHUNK)
            if yielding:
                await asyncio.sleep(0)
    else:
        for _ in range(chunks // streams):
            for recorder in opened.recorders:
                await recorder.send(DELTA_CHUNK)
            await asyncio.sleep(0)
    await opened.finish()
    took = time.perf_counter() - begin
    await store.close()
    # Besides the deltas: start, start-step, text-start, text-end, finish-step, finish.
    assert sum(counted) == chunks + 6 * streams, (sum(counted), chunks)
    return chunks / took


# ACK

_SYNCS: tuple[Sync, ...] = ("NORMAL", "FULL")


async def measure_acknowledged(bench: Bench) -> list[Line]:
    """Send each chunk when the one before it is acknowledged as durable."""
    lines: list[Line] = []
    for streams, chunks in ((1, bench.size(3_000, 500)), (STREAMS, bench.size(30_000, 5_000))):
        for sync in _SYNCS:
            raw: list[float] = []
            ours: list[float] = []
            for _ in range(bench.rounds):
                raw.append(await _raw_acknowledged(bench, streams, chunks, sync))
                ours.append(await acknowledged_rate(bench, streams, chunks, sync))
            what = f"{streams} stream{'s' * (streams > 1)}, each chunk durable before the next"
            what += f"{', every commit synced' * (sync == 'FULL')} (raw: a journal behind a thread)"
            lines.append(Line("ACK", what, "chunks/s", raw, ours, ratios(ours, raw)))
    return lines


async def _raw_acknowledged(bench: Bench, streams: int, chunks: int, sync: Sync) -> float:
    floor = RawJournal(bench.path("ack-raw"), sync)
    done = [0] * streams

    async def stream(number: int) -> None:
        for n in range(chunks // streams):
            floor.write(number, n)
            done[number] += 1
            await floor.durable()

    settle()
    begin = time.perf_counter()
    await asyncio.gather(*map(stream, range(streams)))
    await floor.drain()
    took = time.perf_counter() - begin
    floor.close()
    return sum(done) / took


async def acknowledged_rate(bench: Bench, streams: int, chunks: int, sync: Sync) -> float:
    store = await open_sqlite(bench.path("ack-clew"), SqliteOptions(every_commit_full=sync == "FULL"))
    rate = await acknowledged_on(store, streams, chunks)
    await store.close()
    return rate


async def acknowledged_on(store: Store, streams: int, chunks: int) -> float:
    """Return the chunks per second over all streams."""
    opened = await Streams.make(store, streams)

    async def stream(recorder: Recorder) -> None:
        for _ in range(chunks // streams):
            recorder.write(DELTA_CHUNK)
            await recorder.flush()

    settle()
    begin = time.perf_counter()
    await asyncio.gather(*map(stream, opened.recorders))
    took = time.perf_counter() - begin
    await opened.finish()
    return chunks // streams * streams / took
