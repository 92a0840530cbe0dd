"""A Python on which clew sees Windows: no POSIX-only module, function or flag, and ``msvcrt`` instead.

``hide()`` takes them from clew's own modules. ``everywhere=True`` also takes the modules, and ``os.fork`` and the like,
from every other library. For ``darwin`` it takes what only Linux has.
"""

from __future__ import annotations

import asyncio
import builtins
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import types
from typing import Any, Final, Literal

__all__ = ["hide"]

MODULES: Final = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
FUNCTIONS: Final = ("fork", "forkpty", "getegid", "geteuid", "getgid", "getuid", "killpg", "setpgid", "setsid", "wait3")
"""Functions that are taken from the standard library, too."""
NAMES: Final[dict[types.ModuleType, tuple[str, ...]]] = {
    os: (
        *FUNCTIONS,
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "O_SYNC", "O_DSYNC"),
        *("WNOHANG", "WIFSTOPPED", "WIFEXITED", "ST_RDONLY", "SEEK_DATA", "SEEK_HOLE"),
        *("chown", "fchmod", "fchown", "fdatasync", "fstatvfs", "getgroups", "getloadavg", "getpgid", "getpgrp"),
        *("lchown", "mkfifo", "mknod", "nice", "openpty", "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate"),
        *("pread", "preadv", "pwrite", "pwritev", "readv", "register_at_fork", "sched_getaffinity", "sendfile"),
        *("set_blocking", "setgid", "setuid", "statvfs", "sync", "sysconf", "uname", "wait", "wait4", "writev"),
    ),
    signal: (
        "SIGALRM",
        "SIGCHLD",
        "SIGHUP",
        "SIGKILL",
        "SIGPIPE",
        "SIGQUIT",
        "SIGTSTP",
        "SIGUSR1",
        "SIGWINCH",
        "alarm",
    ),
    select: ("poll", "epoll", "POLLIN"),
    sys: ("platform",),
}
"""What clew does not see. ``sys.platform`` is ``win32`` for it."""
LINUX_NAMES: Final[dict[types.ModuleType, tuple[str, ...]]] = {
    os: ("O_PATH", "memfd_create", "pidfd_open", "posix_fallocate", "sched_getaffinity", "sched_setaffinity"),
    select: ("epoll",),
    sys: ("platform",),
}

_system = "win32"
_saved: dict[str, dict[str, Any]] = {}
_LOCK: Final = struct.Struct("hhqqi4x")


class _Hidden(types.ModuleType):
    """A module that has some names for everyone but clew."""

    def __getattr__(self, name: str) -> Any:
        # Python makes every module of the type of ``sys``.
        value = _saved.get(self.__name__, {}).get(name, _saved)
        if value is _saved or _asked_by_clew():
            if (self.__name__, name) == ("sys", "platform"):
                return _system
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return value


def _asked_by_clew() -> bool:
    """Return whether the function that called this one's caller is clew's."""
    name = str(sys._getframe(2).f_globals.get("__name__", ""))
    return name == "clew" or name.startswith("clew.")


def hide(system: Literal["win32", "darwin"] = "win32", *, everywhere: bool = False) -> None:
    """Take POSIX from clew, or Linux, before any of its modules is imported."""
    global _system
    _system = system
    assert not any(name.partition(".")[0] == "clew" for name in sys.modules), "clew is imported already"
    for module, names in (NAMES if system == "win32" else LINUX_NAMES).items():
        hidden = _saved[module.__name__] = {}
        for name in names:
            if hasattr(module, name):
                value = getattr(module, name)
                if not (everywhere and name in FUNCTIONS):
                    hidden[name] = value
                delattr(module, name)
        module.__class__ = _Hidden
    if system == "darwin":
        return
    os.O_BINARY, os.O_NOINHERIT = 0, _saved["os"]["O_CLOEXEC"]  # type: ignore[attr-defined]
    socket.SO_EXCLUSIVEADDRUSE = socket.SO_REUSEADDR  # type: ignore[attr-defined]
    os.open = _opener(os.open)
    builtins.__import__ = _importer(builtins.__import__)
    # The loops of Windows have no handlers of signals, and its pipes cannot be watched.
    asyncio.SelectorEventLoop.add_signal_handler = _refuse  # type: ignore[method-assign]
    asyncio.SelectorEventLoop.connect_read_pipe = _refuse  # type: ignore[method-assign]
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    if everywhere:
        for name in set(MODULES) - {"posix"}:  # which `shutil` needs
            sys.modules[name] = None  # type: ignore[assignment]


def _refuse(*_: object, **__: object) -> Any:
    raise NotImplementedError


def _opener(real: Any) -> Any:
    def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
        if not _asked_by_clew():
            return real(path, flags, mode, dir_fd=dir_fd)
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, flags, mode)

    return opened


def _importer(real: Any) -> Any:
    def imported(name: str, *args: Any, **kwargs: Any) -> Any:
        if (name in MODULES or name == "msvcrt") and _asked_by_clew():
            if name == "msvcrt":
                return _Msvcrt
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    return imported


class _Msvcrt:
    """``msvcrt.locking`` by locks of open files: like those of Windows they are on bytes, and each descriptor has its
    own."""

    LK_UNLCK, LK_NBLCK = 0, 2

    @staticmethod
    def locking(fd: int, mode: int, size: int) -> None:
        # A lock for writing needs a descriptor for writing here; one for reading meets that of a writer, too.
        is_writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        kind = fcntl.F_UNLCK if mode == _Msvcrt.LK_UNLCK else fcntl.F_WRLCK if is_writable else fcntl.F_RDLCK
        asked = _LOCK.pack(kind, os.SEEK_SET, os.lseek(fd, 0, os.SEEK_CUR), size, 0)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, asked)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error
