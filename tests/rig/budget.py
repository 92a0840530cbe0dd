"""The budget of a campaign, in rounds and minutes, and its outcome, which adds up over several runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Budget", "Outcome"]


class Budget:
    """A number of rounds, from ``seed`` on, within a time limit. A round follows from its number alone."""

    def __init__(self, rounds: int, *, minutes: float | None = None, seed: int = 0) -> None:
        self.seed = seed
        self._rounds = rounds
        self._end = None if minutes is None else time.monotonic() + minutes * 60

    @property
    def spent(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def rounds(self) -> Iterator[int]:
        for number in range(self.seed, self.seed + self._rounds):
            if self.spent:
                return
            yield number

    def batches(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield rounds that belong together, as the number of the first one and their count."""
        for first in range(self.seed, self.seed + self._rounds, size):
            if self.spent:
                return
            yield first, min(size, self.seed + self._rounds - first)


@dataclass
class Outcome:
    """Counts of events, and the guarantees that were broken, each with its round."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.counts.update(other.counts)
        self.broken += other.broken
