"""Fences of the Linux kernel around one process and all it starts, by system calls alone.

Landlock says which files may be touched; a filter of system calls leaves no sockets but local ones. Both hold for the
rest of the process's life and cannot be taken off. What should be fenced in is ``sandbox.py``'s to say.

``supervisor.py`` imports this beside itself, in a bare interpreter: it stands on the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_DROP_CAPABILITY = 24
# To trace processes, to administer, to measure: each lets root look into a process that Landlock keeps from others.
_LOOKING_INTO = (19, 21, 38)
# Capabilities that an owner's program keeps under root: those to write in a workspace that belongs to another user.
_OF_ROOT_INSIDE = (0, 1, 3, 4)

# Rights over files, by their bits; which of them a kernel knows depends on its ABI.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_RIGHTS = {3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL = (1 << 16) - 1
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 3
_SCOPES = 3

LEAST_ABI = 3
"""Below it a file could be cut short by its name, whatever the rules say."""

# For the filter: the audit number of the machine's architecture and the number of its `socket` call.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP = 425
_LOCAL_FAMILIES = (1, 16)
# Landlock knows nothing of them. Limits and scheduling of another process: prlimit64, sched_setaffinity,
# sched_setscheduler, sched_setparam, sched_setattr, allowed for oneself; and setpriority, ioprio_set, and the keys of
# the kernel's keyring (keyctl, add_key, request_key), which are the server's, too.
_OF_ONESELF = {"x86_64": (302, 203, 144, 142, 314), "aarch64": (261, 122, 119, 118, 274)}
_REFUSED = {"x86_64": (141, 251, 250, 248, 249), "aarch64": (140, 30, 219, 217, 218)}


# A program with the rights of its file's owner would be the server's user for every other user of the machine. Calls
# that set a mode, with the argument that holds it; those that do where they create a file, with that of their flags:
# chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat; open, openat. What openat2 is asked cannot be seen.
_SET_MODE = {
    "x86_64": ((90, 1), (91, 1), (268, 2), (452, 2), (85, 1), (133, 1), (259, 2)),
    "aarch64": ((52, 1), (53, 2), (452, 2), (33, 2)),
}
_CREATE = {"x86_64": ((2, 1, 2), (257, 2, 3)), "aarch64": ((56, 2, 3),)}
_OPENAT2 = 437
_SETUID_OR_SETGID, _CREATING = 0o6000, 0o100 | 0o20000000


def landlock_abi() -> int:
    """Which version of Landlock the kernel has; 0 for none."""
    if sys.platform != "linux":
        return 0
    version: int = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, 1)
    return max(0, version)


def can_filter_sockets() -> bool:
    return sys.platform == "linux" and os.uname().machine in _MACHINES


def restrict(fence: Mapping[str, Any]) -> None:
    """Fence this process in: ``write``, ``read``, ``devices`` and ``list`` are paths, ``network`` leaves it one.

    ``apart`` is for an owner's program: other processes, and the rights of root, are out of reach as well.
    """
    abi = landlock_abi()
    if abi < LEAST_ABI:
        raise OSError(f"the kernel's Landlock is of version {abi}, and {LEAST_ABI} is needed")
    rights = _RIGHTS.get(abi, _ALL)
    network = 0 if fence["network"] or abi < 4 else _TCP
    attributes = struct.pack("QQQ", rights, network, _SCOPES if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    reading = _EXECUTE | _READ_FILE | _READ_DIR
    for paths, allowed in (
        (fence["write"], rights),
        (fence["read"], reading),
        (fence["devices"], _READ_FILE | _WRITE_FILE | _IOCTL_DEV),
        (fence["list"], _READ_DIR),
    ):
        for path in paths:
            try:
                handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                continue  # It is gone, or this user may not pass to it: then there is nothing to allow.
            try:
                is_folder = stat.S_ISDIR(os.stat(handle).st_mode)
                if granted := allowed & rights & (_ALL if is_folder else _OF_A_FILE):
                    _call(_ADD_RULE, ctypes.c_int(ruleset), 1, struct.pack("=Qi", granted, handle), 0)
            finally:
                os.close(handle)
    # Who is not root has none of these to lose, and is refused.
    dropped = [one for one in range(64) if one not in _OF_ROOT_INSIDE] if fence["apart"] else _LOOKING_INTO
    for capability in dropped:
        ctypes.CDLL(None).prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    if ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError("the kernel did not promise that privileges stay as they are")
    # From here on nothing can be opened that is not allowed, so all rules must have been added.
    _call(_RESTRICT_SELF, ctypes.c_int(ruleset), 0)
    os.close(ruleset)
    if not fence["network"] and can_filter_sockets():
        _filter_calls(apart=fence["apart"])


def _call(number: int, *arguments: object) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    result: int = library.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, f"the kernel refused to build the sandbox: {os.strerror(problem)}")
    return result


def _filter_calls(*, apart: bool) -> None:
    program = filter_program(apart=apart)
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(held))
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_SECCOMP, _FILTER, described, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refused the filter that keeps a program from the network")


def filter_program(*, apart: bool) -> bytes:
    """Return a filter that leaves no socket but a local one: Landlock knows TCP alone. The queue through which sockets
    could be had goes, too.

    With ``apart`` no call that changes another process, either, and none that makes a program run as its owner.
    """
    name = os.uname().machine
    machine, socket = _MACHINES[name]
    load, equal, at_least, has_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    refuse, allow = (answer, 0x00050000 | 13, 0, 0), (answer, 0x7FFF0000, 0, 0)
    # Each step: what to do, its value, and how many steps are left out when it holds and when it does not. What is
    # loaded: the architecture, the number of the call, its first argument.
    steps = [(load, 4, 0, 0), (equal, machine, 1, 0), refuse, (load, 0, 0, 0), (at_least, 0x40000000, 0, 1), refuse]
    for number in (_IO_URING_SETUP, *(_REFUSED[name] if apart else ())):
        steps += [(equal, number, 0, 1), refuse]
    for number in _OF_ONESELF[name] if apart else ():
        steps += [(equal, number, 0, 4), (load, 16, 0, 0), (equal, 0, 0, 1), allow, refuse]
    for number, mode in _SET_MODE[name] if apart else ():
        steps += [(equal, number, 0, 4), (load, 16 + 8 * mode, 0, 0), (has_bit, _SETUID_OR_SETGID, 0, 1), refuse, allow]
    for number, flags, mode in _CREATE[name] if apart else ():
        steps += [(equal, number, 0, 6), (load, 16 + 8 * flags, 0, 0), (has_bit, _CREATING, 0, 3)]
        steps += [(load, 16 + 8 * mode, 0, 0), (has_bit, _SETUID_OR_SETGID, 0, 1), refuse, allow]
    if apart:
        # As by a kernel that does not know it: programs then use openat.
        steps += [(equal, _OPENAT2, 0, 1), (answer, 0x00050000 | 38, 0, 0)]
    steps += [(equal, socket, 0, 4), (load, 16, 0, 0), (equal, _LOCAL_FAMILIES[0], 2, 0)]
    steps += [(equal, _LOCAL_FAMILIES[1], 1, 0), refuse, allow]
    return b"".join(struct.pack("HBBI", code, yes, no, value) for code, value, yes, no in steps)
