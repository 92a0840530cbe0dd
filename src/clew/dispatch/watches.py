"""Watches: resources of MCP servers whose changes start turns, listened to while the store is owned.

A server that breaks is begun again, with pauses, for as long as somebody wants to hear of it. Of many changes in a
short time one is told. What changed while nobody listened is not known, and not guessed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from clew.dispatch.firing import Firing
from clew.errors import ClewError
from clew.runtime.host import Host
from clew.runtime.served_tools import find_place
from clew.store.base import get_session
from clew.tools.served import Listening, ToolServers
from clew.triggers.schedule import Schedule, Watch

__all__ = ["Watches"]

log = logging.getLogger("clew.dispatch")

_AGAIN_MS: Final = 60_000


class _Watched(msgspec.Struct):
    listening: Listening
    heard_at: int | None = None


class Watches:
    """``tick`` brings what is listened to up to date with what is stored, and fires what was heard."""

    def __init__(self, host: Host, firing: Firing, wake: Callable[[], None]) -> None:
        self._host = host
        self._firing = firing
        self._changes = firing.changes
        self._wake = wake
        self._watched: dict[str, _Watched] = {}

    async def tick(self) -> float | None:
        """Milliseconds until there is something to do again; None when only a change, or a word of a server, brings
        something."""
        servers = self._host.servers
        if servers is None:
            return None
        kept = await self._host.store.list_schedules()
        wanted = {one.id: (one, one.watches) for one in kept if one.watches is not None and not one.paused}
        for schedule_id in self._watched.keys() - wanted.keys():
            self._watched.pop(schedule_id).listening.close()
        self._changes.troubles = {id_: why for id_, why in self._changes.troubles.items() if id_ in wanted}
        waits = [await self._look(schedule, watch, servers) for schedule, watch in wanted.values()]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _look(self, schedule: Schedule, watch: Watch, servers: ToolServers) -> float | None:
        known = self._watched.get(schedule.id)
        if known is None:
            try:
                known = self._watched[schedule.id] = await self._listen(schedule, watch, servers)
            except ClewError as error:
                # Its session, or its server, may come back.
                self._changes.troubles[schedule.id] = f"{error.code}: {error}"[:1000]
                return _AGAIN_MS
        if known.heard_at is None:
            return None
        try:
            wait = await self._firing.fire_watch(schedule.id, known.heard_at)
        except Exception:
            log.exception("what %s watches has changed, and its turn could not be started", schedule.id)
            return _AGAIN_MS
        if wait is None:
            known.heard_at = None
        return wait

    async def _listen(self, schedule: Schedule, watch: Watch, servers: ToolServers) -> _Watched:
        session = await get_session(self._host.store, schedule.routing.session_id or "")
        place = await find_place(self._host, session)

        def heard() -> None:
            watched = self._watched.get(schedule.id)
            if watched is not None:
                watched.heard_at = watched.heard_at or self._host.clock.now_ms()
                self._wake()

        def told(trouble: str | None) -> None:
            self._changes.troubles.pop(schedule.id, None)
            if trouble is not None:
                self._changes.troubles[schedule.id] = trouble

        return _Watched(servers.listen(place, watch.server, watch.uri, heard, told))

    def close(self) -> None:
        for one in self._watched.values():
            one.listening.close()
        self._watched.clear()
