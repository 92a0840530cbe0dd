"""Cancellable work: run a coroutine until it is done, an abort, a timeout or another stop condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from clew.clock import Clock, Timer

__all__ = ["Stop", "after", "run_until", "when_done"]

T = TypeVar("T")

Stop: TypeAlias = Callable[[Callable[[], None]], Timer]
"""Registers a callback that stops the work; the returned timer is cancelled once the callback is no longer needed.

A callback rather than a task: nearly all work finishes before it is stopped, and a task costs much in comparison.
"""


def after(clock: Clock, delay_ms: float) -> Stop:
    """Return a stop condition that is met after a delay."""
    return lambda end: clock.call_later(delay_ms, end)


def when_done(waiting: Coroutine[Any, Any, Any]) -> Stop:
    """Return a stop condition that is met when the coroutine finishes."""

    def begin(end: Callable[[], None]) -> Timer:
        task = asyncio.get_running_loop().create_task(waiting)
        task.add_done_callback(lambda _: end())
        return task

    return begin


async def run_until(work: Coroutine[Any, Any, T], stop: Stop, *, grace_s: float = 0.0) -> asyncio.Task[T]:
    """Run the work until it is done or stopped; when stopped it is cancelled and given ``grace_s`` to end.

    It always starts, up to its first await, even if it was stopped before. The returned task is done, cancelled or, if
    it ignored the cancellation, still running. Cancelling the caller cancels the work.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    task = loop.create_task(work)
    task.add_done_callback(lambda _: end())
    stopping = stop(end)
    try:
        if over.done():
            await asyncio.sleep(0)
        await over
    finally:
        stopping.cancel()
        if not task.done():
            task.cancel()
            if grace_s:
                await asyncio.wait({task}, timeout=grace_s)
    return task
