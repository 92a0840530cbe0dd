"""Work that somebody may end before it is done: an abort, a watchdog, a limit of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from clew.clock import Clock, Timer

__all__ = ["Stop", "after", "race", "when_done"]

T = TypeVar("T")

Stop: TypeAlias = Callable[[Callable[[], None]], Timer]
"""Given what to call when the work is to end; what it gives back is cancelled once nobody would hear it any more.

A call and no task: nearly all work is done before anything stops it, and a task costs as much as a good part of that.
"""


def after(clock: Clock, delay_ms: float) -> Stop:
    """So much time has passed."""
    return lambda end: clock.call_later(delay_ms, end)


def when_done(waiting: Coroutine[Any, Any, Any]) -> Stop:
    """Something else has come to its end."""

    def begin(end: Callable[[], None]) -> Timer:
        task = asyncio.get_running_loop().create_task(waiting)
        task.add_done_callback(lambda _: end())
        return task

    return begin


async def race(work: Coroutine[Any, Any, T], stop: Stop, *, grace_s: float = 0.0) -> asyncio.Task[T]:
    """Do the work until it is done, or until it is stopped: then it is cancelled, and given ``grace_s`` to end.

    It begins in any case, and so says what it says before it waits for anything: also when it was stopped before.
    What comes back is done, or cancelled, or, if it did not heed that, still going on. Whoever is cancelled here
    takes the work along.
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
