"""The engine of a conversation: one of this process, or a server's, which may disconnect and return."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from clew.errors import Conflict, PermissionDenied, StoreError
from clew.fronts.cli.command import AnyEngine
from clew.fronts.remote.engine import RemoteEngine
from clew.live.base import Event

__all__ = ["Connection"]

_RECONNECT_S: Final = (0.2, 0.5, 1.0, 2.0)
"""Waits between attempts to reconnect; the last one repeats."""
_REPORT_AFTER: Final = 3
"""Failed attempts after which the loss is reported; before that it may be another chat taking over."""


class Connection:
    """``reopen`` reconnects to a lost engine; without it, a loss is final."""

    def __init__(self, engine: AnyEngine, reopen: Callable[[], Awaitable[AnyEngine]] | None) -> None:
        self.engine = engine
        self._reopen = reopen

    @property
    def can_reconnect(self) -> bool:
        return self._reopen is not None

    async def listen(self) -> AsyncIterator[Event]:
        """Return the events from now on."""
        events = self.engine.subscribe()
        if isinstance(self.engine, RemoteEngine):
            # The first event confirms the subscription, so that none is missed.
            await anext(events)
        return events

    async def reconnect(
        self, catch_up: Callable[[], Awaitable[None]], report_lost: Callable[[], None]
    ) -> AsyncIterator[Event]:
        """Wait for the server, catch up with what was missed, and return the events from then on.

        ``report_lost`` is called if that takes longer than another chat needs to leave or a server to restart.
        """
        assert self._reopen is not None
        for attempt in itertools.count():
            if attempt == _REPORT_AFTER:
                report_lost()
            await asyncio.sleep(_RECONNECT_S[min(attempt, len(_RECONNECT_S) - 1)])
            with contextlib.suppress(StoreError, Conflict, PermissionDenied):
                self.engine = await self._reopen()
                events = await self.listen()
                await catch_up()
                return events
        raise AssertionError("unreachable")
