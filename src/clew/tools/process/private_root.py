"""A private file system for one process and all it starts, with only the paths that are passed in.

It is made of namespaces of the Linux kernel, by system calls alone. Other paths do not exist inside, so their content,
mode, times and sockets cannot be reached. ``owner_sandbox.py`` decides which paths are passed in.

``supervisor.py`` imports this module, in a bare interpreter: it uses the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import sys

assert sys.platform != "win32"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x40000000
_NO_SETUID, _BIND, _RECURSIVE, _PRIVATE, _DETACH = 2, 4096, 16384, 1 << 18, 2
# These numbers are the same on every architecture that the filter of system calls supports.
_MOUNT_SETATTR, _READ_ONLY_ATTRIBUTE, _AT_CWD, _AT_RECURSIVE = 442, 1, -100, 0x8000
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def enter(root: str, workspace: str, fence: Mapping[str, Any]) -> None:
    """Enter a file system with only the paths of the fence. ``root`` is an empty folder to mount it at.

    The current folder must be the workspace: it is mounted itself, even if its path leads to another folder by now.
    """
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    apart = _NEW_MOUNTS | _NEW_IPC | _NEW_NETWORK
    if library.unshare(apart) != 0:
        _check(library.unshare(apart | _NEW_USER), "namespaces")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    if os.getcwd() != workspace:
        raise OSError(f"the workspace {workspace} leads elsewhere now")
    _mount(library, None, "/", None, _RECURSIVE | _PRIVATE)
    _mount(library, "tmpfs", root, "tmpfs", _NO_SETUID, "mode=755")
    for path in fence["devices"]:
        _give(library, path, path, root, writable=True)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    for path, source in fence["scratch"].items():
        _give(library, source, path, root, writable=True)
    for path in ("/proc", *(path for path in fence["read"] if not path.startswith("/proc/"))):
        _give(library, path, path, root, writable=False)
    _give(library, ".", workspace, root, writable=True)
    os.chdir(root)
    _check(library.syscall(ctypes.c_long(_PIVOT_ROOT[os.uname().machine]), b".", b"."), "another root")
    _check(library.umount2(b".", _DETACH), "another root")
    os.chdir(workspace)


def _give(library: Any, source: str, path: str, root: str, *, writable: bool) -> None:
    target = root + path
    if os.path.islink(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.readlink(source), target)
        return
    if not os.path.exists(source):
        return
    if not os.path.exists(target):
        os.makedirs(target if os.path.isdir(source) else os.path.dirname(target), exist_ok=True)
        if not os.path.isdir(source):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    _mount(library, source, target, None, _BIND | _RECURSIVE)
    if not writable:
        attributes = (ctypes.c_uint64 * 4)(_READ_ONLY_ATTRIBUTE, 0, 0, 0)
        where = (ctypes.c_long(_MOUNT_SETATTR), ctypes.c_int(_AT_CWD), os.fsencode(target))
        _check(library.syscall(*where, ctypes.c_int(_AT_RECURSIVE), attributes, ctypes.c_size_t(32)), path)


def _mount(library: Any, source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(library.mount(*texts, ctypes.c_ulong(flags), data.encode() or None), target)


def _check(result: int, what: str) -> None:
    if result != 0:
        problem = ctypes.get_errno()
        raise OSError(problem, f"the kernel refused a private file system ({what}): {os.strerror(problem)}")
