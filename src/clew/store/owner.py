"""One owner: the lock that keeps a second writer away from a store, and tells it who is there.

The lock is on a file beside the store, held for as long as the store is open for writing; the operating system
lets go of it when the process dies, however it dies. The file names the owner's pid and, once a server runs, its
URL, so that whoever comes second knows where to turn. Reading needs no lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path

import msgspec

from clew.errors import OwnedByAnotherProcess, StoreUnavailable

__all__ = [
    "NETWORK_FILE_SYSTEMS",
    "Owner",
    "OwnerLock",
    "file_system_of",
    "owner_path",
    "read_owner",
    "refuse_network_file_system",
]

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "fuse.sshfs", "davfs"}
)


class Owner(msgspec.Struct, frozen=True):
    """Who has the store open for writing. ``url`` is None when nobody serves it."""

    pid: int
    started_at: int
    url: str | None = None


def owner_path(store: Path) -> Path:
    return store.with_name(store.name + ".owner")


def read_owner(store: Path) -> Owner | None:
    """What the owner file says. It may be left over from a process that is gone; only the lock knows."""
    try:
        return msgspec.json.decode(owner_path(store).read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError):
        return None


class OwnerLock:
    """Held from construction until ``release``."""

    def __init__(self, store: Path, started_at: int) -> None:
        self._path = owner_path(store)
        self._owner = Owner(os.getpid(), started_at)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise _owned(store) from error
        os.fchmod(self._fd, 0o600)
        self._write()

    def announce(self, url: str | None) -> None:
        """Say where the owner can be reached."""
        self._owner = msgspec.structs.replace(self._owner, url=url)
        self._write()

    def _write(self) -> None:
        data = msgspec.json.encode(self._owner)
        # On a full disk nobody is told who the owner is; the lock holds all the same.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))

    def release(self) -> None:
        if self._fd >= 0:
            # Emptied, not removed: a file that is removed under a waiting process would be locked twice.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
                # Said, not left to the closing: a child that is just being started has a copy of the handle.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = -1


def _owned(store: Path) -> OwnedByAnotherProcess:
    owner = read_owner(store)
    if owner is None:
        return OwnedByAnotherProcess(f"{store} is open for writing elsewhere; close it there, or open it for reading")
    where = f" at {owner.url}" if owner.url else ""
    return OwnedByAnotherProcess(
        f"{store} is open for writing by process {owner.pid}{where}; talk to it, or open the store for reading",
        pid=owner.pid,
        url=owner.url,
    )


def file_system_of(path: Path, mounts: str | None = None) -> str | None:
    """The type of the file system ``path`` lies on, where the system tells; None where it does not."""
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
    """Locks and shared memory do not work across machines; a store there would be damaged sooner or later."""
    kind = file_system_of(path, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"{path} lies on a network file system ({kind}), where a store would be damaged; "
            "choose a local folder with --store or CLEW_STORE"
        )
