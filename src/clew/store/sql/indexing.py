"""How a search index catches up with its store: a transaction at a time, and whoever wants to write goes in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from clew.errors import InternalError, StoreError

__all__ = ["Indexing"]

log = logging.getLogger("clew.store")

SOON: Final = 4
"""So many transactions go before an answer that does not wait for all."""


class Indexing:
    """The index of one store that is open for writing, which ``name`` is shown as.

    ``batch`` is one transaction of it, and tells whether there may be more.
    """

    def __init__(self, batch: Callable[[], Awaitable[bool]], name: str) -> None:
        self._batch = batch
        self._name = name
        self._rest: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._rest is not None

    async def catch_up(self, *, wait: bool) -> bool:
        """Index what is missing; whether that is all. Who does not ``wait`` for much leaves the rest to a task, which
        the next ones find going on."""
        if not wait and self._rest is not None:
            return False
        done = 0
        while await self._batch():
            done += 1
            if not wait and done >= SOON:
                self._rest = asyncio.get_running_loop().create_task(self._index_rest())
                return False
        return True

    async def _index_rest(self) -> None:
        try:
            while await self._batch():
                pass
        except (StoreError, InternalError) as error:
            log.warning("the search index of %s is not complete yet: %s", self._name, error)
        finally:
            self._rest = None

    async def close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            await asyncio.gather(self._rest, return_exceptions=True)
