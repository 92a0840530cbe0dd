"""Replicas on a SQL engine. The engine's clock decides, in the statement itself, which of them are alive."""

from __future__ import annotations

from clew.store.replicas import Replica
from clew.store.sql.rows import Row
from clew.store.sql.statements import SqlReader, Statements, reading

__all__ = ["SqlReplicas", "to_replica"]


def to_replica(row: Row) -> Replica:
    """Convert a row with ``replica_columns``."""
    id_, url, version, started_at, beat_at, lease_until, draining, alive = row
    return Replica(id_, url, version, started_at, beat_at, lease_until, bool(draining), bool(alive))


class SqlReplicas(SqlReader):
    """See :class:`clew.store.replicas.Replicas` for the contract of each method."""

    @reading
    def find_replica(self, sql: Statements, replica_id: str) -> Replica | None:
        row = sql.first("find_replica", {"id": replica_id})
        return to_replica(row) if row is not None else None

    @reading
    def list_replicas(self, sql: Statements) -> tuple[Replica, ...]:
        return tuple(map(to_replica, sql.rows("list_replicas", {})))

    @reading
    def run_by(self, sql: Statements, replica_id: str) -> tuple[str, ...]:
        return tuple(row[0] for row in sql.rows("run_by", {"replica_id": replica_id}))

    @reading
    def orphaned_sessions(self, sql: Statements, replica_id: str) -> tuple[str, ...]:
        return tuple(row[0] for row in sql.rows("orphaned_sessions", {"replica_id": replica_id}))
