"""Watches: subscriptions to MCP server resources whose changes start turns, while this process owns the store.

A server that fails is restarted, with pauses, as long as it has subscriptions. Several changes in a short time count as
one. Changes while there was no subscription are unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from clew.errors import ClewError
from clew.session.host import Host
from clew.session.turn.mcp_tools import find_scope
from clew.store.base import get_session
from clew.tools.mcp_tools import ResourceSubscription, ToolServers
from clew.triggers.firing import Firing
from clew.triggers.values.schedule import Schedule, Watch

__all__ = ["Watches"]

log = logging.getLogger("clew.triggers")

_RETRY_MS: Final = 60_000


class _Subscription(msgspec.Struct):
    listening: ResourceSubscription
    heard_at: int | None = None


class Watches:
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
