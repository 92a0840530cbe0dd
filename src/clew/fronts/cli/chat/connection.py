"""The engine a conversation talks to: one of this process, or a server's, which may go away and come back."""

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

_LOST_S: Final = (0.2, 0.5, 1.0, 2.0)
"""How long is waited between two looks for a server that is gone; the last one again and again."""
_STAYS: Final = 3
"""After so many looks in vain it is no mere change of hands."""


class Connection:
    """``reopen`` finds the engine again when it was lost; without it, lost is lost."""

    def __init__(self, engine: AnyEngine, reopen: Callable[[], Awaitable[AnyEngine]] | None) -> None:
        self.engine = engine
        self._reopen = reopen

    @property
    def comes_back(self) -> bool:
        return self._reopen is not None

    async def listen(self) -> AsyncIterator[Event]:
        """What happens, from now on."""
        events = self.engine.subscribe()
        if isinstance(self.engine, RemoteEngine):
            # It greets once nothing can be missed any more.
            await anext(events)
        return events

    async def find_again(
        self, catch_up: Callable[[], Awaitable[None]], stays_lost: Callable[[], None]
    ) -> AsyncIterator[Event]:
        """Wait until the server is there and what was missed is caught up with; what happens from then on.

        ``stays_lost`` is called when that takes longer than it takes another chat to leave, or a server to start anew.
        """
        assert self._reopen is not None
        for look in itertools.count():
            if look == _STAYS:
                stays_lost()
            await asyncio.sleep(_LOST_S[min(look, len(_LOST_S) - 1)])
            with contextlib.suppress(StoreError, Conflict, PermissionDenied):
                self.engine = await self._reopen()
                events = await self.listen()
                await catch_up()
                return events
        raise AssertionError("it is looked for without end")
