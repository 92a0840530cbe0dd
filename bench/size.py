"""P6 and P12: the bytes written per chunk, and the size of the database after folding."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

import clew
from bench import talk
from bench.fill import step
from bench.measure import Bench, Goal, Line
from bench.pace import PER_SECOND
from bench.raw import RawChunks, RawStore, raw_id
from bench.streams import DELTA_CHUNK, Streams
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.unit import RecordStep
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c

__all__ = ["measure_stored", "measure_written"]


def _wal(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


# P6


async def measure_written(bench: Bench) -> list[Line]:
    """Write one stream, each chunk in its own commit, 100 chunks per second of a simulated clock."""
    points = (500, 5_000, bench.size(50_000, 10_000))
    raw = _raw_alone(bench, points)
    ours = await _clew_alone(bench, points)
    lines = [
        Line("P6", f"written per chunk, 1 stream, {n:,} chunks, 1 a commit", "bytes", [raw[n]], [ours[n]])
        for n in points
    ]
    grown, raw_grown = ours[points[-1]] / ours[500], raw[points[-1]] / raw[500]
    what = f"written per chunk at {points[-1]:,} ÷ at 500"
    lines.append(Line("P6", what, "×", [raw_grown], [grown], [grown], Goal("≤", 1.2)))
    return lines


def _raw_alone(bench: Bench, points: tuple[int, ...]) -> dict[int, float]:
    path = bench.path("p6-raw")
    floor = RawChunks(path, checkpoints=False)
    before = _wal(path)
    found: dict[int, float] = {}
    for n in range(1, points[-1] + 1):
        floor.append(raw_id("msg", 1), n, talk.DELTA)
        if n in points:
            found[n] = (_wal(path) - before) / n
    floor.close()
    return found


async def _clew_alone(bench: Bench, points: tuple[int, ...]) -> dict[int, float]:
    path, clock = bench.path("p6-clew"), FakeClock()
    store = await open_sqlite(path, SqliteOptions(checkpoints=False), clock=clock)
    streams = await Streams.make(store, 1, clock=clock)
    recorder = streams.recorders[0]
    before, found = _wal(path), dict[int, float]()
    for n in range(1, points[-1] + 1):
        recorder.write(DELTA_CHUNK)
        await recorder.flush()
        clock.advance(1000 / PER_SECOND)
        if n in points:
            await recorder.flush()
            found[n] = (_wal(path) - before) / n
    await streams.finish()
    await store.close()
    return found


# P12


async def measure_stored(bench: Bench) -> list[Line]:
    turns = bench.size(1_000, 200)
    path = bench.path("p12-clew")
    async with clew.open(f"sqlite:///{path}", config=clew.Config()) as engine:
        scribe = await Scribe.create(engine.store)
        for n in range(turns):
            await _streamed_turn(scribe, n)
        messages = await engine.messages(scribe.session_id)
        transcript = sum(len(msgspec.json.encode(message)) for message in messages)
    floor = RawStore(bench.path("p12-raw"))
    floor.fill(floor.add_sessions(1, lambda _: {}), range(turns))
    floor.close()
    raw, ours = _folded_size(floor.path) / transcript, _folded_size(path) / transcript
    what = f"database ÷ transcript JSON, {turns:,} streamed turns"
    return [Line("P12", what, "×", [raw], [ours], [ours], Goal("≤", 1.8))]


async def _streamed_turn(scribe: Scribe, n: int) -> None:
    """Record a turn of two steps chunk by chunk, as a run does."""
    opened = await scribe.prompt(talk.prompt(n))
    recorder = opened.recorder()
    await recorder.send(c.Start(recorder.message.id))
    for index, chunks in enumerate(talk.reply_steps(n)):
        await recorder.send(c.StartStep())
        for number, chunk in enumerate(chunks):
            await recorder.send(chunk)
            if number % 10 == 9:
                await recorder.flush()
        await recorder.send(c.FinishStep())
        await recorder.end_step(RecordStep(step(opened.id, index, recorder.message.id, scribe.clock.now_ms())))
    await recorder.send(c.Finish("stop"))
    await recorder.close(*opened.settling())


def _folded_size(path: Path) -> int:
    """Return the size of the file after a checkpoint."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    return path.stat().st_size
