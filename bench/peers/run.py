"""Measures a peer. It runs in the peer's environment, so it uses only the standard library.

``python -m bench.peers.PEER WORK HISTORY FOLDER``: WORK is a JSON list of turns, the first HISTORY of which are the
history. Prints the line of JSON of ``bench.turn_side``, plus ``chunks``: the pieces stored per second, each before the
next; zero for a peer that stores no pieces.
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
    """A turn, the same for every side."""

    number: int
    prompt: str
    arguments: list[str]
    output: str
    deltas: list[str]

    @property
    def call_id(self) -> str:
        return f"call_{self.number}"


class Marks:
    """The current turn and its timestamps."""

    def __init__(self) -> None:
        self.work = Work(0, "", [], "", [])
        self.begin = self.model = self.first = 0.0
        self._calls = 0

    def start(self, work: Work) -> None:
        self.work, self.model, self.first = work, 0.0, 0.0
        self.begin = time.perf_counter()

    def called(self) -> bool:
        """Record a model call; return whether the model is to call the tool."""
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
    for index, work in enumerate(works[history:]):
        if index == _WARM:
            gc.collect()
            cpu, written = time.process_time(), written_bytes()
        characters = 0
        marks.start(work)
        async for delta in peer.turn(work):
            marks.first = marks.first or time.perf_counter()
            characters += len(delta)
        took.append((time.perf_counter() - marks.begin, marks.model - marks.begin, marks.first - marks.begin))
        if characters != sum(map(len, work.deltas)):
            raise RuntimeError(f"{characters} characters were shown, not {sum(map(len, work.deltas))}")
    count = len(took) - _WARM
    whole, model_ms, first = ([one[at] * 1000 for one in took[_WARM:]] for at in range(3))
    metrics = {
        "ms": statistics.median(whole),
        "cpu": (time.process_time() - cpu) / count * 1000,
        "model": statistics.median(model_ms),
        "first": statistics.median(first),
        "written": (written_bytes() - written) / count / 1024,
        "cold": took[0][0] * 1000,
        "rss": peak_mb(),
    }
    begin, stored = time.perf_counter(), 0
    for number in range(_CHUNKS):
        stored += await peer.store_chunk(number, "tok ")
    metrics["chunks"] = stored / (time.perf_counter() - begin)
    return metrics


def main(make: Any) -> None:
    """Measure the peer that ``make(marks, folder)`` returns and print the result."""
    file, history, folder = sys.argv[1:]
    works = [Work(**one) for one in json.loads(Path(file).read_text())]
    marks = Marks()

    async def measure() -> dict[str, float]:
        return await _measure(make(marks, Path(folder)), marks, works, int(history))

    print(json.dumps(asyncio.run(measure())), flush=True)
