"""Workspace snapshots on a SQL engine."""

from __future__ import annotations

from clew.store.sql import rows
from clew.store.sql.line_reader import load_snapshots
from clew.store.sql.statements import SqlReader, Statements, reading, reading_store
from clew.transcript.workspace_snapshot import WorkspaceSnapshot

__all__ = ["SqlWorkspaces"]


class SqlWorkspaces(SqlReader):
    """See :class:`clew.store.workspaces.Workspaces` for the contract of each method."""

    @reading
    def load_snapshots(self, sql: Statements, session_id: str) -> tuple[WorkspaceSnapshot, ...]:
        return load_snapshots(sql, session_id)

    @reading
    def load_workspace_snapshots(self, sql: Statements, workspace: str, since: int) -> tuple[WorkspaceSnapshot, ...]:
        params = {"workspace": workspace, "since": since}
        return tuple(rows.to_snapshot(row) for row in sql.rows("load_workspace_snapshots", params))

    @reading
    def open_snapshots(self, sql: Statements) -> tuple[WorkspaceSnapshot, ...]:
        return tuple(rows.to_snapshot(row) for row in sql.rows("open_snapshots", {}))

    @reading_store
    def load_snapshot_trees(self, sql: Statements) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for workspace, tree in sql.rows("load_snapshot_trees", {}):
            found.setdefault(workspace, set()).add(tree)
        return found
