"""Blocking work outside the event loop, one thread per call.

The loop's own pool has few threads, and a tool that hangs would occupy one of them permanently. Here it costs only its
own thread. If the caller is cancelled, the thread ends by itself and its result is dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

__all__ = ["run_in_thread"]

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` with the arguments in a new thread and return its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if error is not None and not future.done():
            future.set_exception(error)
        elif not future.done():
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, failed = None, None
        try:
            result = context.run(function, *args, **kwargs)
        except Exception as error:
            # A future cannot carry StopIteration: awaiting it would look like the end of the coroutine.
            failed = error if not isinstance(error, StopIteration) else RuntimeError("StopIteration was raised")
        except BaseException as error:
            # sys.exit() in a tool must not end the host.
            failed = RuntimeError(f"{type(error).__name__} was raised")
        # If the loop is closed, no caller is waiting.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=work, name="clew-tool", daemon=True).start()
    return await future
