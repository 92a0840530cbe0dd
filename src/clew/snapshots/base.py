"""The contract of a snapshot layer: it saves states of a workspace, compares them and writes them back.

A layer knows folders and trees, not conversations: which state belongs to which message is stored by the session. A
host may bring its own layer; :class:`SnapshotLayer` is all it needs. :class:`SnapshotStore` adds what the shipped layer
can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, Protocol, runtime_checkable

import msgspec

__all__ = ["MORE_SKIPPED", "FileChange", "SavedTree", "SnapshotLayer", "SnapshotPoint", "SnapshotStore", "SnapshotsOff"]

ChangeKind = Literal["added", "modified", "deleted", "mode"]
MORE_SKIPPED = "…"
"""The entry of ``skipped`` that counts the paths which it does not name."""


class SnapshotsOff(Exception):
    """Snapshots are off in this workspace; the message says why and how to switch them on."""


class SnapshotPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Whose workspace is saved or restored, and where its session stands."""

    session_id: str
    workspace: str
    """The resolved, absolute root of the workspace."""
    turn_id: str | None = None
    step: int | None = None
    message_id: str | None = None


class SavedTree(msgspec.Struct, frozen=True):
    """A saved state. ``tree`` is the layer's own name of it, ``skipped`` the paths it does not cover, with reasons."""

    tree: str
    skipped: Mapping[str, str] = {}


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A file that differs between two states. Counts are None for what is not text."""

    path: str
    kind: ChangeKind
    added: int | None = None
    removed: int | None = None


class SnapshotLayer(Protocol):
    """The operations that a rewind with files needs."""

    async def take(self, point: SnapshotPoint) -> SavedTree | None:
        """Save the workspace as it is; None if there is nothing to save. :class:`SnapshotsOff` says that it is off."""

    async def compare(self, point: SnapshotPoint, before: str, after: str | None) -> list[FileChange]:
        """Return the files that differ between two saved states; without ``after``, between one and the workspace."""

    async def restore(self, point: SnapshotPoint, tree: str, expected: str, paths: Sequence[str]) -> list[str]:
        """Write those paths as they are in ``tree``, and return the paths that were left alone.

        ``expected`` is the saved state that the workspace has. A path that is neither as in ``expected`` nor as in
        ``tree`` was changed meanwhile and is left alone. Repeating an interrupted restore completes it.
        """


@runtime_checkable
class SnapshotStore(SnapshotLayer, Protocol):
    """The shipped layer: also reads saved files, shows their differences and frees what is not needed."""

    async def diff(self, point: SnapshotPoint, before: str, after: str | None, paths: Sequence[str]) -> dict[str, str]:
        """Return the difference of each of those files as a unified diff."""

    async def combine(self, point: SnapshotPoint, base: str, files: Mapping[str, bytes | None]) -> str:
        """Return the tree that equals ``base`` but for those files; None removes one. Modes are kept."""

    async def read(self, point: SnapshotPoint, tree: str, path: str) -> bytes | None:
        """Return the content of a saved file, the target of a saved link, or None if there is no such path."""

    async def check_out(self, point: SnapshotPoint, tree: str, folder: str) -> None:
        """Write a saved state into a new folder: a git worktree if the workspace is a repository, else a copy."""

    async def collect(self, keep: Mapping[str, AbstractSet[str]]) -> int:
        """Free every saved state that ``keep``, trees by workspace, does not name; return the bytes that were freed."""

    async def disk_use(self) -> dict[str, int]:
        """Return the bytes on disk by workspace."""
