"""Long work: Python work over a whole session or store, done in threads so that it does not block the event loop.

A thread that needs the interpreter waits until the one that has it switches, 5 ms by default. That interval belongs to
the process: ``clew serve`` makes it shorter, an embedding program decides for itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Iterable, Sized
from typing import Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

__all__ = [
    "AT_ONCE",
    "FEW",
    "go_through",
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

_MANY: Final = 1_000
_Places = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
_default_places: _Places = WeakKeyDictionary()
_prompts_places: _Places = WeakKeyDictionary()


async def run_long(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it in a thread, after earlier long work."""
    return await _run_in(_default_places, functools.partial(call, *args, **kwargs))


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
    slot = places.setdefault(loop, asyncio.Semaphore(AT_ONCE))
    await slot.acquire()
    # In the loop's own threads, which end with it: a process that forks later has none.
    context = contextvars.copy_context()
    try:
        work = loop.run_in_executor(None, context.run, call)
    except BaseException:
        slot.release()
        raise

    def ended(work: asyncio.Future[T]) -> None:
        slot.release()
        if not work.cancelled():
            work.exception()  # mark it as retrieved: the caller may have been cancelled

    # If the caller is cancelled its thread continues: the place is released when that has ended.
    work.add_done_callback(ended)
    return await asyncio.shield(work)


def let_go(*objects: Iterable[object]) -> None:
    """Free these objects in a thread, one after the other, after the caller has dropped its references: freeing many at
    once blocks all threads."""
    rows = [row for some in objects for row in some]
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return  # no loop runs, so nothing would be blocked
    if len(rows) < _MANY:
        return

    def drop() -> None:
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
