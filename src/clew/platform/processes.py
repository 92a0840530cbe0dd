"""Signals and groups of processes, and the event loop of a server."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from clew.errors import NotSupported
from clew.platform import NO_PROGRAMS

__all__ = [
    "END_SIGNALS",
    "SIGKILL",
    "add_signal_handler",
    "poll_pipes",
    "remove_signal_handler",
    "server_loop",
    "signal_group",
]

if sys.platform == "win32":
    SIGKILL: Final = signal.SIGTERM
    """Ends a process immediately, as SIGKILL does elsewhere."""
    END_SIGNALS: Final = (signal.SIGTERM,)
    """Signals by which the system asks a program to end."""
    _TICK_S: Final = 0.25
    _handled: dict[int, asyncio.AbstractEventLoop] = {}

    def add_signal_handler(number: int, callback: Callable[..., object], *args: object) -> None:
        """Call a function in the running event loop when a signal arrives."""
        loop = asyncio.get_running_loop()
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback, *args))
        if loop not in _handled.values():
            loop.call_later(_TICK_S, _tick, loop)
        _handled[number] = loop

    def _tick(loop: asyncio.AbstractEventLoop) -> None:
        """Return to Python regularly: a signal does not interrupt the system call in which the loop waits."""
        if loop in _handled.values():
            loop.call_later(_TICK_S, _tick, loop)

    def remove_signal_handler(number: int) -> None:
        """Restore the usual effect of a signal."""
        _handled.pop(number, None)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    def signal_group(leader: int, number: int) -> None:
        """Signal the process that leads a group; a system without groups does not reach its children."""
        os.kill(leader, number)

    def poll_pipes(handles: Iterable[int]) -> Any:
        """Raise: the system cannot wait for pipes."""
        raise NotSupported(NO_PROGRAMS)

    def server_loop() -> asyncio.AbstractEventLoop:
        """Return a new event loop that can watch a listening socket."""
        return asyncio.SelectorEventLoop()

else:
    SIGKILL: Final = signal.SIGKILL
    END_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)

    signal_group = os.killpg

    def poll_pipes(handles: Iterable[int]) -> select.poll:
        """Return a poll object that waits until one of the pipes can be read; reading does not block."""
        poll = select.poll()
        for handle in handles:
            os.set_blocking(handle, False)
            poll.register(handle, select.POLLIN)
        return poll

    server_loop = asyncio.new_event_loop

    def add_signal_handler(number: int, callback: Callable[..., object], *args: object) -> None:
        """Call a function in the running event loop when a signal arrives."""
        asyncio.get_running_loop().add_signal_handler(number, callback, *args)

    def remove_signal_handler(number: int) -> None:
        """Restore the usual effect of a signal."""
        asyncio.get_running_loop().remove_signal_handler(number)
