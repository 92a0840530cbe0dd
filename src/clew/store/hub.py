"""The hub: what the streams of one event loop have to write, handed to their store together.

What arrives in one turn of the loop, of however many streams, is one item with one answer: a hand-over to a thread and
back costs more than a chunk. A synced unit is handed over at once, and takes along what waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from clew.store.unit import Outcome, Unit

__all__ = ["Answer", "Answered", "Hub", "Stream"]

log = logging.getLogger("clew.store")

Answer: TypeAlias = Outcome | BaseException
"""What became of a unit."""
Answered: TypeAlias = Callable[[Sequence[tuple[int, Answer]]], None]
"""Called on the event loop with what became of units, by their place in the item."""


UNITS_PER_FOLD: Final = 8
"""How many units under way there are to each of them with which a stream writes its parts anew, but for the first: more
folds would make the chunks of all others wait."""
_GOLDEN: Final = 0.618034


class Stream(Protocol):
    """Somebody who writes unit after unit and has at most one of them under way."""

    def gather(self) -> None:
        """The next item is being made: hand in what waits, if anything does."""

    def answered(self, answer: Answer) -> None:
        """What became of the unit under way."""


class SubmitAll(Protocol):
    """See :meth:`clew.store.base.Store.submit_all`."""

    def __call__(self, units: Sequence[Unit], answered: Answered, *, awaited: bool) -> None: ...


class Hub:
    """Gathers the units of the streams on one event loop."""

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
        """The stream has something to hand in; it is asked for it at the end of this turn of the loop."""
        self._waiting.append(stream)
        if self._turn is None:
            self._turn = self.loop.call_soon(self._make_item)

    def hand_in(self, stream: Stream, unit: Unit) -> None:
        """A unit for the item of this turn of the loop."""
        self._units.append(unit)
        self._streams.append(stream)
        if not self._gathering:
            self._awaited = True
            if unit.sync == "power":
                self._make_item()
            elif self._turn is None:
                self._turn = self.loop.call_soon(self._make_item)

    def hurry(self) -> None:
        """Somebody has begun to wait for a unit that was handed over."""
        self._submit_all((), lambda answers: None, awaited=True)

    def next_phase(self) -> float:
        """Where in its period a new stream begins to fold, from 0 to 1: evenly spread, however many begin together."""
        self._phase = (self._phase + _GOLDEN) % 1.0
        return self._phase

    def takes_fold(self) -> bool:
        """Whether the next item takes one more fold that could wait. What is under way counts: as long as the store has
        not begun with it, the next item goes along."""
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
                # One that cannot say what it has is no reason for the others to wait.
                _tell(stream, error)
        self._gathering = False
        units, streams, awaited = self._units, self._streams, self._awaited
        if not units:
            return
        folds, left = self._new_folds, len(units)
        self._units, self._streams, self._awaited, self._new_folds = [], [], False, 0
        self._folds += folds
        self._under_way += left

        def answered(answers: Sequence[tuple[int, Answer]]) -> None:
            nonlocal left
            left -= len(answers)
            self._under_way -= len(answers)
            if not left:
                self._folds -= folds
            for place, answer in answers:
                _tell(streams[place], answer)

        try:
            self._submit_all(units, answered, awaited=awaited)
        except Exception as error:
            # Whatever a store raises there: nobody may be left waiting for it.
            answered([(place, error) for place in range(len(units))])


def _tell(stream: Stream, answer: Answer) -> None:
    try:
        stream.answered(answer)
    except Exception:
        log.exception("a stream could not take in what became of its unit; the others go on")
