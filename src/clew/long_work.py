"""Long work: Python work over a whole session or store, done in threads so that it does not block the event loop.

A thread alone is not enough. A thread that needs the interpreter waits until the one that has it switches, 5 ms by
default, every time; a prompt needs it dozens of times. So the switch interval is shorter during long work. And the
garbage collector stops all threads, for longer the more objects there are: those of long work are in use, so old
generations are not collected meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

__all__ = [
    "AT_ONCE",
    "FEW",
    "giving_way",
    "go_through",
    "holding",
    "is_under_way",
    "let_go",
    "run_for_prompt",
    "run_long",
]

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE: Final = 2
"""Limit for concurrent pieces of long work in a loop, and the same for prompts; the others wait, without a thread."""

FEW: Final = 400
"""Up to this number of messages, work takes a few milliseconds and needs no thread."""

_SLICE_S: Final = 0.0002
_MANY: Final = 1_000
_NEVER: Final = 1_000_000_000
_UNCOLLECTED_S: Final = 60.0
"""Limit for the time without collection of old generations, for long work that never ends."""
_lock = threading.Lock()
_under_way = 0
_usual = sys.getswitchinterval()
_collected = gc.get_threshold()
_since = 0.0
_Places = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
_usual_places: _Places = WeakKeyDictionary()
_prompts_places: _Places = WeakKeyDictionary()


@contextlib.contextmanager
def giving_way() -> Iterator[None]:
    """Switch threads after a fifth of a millisecond, and collect only young generations, until the context ends. Use it
    around a whole operation that has many objects. The settings are process-wide: the last context restores them."""
    global _under_way, _usual, _collected, _since
    with _lock:
        if _under_way == 0:
            _usual, _collected, _since = sys.getswitchinterval(), gc.get_threshold(), time.monotonic()
            sys.setswitchinterval(min(_usual, _SLICE_S))
            gc.set_threshold(*_collected[:2], _NEVER)
        elif time.monotonic() - _since > _UNCOLLECTED_S:
            gc.set_threshold(*_collected)
        _under_way += 1
    try:
        yield
    finally:
        with _lock:
            _under_way -= 1
            if _under_way == 0:
                sys.setswitchinterval(_usual)
                gc.set_threshold(*_collected)


def is_under_way() -> bool:
    """Return whether long work is in progress."""
    return _under_way > 0


@contextlib.contextmanager
def holding(messages: Sized) -> Iterator[None]:
    """Enter :func:`giving_way` if there are many messages."""
    with giving_way() if len(messages) > FEW else contextlib.nullcontext():
        yield


async def run_long(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it in a thread, after earlier long work."""
    return await _run_in(_usual_places, functools.partial(call, *args, **kwargs))


async def run_for_prompt(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do the same for a prompt or a summary, which must not wait for other work such as an export."""
    return await _run_in(_prompts_places, functools.partial(call, *args, **kwargs))


async def go_through(messages: Sized, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work over all these messages for a prompt or a summary: immediately if they are few, else in a thread."""
    if len(messages) <= FEW:
        return call(*args, **kwargs)
    return await run_for_prompt(call, *args, **kwargs)


async def _run_in(places: _Places, call: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    place = places.setdefault(loop, asyncio.Semaphore(AT_ONCE))
    await place.acquire()
    # In the loop's own threads, which end with it: a process that forks later has none.
    told = contextvars.copy_context()
    try:
        work = loop.run_in_executor(None, told.run, _run, call)
    except BaseException:
        place.release()
        raise

    def ended(work: asyncio.Future[T]) -> None:
        place.release()
        if not work.cancelled():
            work.exception()  # mark it as retrieved: the caller may have been cancelled

    # If the caller is cancelled its thread continues: the place is released when that has ended.
    work.add_done_callback(ended)
    return await asyncio.shield(work)


def let_go(*held: Iterable[object]) -> None:
    """Free these objects in a thread, one after the other, after the caller has dropped its references: freeing many at
    once blocks all threads."""
    rows = [row for some in held for row in some]
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return  # no loop runs, so nothing would be blocked
    if len(rows) < _MANY:
        return
    until_freed = contextlib.ExitStack()
    until_freed.enter_context(giving_way())

    def drop() -> None:
        with until_freed:
            while rows:
                rows.pop()

    def begin() -> None:
        try:
            loop.run_in_executor(None, drop)
        except RuntimeError:
            # A loop that is being closed has no threads any more, and nothing to block.

            drop()

    # In the next turn of the loop: by then the caller has returned.
    loop.call_soon(begin)


def _run(call: Callable[[], T]) -> T:
    with giving_way():
        return call()
