"""Telling of what was written: whoever watches a store is called with every unit that is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from clew.store.unit import Committed, Outcome, Unit

__all__ = ["Watched"]


class Watched:
    """What a store is that can be watched."""

    _told: Callable[[Unit], None] | None = None

    def watch(self, told: Callable[[Unit], None]) -> None:
        """See :meth:`clew.store.base.Store.watch`."""
        self._told = told

    def _told_of(self, unit: Unit, future: asyncio.Future[Outcome]) -> asyncio.Future[Outcome]:
        """Tell of the unit once it is durable; the future comes back."""
        told = self._told
        if told is not None:

            def look(done: asyncio.Future[Outcome]) -> None:
                if not done.cancelled() and done.exception() is None and isinstance(done.result(), Committed):
                    told(unit)

            look(future) if future.done() else future.add_done_callback(look)
        return future
