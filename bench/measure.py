"""The method: both sides run in alternation, and the median counts.

Machines are noisy and drift. So a round measures the floor and clew right after each other, or alternates call by call,
and the ratio of a line is the median of its rounds' ratios, not the ratio of two medians.
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
    """A limit for the judged value of a line."""

    sense: Literal["≤", "≥"]
    limit: float
    unit: str = ""

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.sense == "≤" else value >= self.limit

    def __str__(self) -> str:
        return f"{self.sense} {self.limit:g}{self.unit}"


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement. ``judged`` holds the value that the goal applies to, per round."""

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
    """The folder, number of rounds and size of a workload."""

    folder: Path
    quick: bool = False
    _files: int = field(default=0, init=False)

    @property
    def rounds(self) -> int:
        return self.size(3, 1)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def path(self, name: str) -> Path:
        """Return the path of a new file."""
        self._files += 1
        return self.folder / f"{self._files:03}-{name}.db"


def settle() -> None:
    """Collect garbage before a measurement, so that it is not collected during it."""
    gc.collect()


def ratios(over: Sequence[float], under: Sequence[float]) -> tuple[float, ...]:
    """Return the ratio of each round."""
    return tuple(a / b for a, b in zip(over, under, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


async def alternate(
    raw: Callable[[], object], clew: Callable[[], Awaitable[object]], times: int
) -> tuple[float, float]:
    """Call both in alternation, ``times`` each, and return the two medians in milliseconds.

    The results are freed outside the measured time.
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
        # The future holds the result until the event loop has run.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return median(took[0]) * 1000, median(took[1]) * 1000
