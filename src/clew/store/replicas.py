"""Replicas: the processes that serve one store together, and the sessions each of them runs.

Each has a row with a lease, which every heartbeat extends. All times are the store's clock, never a machine's. A lapsed
lease is never extended: a replica that finds its lease lapsed rejoins with a new id, and other replicas settle what it
ran before.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["Replica", "Replicas"]


class Replica(msgspec.Struct, frozen=True):
    """A process that serves the store. ``alive``: its lease was valid when it was read; ``draining``: it starts no new
    work. ``url`` is its address, where known."""

    id: str
    url: str | None
    version: str
    started_at: int
    beat_at: int
    lease_until: int
    draining: bool
    alive: bool


class Replicas(Protocol):
    """Reads of the processes that serve a store, and of the sessions that no live process handles."""

    async def find_replica(self, replica_id: str) -> Replica | None: ...

    async def list_replicas(self) -> tuple[Replica, ...]:
        """Return all replicas that have joined and not left, lapsed ones included, by (started_at, id)."""
        ...

    async def run_by(self, replica_id: str) -> tuple[str, ...]:
        """Return the ids of the sessions that this replica runs, according to the store."""
        ...

    async def orphaned_sessions(self, replica_id: str) -> tuple[str, ...]:
        """Return the ids of orphaned sessions: those whose runner's lease has lapsed or whose runner has left, those
        recorded as run by ``replica_id`` itself, and those without a runner that have queued messages and no open
        turn."""
        ...
