"""P9: a chunk's path from a scripted model through the recorder to a viewer, against the recorder alone."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

import clew
from bench import talk
from bench.measure import Bench, Goal, Line, ratios, settle
from bench.streams import Streams
from clew.providers.base import ModelRequest, StepEnd
from clew.store.sql.sqlite.opening import open_sqlite
from clew.testing.scripted import FakeProviders
from clew.transcript import chunk as c
from clew.transcript.usage import Usage

__all__ = ["measure"]


class _Talker:
    """A provider that streams the same word as fast as it is read."""

    def __init__(self, words: int) -> None:
        self._words = words

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        yield c.TextStart("t1")
        for _ in range(self._words):
            yield c.TextDelta("t1", talk.DELTA)
        yield c.TextEnd("t1")
        yield StepEnd(usage=Usage(1, 1))

    async def close(self) -> None:
        pass


async def measure(bench: Bench) -> list[Line]:
    chunks = bench.size(20_000, 5_000)
    recorder_only: list[float] = []
    whole: list[float] = []
    for _ in range(bench.rounds):
        recorder_only.append(await _recorder(bench, chunks))
        whole.append(await _engine(bench, chunks))
    what = "model chunk → durable → viewer, CPU per chunk (raw: the recorder alone)"
    return [Line("P9", what, "µs", recorder_only, whole, ratios(whole, recorder_only), Goal("≤", 3))]


async def _recorder(bench: Bench, chunks: int) -> float:
    store = await open_sqlite(bench.path("p9-recorder"))
    streams = await Streams.make(store, 1)
    settle()
    begin = time.process_time()
    for _ in range(chunks):
        await streams.recorders[0].send(c.TextDelta("t1", talk.DELTA))
    await streams.finish()
    took = time.process_time() - begin
    await store.close()
    return took / chunks * 1e6


async def _engine(bench: Bench, chunks: int) -> float:
    url = f"sqlite:///{bench.path('p9-engine')}"
    async with clew.open(url, config=clew.Config(), providers=FakeProviders(_Talker(chunks))) as engine:
        session = await engine.create_session(title="bench")
        settle()
        begin = time.process_time()
        seen = 0
        async for _ in engine.run(session.id, "go"):
            seen += 1
        took = time.process_time() - begin
    if seen < chunks:
        raise RuntimeError(f"only {seen} of {chunks} chunks were shown")
    return took / chunks * 1e6
