"""Writing saved files back. Each path goes from the expected state to the target in one step, or is left alone."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from clew.errors import SnapshotFailed
from clew.failpoints import failpoint
from clew.ids import random_name
from clew.snapshots.files import EXECUTABLE, LINK, Folders, NotCovered, escape_name, is_safe
from clew.snapshots.git import blob_id, write_private
from clew.snapshots.index import with_parents

__all__ = ["State", "remove_leftovers", "restore", "write_new"]

Files = Mapping[bytes, tuple[int, str]]
"""The mode and the name of the content of each path."""


class State(msgspec.Struct, frozen=True):
    """Files and empty folders."""

    files: Files
    folders: frozenset[bytes]


class _Obstacle(Exception):
    """Something that is not covered is in the way."""


def restore(
    root: bytes,
    target: State,
    expected: State,
    paths: Sequence[bytes],
    content: Callable[[str], bytes],
    journal: Path,
    max_bytes: int,
) -> list[bytes]:
    """Write the paths as they are in ``target``; return those that were left alone.

    The journal names each temporary file before it is made, so that those of a killed process are removed.
    """
    left = [path for path in paths if not is_safe(path)]
    safe = sorted({path for path in paths if is_safe(path)})
    needed = with_parents([*target.folders, *map(_parent, target.files)])
    token = b".clew-" + random_name().encode()
    temporary = {
        path: os.path.join(_parent(path), token + b"-%d" % n) for n, path in enumerate(safe) if path in target.files
    }
    write_private(journal, b"\0".join(temporary.values()))
    with Folders(root) as folders:
        writer = _Writer(folders, needed, max_bytes)
        # Files that go make room for folders of their name, and the other way round.
        for deleting in (True, False):
            for path in reversed(safe) if deleting else safe:
                wanted = target.files.get(path)
                if deleting != (wanted is None):
                    continue
                try:
                    writer.step(path, wanted, expected.files.get(path), temporary.get(path), content)
                except _Obstacle:
                    left.append(path)
        writer.match_folders(target.folders - expected.folders, expected.folders - target.folders)
    journal.unlink(missing_ok=True)
    return sorted(left)


def remove_leftovers(root: bytes, journal: Path) -> None:
    """Remove the temporary files of a killed restore."""
    try:
        paths = journal.read_bytes().split(b"\0")
    except FileNotFoundError:
        return
    with Folders(root) as folders:
        for path in filter(is_safe, paths):
            folder, _, name = path.rpartition(b"/")
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folders.open(folder))
    journal.unlink(missing_ok=True)


def write_new(root: bytes, target: State, content: Callable[[str], bytes]) -> None:
    """Write a whole state into a new folder."""
    with Folders(root) as folders:
        for path, (mode, name) in sorted(target.files.items()):
            folder, _, last = path.rpartition(b"/")
            _write(folders.open(folder, make=True), last, mode, content(name), None, sync=False)
        for folder in sorted(target.folders):
            folders.open(folder, make=True)


class _Writer:
    def __init__(self, folders: Folders, needed: set[bytes], max_bytes: int) -> None:
        self._folders = folders
        self._needed = needed
        self._max_bytes = max_bytes

    def step(
        self,
        path: bytes,
        wanted: tuple[int, str] | None,
        expected: tuple[int, str] | None,
        temporary: bytes | None,
        content: Callable[[str], bytes],
    ) -> None:
        present = self._present(path)
        if present not in (wanted, expected):
            raise _Obstacle
        try:
            if wanted is None:
                if present is not None:
                    failpoint("snapshots.before_delete")
                    os.unlink(path.rpartition(b"/")[2], dir_fd=self._folders.open(_parent(path)))
                self._prune(_parent(path))
            elif present != wanted:
                assert temporary is not None
                self._replace(path, wanted[0], content(wanted[1]), temporary)
        except OSError as error:
            if error.errno in _NOT_OURS:
                raise _Obstacle from error
            raise SnapshotFailed(f"{escape_name(path)} could not be restored: {error.strerror}.") from error

    def match_folders(self, wanted: Iterable[bytes], unwanted: Iterable[bytes]) -> None:
        for folder in sorted(filter(is_safe, wanted)):
            with contextlib.suppress(OSError):
                self._folders.open(folder, make=True)
        for folder in sorted(filter(is_safe, unwanted), reverse=True):
            self._prune(folder)

    def _present(self, path: bytes) -> tuple[int, str] | None:
        try:
            file = self._folders.read(path, self._max_bytes)
        except NotCovered as reason:
            raise _Obstacle from reason
        return None if file is None else (file.mode, blob_id(file.data))

    def _replace(self, path: bytes, mode: int, data: bytes, temporary: bytes) -> None:
        folder = self._folders.open(_parent(path), make=True)
        name, new = path.rpartition(b"/")[2], temporary.rpartition(b"/")[2]
        before = self._folders.status(path)
        if before is not None and stat.S_ISDIR(before.st_mode):
            os.rmdir(name, dir_fd=folder)
            before = None
        try:
            _write(folder, new, mode, data, before, sync=True)
            failpoint("snapshots.before_rename")
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=folder)
            raise
        failpoint("snapshots.after_rename")

    def _prune(self, folder: bytes) -> None:
        """Remove a folder, and those above it, that are empty and not part of the target."""
        while folder and folder not in self._needed:
            above, _, name = folder.rpartition(b"/")
            try:
                os.rmdir(name, dir_fd=self._folders.open(above))
            except FileNotFoundError:
                pass
            except OSError:
                return
            folder = above


def _write(folder: int, name: bytes, mode: int, data: bytes, before: os.stat_result | None, *, sync: bool) -> None:
    if mode == LINK:
        os.symlink(data, name, dir_fd=folder)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o777 if mode == EXECUTABLE else 0o666, dir_fd=folder), "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) or 0 :]
        if before is not None and stat.S_ISREG(before.st_mode):
            # Who may read and write it stays; who may read it may execute it.
            readers = before.st_mode & 0o666
            os.fchmod(file.fileno(), readers | (readers >> 2 & 0o111 | 0o100 if mode == EXECUTABLE else 0))
        if sync:
            os.fsync(file.fileno())


_NOT_OURS = frozenset(
    {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOENT}
)
"""Errors that mean that something else is in the way, or was changed at the same moment."""


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]
