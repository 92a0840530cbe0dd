"""What every peer is measured by. It runs in the peer's environment, so it knows nothing but the standard library.

``python -m bench.peers.PEER WORK HISTORY FOLDER``: the works are JSON, a list of turns; the first HISTORY of them were
said before. Prints the line of JSON that ``bench.turn_side`` prints, and ``chunks``: how many pieces a second are
stored one after another, each before the next; a peer that stores no pieces has none.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from bench.process import peak_mb, written_bytes

__all__ = ["Marks", "Peer", "Work", "main"]

_WARM: Final = 4
_CHUNKS: Final = 300


@dataclass(frozen=True)
class Work:
    """A turn as every side is given it."""

    number: int
    prompt: str
    arguments: list[str]
    output: str
    deltas: list[str]

    @property
    def call_id(self) -> str:
        return f"call_{self.number}"


class Marks:
    """Moments of the turn that is under way, and what it is about."""

    def __init__(self) -> None:
        self.work = Work(0, "", [], "", [])
        self.begin = self.model = self.first = 0.0
        self._calls = 0

    def start(self, work: Work) -> None:
        self.work, self.model, self.first = work, 0.0, 0.0
        self.begin = time.perf_counter()

    def asked(self) -> bool:
        """The model is called: whether it is to call the tool."""
        self.model = self.model or time.perf_counter()
        self._calls += 1
        return self._calls % 2 == 1


class Peer(Protocol):
    async def fill(self, works: list[Work]) -> None: ...
    def turn(self, work: Work) -> AsyncIterator[str]: ...
    async def store_chunk(self, number: int, delta: str) -> bool: ...


async def _measure(peer: Peer, marks: Marks, works: list[Work], history: int) -> dict[str, float]:
    await peer.fill(works[:history])
    took: list[tuple[float, float, float]] = []
    cpu = written = 0.0
    for place, work in enumerate(works[history:]):
        if place == _WARM:
            gc.collect()
            cpu, written = time.process_time(), written_bytes()
        said = 0
        marks.start(work)
        async for delta in peer.turn(work):
            marks.first = marks.first or time.perf_counter()
            said += len(delta)
        took.append((time.perf_counter() - marks.begin, marks.model - marks.begin, marks.first - marks.begin))
        if said != sum(map(len, work.deltas)):
            raise RuntimeError(f"{said} characters were shown, not {sum(map(len, work.deltas))}")
    count = len(took) - _WARM
    whole, asked, first = ([one[at] * 1000 for one in took[_WARM:]] for at in range(3))
    figures = {
        "ms": statistics.median(whole),
        "cpu": (time.process_time() - cpu) / count * 1000,
        "model": statistics.median(asked),
        "first": statistics.median(first),
        "written": (written_bytes() - written) / count / 1024,
        "cold": took[0][0] * 1000,
        "rss": peak_mb(),
    }
    begin, stored = time.perf_counter(), 0
    for number in range(_CHUNKS):
        stored += await peer.store_chunk(number, "tok ")
    figures["chunks"] = stored / (time.perf_counter() - begin)
    return figures


def main(make: Any) -> None:
    """``make(marks, folder)`` is the peer."""
    file, history, folder = sys.argv[1:]
    works = [Work(**one) for one in json.loads(Path(file).read_text())]
    marks = Marks()

    async def measure() -> dict[str, float]:
        return await _measure(make(marks, Path(folder)), marks, works, int(history))

    print(json.dumps(asyncio.run(measure())), flush=True)
