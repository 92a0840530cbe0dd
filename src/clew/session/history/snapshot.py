"""Snapshots: restoring the workspace together with the conversation.

A snapshot layer is optional. It is asked for a snapshot before each user message is stored (or, for a queued one,
started), the message stores it as ``snapshot_id``, and a rewind to that message may restore it. The content of a
snapshot is up to the layer.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from clew.session.hooks import Hooks
from clew.transcript.message import MessageRow
from clew.transcript.metadata import SNAPSHOT_KEY

__all__ = ["SnapshotLayer", "attach"]


class SnapshotLayer(Protocol):
    """A store of workspace snapshots. An exception refuses the operation."""

    async def take(self, session_id: str, message: MessageRow) -> str | None:
        """Save the workspace as it is before this message; return None if there is nothing to save."""

    async def preview(self, session_id: str, snapshot_id: str) -> list[str]:
        """Return the files that restoring would change, without changing them."""

    async def restore(self, session_id: str, snapshot_id: str) -> None:
        """Restore the workspace to that snapshot, or raise and leave it unchanged."""


def attach(hooks: Hooks, layer: SnapshotLayer) -> None:
    """Take a snapshot before each user message and store its id in the message."""

    async def take(row: MessageRow) -> MessageRow | None:
        snapshot_id = await layer.take(row.session_id, row)
        if snapshot_id is None:
            return None
        return msgspec.structs.replace(row, metadata={**row.metadata, SNAPSHOT_KEY: snapshot_id})

    hooks.add("message.user", take)
