"""The dispatcher: its three entry points, and, in the process that owns the store, the loop that fires schedules and
the watches.

A watch subscribes to a resource of an MCP server whose changes start turns. A server that fails is restarted, with
pauses, as long as it has subscriptions. Several changes in a short time count as one. Changes while there was no
subscription are unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from clew.errors import ClewError
from clew.session.host import Host
from clew.session.runtime import Runtime
from clew.session.turn.mcp_tools import find_scope
from clew.store.base import get_session
from clew.tools.mcp_tools import ResourceSubscription, ToolServers
from clew.triggers.events import Events
from clew.triggers.firing import Changes, Firing
from clew.triggers.router import Router, Scope
from clew.triggers.schedules import Schedules
from clew.triggers.values.schedule import Schedule, Watch
from clew.triggers.webhooks import Webhooks

__all__ = ["NAP_MS", "Dispatcher"]

log = logging.getLogger("clew.triggers")

NAP_MS: Final = 30_000.0
"""The longest wait of the loop before it reads the clock again: the wall clock may be set meanwhile."""

_STOP_WAIT_S: Final = 2.0


class Dispatcher:
    """The dispatcher of one engine. ``open`` starts the loop, in the owner of the store only; ``close`` ends it."""

    def __init__(self, host: Host, runtime: Runtime, scope: Scope) -> None:
        self._host = host
        self._runtime = runtime
        self._router = Router(host, runtime, scope)
        self._changes, self._hooks = Changes(), asyncio.Lock()
        self._firing = Firing(host, self._router, self._changes)
        self.events, self.schedules, self.webhooks = self.entry_points(scope)
        self._wake = asyncio.Event()
        self._watches = _Watches(host, self._firing, self._wake.set)
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def entry_points(self, scope: Scope) -> tuple[Events, Schedules, Webhooks]:
        """Return the three entry points for one owner."""
        host, router, firing = self._host, self._router, self._firing
        if scope.owner is not None:
            router = router.scoped(scope)
            firing = Firing(host, router, self._changes)
        schedules = Schedules(host, self._runtime, router, scope, firing)
        return Events(host, router, scope), schedules, Webhooks(host, router, scope, self._hooks)

    async def open(self, *, fire: bool, left: Iterable[str] = ()) -> None:
        """Settle the events that a dead process left open; with ``fire``, resume their turns and start the schedules.

        ``left`` are the sessions with an interrupted turn to resume.
        """
        for session_id in left if fire else ():
            # First, since the reply to an event is known only when its turn has ended.
            await self._runtime.continuation.resume(session_id)
        events = await self._runtime.event_replies.recover()
        if fire:
            self._changes.on_change = self._wake.set
            self._task = asyncio.get_running_loop().create_task(self._watch(events))

    @property
    def fires(self) -> bool:
        """Return whether schedules and events are fired here, which a process that only briefly opens the store does
        not."""
        return self._task is not None

    async def close(self) -> None:
        """End the loop. A schedule that is just firing is still started, so that nothing is stored without its run."""
        self._ending.set()
        self._wake.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait({task}, timeout=_STOP_WAIT_S)
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
                    log.exception("could not start the queue of session %s", session_id)
        while not self._ending.is_set():
            self._wake.clear()
            try:
                waits = [await self._firing.tick(), await self._watches.tick()]
                wait = min((delay for delay in waits if delay is not None), default=None)
            except Exception:
                # A schedule that cannot be read or written must not stop the others permanently.
                log.exception("could not check the schedules; retrying")
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


_RETRY_MS: Final = 60_000


class _Subscription(msgspec.Struct):
    listening: ResourceSubscription
    heard_at: int | None = None


class _Watches:
    """The subscriptions of all schedules that watch a resource. ``tick`` updates them and fires changes."""

    def __init__(self, host: Host, firing: Firing, wake: Callable[[], None]) -> None:
        self._host = host
        self._firing = firing
        self._changes = firing.changes
        self._wake = wake
        self._watched: dict[str, _Subscription] = {}

    async def tick(self) -> float | None:
        """Update the subscriptions and fire changes; return the milliseconds until the next retry, None if only a
        change or a message of a server requires action."""
        servers = self._host.servers
        if servers is None:
            return None
        schedules = await self._host.store.list_schedules()
        wanted = {
            schedule.id: (schedule, schedule.watches)
            for schedule in schedules
            if schedule.watches is not None and not schedule.paused
        }
        for schedule_id in self._watched.keys() - wanted.keys():
            self._watched.pop(schedule_id).listening.close()
        self._changes.troubles = {id_: why for id_, why in self._changes.troubles.items() if id_ in wanted}
        waits = [await self._update(schedule, watch, servers) for schedule, watch in wanted.values()]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _update(self, schedule: Schedule, watch: Watch, servers: ToolServers) -> float | None:
        known = self._watched.get(schedule.id)
        if known is None:
            try:
                known = self._watched[schedule.id] = await self._listen(schedule, watch, servers)
            except ClewError as error:
                # Its session or its server may become available again.
                self._changes.troubles[schedule.id] = f"{error.code}: {error}"[:1000]
                return _RETRY_MS
        if known.heard_at is None:
            return None
        try:
            wait = await self._firing.fire_watch(schedule.id, known.heard_at)
        except Exception:
            log.exception("could not start the turn of schedule %s after a change of its resource", schedule.id)
            return _RETRY_MS
        if wait is None:
            known.heard_at = None
        return wait

    async def _listen(self, schedule: Schedule, watch: Watch, servers: ToolServers) -> _Subscription:
        session = await get_session(self._host.store, schedule.routing.session_id or "")
        server_scope = await find_scope(self._host, session)

        def on_change() -> None:
            watched = self._watched.get(schedule.id)
            if watched is not None:
                watched.heard_at = watched.heard_at or self._host.clock.now_ms()
                self._wake()

        def on_trouble(trouble: str | None) -> None:
            self._changes.troubles.pop(schedule.id, None)
            if trouble is not None:
                self._changes.troubles[schedule.id] = trouble

        return _Subscription(servers.subscribe(server_scope, watch.server, watch.uri, on_change, on_trouble))

    def close(self) -> None:
        for subscription in self._watched.values():
            subscription.listening.close()
        self._watched.clear()
