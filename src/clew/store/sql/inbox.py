"""The writer's inbox: what was handed over, in the order it came, and the moment at which the writer takes it.

Everything that waits is taken together. An item that nobody waits for stays open until then: what comes meanwhile goes
along in it, without another hand-over to the writer's thread. After such items the writer rests, so that more come
together: a few times as long as the last ones took, so the more the busier it is, and longer where they come in ticks.
Whoever waits for one, a synced unit among them, and the first after a pause never wait for that.
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
from clew.store.hub import Answer
from clew.store.unit import Unit

__all__ = ["Inbox", "Item", "Look", "Work", "answer", "runs"]

log = logging.getLogger("clew.store")

MAX_GROUP: Final = 512
IDLE_S: Final = 0.25
REST: Final = 4.0
"""From one taking to the next, in times of what the last one took: a quarter of the time the writer writes."""
IN_TICKS: Final = 4
"""Units that come with one hand-over: where there are as many, they come in ticks."""
GAPS_IN_TICKS: Final = 2
"""So many of its gaps the writer rests then: in less than a tick nothing comes that could go along."""

Work: TypeAlias = Callable[[Any], Any]
"""What is done with the search index that the writer keeps."""


class Item:
    """Units on their way together, or some work, and who is told on their loop what became of how many of them.

    ``awaited``: somebody waits for it, so it keeps no gap.
    """

    __slots__ = ("awaited", "loop", "told", "units", "work")

    def __init__(
        self,
        units: Sequence[Unit],
        work: Work | None,
        loop: asyncio.AbstractEventLoop,
        told: Callable[[list[Any]], None],
        *,
        awaited: bool,
    ) -> None:
        self.units = list(units)
        self.work = work
        self.loop = loop
        self.told = [(self.size, told)]
        self.awaited = awaited

    @property
    def size(self) -> int:
        """How many outcomes it has."""
        return 1 if self.work is not None else len(self.units)


class Look:
    """A reader that waits until what others wrote was taken in."""

    __slots__ = ("done", "session_id")

    def __init__(self, session_id: str | None) -> None:
        self.session_id = session_id
        self.done = threading.Event()


class _Go(enum.Enum):
    """Somebody has begun to wait for an item that is in the queue already."""

    NOW = 0


class Inbox:
    """Filled on event loops and in readers' threads, emptied in the writer's."""

    def __init__(self, window_ms: float, gap_ms: float) -> None:
        self._window_s = window_ms / 1000
        self._gap_s = gap_ms / 1000
        self._queue: queue.SimpleQueue[Item | Look | _Go | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: Item | None = None
        self._taken_at = self._rest_s = 0.0
        self._in_ticks = False
        self.closed = False

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()

    def put(self, units: Sequence[Unit], work: Work | None) -> asyncio.Future[Any]:
        """One unit or some work; the future has what became of it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def told(outcomes: list[Any]) -> None:
            if future.done():
                return
            if isinstance(outcomes[0], BaseException):
                future.set_exception(outcomes[0])
            else:
                future.set_result(outcomes[0])

        self._put(Item(units, work, loop, told, awaited=True), stays_open=False)
        return future

    def add(self, units: Sequence[Unit], told: Callable[[Sequence[Answer]], None], *, awaited: bool) -> None:
        """Units for the item that is open, or for a new one. None, when they are awaited: the open one is."""
        loop = asyncio.get_running_loop()
        with self._lock:
            item = self._open
            if item is not None and item.loop is loop and not self.closed:
                item.units += units
                item.told.append((len(units), told))
                if awaited and not item.awaited:
                    item.awaited = True
                    self._queue.put(_Go.NOW)
                return
        if units:
            self._put(Item(units, None, loop, told, awaited=awaited), stays_open=True)

    def _put(self, item: Item, *, stays_open: bool) -> None:
        with self._lock:
            if self.closed:
                raise StoreClosed("the store is closed")
            # Units commit in the order they came: what comes after this one goes into no item before it.
            self._open = item if stays_open else None
            self._queue.put(item)

    def look(self, session_id: str | None) -> Look:
        look = Look(session_id)
        self._queue.put(look)
        return look

    def close(self) -> None:
        """What was handed over is taken once more, and then nothing."""
        with self._lock:
            if not self.closed:
                self.closed = True
                # Nothing comes behind this: the writer would be gone, and whoever waits for it not told.
                self._queue.put(None)

    def take(self, group: list[Item], looks: list[Look]) -> bool:
        """Wait for something, then take all that waits. True when this was the last time."""
        took_s = time.monotonic() - self._taken_at
        self._rest_s = self._gap_s * GAPS_IN_TICKS if self._in_ticks else min(self._gap_s, took_s * REST)
        try:
            item = self._queue.get(timeout=IDLE_S)
        except queue.Empty:
            return False
        if self._window_s and isinstance(item, Item):
            time.sleep(self._window_s)
        hurried, size = False, 0
        while item is not None:
            hurried = hurried or not isinstance(item, Item) or item.awaited
            if isinstance(item, Look):
                looks.append(item)
            elif isinstance(item, Item):
                group.append(item)
                size += item.size
            if size >= MAX_GROUP:
                break
            wait = 0.0 if hurried else self._taken_at + self._rest_s - time.monotonic()
            try:
                item = self._queue.get(timeout=wait) if wait > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
        with self._lock:
            self._open = None
        hand_overs = sum(len(one.told) for one in group)
        self._in_ticks = sum(len(one.units) for one in group) >= IN_TICKS * hand_overs > 0
        self._taken_at = time.monotonic()
        return item is None


def runs(group: list[Item]) -> Iterator[list[Item]]:
    """Units that stand together, and work by itself, in the order they came."""
    run: list[Item] = []
    for item in group:
        if run and (item.work is not None or run[0].work is not None):
            yield run
            run = []
        run.append(item)
    yield run


def answer(group: list[Item], outcomes: list[Any]) -> None:
    """Tell what became of a group, in the order of its units, by one call into each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Item, list[Any]]]] = {}
    place = 0
    for item in group:
        by_loop.setdefault(item.loop, []).append((item, outcomes[place : place + item.size]))
        place += item.size
    for loop, theirs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits there any more
            loop.call_soon_threadsafe(_tell, theirs)


def _tell(answers: list[tuple[Item, list[Any]]]) -> None:
    for item, outcomes in answers:
        # Whoever was told is not told a second time, when the writer fails after it.
        told, item.told = item.told, []
        place = 0
        for count, tell in told:
            try:
                tell(outcomes[place : place + count])
            except Exception:
                log.exception("somebody could not take in what became of his units; the others are told")
            place += count
