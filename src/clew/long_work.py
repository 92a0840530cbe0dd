"""Long work: Python work over a whole session or store, done beside the event loop so that nobody else waits for it.

A thread alone is not enough. Whoever wants the interpreter waits until whoever has it gives way, 5 ms by default and
each time anew; a prompt asks for it dozens of times. So while long work goes on, turns are shorter. And the garbage
collector stops everybody, for longer the more there is: what long work holds is no garbage, so it is not gone through.
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
"""So many pieces of long work go on at once in a loop, and as many for prompts; the others wait, and take no thread
for it."""

FEW: Final = 400
"""So many messages are gone through in a few milliseconds, for which nobody needs a thread."""

_SLICE_S: Final = 0.0002
_MANY: Final = 1_000
_NEVER: Final = 1_000_000_000
_UNCOLLECTED_S: Final = 60.0
"""For so long at most nothing old is collected: where long work never ends, garbage must."""
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
    """What runs inside lets other threads in after a fifth of a millisecond, and only what is new is looked through for
    garbage. Around all of an operation that holds much, its pieces and what lies between them. The settings are the
    process's: the last one to leave puts back what was there."""
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
    """Whether somebody gives way now."""
    return _under_way > 0


@contextlib.contextmanager
def holding(messages: Sized) -> Iterator[None]:
    """:func:`giving_way`, around what holds so many messages, where they are many."""
    with giving_way() if len(messages) > FEW else contextlib.nullcontext():
        yield


async def run_long(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it off the loop, with others of its kind before it if there are any."""
    return await _run_in(_usual_places, functools.partial(call, *args, **kwargs))


async def run_for_prompt(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for what a prompt or a summary waits for: it never stands behind somebody's export."""
    return await _run_in(_prompts_places, functools.partial(call, *args, **kwargs))


async def go_through(messages: Sized, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Work over all of these for a prompt or a summary: on the spot where they are few."""
    if len(messages) <= FEW:
        return call(*args, **kwargs)
    return await run_for_prompt(call, *args, **kwargs)


async def _run_in(places: _Places, call: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    place = places.setdefault(loop, asyncio.Semaphore(AT_ONCE))
    await place.acquire()
    # In the loop's own threads, which end with it: a process that forks later has none left.
    told = contextvars.copy_context()
    try:
        work = loop.run_in_executor(None, told.run, _run, call)
    except BaseException:
        place.release()
        raise

    def ended(work: asyncio.Future[T]) -> None:
        place.release()
        if not work.cancelled():
            work.exception()  # of work that nobody waits for any more it is no news

    # Whoever is aborted leaves a thread that works on: the place is free when that has ended.
    work.add_done_callback(ended)
    return await asyncio.shield(work)


def let_go(*held: Iterable[object]) -> None:
    """Free these beside the loop, one after the other, once whoever calls has let go of them too: many that are freed
    together keep everybody waiting."""
    rows = [row for some in held for row in some]
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return  # it is over, and nobody waits
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
            # A loop that is being closed has no threads any more; then nobody waits.
            drop()

    # In the next turn of the loop: by then the caller has returned.
    loop.call_soon(begin)


def _run(call: Callable[[], T]) -> T:
    with giving_way():
        return call()
