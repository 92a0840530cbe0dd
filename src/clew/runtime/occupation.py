"""Occupations: sessions that are busy with something that is not a run, such as being summarised.

An occupied session queues its prompts, refuses what would move its head, and can be aborted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from clew.live.base import Status
from clew.runtime.host import Host
from clew.tools.base import Signal

if TYPE_CHECKING:
    from clew.runtime.desk import Desk

__all__ = ["Occupations"]


class _Occupation(msgspec.Struct, frozen=True):
    """``signal`` asks for its end, ``left`` is set at it; ``queued`` prompts were waiting when it began."""

    signal: Signal
    left: asyncio.Event
    queued: frozenset[str]
    since: int


class Occupations:
    """What sessions of one engine are occupied with."""

    def __init__(self, host: Host, desk: Desk) -> None:
        self._host = host
        self._desk = desk
        self._held: dict[str, _Occupation] = {}

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._held

    async def enter(self, session_id: str, message: str) -> Signal:
        """Take an idle session. Held under its lock; ``leave`` must follow."""
        queued = frozenset(entry.message.id for entry in await self._host.store.load_queue(session_id))
        self._held[session_id] = _Occupation(Signal(), asyncio.Event(), queued, self._host.clock.now_ms())
        self.tell(session_id, message)
        return self._held[session_id].signal

    def tell(self, session_id: str, message: str) -> None:
        """What the session is busy with, for its status."""
        self._desk.show(session_id, Status("busy", message=message, started_at=self._held[session_id].since))

    async def leave(self, session_id: str, *, fire: bool = False) -> None:
        """The session is free again; prompts that came meanwhile run now. ``fire``: those before them too."""
        async with self._desk.lock(session_id):
            occupation = self._held.pop(session_id)
            occupation.left.set()
            if not self._desk.may_go_on(session_id):
                return
            self._desk.show(session_id, await self._desk.idle_status(session_id))
            queue = await self._host.store.load_queue(session_id)
            if fire or any(entry.message.id not in occupation.queued for entry in queue):
                await self._desk.queue.fire(session_id, triggered=not self._desk.queue_moves(session_id))

    def abort(self, session_id: str, reason: str) -> bool:
        """Ask for the end; False when the session is not occupied."""
        occupation = self._held.get(session_id)
        if occupation is None:
            return False
        occupation.signal.abort(reason)
        return True

    async def end(self, session_id: str, reason: str) -> None:
        """Ask for the end and wait for it."""
        occupation = self._held.get(session_id)
        if occupation is not None:
            occupation.signal.abort(reason)
            await occupation.left.wait()

    async def end_all(self, reason: str) -> None:
        for session_id in tuple(self._held):
            self.abort(session_id, reason)
        for session_id in tuple(self._held):
            await self.end(session_id, reason)
