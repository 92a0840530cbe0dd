"""The lease: by what right this process runs sessions, where others serve the same store.

A store with one owner needs none: whoever has the store has every session, nothing is written for it and nothing asked.
On a store that several processes serve, each has a lease (:mod:`clew.store.replicas`). To take a session is one unit
that holds the guard that nobody else's live lease is on it, and raises the epoch; so it is decided in the store, and
what is read here only says early what the guard would say. A run whose epoch has passed cannot write, whether its
replica knows of that or not.
"""

from __future__ import annotations

from clew.errors import ReplicaAway, SessionBusy
from clew.runtime.standing import Standing
from clew.store.base import Moment
from clew.store.replicas import Replica
from clew.transcript.session import SessionState

__all__ = ["LEASE_LOST", "Lease"]

LEASE_LOST = "this replica has lost its lease"
"""Why runs are stopped that others may have by now: they write nothing any more."""


class Lease:
    """What one engine holds. ``replica_id`` is None where none is needed, and while it has lost its own."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self.replica_id: str | None = None
        self.draining = False

    def check_open(self) -> None:
        """Whether anything may begin here now."""
        if self.draining:
            raise ReplicaAway("this replica is shutting down; ask again, and another one answers")
        if self.shared and self.replica_id is None:
            raise ReplicaAway(f"{LEASE_LOST} and has not joined again yet; ask again, and another one answers")

    def is_elsewhere(self, runner: Replica | None) -> bool:
        """Whether somebody else runs what this is the runner of."""
        return runner is not None and runner.alive and runner.id != self.replica_id

    def check_standing(self, standing: Standing) -> None:
        """:class:`SessionBusy` while another replica runs the session."""
        if self.is_elsewhere(standing.runner):
            what = (
                "a run is in flight on this session"
                if standing.open is not None
                else "this session is being summarised"
            )
            raise SessionBusy(f"{what}, in another replica", session_id=standing.session_id)

    async def runs_elsewhere(self, store: Moment, state: SessionState) -> bool:
        """The same of a session of which only the state was read; asks nothing unless somebody is noted in it."""
        if state.runner is None or state.runner == self.replica_id:
            return False
        return self.is_elsewhere(await store.find_replica(state.runner))
