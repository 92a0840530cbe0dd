"""LOG: the cost of the event log: the same writes to a store with it, and to one without it as the floor."""

from __future__ import annotations

import time
from pathlib import Path

from bench.append import Appender, turns_of
from bench.measure import Bench, Line, ratios, settle
from bench.streams import STREAMS, Streams
from bench.talk import DELTA
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.transcript import chunk as c

__all__ = ["measure"]

_BLOCK = 25
_WITH = SqliteOptions(event_log=True)
_CHUNKS_A_FLUSH = 20


async def measure(bench: Bench) -> list[Line]:
    return [*await _turns(bench), await _chunks(bench)]


async def _turns(bench: Bench) -> list[Line]:
    """Append turns to both stores in alternation; then measure the file sizes, and rebuild one."""
    turns = bench.size(500, 100)
    turn_texts = turns_of(range(turns))
    speed: tuple[list[float], list[float]] = ([], [])
    size: tuple[list[float], list[float]] = ([], [])
    rebuilding: list[float] = []
    for _ in range(bench.rounds):
        sides = [await Appender.make(bench, "log-off"), await Appender.make(bench, "log-on", options=_WITH)]
        took = [0.0, 0.0]
        settle()
        for at in range(0, turns, _BLOCK):
            for number, side in enumerate(sides):
                begin = time.perf_counter()
                for one in turn_texts[at : at + _BLOCK]:
                    await side.turn(*one)
                took[number] += time.perf_counter() - begin
        target = bench.path("rebuilt")
        begin = time.perf_counter()
        if (await sides[1].store.rebuild(target)).differences:
            raise RuntimeError("the log and the tables disagree")
        rebuilding.append((time.perf_counter() - begin) * 1000)
        for number, side in enumerate(sides):
            await side.close()
            speed[number].append(turns / took[number])
            size[number].append(_bytes(side.store.path) / turns)
    return [
        Line("LOG", f"append {turns:,} turns (raw: without the log)", "turns/s", *speed, ratios(speed[1], speed[0])),
        Line("LOG", "on disk per turn (raw: without the log)", "bytes", *size, ratios(size[1], size[0])),
        Line("LOG", f"rebuild {turns:,} turns and compare", "ms", (), rebuilding),
    ]


async def _chunks(bench: Bench) -> Line:
    chunks = bench.size(200, 40)
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(bench.rounds):
        for number, options in enumerate((SqliteOptions(), _WITH)):
            store = await open_sqlite(bench.path("log-chunks"), options)
            streams = await Streams.make(store, STREAMS)
            settle()
            begin = time.perf_counter()
            for index in range(chunks):
                for recorder in streams.recorders:
                    recorder.write(c.TextDelta("t1", DELTA))
                if index % _CHUNKS_A_FLUSH == 0:
                    for recorder in streams.recorders:
                        await recorder.flush()
            await streams.finish()
            rates[number].append(chunks * STREAMS / (time.perf_counter() - begin))
            await store.close()
    what = f"recorder, {STREAMS} streams of {chunks} chunks each (raw: without the log)"
    return Line("LOG", what, "chunks/s", *rates, ratios(rates[1], rates[0]))


def _bytes(path: Path) -> int:
    return path.stat().st_size
