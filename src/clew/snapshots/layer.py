"""The shipped snapshot layer: a private git repository for each workspace."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from clew.errors import SnapshotFailed
from clew.snapshots.base import FileChange, SavedTree, SnapshotPoint, SnapshotsOff
from clew.snapshots.git import EMPTY_TREE, GitFailed, find_git
from clew.snapshots.repository import Limits, Repository

__all__ = ["GitSnapshots"]

P = ParamSpec("P")
T = TypeVar("T")
_GRACE_S: Final = 3_600.0
"""A state saved within this time is not collected: the session that asked for it may not have stored its name yet."""


class GitSnapshots:
    """A :class:`~clew.snapshots.base.SnapshotStore` on the git program, in a folder of its own."""

    def __init__(
        self,
        folder: Path | str,
        *,
        max_files: int = 200_000,
        max_bytes: int = 2 * 1024**3,
        max_file_bytes: int = 20 * 1024**2,
        include: Sequence[str] = (),
        own: Sequence[str] = (),
        grace_s: float = _GRACE_S,
    ) -> None:
        """``include`` are patterns of ignored files that are covered: a name anywhere, or a path from the root of the
        workspace if it has a slash; ``*`` and ``**`` as in a ``.gitignore``.
        ``own`` are the absolute paths of clew's own data, which is left out."""
        self._folder = Path(os.path.realpath(folder))
        self._limits = Limits(
            max_files=max_files,
            max_bytes=max_bytes,
            max_file_bytes=max_file_bytes,
            include=tuple(include),
            own=tuple(own),
        )
        self._grace_s = grace_s

    async def take(self, point: SnapshotPoint) -> SavedTree | None:
        """Save the workspace as it is; None if its folder does not exist."""
        return await self._run(point, Repository.take)

    async def compare(self, point: SnapshotPoint, before: str, after: str | None) -> list[FileChange]:
        """Return the files that differ between two states; without ``after`` the workspace is saved first."""
        if after is None:
            taken = await self.take(point)
            after = EMPTY_TREE if taken is None else taken.tree
        return await self._run(point, Repository.compare, before, after)

    async def restore(self, point: SnapshotPoint, tree: str, expected: str, paths: Sequence[str]) -> list[str]:
        """Write those paths as they are in ``tree``, and match empty folders; return the paths that were left alone."""
        return await self._run(point, Repository.restore, tree, expected, paths)

    async def diff(self, point: SnapshotPoint, before: str, after: str | None, paths: Sequence[str]) -> dict[str, str]:
        """Return the difference of each of those files as a unified diff."""
        if after is None:
            taken = await self.take(point)
            after = EMPTY_TREE if taken is None else taken.tree
        return await self._run(point, Repository.diff, before, after, paths)

    async def combine(self, point: SnapshotPoint, base: str, files: Mapping[str, bytes | None]) -> str:
        """Return the tree that equals ``base`` but for those files."""
        return await self._run(point, Repository.combine, base, files)

    async def read(self, point: SnapshotPoint, tree: str, path: str) -> bytes | None:
        """Return the content of a saved file, the target of a saved link, or None if there is no such path."""
        return await self._run(point, Repository.read, tree, path)

    async def check_out(self, point: SnapshotPoint, tree: str, folder: str) -> None:
        """Write a saved state into a new folder: a git worktree if the workspace is a repository, else a copy."""
        await self._run(point, Repository.check_out, tree, folder)

    async def collect(self, keep: Mapping[str, AbstractSet[str]]) -> int:
        """Free every saved state that ``keep`` does not name, but for those of the last hour (``grace_s``)."""
        return await asyncio.to_thread(self._collect, keep, time.time() - self._grace_s)

    async def disk_use(self) -> dict[str, int]:
        """Return the bytes on disk by workspace."""
        return await asyncio.to_thread(lambda: {workspace: _size(folder) for workspace, folder in self._folders()})

    async def _run(
        self, point: SnapshotPoint, call: Callable[Concatenate[Repository, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call it in a thread, which goes on to its end if the caller is cancelled."""

        def run() -> T:
            try:
                return call(self.open(point), *args, **kwargs)
            except OSError as error:
                raise SnapshotFailed(f"Snapshots of {point.workspace} failed: {error.strerror}.") from error
            except GitFailed as error:
                raise SnapshotFailed(f"Snapshots of {point.workspace} failed: {error}.") from error

        return await asyncio.to_thread(run)

    def open(self, point: SnapshotPoint) -> Repository:
        """Return the repository of a workspace. Raises :class:`SnapshotsOff`."""
        if os.open not in os.supports_dir_fd:
            raise SnapshotsOff("Snapshots are off: this system cannot open files relative to an open folder.")
        find_git()
        _check_place(point.workspace)
        return self._repository(point.workspace)

    def _repository(self, workspace: str) -> Repository:
        name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]
        return Repository(self._folder / name, workspace, self._limits)

    def _folders(self) -> Iterator[tuple[str, Path]]:
        for file in sorted(self._folder.glob("*/workspace")):
            with contextlib.suppress(FileNotFoundError):
                yield os.fsdecode(file.read_bytes()), file.parent

    def _collect(self, keep: Mapping[str, AbstractSet[str]], newer_than: float) -> int:
        freed = 0
        failed: Exception | None = None
        for workspace, folder in self._folders():
            before = _size(folder)
            try:
                self._repository(workspace).collect(keep.get(workspace, frozenset()), newer_than)
            except (OSError, GitFailed) as error:
                # The others are still collected.
                failed = error
            freed += before - _size(folder)
        if failed is not None:
            raise SnapshotFailed(f"Not all snapshots could be collected: {failed}.") from failed
        return freed


def _size(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def _check_place(workspace: str) -> None:
    """Raise :class:`SnapshotsOff` for a home folder, and for a folder that has one below it."""
    homes = {os.path.expanduser("~")}
    if sys.platform != "win32":
        import pwd

        homes.update(user.pw_dir for user in pwd.getpwall())
    for home in filter(os.path.isabs, homes):
        real = os.path.realpath(home)
        if workspace in (home, real) or real.startswith(workspace.rstrip("/") + "/"):
            raise SnapshotsOff(
                f"Snapshots are off: {workspace} is a home folder, or has one. "
                "Use the folder of a project as the workspace to switch them on."
            )
