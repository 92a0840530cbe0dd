"""The address space of this process, where a limit such as ``ulimit -v`` is set.

The JSON libraries, orjson and msgspec, do not survive an allocation that fails: they write through a null pointer, and
the process ends with SIGSEGV where Python would raise ``MemoryError``. So clew keeps away from a limit: with too little
left, it opens no store and accepts no request or prompt.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from typing import Final

from clew.errors import StoreUnavailable

if sys.platform != "win32":
    import resource

__all__ = ["REQUEST_BYTES", "SERVER_BYTES", "STORE_BYTES", "check_address_space", "save_address_space", "shortage"]

STORE_BYTES: Final = 128 << 20
"""Address space that must be left to open a store."""
SERVER_BYTES: Final = 384 << 20
"""Address space that must be left to serve one."""
REQUEST_BYTES: Final = 192 << 20
"""Address space that must be left to accept a request or a prompt: those already running still grow."""
_ARENA_MAX: Final = -8
"""glibc's ``M_ARENA_MAX``: every arena of a thread reserves 64 MB, and uses little of it."""


def _limit() -> int | None:
    limit: int | None = None  # Windows has no such limit
    if sys.platform != "win32":
        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        limit = None if soft == resource.RLIM_INFINITY else soft
    return limit


def shortage(needed: int) -> str | None:
    """Return why fewer than ``needed`` bytes are left; None where enough are, or without a limit."""
    limit = _limit()
    if limit is None:
        return None
    try:
        with open("/proc/self/statm", "rb") as file:
            left = limit - int(file.read().split()[0]) * mmap.PAGESIZE
    except (OSError, ValueError):
        return None  # this system does not say how much is used
    if left >= needed:
        return None
    return (
        f"it needs {needed >> 20} MB of address space, and {max(left, 0) >> 20} MB are left of the limit of "
        f"{limit >> 20} MB. Raise the limit (`ulimit -v`, RLIMIT_AS), or limit memory by a cgroup"
    )


def check_address_space(needed: int, what: str) -> None:
    """Raise ``StoreUnavailable`` unless ``needed`` bytes are left."""
    if why := shortage(needed):
        raise StoreUnavailable(f"{what} could run out of memory: {why}")


def save_address_space() -> None:
    """Make threads reserve little of it, where it is limited. Must be called before there are any."""
    if _limit() is not None:
        with contextlib.suppress(OSError, AttributeError):  # a C library without arenas
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)
