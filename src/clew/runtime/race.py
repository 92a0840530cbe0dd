"""Work that somebody may end before it is done: an abort, a watchdog, a limit of time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["race"]

T = TypeVar("T")


async def race(
    work: Coroutine[Any, Any, T], stop: Coroutine[Any, Any, Any], *, grace_s: float = 0.0
) -> asyncio.Task[T]:
    """Do the work until it is done, or until ``stop`` is: then it is cancelled, and given ``grace_s`` to end.

    What comes back is done, or cancelled, or, if it did not heed that, still going on. Whoever is cancelled here
    takes the work along.
    """
    loop = asyncio.get_running_loop()
    task, stopping = loop.create_task(work), loop.create_task(stop)
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not task.done():
            task.cancel()
            if grace_s:
                await asyncio.wait({task}, timeout=grace_s)
    return task
