"""Replicas: the processes that serve one store together, and which of them runs a session.

Each has a row with a lease, which it prolongs at every heartbeat. All times are by the store's own clock, so that no
machine's counts. A lease that has lapsed is never prolonged: who finds out that it was away joins anew, under another
id, and whatever it ran before is somebody else's to settle.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["Replica", "Replicas"]


class Replica(msgspec.Struct, frozen=True):
    """A process that serves the store. ``alive`` is whether its lease held when it was read; ``draining``: it begins
    nothing any more. ``url`` is where it can be reached, where that is known."""

    id: str
    url: str | None
    version: str
    started_at: int
    beat_at: int
    lease_until: int
    draining: bool
    alive: bool


class Replicas(Protocol):
    """Reading who serves a store, and what nobody alive sees to."""

    async def find_replica(self, replica_id: str) -> Replica | None: ...

    async def list_replicas(self) -> tuple[Replica, ...]:
        """All that have joined and not left, the lapsed too, by (started_at, id)."""
        ...

    async def run_by(self, replica_id: str) -> tuple[str, ...]:
        """The sessions that this replica runs, as the store has it, by id."""
        ...

    async def adrift_sessions(self, replica_id: str) -> tuple[str, ...]:
        """Sessions that somebody has to see to, by id: those of a runner whose lease has lapsed or who has left, those
        that ``replica_id`` itself is said to run, and those that nobody runs while something is in their queue and no
        turn is open."""
        ...
