"""Workspaces in tests of snapshots: what is in them, and a snapshot layer whose steps can be held."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clew.snapshots.base import SavedTree, SnapshotPoint, SnapshotsOff
from clew.testing.scenario import Scenario
from clew.testing.scripted import call, say
from clew.transcript.workspace_snapshot import WorkspaceSnapshot
from examples.own_snapshots import CopyLayer

__all__ = ["HeldLayer", "contents", "put", "rows", "snapshots", "writes"]


class HeldLayer(CopyLayer):
    """A layer that waits at a gate before it takes, fails where it is told to, and counts restores."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gate: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.failure: Exception | None = None
        self.broken: Exception | None = None

    async def take(self, point: SnapshotPoint) -> SavedTree | None:
        self.reached.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return await super().take(point)

    async def restore(self, point: SnapshotPoint, tree: str, expected: str, paths: Sequence[str]) -> list[str]:
        left = await super().restore(point, tree, expected, paths[: 1 if self.broken else None])
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        return left


def off(reason: str) -> SnapshotsOff:
    return SnapshotsOff(reason)


def contents(folder: Path) -> dict[str, str]:
    """The files of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def put(folder: Path, **files: str) -> None:
    """Write files by hand; an underscore stands for the dot of a name."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def writes(path: str, text: str, then: str = "done") -> list[Any]:
    """A turn in which the model writes a file and then says something."""
    return [call("write", {"path": path, "content": text}), say(then)]


async def snapshots(s: Scenario) -> tuple[WorkspaceSnapshot, ...]:
    """The rows of the session, once those under way are finished."""
    assert await s.engine._runtime.snapshots.wait(s.id)
    return await s.engine.store.load_snapshots(s.id)


async def rows(s: Scenario) -> list[tuple[str, str]]:
    """The point and the state of each row."""
    return [(row.point, row.state) for row in await snapshots(s)]
