"""Writing saved files back. Each path goes from the expected state to the target in one step, or is left alone."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from clew.errors import SnapshotFailed
from clew.failpoints import failpoint
from clew.ids import random_name
from clew.platform.files import CLOEXEC, NOFOLLOW, set_mode
from clew.snapshots.files import EXECUTABLE, LINK, Folders, NotCovered, escape_name, is_safe
from clew.snapshots.git import blob_id, write_private
from clew.snapshots.index import with_parents

__all__ = ["State", "remove_leftovers", "restore", "write_new"]

_BATCH: Final = 128
_SYNCS_AT_ONCE: Final = 16
"""The file system writes many at once in hardly more time than one."""
Entry = tuple[int, str]
"""The mode of a file, and the name of its content."""


class State(msgspec.Struct, frozen=True):
    """Files and empty folders."""

    files: Mapping[bytes, Entry]
    folders: frozenset[bytes]


class _Step(NamedTuple):
    """A path that is written, and its temporary name."""

    path: bytes
    wanted: Entry
    expected: Entry | None
    temporary: bytes


class _Obstacle(Exception):
    """Something that is not covered, or that another hand changed, is in the way."""


class _Allowed:
    """A block that handles one path: an obstacle means that it is left alone, another error ends the restore."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self.passed = True

    def __enter__(self) -> _Allowed:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, _Obstacle) or (isinstance(error, OSError) and error.errno in _NOT_OURS):
            self.passed = False
            return True
        if isinstance(error, OSError):
            raise SnapshotFailed(f"{escape_name(self._path)} could not be restored: {error.strerror}.") from error
        return False


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
        # Files and folders that go make room for others of their names.
        going = [path for path in reversed(safe) if path not in target.files]
        left += [path for path in going if not writer.delete(path, expected.files.get(path))]
        writer.remove_folders(expected.folders - target.folders)
        steps = [_Step(path, target.files[path], expected.files.get(path), temporary[path]) for path in temporary]
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as threads:
            for first in range(0, len(steps), _BATCH):
                left += writer.write(steps[first : first + _BATCH], content, threads)
        writer.make_folders(target.folders - expected.folders)
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
            file = _write(folders.open(folder, make=True), last, mode, content(name), None)
            with file or contextlib.nullcontext():
                pass
        for folder in sorted(target.folders):
            folders.open(folder, make=True)


class _Writer:
    def __init__(self, folders: Folders, needed: set[bytes], max_bytes: int) -> None:
        self._folders = folders
        self._needed = needed
        self._max_bytes = max_bytes

    def delete(self, path: bytes, expected: Entry | None) -> bool:
        """Delete a file and the folders that are empty without it; return False if it was left alone."""
        with _Allowed(path) as allowed:
            if (present := self._present(path)) is not None:
                if present != expected:
                    return False
                failpoint("snapshots.before_delete")
                os.unlink(path.rpartition(b"/")[2], dir_fd=self._folders.open(_parent(path)))
            self._prune(_parent(path))
        return allowed.passed

    def write(
        self, steps: Sequence[_Step], content: Callable[[str], bytes], threads: ThreadPoolExecutor
    ) -> list[bytes]:
        """Write files and links, all to the disk before one takes its place; return those that were left alone."""
        left, written = [], []
        with contextlib.ExitStack() as stack:
            for step in steps:
                with _Allowed(step.path) as allowed:
                    if self._is_to_be_written(step):
                        folder = self._folders.open(_parent(step.path), make=True)
                        name, before = step.temporary.rpartition(b"/")[2], self._folders.status(step.path)
                        file = _write(folder, name, step.wanted[0], content(step.wanted[1]), before)
                        written.append((step, None if file is None else stack.enter_context(file)))
                if not allowed.passed:
                    left.append(step.path)
            list(threads.map(os.fsync, [file.fileno() for _, file in written if file is not None]))
        for step, _ in written:
            with _Allowed(step.path) as allowed:
                # Once more: another hand may have been there while it was written.
                if self._is_to_be_written(step):
                    failpoint("snapshots.before_rename")
                    self._rename(step)
                    failpoint("snapshots.after_rename")
            if not allowed.passed:
                left.append(step.path)
                with contextlib.suppress(OSError):
                    os.unlink(step.temporary.rpartition(b"/")[2], dir_fd=self._folders.open(_parent(step.path)))
        return left

    def _is_to_be_written(self, step: _Step) -> bool:
        present = self._present(step.path)
        if present not in (step.wanted, step.expected):
            raise _Obstacle
        return present != step.wanted

    def _rename(self, step: _Step) -> None:
        folder, name = self._folders.open(_parent(step.path)), step.path.rpartition(b"/")[2]
        before = self._folders.status(step.path)
        if before is not None and stat.S_ISDIR(before.st_mode):
            os.rmdir(name, dir_fd=folder)
        os.rename(step.temporary.rpartition(b"/")[2], name, src_dir_fd=folder, dst_dir_fd=folder)

    def remove_folders(self, unwanted: Iterable[bytes]) -> None:
        for folder in sorted(filter(is_safe, unwanted), reverse=True):
            with contextlib.suppress(OSError):
                self._prune(folder)

    def make_folders(self, wanted: Iterable[bytes]) -> None:
        for folder in sorted(filter(is_safe, wanted)):
            with contextlib.suppress(OSError):
                self._folders.open(folder, make=True)

    def _present(self, path: bytes) -> Entry | None:
        try:
            file = self._folders.read(path, self._max_bytes)
        except NotCovered as reason:
            raise _Obstacle from reason
        return None if file is None else (file.mode, blob_id(file.data))

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


def _write(
    folder: int, name: bytes, mode: int, data: bytes, before: os.stat_result | None
) -> contextlib.closing[FileIO] | None:
    """Make a file, and return it open, or a link."""
    if mode == LINK:
        os.symlink(data, name, dir_fd=folder)
        return None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC
    file = FileIO(os.open(name, flags, 0o777 if mode == EXECUTABLE else 0o666, dir_fd=folder), "wb")
    try:
        view = memoryview(data)
        while view:
            view = view[file.write(view) or 0 :]
        if before is not None and stat.S_ISREG(before.st_mode):
            # Who may read and write it stays; who may read it may execute it.
            readers = before.st_mode & 0o666
            set_mode(file.fileno(), readers | (readers >> 2 & 0o111 | 0o100 if mode == EXECUTABLE else 0))
    except BaseException:
        file.close()
        raise
    return contextlib.closing(file)


_NOT_OURS = frozenset(
    {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOENT}
)
"""Errors that mean that something else is in the way, or was changed at the same moment."""


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]
