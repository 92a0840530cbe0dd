"""Reads of workspace snapshots: the saved states of workspaces, and the points of sessions that they belong to."""

from __future__ import annotations

from typing import Protocol

from clew.transcript.workspace_snapshot import WorkspaceSnapshot

__all__ = ["Workspaces"]


class Workspaces(Protocol):
    """Reads of the rows about saved states. The states themselves belong to a snapshot layer."""

    async def load_snapshots(self, session_id: str) -> tuple[WorkspaceSnapshot, ...]:
        """Return the snapshots of the session's workspace, by (created_at, id)."""
        ...

    async def load_workspace_snapshots(self, workspace: str, since: int) -> tuple[WorkspaceSnapshot, ...]:
        """Return the snapshots of a workspace from that time on, of every session, by (created_at, id)."""
        ...

    async def open_snapshots(self) -> tuple[WorkspaceSnapshot, ...]:
        """Return the snapshots that are being taken, and the restores that are under way, of every session."""
        ...

    async def load_snapshot_trees(self) -> dict[str, set[str]]:
        """Return the saved states that rows name, by workspace."""
        ...
