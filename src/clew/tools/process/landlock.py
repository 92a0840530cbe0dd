"""Restrictions by the Linux kernel for one process and all it starts, set up by system calls alone.

Landlock restricts the files that can be accessed; a filter of system calls allows only local sockets. Neither can be
removed while the process lives. ``sandbox.py`` and ``owner_sandbox.py`` decide what is restricted.

``supervisor.py`` imports this module, in a bare interpreter: it uses the standard library only.
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
# SYS_PTRACE, SYS_ADMIN, PERFMON: with any of them root can inspect a process that Landlock protects from others.
_INSPECTING = (19, 21, 38)
# The capabilities an owner's program keeps if the server runs as root: to write in a workspace of another user.
_OWNER_CAPABILITIES = (0, 1, 3, 4)

# Rights over files, by their bits; which of them a kernel knows depends on its ABI.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_RIGHTS = {3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL = (1 << 16) - 1
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 3
_SCOPES = 3

LEAST_ABI = 3
"""Earlier versions do not restrict truncating a file by its path."""

# For the filter: the audit number of the machine's architecture and the number of its `socket` call.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP = 425
_LOCAL_FAMILIES = (1, 16)
# Calls that Landlock does not restrict. Those that set limits and scheduling of a process, allowed only for the caller
# itself: prlimit64, sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr. Those always refused:
# setpriority, ioprio_set, and the kernel's keyring (keyctl, add_key, request_key), which also holds the server's keys.
_SELF_ONLY = {"x86_64": (302, 203, 144, 142, 314), "aarch64": (261, 122, 119, 118, 274)}
_REFUSED = {"x86_64": (141, 251, 250, 248, 249), "aarch64": (140, 30, 219, 217, 218)}

# A setuid program made here would let every user of the machine act as the server's user. Calls that set a mode, with
# the index of the argument that contains it: chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat. Calls that set
# one only if they create a file, with the index of their flags first: open, openat. The filter cannot read the
# arguments of openat2.
_SET_MODE = {
    "x86_64": ((90, 1), (91, 1), (268, 2), (452, 2), (85, 1), (133, 1), (259, 2)),
    "aarch64": ((52, 1), (53, 2), (452, 2), (33, 2)),
}
_CREATE = {"x86_64": ((2, 1, 2), (257, 2, 3)), "aarch64": ((56, 2, 3),)}
_OPENAT2 = 437
_SETUID_OR_SETGID, _CREATING = 0o6000, 0o100 | 0o20000000


if sys.platform == "linux":
    _REACH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
else:
    _REACH = 0


def landlock_abi() -> int:
    """Return the version of the kernel's Landlock; 0 if it has none."""
    version: int = 0
    if sys.platform == "linux":
        version = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, 1)
    return max(0, version)


def can_filter_sockets() -> bool:
    return sys.platform == "linux" and os.uname().machine in _MACHINES


def _machine() -> str:
    name = ""
    if sys.platform != "win32":
        name = os.uname().machine
    return name


def restrict(fence: Mapping[str, Any]) -> None:
    """Restrict this process: ``write``, ``read``, ``devices`` and ``list`` are paths, ``network`` allows the network.

    With ``apart``, for an owner's program, it cannot affect other processes or use capabilities of root either.
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
                handle = os.open(path, _REACH)
            except OSError:
                continue  # It does not exist, or this user cannot reach it: nothing to allow.
            try:
                is_folder = stat.S_ISDIR(os.stat(handle).st_mode)
                if granted := allowed & rights & (_ALL if is_folder else _FILE_RIGHTS):
                    _call(_ADD_RULE, ctypes.c_int(ruleset), 1, struct.pack("=Qi", granted, handle), 0)
            finally:
                os.close(handle)
    # Without root there are no capabilities to drop, and the call fails.
    dropped = [number for number in range(64) if number not in _OWNER_CAPABILITIES] if fence["apart"] else _INSPECTING
    for capability in dropped:
        ctypes.CDLL(None).prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    if ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError("the kernel did not promise that privileges stay as they are")
    # From here on only allowed files can be opened, so all rules must have been added.
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
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_SECCOMP, _FILTER, described, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refused the filter that keeps a program from the network")


def filter_program(*, apart: bool) -> bytes:
    """Return a filter that allows only local sockets, since Landlock restricts only TCP. It refuses io_uring, through
    which sockets could be opened.

    With ``apart`` it also refuses calls that change another process or make a setuid program.
    """
    name = _machine()
    machine, socket = _MACHINES[name]
    load, equal, at_least, has_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    refuse, allow = (answer, 0x00050000 | 13, 0, 0), (answer, 0x7FFF0000, 0, 0)
    # Each step: the operation, its value, and how many steps to skip if it is true and if it is false. Loaded are the
    # architecture (4), the number of the call (0), and its arguments (from 16 on, 8 bytes each).
    steps = [(load, 4, 0, 0), (equal, machine, 1, 0), refuse, (load, 0, 0, 0), (at_least, 0x40000000, 0, 1), refuse]
    for number in (_IO_URING_SETUP, *(_REFUSED[name] if apart else ())):
        steps += [(equal, number, 0, 1), refuse]
    for number in _SELF_ONLY[name] if apart else ():
        steps += [(equal, number, 0, 4), (load, 16, 0, 0), (equal, 0, 0, 1), allow, refuse]
    for number, mode in _SET_MODE[name] if apart else ():
        steps += [(equal, number, 0, 4), (load, 16 + 8 * mode, 0, 0), (has_bit, _SETUID_OR_SETGID, 0, 1), refuse, allow]
    for number, flags, mode in _CREATE[name] if apart else ():
        steps += [(equal, number, 0, 6), (load, 16 + 8 * flags, 0, 0), (has_bit, _CREATING, 0, 3)]
        steps += [(load, 16 + 8 * mode, 0, 0), (has_bit, _SETUID_OR_SETGID, 0, 1), refuse, allow]
    if apart:
        # Fail as on a kernel without it: programs then use openat.
        steps += [(equal, _OPENAT2, 0, 1), (answer, 0x00050000 | 38, 0, 0)]
    steps += [(equal, socket, 0, 4), (load, 16, 0, 0), (equal, _LOCAL_FAMILIES[0], 2, 0)]
    steps += [(equal, _LOCAL_FAMILIES[1], 1, 0), refuse, allow]
    return b"".join(struct.pack("HBBI", code, yes, no, value) for code, value, yes, no in steps)
