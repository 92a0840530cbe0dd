"""Rows about a session's workspace: which saved state belongs to which point of the conversation.

The saved states themselves belong to a snapshot layer (:mod:`clew.snapshots.base`), which names each by its ``tree``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

__all__ = ["Restore", "SnapshotAt", "SnapshotStatus", "WorkspaceSnapshot"]

SnapshotAt = Literal["message", "before", "after", "end", "saved", "restored"]
"""The point at which it was taken: when a user message was admitted, before and after a step's calls that may change
files, at the end of a turn, before a restore, and after it."""
SnapshotStatus = Literal["taking", "ready", "late", "failed"]


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """A restore of files to ``tree``, from the state ``expected``. ``move``: it belongs to a move of the head, made in
    the same unit. ``left`` are files that another hand had changed, and that stayed as they were."""

    tree: str
    expected: str
    saved: str
    paths: tuple[str, ...]
    left: tuple[str, ...] = ()
    move: bool = False


class WorkspaceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A saved state of a session's workspace, or the attempt to save it.

    ``late``: a call that may change files ran before the state was saved. A restore is ``taking`` until its files are
    written. ``skipped`` are paths that are not covered, with reasons. ``replica`` is the process that takes it, in a
    store that several share.
    """

    id: str
    session_id: str
    workspace: str
    point: SnapshotAt
    state: SnapshotStatus
    created_at: int
    message_id: str | None = None
    turn_id: str | None = None
    step: int | None = None
    tree: str | None = None
    problem: str | None = None
    skipped: Mapping[str, str] = {}
    restore: Restore | None = None
    replica: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether its process has not finished with it."""
        return self.tree is None and self.state in ("taking", "late")

    def leaves_out(self, path: str) -> bool:
        """Return whether a file, or a folder of it, was there and is named as not covered."""
        return path in self.skipped or any(name.endswith("/") and path.startswith(name) for name in self.skipped)
