"""Records what a store does to its files: SQLite with a VFS of apsw, other files with patched functions of ``os``.

A connection of apsw replaces one of :mod:`sqlite3`, as far as clew uses it. Its SQLite is another library than
Python's, so a recorded store must open all its connections here.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from unittest import mock

import apsw

from clew.store.files import folder
from clew.store.sql.sqlite.connection import BUSY_TIMEOUT_MS, prepare
from tests.rig.disk import Disk, Sync, SyncFolder, Truncate, Write

__all__ = ["record_os", "recording_connections"]


# SQLite


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        with disk.lock:
            self._file = disk.file(os.path.realpath(path)) if path else None

    def xWrite(self, data: bytes, offset: int) -> None:
        with self._disk.lock:
            super().xWrite(data, offset)
            if self._file is not None:
                self._disk.record(Write(self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        with self._disk.lock:
            super().xTruncate(newsize)
            if self._file is not None:
                self._disk.record(Truncate(self._file, newsize))

    def xSync(self, flags: int) -> None:
        # The real sync is skipped: it would only cost time.
        if self._file is not None:
            self._disk.record(Sync(self._file))


class _Vfs(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        self._disk = disk
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        with self._disk.lock:
            super().xDelete(filename, syncdir)
            self._disk.removed(os.path.realpath(filename))


class _Rows:
    """The complete result of a statement."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())


class _Connection:
    """The subset of :class:`sqlite3.Connection` that clew uses."""

    text_factory: Any = str

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, params: Any = None) -> _Rows:
        with _translated():
            before = self._connection.total_changes()
            rows = list(self._connection.execute(sql, params))
            changed = self._connection.changes() if self._connection.total_changes() != before else 0
            return _Rows(rows, changed)

    def executemany(self, sql: str, params: Iterable[Mapping[str, Any]]) -> _Rows:
        return _Rows([], sum(self.execute(sql, one).rowcount for one in params))

    def create_function(self, name: str, arity: int, function: Any, *, deterministic: bool = False) -> None:
        self._connection.create_scalar_function(name, function, arity, deterministic=deterministic)

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        kind = sqlite3.IntegrityError if isinstance(error, apsw.ConstraintError) else sqlite3.OperationalError
        translated = kind(str(error))
        translated.sqlite_errorcode = getattr(error, "extendedresult", 0)
        raise translated from error


@contextlib.contextmanager
def recording_connections(disk: Disk) -> Iterator[Any]:
    """Yield a function that opens recorded connections; see :class:`clew.store.sql.sqlite.connection.Connect`."""
    vfs = _Vfs(f"recording-{id(disk)}", disk)

    def connect(path: Path, *, writer: bool) -> sqlite3.Connection:
        opened = apsw.Connection(str(path.resolve()), vfs=f"recording-{id(disk)}")
        opened.set_busy_timeout(BUSY_TIMEOUT_MS)
        return prepare(cast(sqlite3.Connection, _Connection(opened)), path, writer=writer)

    try:
        yield connect
    finally:
        vfs.unregister()


# Files


class _Os:
    """The functions of ``os`` that change files, which also record each change below the disk's root."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._open: dict[int, tuple[int, bool]] = {}
        self._folders: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in _PATCHED}

    def _path(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return the real path below the root, or None for other paths."""
        name = os.fsdecode(path)
        if dir_fd is not None:
            name = f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{name}"
        name = os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
        return name if name.startswith(f"{self._disk.root}/") else None

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._disk.lock:
            fd: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
            name = self._path(path, dir_fd)
            self._open.pop(fd, None)
            self._folders.pop(fd, None)
            if name is not None or os.path.realpath(os.fsdecode(path)) == str(self._disk.root):
                if os.path.isdir(f"/proc/self/fd/{fd}"):
                    self._folders[fd] = name or str(self._disk.root)
                elif name is not None and flags & (os.O_WRONLY | os.O_RDWR):
                    self._open[fd] = (self._disk.file(name), bool(flags & os.O_APPEND))
                    if flags & os.O_TRUNC:
                        self._disk.record(Truncate(self._open[fd][0], 0))
            return fd

    def close(self, fd: int) -> None:
        with self._disk.lock:
            self._open.pop(fd, None)
            self._folders.pop(fd, None)
            self._real["close"](fd)

    def write(self, fd: int, data: Any) -> int:
        if fd not in self._open:
            return int(self._real["write"](fd, data))
        with self._disk.lock:
            file, appends = self._open[fd]
            offset = os.fstat(fd).st_size if appends else os.lseek(fd, 0, os.SEEK_CUR)
            n: int = self._real["write"](fd, data)
            self._disk.record(Write(file, offset, bytes(data[:n])))
            return n

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        with self._disk.lock:
            n: int = self._real["pwrite"](fd, data, offset)
            if fd in self._open:
                self._disk.record(Write(self._open[fd][0], offset, bytes(data[:n])))
            return n

    def ftruncate(self, fd: int, length: int) -> None:
        with self._disk.lock:
            self._real["ftruncate"](fd, length)
            if fd in self._open:
                self._disk.record(Truncate(self._open[fd][0], length))

    def fsync(self, fd: int) -> None:
        with self._disk.lock:
            if fd in self._open:
                self._disk.record(Sync(self._open[fd][0]))
            elif fd in self._folders:
                self._disk.record(SyncFolder(self._folders[fd]))

    fdatasync = fsync

    def rename(self, src: Any, dst: Any, **where: Any) -> None:
        with self._disk.lock:
            self._real["rename"](src, dst, **where)
            before, after = self._path(src), self._path(dst)
            if before is not None and after is not None:
                self._disk.renamed(before, after)

    replace = rename

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with self._disk.lock:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            name = self._path(path, dir_fd)
            if name is not None:
                self._disk.made_folder(name)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._disk.lock:
            name = self._path(path, dir_fd)
            self._real["rmdir"](path, dir_fd=dir_fd)
            if name is not None:
                self._disk.removed(name)

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._disk.lock:
            name = self._path(path, dir_fd)
            self._real["unlink"](path, dir_fd=dir_fd)
            if name is not None:
                self._disk.removed(name)

    remove = unlink


_PATCHED = (
    *("open", "close", "write", "pwrite", "ftruncate", "fsync", "fdatasync"),
    *("rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
)


@contextlib.contextmanager
def record_os(disk: Disk) -> Iterator[None]:
    """Record changes through ``os`` within the block."""
    recorded = _Os(disk)
    with contextlib.ExitStack() as undo:
        for name in _PATCHED:
            undo.enter_context(mock.patch.object(os, name, getattr(recorded, name)))
        undo.enter_context(mock.patch.object(folder, "_sync", recorded.fsync))
        yield
