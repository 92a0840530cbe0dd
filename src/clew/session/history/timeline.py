"""The timeline of a workspace: which differences between its saved states a session made itself.

A workspace has one present state, whatever the turn tree looks like: the snapshots of a session are a line in time.
Between the snapshots before and after a step's calls the session made the changes, around a restore a person did
through clew; every other difference was made by another hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from clew.snapshots.base import FileChange, SnapshotLayer, SnapshotPoint
from clew.transcript.workspace_snapshot import WorkspaceSnapshot

__all__ = ["Comparisons", "Span", "spans_of"]


class Span(NamedTuple):
    """Two consecutive saved states of a workspace, and what changed it between them."""

    before: WorkspaceSnapshot
    after: WorkspaceSnapshot
    by: Literal["calls", "restore", "other"]

    @property
    def trees(self) -> tuple[str, str]:
        return self.before.tree or "", self.after.tree or ""


def spans_of(rows: Sequence[WorkspaceSnapshot]) -> list[Span]:
    """Return the spans between saved states, oldest first."""
    return [Span(one, two, _maker(one, two)) for one, two in pairwise(row for row in rows if row.tree is not None)]


def _maker(before: WorkspaceSnapshot, after: WorkspaceSnapshot) -> Literal["calls", "restore", "other"]:
    # A process that died in a call left no snapshot after it: what changed until the next one counts as the call's.
    if before.point == "before" or after.point == "after":
        return "calls"
    return "restore" if before.point == "saved" and after.point == "restored" else "other"


class Comparisons:
    """The differences between saved states of one workspace, each computed once."""

    def __init__(self, layer: SnapshotLayer, point: SnapshotPoint) -> None:
        self._layer = layer
        self._point = point
        self._known: dict[tuple[str, str | None], Mapping[str, FileChange]] = {}

    async def between(self, before: str, after: str | None) -> Mapping[str, FileChange]:
        """Return the files that differ, by path; without ``after``, between a saved state and the workspace."""
        if before == after:
            return {}
        if (before, after) not in self._known:
            found = await self._layer.compare(self._point, before, after)
            self._known[before, after] = {change.path: change for change in found}
        return self._known[before, after]

    async def paths(self, spans: Iterable[Span]) -> set[str]:
        """Return the files that were changed in any of these spans."""
        found: set[str] = set()
        for span in spans:
            found.update(await self.between(*span.trees))
        return found
