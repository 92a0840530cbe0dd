"""The commit batcher: collects what the streams of one event loop write and submits it to their store together.

Everything that arrives in one iteration of the loop, from any number of streams, becomes one item with one answer:
handing over to a thread and back costs more than a chunk. A synced unit is submitted immediately, together with what is
waiting.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from clew.errors import InternalError
from clew.store.unit import Committed, Outcome, Unit

__all__ = ["Answer", "Answered", "CommitBatcher", "Stream", "Watched"]

log = logging.getLogger("clew.store")

Answer: TypeAlias = Outcome | BaseException
"""The result of a unit."""
Answered: TypeAlias = Callable[[Sequence[tuple[int, Answer]]], None]
"""Called on the event loop with results of units, by their index in the item."""


UNITS_PER_FOLD: Final = 8
"""Units in flight per unit that rewrites a stream's parts (a fold); the first fold is always allowed. More folds would
delay the chunks of all other streams."""
_GOLDEN: Final = 0.618034


class Stream(Protocol):
    """A writer of one unit after another, with at most one in flight."""

    def gather(self) -> None:
        """Submit what is waiting, if anything: the next item is being made."""

    def answered(self, answer: Answer) -> None:
        """Receive the result of the unit in flight."""


class SubmitAll(Protocol):
    """See :meth:`clew.store.base.Store.submit_all`."""

    def __call__(self, units: Sequence[Unit], answered: Answered, *, awaited: bool) -> None: ...


class CommitBatcher:
    """Batches the units of the streams on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, submit_all: SubmitAll) -> None:
        self.loop = loop
        self._submit_all = submit_all
        self._waiting: list[Stream] = []
        self._units: list[Unit] = []
        self._streams: list[Stream] = []
        self._turn: asyncio.Handle | None = None
        self._awaited = self._gathering = False
        self._under_way = self._folds = self._new_folds = 0
        self._phase = 0.0

    def wake(self, stream: Stream) -> None:
        """Have the stream asked for its next unit at the end of this loop iteration."""
        self._waiting.append(stream)
        if self._turn is None:
            self._turn = self.loop.call_soon(self._make_item)

    def hand_in(self, stream: Stream, unit: Unit) -> None:
        """Add a unit to the item of this loop iteration."""
        self._units.append(unit)
        self._streams.append(stream)
        if not self._gathering:
            self._awaited = True
            if unit.sync == "power":
                self._make_item()
            elif self._turn is None:
                self._turn = self.loop.call_soon(self._make_item)

    def hurry(self) -> None:
        """Report that a submitted unit is being awaited now."""
        self._submit_all((), lambda answers: None, awaited=True)

    def next_phase(self) -> float:
        """Return where in its period a new stream begins to fold, from 0 to 1, spread evenly over streams that begin
        together."""
        self._phase = (self._phase + _GOLDEN) % 1.0
        return self._phase

    def takes_fold(self) -> bool:
        """Return whether the next item accepts one more fold that could wait. Units in flight count: until the store
        starts on them, the next item joins them."""
        if (self._folds + self._new_folds) * UNITS_PER_FOLD > len(self._units) + self._under_way:
            return False
        self._new_folds += 1
        return True

    def _make_item(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        waiting, self._waiting = self._waiting, []
        self._gathering = True
        for stream in waiting:
            try:
                stream.gather()
            except Exception as error:
                # A stream that fails here must not delay the others.
                _deliver(stream, error)
        self._gathering = False
        units, streams, awaited = self._units, self._streams, self._awaited
        if not units:
            return
        folds, remaining = self._new_folds, len(units)
        self._units, self._streams, self._awaited, self._new_folds = [], [], False, 0
        self._folds += folds
        self._under_way += remaining

        def answered(answers: Sequence[tuple[int, Answer]]) -> None:
            nonlocal remaining
            remaining -= len(answers)
            self._under_way -= len(answers)
            if not remaining:
                self._folds -= folds
            for index, answer in answers:
                _deliver(streams[index], answer)

        try:
            self._submit_all(units, answered, awaited=awaited)
        except Exception as error:
            # Whatever the store raises, every stream must get an answer.
            answered([(index, error) for index in range(len(units))])


def _deliver(stream: Stream, answer: Answer) -> None:
    try:
        stream.answered(answer)
    except Exception:
        log.exception("a stream failed to process the result of its unit; other streams continue")


class Watched:
    """A base for stores that can be watched, and written to by many streams."""

    _on_commit: Callable[[Unit], None] | None = None
    _hub: CommitBatcher | None = None

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        """See :meth:`clew.store.base.Store.submit`."""
        raise NotImplementedError

    @property
    def hub(self) -> CommitBatcher:
        """See :attr:`clew.store.base.Store.hub`."""
        loop = asyncio.get_running_loop()
        if self._hub is None or self._hub.loop is not loop:
            self._hub = CommitBatcher(loop, self.submit_all)
        return self._hub

    def submit_all(self, units: Sequence[Unit], answered: Answered, *, awaited: bool) -> None:
        """Submit each unit on its own; stores that can write them together faster override this."""
        for index, unit in enumerate(units):
            try:
                self.submit(unit).add_done_callback(functools.partial(_forward, answered, index))
            except Exception as error:
                answered([(index, error)])

    def watch(self, listener: Callable[[Unit], None]) -> None:
        """See :meth:`clew.store.base.Store.watch`."""
        self._on_commit = listener

    def _notify_on_commits(self, units: Sequence[Unit], answered: Answered) -> Answered:
        """Return ``answered`` such that the watcher is notified first of each unit that is durable."""

        def notify(answers: Sequence[tuple[int, Answer]]) -> None:
            try:
                if self._on_commit is not None:
                    for index, answer in answers:
                        if isinstance(answer, Committed):
                            self._on_commit(units[index])
            finally:
                answered(answers)

        return notify

    def _notify_on_commit(self, unit: Unit, future: asyncio.Future[Outcome]) -> asyncio.Future[Outcome]:
        """Notify the watcher once the unit is durable; return the future."""
        listener = self._on_commit
        if listener is not None:

            def notify(done: asyncio.Future[Outcome]) -> None:
                if not done.cancelled() and done.exception() is None and isinstance(done.result(), Committed):
                    listener(unit)

            notify(future) if future.done() else future.add_done_callback(notify)
        return future


def _forward(answered: Answered, index: int, done: asyncio.Future[Outcome]) -> None:
    if done.cancelled():
        answered([(index, InternalError("a unit was cancelled"))])
    else:
        answered([(index, done.exception() or done.result())])
