"""The PostgreSQL store: writers by session, readers off the event loop, any number of processes per database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psycopg

from clew.errors import NotSupported, StoreClosed, StoreReadOnly
from clew.ids import SessionIdForm
from clew.store.base import Capabilities, Damage, Rebuilt, SearchPage, SearchQuery
from clew.store.commit_batcher import Answered, Watched
from clew.store.search import plan_search
from clew.store.sql.conversations import SqlMoment
from clew.store.sql.maintenance import CHECKS, SqlMaintenance, run_checks
from clew.store.sql.postgres.connection import shown_url
from clew.store.sql.postgres.pool import ReaderPool
from clew.store.sql.postgres.search_index import SearchIndex, find_hits
from clew.store.sql.postgres.writer import Writers
from clew.store.sql.search import Indexing
from clew.store.sql.triggers import SqlTriggers
from clew.store.unit import Outcome, Unit

__all__ = ["PostgresStore"]

logger = logging.getLogger("clew.store")


class PostgresStore(Watched, SqlMoment, SqlTriggers, SqlMaintenance):
    """The contract on a PostgreSQL database. See :mod:`clew.store.base` for each method."""

    def __init__(self, url: str, readers: ReaderPool, writers: Writers | None) -> None:
        super().__init__(readers)
        self._shown = shown_url(url)
        self._readers = readers
        self._writers = writers
        self._closed = False
        self._indexing = None if writers is None else Indexing(lambda: writers.work(SearchIndex.batch), self._shown)

    @property
    def url(self) -> str:
        """Return the URL without credentials."""
        return self._shown

    @property
    def capabilities(self) -> Capabilities:
        shared = SessionIdForm.SHARED
        return Capabilities(
            chunk_durable=True, search=True, many_processes=True, session_ids=shared, holds_sessions=False
        )

    @property
    def commits(self) -> int:
        """Return how many transactions were committed since the store was opened."""
        return self._writers.commits if self._writers else 0

    def announce(self, url: str | None) -> None:
        """Do nothing: any number of processes can open the store."""

    async def check_writable(self) -> None:
        """Raise if the store is read-only. A full disk shows as a lost lease, because renewing it is a write."""
        self._open_writers()

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return self._notify_on_commit(unit, self._open_writers().submit(unit))

    def submit_all(self, units: Sequence[Unit], answered: Answered, *, awaited: bool) -> None:
        self._open_writers().submit_all(units, self._notify_on_commits(units, answered), awaited=awaited)

    def _open_writers(self) -> Writers:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._writers is None:
            raise StoreReadOnly(f"{self._shown} was opened read-only")
        return self._writers

    async def commit(self, unit: Unit) -> Outcome:
        return await self.submit(unit)

    async def search(self, query: SearchQuery) -> SearchPage:
        if self._closed:
            raise StoreClosed("the store is closed")
        plan = plan_search(query)
        indexing = self._indexing
        # A read-only store depends on the indexing of other processes, which may be behind.
        complete = indexing is not None and not indexing.is_under_way
        # Later pages use the index of the first one; new hits would shift the others between pages.
        if indexing is not None and plan.offset == 0:
            complete = await indexing.catch_up(wait=query.wait)
        page = await self._readers.run(lambda sql: find_hits(sql, plan), long=True)
        return msgspec.structs.replace(page, complete=complete)

    async def rebuild_search(self) -> None:
        await self._open_writers().work(SearchIndex.make)
        if self._indexing is not None:
            await self._indexing.catch_up(wait=True)

    async def verify(self) -> Sequence[Damage]:
        return tuple(await self._readers.run(lambda sql: run_checks(sql, CHECKS, psycopg.DataError), long=True))

    async def losses(self) -> tuple[Damage, ...]:
        return ()  # PostgreSQL is responsible for acknowledged commits; clew does not record them separately

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        return False

    async def rebuild(self, target: Path) -> Rebuilt:
        raise NotSupported("a PostgreSQL store has no event log to rebuild from; restore a dump")

    async def backup(self, target: Path) -> None:
        raise NotSupported(f"back up {self._shown} with PostgreSQL's tools: pg_dump --format=custom --file={target}")

    async def write_ledger(self, target: Path) -> None:
        raise NotSupported(
            "a PostgreSQL store cannot write a ledger file; convert it to SQLite with `clew convert` first"
        )

    async def release(self, session_id: str) -> None:
        pass

    async def close(self) -> None:
        self._closed = True
        if self._indexing is not None:
            await self._indexing.close()
        writers, self._writers = self._writers, None
        if writers is not None:
            await asyncio.to_thread(writers.close)
        await asyncio.to_thread(self._readers.close)
