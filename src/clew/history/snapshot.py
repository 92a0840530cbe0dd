"""Snapshots: how the workspace goes back together with the conversation.

A layer that keeps the past of a workspace is optional. It is asked for a snapshot before each user message lands (for
a queued one: when it is fired), the message remembers it as ``snapshot_id``, and a rewind to that message may have it
restored. What a snapshot is made of is the layer's own business.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from clew.runtime.hooks import Hooks
from clew.transcript.message import MessageRow
from clew.transcript.metadata import SNAPSHOT_KEY

__all__ = ["SnapshotLayer", "attach"]


class SnapshotLayer(Protocol):
    """Keeps states of workspaces. Whatever it raises refuses what it was asked for."""

    async def take(self, session_id: str, message: MessageRow) -> str | None:
        """Keep the workspace as it is before this message lands; None when there is nothing to keep."""

    async def preview(self, session_id: str, snapshot_id: str) -> list[str]:
        """The files that restoring would change, without changing them."""

    async def restore(self, session_id: str, snapshot_id: str) -> None:
        """Bring the workspace back to that state, or raise and leave it as it is."""


def attach(hooks: Hooks, layer: SnapshotLayer) -> None:
    """Have each user message carry the snapshot that was taken before it."""

    async def take(row: MessageRow) -> MessageRow | None:
        snapshot_id = await layer.take(row.session_id, row)
        if snapshot_id is None:
            return None
        return msgspec.structs.replace(row, metadata={**row.metadata, SNAPSHOT_KEY: snapshot_id})

    hooks.add("message.user", take)
