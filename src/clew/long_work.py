"""Long work: Python work over a whole session or store, done beside the event loop so that nobody else waits for it.

A thread alone is not enough. Whoever wants the interpreter waits until whoever has it gives way, 5 ms by default and
each time anew; a prompt asks for it dozens of times. So while long work goes on, turns are shorter.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["AT_ONCE", "giving_way", "run_long"]

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE: Final = 2
"""So many pieces of long work go on at once in a loop; the others wait, and take no thread for it."""

_SLICE_S: Final = 0.0002
_lock = threading.Lock()
_under_way = 0
_usual = sys.getswitchinterval()
_rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@contextlib.contextmanager
def giving_way() -> Iterator[None]:
    """What runs inside lets other threads in after a fifth of a millisecond. The setting is the process's: the last one
    to leave puts back what was there."""
    global _under_way, _usual
    with _lock:
        if _under_way == 0:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_usual, _SLICE_S))
        _under_way += 1
    try:
        yield
    finally:
        with _lock:
            _under_way -= 1
            if _under_way == 0:
                sys.setswitchinterval(_usual)


async def run_long(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it off the loop, with others of its kind before it if there are any."""
    # In the loop's own threads, which end with it: a process that forks later has none left.
    async with _rooms.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)):
        return await asyncio.to_thread(_run, functools.partial(call, *args, **kwargs))


def _run(call: Callable[[], T]) -> T:
    with giving_way():
        return call()
