"""Replicas of a store that holds them in a table, which goes with the process as they do."""

from __future__ import annotations

from msgspec.structs import replace

from clew.store import unit as u
from clew.store.memory.change import Change
from clew.store.memory.tables import MemoryTables
from clew.store.replicas import Replica

__all__ = ["MemoryReplicas"]


class MemoryReplicas(MemoryTables):
    """See :class:`clew.store.replicas.Replicas` for what each method promises."""

    async def find_replica(self, replica_id: str) -> Replica | None:
        return self._replica(replica_id)

    async def list_replicas(self) -> tuple[Replica, ...]:
        found = filter(None, map(self._replica, self._replicas))
        return tuple(sorted(found, key=lambda one: (one.started_at, one.id)))

    async def run_by(self, replica_id: str) -> tuple[str, ...]:
        return tuple(sorted(id_ for id_, value in self._values.items() if value.state["state"].runner == replica_id))

    async def orphaned_sessions(self, replica_id: str) -> tuple[str, ...]:
        found = []
        for id_, value in self._values.items():
            state = value.state["state"]
            if state.runner is not None:
                orphaned = state.runner == replica_id or not self._is_alive(state.runner)
            else:
                orphaned = state.open_turn_id is None and bool(value.queue)
            if orphaned:
                found.append(id_)
        return tuple(sorted(found))

    def _replica(self, replica_id: str) -> Replica | None:
        held = self._replicas.get(replica_id)
        return None if held is None else replace(held, alive=held.lease_until > self._clock.now_ms())

    def _is_alive(self, replica_id: str) -> bool:
        held = self._replica(replica_id)
        return held is not None and held.alive

    def _write_replica(self, change: Change, write: u.JoinReplica | u.BeatReplica | u.LeaveReplica) -> None:
        now = self._clock.now_ms()
        match write:
            case u.JoinReplica(id_, url, version, lease_ms):
                change.put(self._replicas, id_, Replica(id_, url, version, now, now, now + lease_ms, False, True))
            case u.BeatReplica(id_, lease_ms, draining):
                beaten = replace(self._replicas[id_], beat_at=now, lease_until=now + lease_ms, draining=draining)
                change.put(self._replicas, id_, beaten)
            case u.LeaveReplica(id_):
                change.drop(self._replicas, id_)
