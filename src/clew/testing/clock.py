"""A clock that a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

__all__ = ["FakeClock"]


class _FakeTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """Wall time and monotonic time under a test's control. ``advance`` fires timers in order."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now = float(now_ms)
        self._monotonic = 0.0
        self._timers: list[tuple[float, int, _FakeTimer]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return int(self._now)

    def monotonic_ms(self) -> float:
        return self._monotonic

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> _FakeTimer:
        timer = _FakeTimer(callback)
        heapq.heappush(self._timers, (self._monotonic + delay_ms, next(self._order), timer))
        return timer

    async def sleep(self, delay_ms: float) -> None:
        woken = asyncio.Event()
        self.call_later(delay_ms, woken.set)
        await woken.wait()

    def advance(self, ms: float) -> None:
        """Let time pass, and call each timer at its time."""
        end = self._monotonic + ms
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._step(due)
            if timer.callback is not None:
                timer.callback()
        self._step(end)

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, also backwards, as an administrator or a time server would."""
        self._now = float(now_ms)

    def _step(self, monotonic: float) -> None:
        passed = max(monotonic - self._monotonic, 0.0)
        self._now += passed
        self._monotonic += passed
