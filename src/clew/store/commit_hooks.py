"""Commit hooks: the watcher of a store is called with every unit that is durable."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence

from clew.errors import InternalError
from clew.store.commit_batcher import Answered, CommitBatcher
from clew.store.unit import Committed, Outcome, Unit

__all__ = ["Watched"]


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
