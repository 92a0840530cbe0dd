"""Bringing a search index up to date: one transaction at a time, so that other writes can go in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from clew.errors import InternalError, StoreError

__all__ = ["Indexing"]

log = logging.getLogger("clew.store")

SOON: Final = 4
"""Transactions to run before an answer that does not wait for complete indexing."""


class Indexing:
    """The indexing of one store that is open for writing; ``name`` is shown in the log.

    ``batch`` runs one transaction and returns whether there may be more.
    """

    def __init__(self, batch: Callable[[], Awaitable[bool]], name: str) -> None:
        self._batch = batch
        self._name = name
        self._background: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._background is not None

    async def catch_up(self, *, wait: bool) -> bool:
        """Index what is missing; return whether that is everything. Without ``wait`` the rest is left to a background
        task, which later calls find running."""
        if not wait and self._background is not None:
            return False
        done = 0
        while await self._batch():
            done += 1
            if not wait and done >= SOON:
                self._background = asyncio.get_running_loop().create_task(self._index_remaining())
                return False
        return True

    async def _index_remaining(self) -> None:
        try:
            while await self._batch():
                pass
        except (StoreError, InternalError) as error:
            log.warning("the search index of %s is not complete yet: %s", self._name, error)
        finally:
            self._background = None

    async def close(self) -> None:
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)
