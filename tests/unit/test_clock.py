"""The clocks: the machine's, and the one that stands still until it is told to move."""

from __future__ import annotations

import asyncio
import time

from clew.clock import Clock, SystemClock
from clew.testing.clock import FakeClock


def test_a_fake_clock_stands_still() -> None:
    """Whatever the machine's does."""
    clock: Clock = FakeClock(1_000)
    assert [clock.now_ms(), clock.now_ms(), clock.monotonic_ms(), clock.monotonic_ms()] == [1_000, 1_000, 0.0, 0.0]


def test_a_fake_clock_moves_both_readings_when_told() -> None:
    """Fractions add up; wall time is read in whole milliseconds."""
    clock = FakeClock(1_000)
    clock.advance(0.5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 0.5)
    clock.advance(0.75)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_001, 1.25)


def test_the_wall_clock_can_be_set_back_and_only_it() -> None:
    """As an administrator would; what was measured by the other stays right."""
    clock = FakeClock(1_000)
    clock.advance(10)
    clock.set_wall(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (5, 10.0)
    clock.advance(1)
    assert (clock.now_ms(), clock.monotonic_ms()) == (6, 11.0)


def test_timers_fire_in_their_order_each_at_its_moment() -> None:
    """By time, then in the order they were set."""
    clock = FakeClock(1_000)
    fired: list[tuple[str, int, float]] = []

    def note(name: str) -> None:
        fired.append((name, clock.now_ms(), clock.monotonic_ms()))

    for name, delay in (("c", 30), ("a", 10), ("b", 20), ("a2", 10), ("never", 41)):
        clock.call_later(delay, lambda name=name: note(name))  # type: ignore[misc]
    clock.advance(40)
    assert fired == [("a", 1_010, 10.0), ("a2", 1_010, 10.0), ("b", 1_020, 20.0), ("c", 1_030, 30.0)]
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_040, 40.0)


def test_a_timer_fires_once_and_not_before_it_is_due() -> None:
    """At the very millisecond."""
    clock = FakeClock()
    fired: list[float] = []
    clock.call_later(10, lambda: fired.append(clock.monotonic_ms()))
    for _ in range(4):
        clock.advance(5)
    assert fired == [10.0]


def test_a_timer_that_is_cancelled_does_not_fire() -> None:
    """Also when another timer cancels it in the same step; twice is no matter."""
    clock = FakeClock()
    fired: list[str] = []
    later = clock.call_later(20, lambda: fired.append("later"))
    clock.call_later(10, later.cancel)
    never = clock.call_later(5, lambda: fired.append("never"))
    never.cancel()
    never.cancel()
    clock.advance(100)
    assert fired == []


def test_a_timer_set_by_a_timer_fires_in_the_same_step_if_it_is_due() -> None:
    """A chain of three, and one that lies beyond."""
    clock = FakeClock()
    fired: list[float] = []

    def again() -> None:
        fired.append(clock.monotonic_ms())
        clock.call_later(10, again)

    clock.call_later(10, again)
    clock.advance(35)
    assert fired == [10.0, 20.0, 30.0]


def test_time_never_runs_back_by_itself() -> None:
    """A delay below zero is due now; a timer that moves the clock on does not have it moved back."""
    clock = FakeClock(1_000)
    clock.advance(50)
    seen: list[float] = []
    clock.call_later(-20, lambda: seen.append(clock.monotonic_ms()))
    clock.call_later(10, lambda: clock.advance(100))
    clock.advance(20)
    assert seen == [50.0]
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_160, 160.0)


async def test_a_sleeper_wakes_when_the_clock_has_moved_far_enough() -> None:
    """Two of them, the shorter one first."""
    clock = FakeClock()
    woken: list[str] = []

    async def sleeper(name: str, delay: float) -> None:
        await clock.sleep(delay)
        woken.append(name)

    tasks = [asyncio.create_task(sleeper("long", 20)), asyncio.create_task(sleeper("short", 10))]
    await asyncio.sleep(0)
    clock.advance(9)
    await asyncio.sleep(0)
    assert woken == []
    clock.advance(1)
    await tasks[1]
    assert woken == ["short"]
    clock.advance(10)
    await tasks[0]
    assert woken == ["short", "long"]


async def test_the_machines_clock_reads_milliseconds_and_waits() -> None:
    """Wall time in whole ones; a timer can be taken back; nothing here depends on how fast the machine is."""
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    assert before <= clock.now_ms() <= time.time_ns() // 1_000_000
    assert isinstance(clock.now_ms(), int)
    start = clock.monotonic_ms()
    fired = asyncio.Event()
    cancelled = asyncio.Event()
    clock.call_later(0, cancelled.set).cancel()
    clock.call_later(0, fired.set)
    await fired.wait()
    await clock.sleep(0)
    assert clock.monotonic_ms() >= start
    assert not cancelled.is_set()
