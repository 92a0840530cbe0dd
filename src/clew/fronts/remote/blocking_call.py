"""Calls that block on an event loop of another thread: methods and iterators of an asynchronous object."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import msgspec

from clew.errors import StoreClosed
from clew.session.history.rewind import Rewound
from clew.session.prompt.submission import Submission, TurnOutcome

__all__ = ["BlockingView", "Iterator", "Method", "Moved", "Sent", "Thread", "blocking", "rewinding", "submitting"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_END = object()


class Thread:
    """An event loop on its own thread, for callers that block on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="clew-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        # Under the lock, work is either cancelled by close() or refused: no caller waits forever.
        with self._closing:
            if self._closed:
                work.close()
                raise StoreClosed("this client is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise StoreClosed("this client was closed during the call") from None
        except BaseException:
            # An interrupted caller must not leave the work running.
            future.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Generator[T, None, None]:
        generator = cast(AsyncGenerator[T, None], source)

        async def next_value() -> Any:
            return await anext(generator, _END)

        async def close_source() -> None:
            await generator.aclose()

        try:
            while (value := self.run(next_value())) is not _END:
                yield cast(T, value)
        finally:
            with contextlib.suppress(StoreClosed):
                self.run(close_source())

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class Sent:
    """An accepted prompt: its message, whether it is queued, and the outcome of its turn."""

    def __init__(self, thread: Thread, submission: Submission) -> None:
        self.message_id = submission.message_id
        self.queued = submission.queued
        self._thread = thread
        self._submission = submission

    def wait(self) -> TurnOutcome:
        """Wait for the outcome of the turn; a queued prompt is sent first."""
        return self._thread.run(self._submission.wait())


class Moved(msgspec.Struct, frozen=True):
    """The new position of the head. ``hidden`` messages left the line, in order; ``draft`` is text to edit."""

    head_turn_id: str | None
    hidden: tuple[str, ...]
    draft: str | None = None
    submission: Sent | None = None


class BlockingView:
    """Blocking versions of the methods of an asynchronous object, run on its thread."""

    def __init__(self, target: Any, thread: Thread) -> None:
        self.target = target
        self.thread = thread

    def to_sent(self, submission: Submission) -> Sent:
        return Sent(self.thread, submission)

    def to_moved(self, rewound: Rewound) -> Moved:
        submission = None if rewound.submission is None else self.to_sent(rewound.submission)
        return Moved(rewound.head_turn_id, tuple(rewound.hidden), rewound.draft, submission)


class Method(Generic[P, R]):
    """A blocking method with the signature of the asynchronous one; ``show`` converts its result."""

    def __init__(self, method: Callable[..., Any], show: Callable[[BlockingView, Any], R] | None = None) -> None:
        self.method = method
        self._show = show

    def __get__(self, part: BlockingView, owner: type) -> Callable[P, R]:
        @functools.wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            # Looked up by name, to respect overrides.
            value = part.thread.run(getattr(part.target, self.method.__name__)(*args, **kwargs))
            return cast(R, value) if self._show is None else self._show(part, value)

        return call


class Iterator(Generic[P, R]):
    """A blocking iterator with the signature of the asynchronous one."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[R]]) -> None:
        self.method = method

    def __get__(self, part: BlockingView, owner: type) -> Callable[P, Generator[R, None, None]]:
        @functools.wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> Generator[R, None, None]:
            return part.thread.iterate(getattr(part.target, self.method.__name__)(*args, **kwargs))

        return call


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Method[P, R]:
    return Method(method)


def submitting(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Submission]]) -> Method[P, Sent]:
    return Method(method, BlockingView.to_sent)


def rewinding(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Rewound]]) -> Method[P, Moved]:
    return Method(method, BlockingView.to_moved)
