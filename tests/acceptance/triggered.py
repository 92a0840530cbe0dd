"""What tests of events, schedules and stops wait for."""

from __future__ import annotations

import asyncio
from typing import Any

import clew
from clew.testing.scripted import ScriptedModel

__all__ = ["answered", "asked", "ended", "napping"]


async def answered(engine: clew.Engine, count: int) -> None:
    """Until so many events have gone out. What goes out comes before ``turn_finished``, so that is what is awaited."""
    events = engine.subscribe()
    coming = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    while len((await engine.events.list(direction="out", limit=200)).events) < count:
        await coming
        coming = asyncio.ensure_future(anext(events))
    coming.cancel()


async def asked(model: ScriptedModel, count: int) -> None:
    """Until the model was asked so often: a run that is stopped before leaves its part of the script to the next."""
    while len(model.requests) < count:  # noqa: ASYNC110  # nobody is told of it
        await asyncio.sleep(0)


async def ended(engine: clew.Engine) -> None:
    """Until nothing runs and nothing is about to."""
    at_work: Any = engine._runtime.sessions
    while at_work._runs or at_work._tasks:
        runs = [run.wait() for run in at_work._runs.values()]
        await asyncio.gather(*runs, *at_work._tasks, return_exceptions=True)
        await asyncio.sleep(0)


async def napping(engine: clew.Engine) -> None:
    """Until the loop has looked at everything and waits for its clock."""
    wake: Any = engine.dispatcher._wake
    while wake.is_set() or not wake._waiters:  # noqa: ASYNC110  # what it waits for has no event
        await asyncio.sleep(0)
