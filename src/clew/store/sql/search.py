"""Search in SQL: bringing an index up to date, one transaction at a time, and converting its hits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import orjson
from msgspec.structs import replace

from clew.errors import InternalError, StoreError
from clew.store.search import SearchHit
from clew.store.sql.messages import MessageReader
from clew.store.sql.statements import Statements

__all__ = ["Indexing", "mark_damaged", "to_hit"]

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


def to_hit(row: tuple[Any, ...], snippet: str) -> SearchHit:
    """Convert a row: ids of session, message and part, the message's role, time and metadata, the session's
    metadata."""
    session_id, message_id, part_id, role, created_at, message_json, session_json = row
    title = _metadata(session_json).get("title")
    return SearchHit(
        session_id=session_id,
        message_id=message_id,
        part_id=part_id,
        title=title if isinstance(title, str) else None,
        snippet=snippet,
        hidden="hidden_at" in _metadata(message_json),
        role=role,
        created_at=created_at,
    )


def mark_damaged(sql: Statements, hits: Iterable[SearchHit]) -> tuple[SearchHit, ...]:
    """Return the hits with those in damaged messages marked."""
    hits = tuple(hits)
    by_session: dict[str, set[str]] = {}
    for hit in hits:
        by_session.setdefault(hit.session_id, set()).add(hit.message_id)
    loaded = [MessageReader(sql).load(id_, wanted, keep_damaged=True) for id_, wanted in by_session.items()]
    damaged = {row.id for messages in loaded for row in messages.values() if row.damage is not None}
    return tuple(replace(hit, snippet=f"[damaged] {hit.snippet}") if hit.message_id in damaged else hit for hit in hits)


def _metadata(text: str) -> dict[str, Any]:
    """Decode metadata; a damaged row loses its metadata but does not fail the page."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
