"""How things are measured: the two sides take turns, and what counts is the median.

Machines are noisy and drift. So a round measures the floor and clew right after one another, or call by call in
turns, and the ratio of a line is the median of its rounds' ratios, not the ratio of two medians.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["Bench", "Goal", "Line", "alternate", "median", "percentile", "ratios", "settle"]

median = statistics.median


@dataclass(frozen=True, slots=True)
class Goal:
    """What the judged number of a line must be."""

    sense: Literal["≤", "≥"]
    limit: float
    unit: str = ""

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.sense == "≤" else value >= self.limit

    def __str__(self) -> str:
        return f"{self.sense} {self.limit:g}{self.unit}"


@dataclass(frozen=True, slots=True)
class Line:
    """One measured thing. ``judged`` holds, round by round, the number that the goal is about."""

    id: str
    what: str
    unit: str
    raw: Sequence[float]
    clew: Sequence[float]
    judged: Sequence[float] = ()
    goal: Goal | None = None

    @property
    def value(self) -> float | None:
        return median(self.judged) if self.judged else None

    @property
    def ok(self) -> bool | None:
        value = self.value
        return None if self.goal is None or value is None else self.goal.holds(value)


@dataclass(slots=True)
class Bench:
    """Where a workload may write, how often it measures, and how large it is."""

    folder: Path
    quick: bool = False
    _files: int = field(default=0, init=False)

    @property
    def rounds(self) -> int:
        return self.size(3, 1)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def path(self, name: str) -> Path:
        """A file that nobody has used yet."""
        self._files += 1
        return self.folder / f"{self._files:03}-{name}.db"


def settle() -> None:
    """Before a measurement: what earlier ones left behind must not be collected during this one."""
    gc.collect()


def ratios(over: Sequence[float], under: Sequence[float]) -> tuple[float, ...]:
    """Round by round, one over the other."""
    return tuple(a / b for a, b in zip(over, under, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


async def alternate(
    raw: Callable[[], object], clew: Callable[[], Awaitable[object]], times: int
) -> tuple[float, float]:
    """Call the two in turns, ``times`` each; the median of each in milliseconds.

    What a call returned is let go outside its time: giving memory back is nobody's loading.
    """
    settle()
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        begin = time.perf_counter()
        found = raw()
        took[0].append(time.perf_counter() - begin)
        del found
        begin = time.perf_counter()
        found = await clew()
        took[1].append(time.perf_counter() - begin)
        del found
        # The future that carried the answer holds it until the loop has turned.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return median(took[0]) * 1000, median(took[1]) * 1000
