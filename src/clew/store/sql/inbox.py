"""The writer's inbox: a queue of submitted items, and the timing of when the writer takes them.

Everything in the queue is taken together. An item that nothing awaits stays open until then: units submitted meanwhile
join it, without another hand-over to the writer's thread. After such items the writer pauses so that more of them
collect: for a multiple of the time the last ones took, so longer when it is busy, and longer still when units arrive in
ticks. Awaited items, which include synced units, and the first item after an idle period are never delayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from clew.errors import StoreClosed
from clew.store.commit_batcher import Answer
from clew.store.unit import Unit

__all__ = ["AdoptionRequest", "Inbox", "Item", "Work", "answer", "split_batches"]

log = logging.getLogger("clew.store")

MAX_GROUP: Final = 512
IDLE_S: Final = 0.25
REST: Final = 4.0
"""Time between two takes, as a multiple of the duration of the last one: the writer writes a quarter of the time."""
IN_TICKS: Final = 4
"""Units per hand-over from which they count as arriving in ticks."""
GAPS_IN_TICKS: Final = 2
"""The writer then pauses for this many gaps: within less than a tick nothing arrives that could join."""
MAX_ADOPTION_WAIT_S: Final = 1.0
"""How long a reader waits for adoption. It reads anyway if adoption is not possible now."""

Work: TypeAlias = Callable[[Any], Any]
"""Work on the search index, which the writer owns."""


class Item:
    """Units submitted together, or some work, and the callbacks on its loop with the number of outcomes each gets.

    ``awaited``: a caller waits for it, so it is not delayed.
    """

    __slots__ = ("awaited", "callbacks", "loop", "units", "work")

    def __init__(
        self,
        units: Sequence[Unit],
        work: Work | None,
        loop: asyncio.AbstractEventLoop,
        on_done: Callable[[list[Any]], None],
        *,
        awaited: bool,
    ) -> None:
        self.units = list(units)
        self.work = work
        self.loop = loop
        self.callbacks = [(self.size, on_done)]
        self.awaited = awaited

    @property
    def size(self) -> int:
        """Return the number of its outcomes."""
        return 1 if self.work is not None else len(self.units)


class AdoptionRequest:
    """A reader's request to adopt what other programs wrote; the reader waits for ``done``, and raises ``error``."""

    __slots__ = ("done", "error", "session_id")

    def __init__(self, session_id: str | None) -> None:
        self.session_id = session_id
        self.done = threading.Event()
        self.error: BaseException | None = None


class _Hurry(enum.Enum):
    """A signal that a caller now awaits an item that is already in the queue."""

    NOW = 0


class Inbox:
    """A queue filled on event loops and in readers' threads, and emptied in the writer's."""

    def __init__(self, window_ms: float, gap_ms: float) -> None:
        self._window_s = window_ms / 1000
        self._gap_s = gap_ms / 1000
        self._queue: queue.SimpleQueue[Item | AdoptionRequest | _Hurry | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: Item | None = None
        self._last_take_at = self._rest_s = 0.0
        self._in_ticks = False
        self._adoption_stalled = False
        self.closed = False

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()

    def put(self, units: Sequence[Unit], work: Work | None) -> asyncio.Future[Any]:
        """Submit one unit or some work; the future gets its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def on_done(outcomes: list[Any]) -> None:
            if future.done():
                return
            if isinstance(outcomes[0], BaseException):
                future.set_exception(outcomes[0])
            else:
                future.set_result(outcomes[0])

        self._put(Item(units, work, loop, on_done, awaited=True), stays_open=False)
        return future

    def add(self, units: Sequence[Unit], on_done: Callable[[Sequence[Answer]], None], *, awaited: bool) -> None:
        """Add units to the open item, or to a new one. Without units, but ``awaited``, hurry the open item."""
        loop = asyncio.get_running_loop()
        with self._lock:
            item = self._open
            if item is not None and item.loop is loop and not self.closed:
                item.units += units
                item.callbacks.append((len(units), on_done))
                if awaited and not item.awaited:
                    item.awaited = True
                    self._queue.put(_Hurry.NOW)
                return
        if units:
            self._put(Item(units, None, loop, on_done, awaited=awaited), stays_open=True)

    def _put(self, item: Item, *, stays_open: bool) -> None:
        with self._lock:
            if self.closed:
                raise StoreClosed("the store is closed")
            # Units commit in submission order: later ones must not join an item before this one.
            self._open = item if stays_open else None
            self._queue.put(item)

    def request(self, session_id: str | None) -> AdoptionRequest:
        """Ask the writer, in a reader's thread, to adopt what other programs wrote to a session."""
        request = AdoptionRequest(session_id)
        with self._lock:
            if self.closed:
                request.done.set()
            else:
                self._queue.put(request)
        return request

    def wait_for_adoption(self, session_id: str | None) -> None:
        """Wait, in a reader's thread, until the writer has adopted what other programs wrote to a session."""
        if self._adoption_stalled:
            return
        request = self.request(session_id)
        if not request.done.wait(MAX_ADOPTION_WAIT_S):
            # The file is locked, or much of it is being checkpointed: later readers do not wait again.
            self._adoption_stalled = True

    def close(self) -> None:
        """Reject new items; the writer takes those already submitted, then ends."""
        with self._lock:
            if not self.closed:
                self.closed = True
                # Nothing may follow this marker: the writer would be gone and the item never answered.
                self._queue.put(None)

    def take(self, group: list[Item], requests: list[AdoptionRequest]) -> bool:
        """Wait for an item, then take everything in the queue. Return True if this was the last time."""
        took_s = time.monotonic() - self._last_take_at
        self._rest_s = self._gap_s * GAPS_IN_TICKS if self._in_ticks else min(self._gap_s, took_s * REST)
        try:
            item = self._queue.get(timeout=IDLE_S)
        except queue.Empty:
            self._adoption_stalled = False
            return False
        if self._window_s and isinstance(item, Item):
            time.sleep(self._window_s)
        hurried, size = False, 0
        while item is not None:
            hurried = hurried or not isinstance(item, Item) or item.awaited
            if isinstance(item, AdoptionRequest):
                requests.append(item)
            elif isinstance(item, Item):
                group.append(item)
                size += item.size
            if size >= MAX_GROUP:
                break
            wait = 0.0 if hurried else self._last_take_at + self._rest_s - time.monotonic()
            try:
                item = self._queue.get(timeout=wait) if wait > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
        with self._lock:
            self._open = None
        hand_overs = sum(len(one.callbacks) for one in group)
        self._in_ticks = sum(len(one.units) for one in group) >= IN_TICKS * hand_overs > 0
        self._last_take_at = time.monotonic()
        self._adoption_stalled = False
        return item is None


def split_batches(group: list[Item]) -> Iterator[list[Item]]:
    """Group consecutive items with units; work stays alone. The order is unchanged."""
    run: list[Item] = []
    for item in group:
        if run and (item.work is not None or run[0].work is not None):
            yield run
            run = []
        run.append(item)
    yield run


def answer(group: list[Item], outcomes: list[Any]) -> None:
    """Deliver the outcomes of a group, in the order of its units, by one call into each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Item, list[Any]]]] = {}
    offset = 0
    for item in group:
        by_loop.setdefault(item.loop, []).append((item, outcomes[offset : offset + item.size]))
        offset += item.size
    for loop, answers_of_loop in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits there any more
            loop.call_soon_threadsafe(_deliver, answers_of_loop)


def _deliver(answers: list[tuple[Item, list[Any]]]) -> None:
    for item, outcomes in answers:
        # Do not deliver twice if the writer fails afterwards.
        callbacks, item.callbacks = item.callbacks, []
        offset = 0
        for count, callback in callbacks:
            try:
                callback(outcomes[offset : offset + count])
            except Exception:
                log.exception("a callback failed to process the results of its units; the others are still called")
            offset += count
