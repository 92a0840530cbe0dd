"""A snapshot layer of your own: saved states of small workspaces as copies in a folder, one per content."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from clew.snapshots.base import FileChange, SavedTree, SnapshotPoint


class CopyLayer:
    """A layer for ``clew.open(snapshots=CopyLayer(folder))``. A saved state lists paths and contents."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def take(self, point: SnapshotPoint) -> SavedTree | None:
        files = {path: self._save(data) for path, data in _read(point.workspace).items()}
        return SavedTree(self._save(json.dumps(files, sort_keys=True).encode()))

    async def compare(self, point: SnapshotPoint, before: str, after: str | None) -> list[FileChange]:
        old, new = self._files(before), self._files(after) if after else _read(point.workspace)
        return [
            FileChange(path=path, kind="added" if path not in old else "modified" if path in new else "deleted")
            for path in sorted({**old, **new})
            if old.get(path) != new.get(path)
        ]

    async def restore(self, point: SnapshotPoint, tree: str, expected: str, paths: Sequence[str]) -> list[str]:
        wanted, known, present = self._files(tree), self._files(expected), _read(point.workspace)
        left = [path for path in paths if present.get(path) not in (known.get(path), wanted.get(path))]
        for path in (path for path in paths if path not in left):
            _write(Path(point.workspace, path), wanted.get(path))
        return left

    def _save(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        _write(self._folder / name, data)
        return name

    def _files(self, tree: str) -> dict[str, bytes]:
        names: dict[str, str] = json.loads((self._folder / tree).read_bytes())
        return {path: (self._folder / name).read_bytes() for path, name in names.items()}


def _read(workspace: str) -> dict[str, bytes]:
    files = (path for path in Path(workspace).rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(workspace).as_posix(): path.read_bytes() for path in files}


def _write(file: Path, data: bytes | None) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data) if data is not None else file.unlink(missing_ok=True)
