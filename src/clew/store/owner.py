"""One owner: the lock that keeps a second writer away from a store, and tells it who is there.

The lock is on the store itself, held for as long as it is open for writing; the operating system lets go of it when
the process dies, however it dies. A file beside the store, locked as well, names the owner's pid and, once a server
runs, its URL, so that whoever comes second knows where to turn. Reading needs no lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from clew.errors import OwnedByAnotherProcess, StoreGone, StoreUnavailable
from clew.fit import fit_json
from clew.store.file_lock import FileLock, id_of, is_file

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "fuse.sshfs", "davfs"}
)
_PROBED_S: Final = 1.0
_LONGEST: Final = 4096


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who has the store open for writing. ``url`` is None when nobody serves it; ``holds``: there is a store here."""

    pid: int
    started_at: int
    url: str | None = None
    holds: bool = False


class _Left(msgspec.Struct):
    """What of an owner file outlives its owner."""

    holds: bool = False


def owner_path(store: Path) -> Path:
    return store.with_name(store.name + ".owner")


def is_loopback(url: str) -> bool:
    """Whether a URL is one that a server of this machine announces: plain HTTP, a loopback address, a port."""
    try:
        place = urlsplit(url)
        address = ipaddress.ip_address(place.hostname or "")
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            return False  # newer Pythons call such a name of 127.0.0.1 a loopback address, too
        named = f"[{address}]" if address.version == 6 else str(address)
        # Put together again: user names, paths, zones and other ways of writing an address have no place in it.
        return (
            address.is_loopback and place.port is not None and "%" not in url and url == f"http://{named}:{place.port}"
        )
    except ValueError:
        return False


def read_owner(store: Path) -> Owner | None:
    """Who has the store open for writing now; None when nobody has, or nobody who can be believed.

    The file is this user's alone, so only this user's processes can have opened and locked it. Without the lock it is
    left over, or was put there by somebody else. An address that is not this machine's own is never passed on.
    """
    try:
        fd = os.open(owner_path(store), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not _is_private(os.fstat(fd)) or not _is_locked(fd):
            return None
        owner = fit_json(os.pread(fd, _LONGEST, 0), Owner)
    except (OSError, msgspec.DecodeError):
        return None
    finally:
        os.close(fd)
    return owner if owner.url is None or is_loopback(owner.url) else replace(owner, url=None)


def _is_private(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_locked(fd: int) -> bool:
    """Whether somebody has it to himself. A shared lock for a moment is in nobody's way: owners try again."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def refuse_lost(path: Path) -> None:
    """Where there was a store, and now is none or nothing in it, no other is begun without a word. Of SQLite."""
    try:
        held = fit_json(owner_path(path).read_bytes()[:_LONGEST], _Left).holds
    except (OSError, msgspec.DecodeError):
        held = False
    size, log = (file.stat().st_size if file.exists() else None for file in (path, path.with_name(path.name + "-wal")))
    if size or not (log or held):
        return
    left = owner_path(path).name if not log else f"{path.name}-wal"
    raise StoreGone(
        f"{path} is {'gone' if size is None else 'empty'}, and {left} beside it says that there was a store; "
        f"bring it back, or remove {left} too to begin a new one"
    )


class OwnerLock:
    """Held from construction until ``release``. Takes over the lock of the store itself."""

    def __init__(self, file: FileLock, store: Path, started_at: int, folders: Iterable[Path] = ()) -> None:
        """``store`` is what the owner file lies beside; ``folders`` have to stay what they are while it is open."""
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
        """The owner file, locked. One that is not this user's alone is none; another takes its place."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError:
            return self._put()
        if not _is_private(os.fstat(fd)):
            os.close(fd)
            return self._put()
        deadline = time.monotonic() + _PROBED_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                # Somebody may only be looking whether it is locked, which takes no time.
                if _is_locked(fd) or time.monotonic() > deadline:
                    os.close(fd)
                    raise owned(self._store) from error
            else:
                return fd

    def _put(self) -> int:
        """A new owner file in the place of whatever is there. The store itself is locked, so nobody else does this."""
        making = self._path.with_name(f".new-{secrets.token_hex(8)}-{self._path.name}"[:200])
        fd = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(fd, msgspec.json.encode(self._owner), 0)
            making.rename(self._path)
        except BaseException:
            os.close(fd)
            making.unlink(missing_ok=True)
            raise
        return fd

    def announce(self, url: str | None) -> None:
        """Say where the owner can be reached."""
        with self._guard:
            self._owner = replace(self._owner, url=url)
            self._write()

    def keep(self) -> None:
        """Say that there is a store here, so that its absence is noticed."""
        with self._guard:
            self._owner = replace(self._owner, holds=True)
            self._write()

    def check(self) -> os.stat_result:
        """The store, as long as it is the one that was opened and this is its owner; else :class:`StoreGone`."""
        found = self.stays()
        with self._guard:
            self._stay_named()
        return found

    def stays(self) -> os.stat_result:
        """The store, as long as it is the one that was opened; else :class:`StoreGone`."""
        found = self._file.check()
        for folder, file in self._folders.items():
            try:
                same = id_of(folder.stat()) == file
            except OSError:
                same = False
            if not same:
                raise self._file.gone(f"{folder} went away or was replaced")
        return found

    @property
    def path(self) -> Path:
        """What is locked."""
        return self._file.path

    def gone(self, what: str) -> StoreGone:
        """The error for a store that is not what was opened any more, now and from here on."""
        return self._file.gone(what)

    def _stay_named(self) -> None:
        """Put back an owner file that was removed or replaced: whoever comes second asks it."""
        with contextlib.suppress(OSError):
            try:
                if is_file(os.lstat(self._name), self._named):
                    return
            except FileNotFoundError:
                pass
            if not self._file.is_alone:
                raise self._file.gone(f"{self._path} was taken by somebody else")
            fd = self._put()
            os.close(self._fd)
            self._fd, self._named = fd, id_of(os.fstat(fd))

    def _write(self) -> None:
        data = msgspec.json.encode(self._owner)
        # On a full disk nobody is told who the owner is; the lock holds all the same.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))

    def release(self) -> None:
        if self._fd >= 0:
            # Emptied but for that, not removed: a file that is removed under a waiting process would be locked twice.
            left = msgspec.json.encode(_Left(True)) if self._owner.holds else b""
            with contextlib.suppress(OSError):
                os.pwrite(self._fd, left, 0)
                os.ftruncate(self._fd, len(left))
                # Said, not left to the closing: a child that is just being started has a copy of the handle.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
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
    """Lock ``path``, and say so beside ``store``; ``check`` looks at what was locked before anything is left there."""
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
    """Somebody has the store open for writing, and who that is as far as it is known."""
    owner = read_owner(store)
    if owner is None:
        return OwnedByAnotherProcess(f"{store} is open for writing elsewhere; close it there, or open it for reading")
    way_out = (
        f" at {owner.url}; talk to it there, or open the store for reading"
        if owner.url
        else "; end that first. Where a chat or `clew serve` has a store open, chats and commands work beside it"
    )
    return OwnedByAnotherProcess(
        f"{store} is open for writing by process {owner.pid}{way_out}",
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
