"""Ownership: the lock that keeps a second writer out of a store and shows it the current owner.

The lock is on the store itself, held while it is open for writing; the operating system releases it when the process
dies, however it dies. A file next to the store, locked as well, contains the owner's pid and, once a server runs, its
URL, so that a second process knows where to connect. Reading needs no lock.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from clew.convert import convert_json
from clew.errors import OwnedByAnotherProcess, StoreGone, StoreUnavailable
from clew.platform.files import CLOEXEC, NOFOLLOW, NONBLOCK, is_private, pread, pwrite
from clew.platform.locks import lock, unlock
from clew.store.file_lock import FileLock, id_of, is_file

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "fuse.sshfs", "davfs"}
)
_PROBE_TIMEOUT_S: Final = 1.0
_MAX_OWNER_BYTES: Final = 4096


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process that has the store open for writing. ``url`` is None when it does not serve it; ``holds``: a store
    exists here."""

    pid: int
    started_at: int
    url: str | None = None
    holds: bool = False


class _Left(msgspec.Struct):
    """The part of an owner file that remains when the owner has closed the store."""

    holds: bool = False


def owner_path(store: Path) -> Path:
    return store.with_name(store.name + ".owner")


def is_loopback(url: str) -> bool:
    """Return whether a server of this machine would announce this URL: plain HTTP, a loopback address, a port."""
    try:
        parts = urlsplit(url)
        address = ipaddress.ip_address(parts.hostname or "")
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            return False  # newer Pythons report these mapped addresses as loopback, too
        named = f"[{address}]" if address.version == 6 else str(address)
        # Compared with a rebuilt URL: user names, paths, zones and other spellings of an address are not allowed.
        return (
            address.is_loopback and parts.port is not None and "%" not in url and url == f"http://{named}:{parts.port}"
        )
    except ValueError:
        return False


def read_owner(store: Path) -> Owner | None:
    """Return the process that has the store open for writing; None without one, or if the file cannot be trusted.

    The file is private to this user, so only this user's processes can have opened and locked it. An unlocked file is
    left over, or was put there by someone else. An address of another machine is never returned.
    """
    try:
        fd = os.open(owner_path(store), os.O_RDONLY | NOFOLLOW | CLOEXEC | NONBLOCK)
    except OSError:
        return None
    try:
        if not is_private(os.fstat(fd)) or not _is_locked(fd):
            return None
        owner = convert_json(pread(fd, _MAX_OWNER_BYTES, 0), Owner)
    except (OSError, msgspec.DecodeError):
        return None
    finally:
        os.close(fd)
    return owner if owner.url is None or is_loopback(owner.url) else replace(owner, url=None)


def _is_locked(fd: int) -> bool:
    """Return whether another process holds an exclusive lock. Taking a shared lock briefly is safe: owners retry."""
    try:
        lock(fd, shared=True)
    except BlockingIOError:
        return True
    unlock(fd)
    return False


def refuse_lost(path: Path) -> None:
    """Refuse to create a new SQLite store where one existed and is now missing or empty."""
    try:
        had_store = convert_json(owner_path(path).read_bytes()[:_MAX_OWNER_BYTES], _Left).holds
    except (OSError, msgspec.DecodeError):
        had_store = False
    size, log = (file.stat().st_size if file.exists() else None for file in (path, path.with_name(path.name + "-wal")))
    if size or not (log or had_store):
        return
    left = owner_path(path).name if not log else f"{path.name}-wal"
    raise StoreGone(
        f"{path} is {'gone' if size is None else 'empty'}, but {left} next to it shows that there was a store; "
        f"restore it, or remove {left} too to create a new one"
    )


class OwnerLock:
    """The ownership of a store, held from construction until ``release``. Takes over the lock of the store itself."""

    def __init__(self, file: FileLock, store: Path, started_at: int, folders: Iterable[Path] = ()) -> None:
        """``store`` is the path that the owner file is next to; ``folders`` must not be replaced while the store is
        open."""
        self._file = file
        self._store = store
        self._path = owner_path(store)
        self._name = str(self._path)
        self._owner = Owner(os.getpid(), started_at)
        self._folders = {folder: id_of(folder.stat()) for folder in folders}
        self._guard = threading.Lock()
        self._fd = self._open()
        self._named = id_of(os.fstat(self._fd))
        self._write()

    def _open(self) -> int:
        """Return the locked owner file. One that is not private to this user is replaced."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | CLOEXEC | NOFOLLOW | NONBLOCK, 0o600)
        except OSError:
            return self._replace_file()
        if not is_private(os.fstat(fd)):
            os.close(fd)
            return self._replace_file()
        deadline = time.monotonic() + _PROBE_TIMEOUT_S
        while True:
            try:
                lock(fd)
            except BlockingIOError as error:
                # Another process may only be probing the lock, which takes no time.
                if _is_locked(fd) or time.monotonic() > deadline:
                    os.close(fd)
                    raise owned(self._store) from error
            else:
                return fd

    def _replace_file(self) -> int:
        """Replace whatever is there with a new owner file. The store itself is locked, so no other process does
        this."""
        new_path = self._path.with_name(f".new-{secrets.token_hex(8)}-{self._path.name}"[:200])
        fd = os.open(new_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | CLOEXEC, 0o600)
        try:
            lock(fd)
            pwrite(fd, msgspec.json.encode(self._owner), 0)
            new_path.rename(self._path)
        except BaseException:
            os.close(fd)
            new_path.unlink(missing_ok=True)
            raise
        return fd

    def announce(self, url: str | None) -> None:
        """Publish the owner's URL."""
        with self._guard:
            self._owner = replace(self._owner, url=url)
            self._write()

    def keep(self) -> None:
        """Record that a store exists here, so that its absence is noticed."""
        with self._guard:
            self._owner = replace(self._owner, holds=True)
            self._write()

    def check(self) -> os.stat_result:
        """Return the store's status while it is the one that was opened and this process owns it; else raise
        :class:`StoreGone`."""
        found = self.stays()
        with self._guard:
            self._keep_registered()
        return found

    def stays(self) -> os.stat_result:
        """Return the store's status while it is the one that was opened; else raise :class:`StoreGone`."""
        found = self._file.check()
        for folder, file in self._folders.items():
            try:
                same = id_of(folder.stat()) == file
            except OSError:
                same = False
            if not same:
                raise self._file.gone(f"{folder} was removed or replaced")
        return found

    @property
    def path(self) -> Path:
        """Return the locked path."""
        return self._file.path

    def gone(self, what: str) -> StoreGone:
        """Return the error for a store that is no longer the one that was opened; it is permanent."""
        return self._file.gone(what)

    def _keep_registered(self) -> None:
        """Restore an owner file that was removed or replaced: a second process reads it."""
        with contextlib.suppress(OSError):
            try:
                if is_file(os.lstat(self._name), self._named):
                    return
            except FileNotFoundError:
                pass
            if not self._file.is_alone:
                raise self._file.gone(f"{self._path} was taken by another process")
            fd = self._replace_file()
            os.close(self._fd)
            self._fd, self._named = fd, id_of(os.fstat(fd))

    def _write(self) -> None:
        data = msgspec.json.encode(self._owner)
        # On a full disk the owner stays unknown to others; the lock still holds.
        with contextlib.suppress(OSError):
            pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))

    def release(self) -> None:
        if self._fd >= 0:
            # Emptied except for that, not removed: a file removed under a waiting process would be locked twice.
            left = msgspec.json.encode(_Left(True)) if self._owner.holds else b""
            with contextlib.suppress(OSError):
                pwrite(self._fd, left, 0)
                os.ftruncate(self._fd, len(left))
                # Unlock explicitly: a child process that is just starting has a copy of the descriptor.
                unlock(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._file.release()


def take_ownership(
    path: Path,
    store: Path,
    started_at: int,
    *,
    make: bool = False,
    check: Callable[[], None] = lambda: None,
    folders: Iterable[Path] = (),
) -> OwnerLock:
    """Lock ``path`` and write the owner file next to ``store``; ``check`` inspects the locked file before anything is
    written."""
    try:
        file = FileLock(path, make=make)
    except BlockingIOError as error:
        raise owned(store) from error
    try:
        check()
        return OwnerLock(file, store, started_at, folders)
    except BaseException:
        if file.made:
            path.unlink()
        file.release()
        raise


def owned(store: Path) -> OwnedByAnotherProcess:
    """Return the error for a store that another process has open for writing, with its pid and URL if known."""
    owner = read_owner(store)
    if owner is None:
        return OwnedByAnotherProcess(
            f"{store} is open for writing in another process; close it there, or open it read-only"
        )
    way_out = (
        f" at {owner.url}; connect to it there, or open the store read-only"
        if owner.url
        else "; stop it first. While a chat or `clew serve` has a store open, other chats and commands connect to it"
    )
    return OwnedByAnotherProcess(
        f"{store} is open for writing by process {owner.pid}{way_out}",
        pid=owner.pid,
        url=owner.url,
    )


def file_system_of(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the file system of ``path``; None where the system does not report it."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    real = str(path.resolve())
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def refuse_network_file_system(path: Path, mounts: str | None = None) -> None:
    """Raise for a store on a network file system: locks and shared memory do not work across machines, so it would be
    damaged."""
    kind = file_system_of(path, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), where a store would be damaged; "
            "choose a local folder with --store or CLEW_STORE"
        )
