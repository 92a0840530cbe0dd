"""Time as a parameter.

Everything that reads the time or waits takes a :class:`Clock`, so that tests can stop it and simulations can replay it.
``clew.testing.FakeClock`` is the other implementation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "GrowingTime", "SystemClock", "Timer"]


class Timer(Protocol):
    """A pending call that can be cancelled."""

    def cancel(self) -> object: ...


class Clock(Protocol):
    """Wall time in epoch milliseconds, a monotonic reading, and waiting."""

    def now_ms(self) -> int:
        """Return the wall time. It may step back; order must never be derived from it."""

    def monotonic_ms(self) -> float:
        """Return a time that never steps back, for measuring durations."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` on the running event loop after ``delay_ms``."""

    async def sleep(self, delay_ms: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_ms / 1000.0, callback)

    async def sleep(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000.0)


class GrowingTime:
    """Wall time that never goes back, starting at ``newest``."""

    def __init__(self, clock: Clock, newest: int) -> None:
        self._clock = clock
        self._newest = newest

    def now_ms(self) -> int:
        self._newest = max(self._newest, self._clock.now_ms())
        return self._newest
