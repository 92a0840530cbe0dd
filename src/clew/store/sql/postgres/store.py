"""The PostgreSQL store: writers by session, readers off the event loop, any number of processes on one database."""

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
from clew.store.hub import Answer, Answered
from clew.store.search import plan_search
from clew.store.sql.care import LOOKS, SqlCare, look_over
from clew.store.sql.conversations import SqlMoment
from clew.store.sql.indexing import Indexing
from clew.store.sql.postgres.connection import shown_url
from clew.store.sql.postgres.pool import ReaderPool
from clew.store.sql.postgres.search import find_hits
from clew.store.sql.postgres.search_index import SearchIndex
from clew.store.sql.postgres.writer import Writers
from clew.store.sql.triggers import SqlTriggers
from clew.store.unit import Committed, Outcome, Unit
from clew.store.watched import Watched

__all__ = ["PostgresStore"]

logger = logging.getLogger("clew.store")


class PostgresStore(Watched, SqlMoment, SqlTriggers, SqlCare):
    """The contract on a PostgreSQL database. See :mod:`clew.store.base` for what each method promises."""

    def __init__(self, url: str, readers: ReaderPool, writers: Writers | None) -> None:
        super().__init__(readers)
        self._shown = shown_url(url)
        self._readers = readers
        self._writers = writers
        self._closed = False
        self._indexing = None if writers is None else Indexing(lambda: writers.work(SearchIndex.batch), self._shown)

    @property
    def url(self) -> str:
        """Without what opens it."""
        return self._shown

    @property
    def capabilities(self) -> Capabilities:
        shared = SessionIdForm.SHARED
        return Capabilities(
            chunk_durable=True, search=True, many_processes=True, session_ids=shared, holds_sessions=False
        )

    @property
    def commits(self) -> int:
        """How many transactions were committed since the store was opened."""
        return self._writers.commits if self._writers else 0

    def announce(self, url: str | None) -> None:
        """Nobody is kept out, so nobody has to be told where this process is."""

    async def check_writable(self) -> None:
        """Raise when the store was opened for reading. The lease, renewed by a write, is lost on a full disk."""
        self._open_writers()

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return self._told_of(unit, self._open_writers().submit(unit))

    def submit_all(self, units: Sequence[Unit], answered: Answered, *, awaited: bool) -> None:
        def tell(answers: Sequence[tuple[int, Answer]]) -> None:
            try:
                if self._told is not None:
                    for place, answer in answers:
                        if isinstance(answer, Committed):
                            self._told(units[place])
            finally:
                answered(answers)

        self._open_writers().submit_all(units, tell, awaited=awaited)

    def _open_writers(self) -> Writers:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._writers is None:
            raise StoreReadOnly(f"{self._shown} was opened for reading")
        return self._writers

    async def commit(self, unit: Unit) -> Outcome:
        return await self.submit(unit)

    async def search(self, query: SearchQuery) -> SearchPage:
        if self._closed:
            raise StoreClosed("the store is closed")
        plan = plan_search(query)
        indexing = self._indexing
        # What whoever only reads finds was indexed by somebody else, who may be behind.
        complete = indexing is not None and not indexing.is_under_way
        # A later page reads what the first one saw; what came since would move the hits between them.
        if indexing is not None and plan.offset == 0:
            complete = await indexing.catch_up(wait=query.wait)
        page = await self._readers.run(lambda sql: find_hits(sql, plan), long=True)
        return msgspec.structs.replace(page, complete=complete)

    async def rebuild_search(self) -> None:
        await self._open_writers().work(SearchIndex.make)
        if self._indexing is not None:
            await self._indexing.catch_up(wait=True)

    async def verify(self) -> Sequence[Damage]:
        return tuple(await self._readers.run(lambda sql: look_over(sql, LOOKS, psycopg.DataError), long=True))

    async def losses(self) -> tuple[Damage, ...]:
        return ()  # what was acknowledged is PostgreSQL's to keep; nothing is noted beside it

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        return False

    async def rebuild(self, target: Path) -> Rebuilt:
        raise NotSupported("a store on PostgreSQL keeps no event log to be rebuilt from; restore a dump")

    async def backup(self, target: Path) -> None:
        raise NotSupported(f"copy {self._shown} with PostgreSQL's own means: pg_dump --format=custom --file={target}")

    async def write_ledger(self, target: Path) -> None:
        raise NotSupported(
            "a store on PostgreSQL writes no ledger file; clew convert makes a SQLite file of it, which does"
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
