"""The dispatcher: the three ways in put together, and the loop that fires schedules while the store is owned."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Final

from clew.dispatch.events import Events
from clew.dispatch.firing import Changes, Firing
from clew.dispatch.router import Gate, Router
from clew.dispatch.schedules import Schedules
from clew.dispatch.watches import Watches
from clew.dispatch.webhooks import Webhooks
from clew.runtime.host import Host
from clew.runtime.runtime import Runtime

__all__ = ["NAP_MS", "Dispatcher"]

log = logging.getLogger("clew.dispatch")

NAP_MS: Final = 30_000.0
"""The longest the loop waits before it looks at the clock again: the wall clock may be set while it waits."""

_END_S: Final = 2.0


class Dispatcher:
    """Begins with ``open``, for the process that owns the store alone; ends with ``close``."""

    def __init__(self, host: Host, runtime: Runtime, gate: Gate) -> None:
        self._host = host
        self._runtime = runtime
        self._router = Router(host, runtime, gate)
        self._changes, self._hooks = Changes(), asyncio.Lock()
        self._firing = Firing(host, self._router, self._changes)
        self.events, self.schedules, self.webhooks = self.ways(gate)
        self._wake = asyncio.Event()
        self._watches = Watches(host, self._firing, self._wake.set)
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def ways(self, gate: Gate) -> tuple[Events, Schedules, Webhooks]:
        """The three ways in, for whoever asks."""
        host, router, firing = self._host, self._router, self._firing
        if gate.owner is not None:
            router = router.scoped(gate)
            firing = Firing(host, router, self._changes)
        schedules = Schedules(host, self._runtime, router, gate, firing)
        return Events(host, router, gate), schedules, Webhooks(host, router, gate, self._hooks)

    async def open(self, *, fire: bool, left: Iterable[str] = ()) -> None:
        """Make good what a dead process left of its events; with ``fire``, go on with them and watch the schedules.

        ``left`` are sessions of which a turn was interrupted, to go on with.
        """
        for session_id in left if fire else ():
            # First: what goes out for an event is known when its turn has ended.
            await self._runtime.continuation.resume(session_id)
        events = await self._runtime.outbound.recover()
        if fire:
            self._changes.on_change = self._wake.set
            self._task = asyncio.get_running_loop().create_task(self._watch(events))

    @property
    def fires(self) -> bool:
        """Whether schedules and events are fired here; not by who has the store open for a while only."""
        return self._task is not None

    async def close(self) -> None:
        """End the loop. What it has just begun to fire it fires, so that nothing is stored without its run."""
        self._ending.set()
        self._wake.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait({task}, timeout=_END_S)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._watches.close()

    async def _watch(self, left: Iterable[str]) -> None:
        for session_id in left:
            if not self._ending.is_set():
                try:
                    await self._router.resume(session_id)
                except Exception:
                    log.exception("what waits on %s could not be gone on with", session_id)
        while not self._ending.is_set():
            self._wake.clear()
            try:
                waits = [await self._firing.tick(), await self._watches.tick()]
                wait = min((one for one in waits if one is not None), default=None)
            except Exception:
                # One that cannot be read or written must not stop the others for good.
                log.exception("schedules could not be looked at; trying again")
                wait = NAP_MS
            if self._ending.is_set():
                return
            timer = None
            if wait is not None:
                timer = self._host.clock.call_later(min(wait, NAP_MS), self._wake.set)
            try:
                await self._wake.wait()
            finally:
                if timer is not None:
                    timer.cancel()
