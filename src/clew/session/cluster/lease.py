"""The lease: the right of this process to run sessions of a store that other processes also serve.

A store with a single owner needs none: its process has every session, and nothing is written or read for it. On a
shared store each process has a lease (:mod:`clew.store.base`). Acquiring a session is one unit, guarded against
other live leases, that raises the epoch; so the store decides, and the checks here only report the same answer early.
A run with an outdated epoch cannot write, whether its replica knows that or not.
"""

from __future__ import annotations

from collections.abc import Callable

from clew.errors import ReplicaAway, SessionBusy
from clew.session.acquire.loaded_session import LoadedSession
from clew.store.base import Moment, Replica
from clew.transcript.session import SessionState

__all__ = ["LEASE_LOST", "Lease"]

LEASE_LOST = "this replica has lost its lease"
"""The reason for stopping runs that other replicas may have acquired: they write nothing more."""


class Lease:
    """The lease of one engine. ``replica_id`` is None where none is needed, and while its own is lost.

    ``has_other_owner``: whether another process owns the store now, which an engine that only reads may not know.
    """

    def __init__(self, *, shared: bool = False, has_other_owner: Callable[[], bool] = lambda: False) -> None:
        self.shared = shared
        self.has_other_owner = has_other_owner
        self.replica_id: str | None = None
        self.draining = False

    def check_open(self) -> None:
        """Raise ``ReplicaAway`` unless runs may start here now."""
        if self.draining:
            raise ReplicaAway("this replica is shutting down; retry")
        if self.shared and self.replica_id is None:
            raise ReplicaAway("this replica is rejoining the cluster; retry")

    def is_elsewhere(self, runner: Replica | None) -> bool:
        """Return whether this runner is another live replica."""
        return runner is not None and runner.alive and runner.id != self.replica_id

    def check_standing(self, loaded: LoadedSession) -> None:
        """Raise :class:`SessionBusy` while another replica runs the session."""
        if self.is_elsewhere(loaded.runner):
            what = (
                "a run is in flight on this session" if loaded.open is not None else "this session is being summarised"
            )
            raise SessionBusy(f"{what}, in another replica", session_id=loaded.session_id)

    async def runs_elsewhere(self, store: Moment, state: SessionState) -> bool:
        """Return the same for a session's state alone; reads the store only if a runner is recorded."""
        if state.runner is None or state.runner == self.replica_id:
            return False
        return self.is_elsewhere(await store.find_replica(state.runner))
