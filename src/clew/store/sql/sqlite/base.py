"""A store on a SQLite database, wherever that is: submitting units, reading, searching and checking."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from clew.errors import InternalError, NotSupported, StoreClosed, StoreReadOnly, StoreUnavailable
from clew.store.base import Damage, SearchPage, SearchQuery
from clew.store.commit_batcher import Answered, Watched
from clew.store.search import plan_search
from clew.store.sql.conversations import SqlMoment
from clew.store.sql.maintenance import CHECKS, Check, SqlMaintenance, run_checks
from clew.store.sql.search import Indexing
from clew.store.sql.sqlite.connection import has_fts5
from clew.store.sql.sqlite.search_index import SearchIndex, find_hits, is_complete
from clew.store.sql.statements import Reads, Statements
from clew.store.sql.triggers import SqlTriggers
from clew.store.unit import Outcome, Unit

# What writes is imported with the owner of a file: a reader needs none of it.
if TYPE_CHECKING:
    from clew.store.sql.sqlite.writer import Writer

__all__ = ["SqliteBase"]


def _pages(sql: Statements) -> Iterable[Damage]:
    return [Damage(row[0]) for row in sql.rows("verify_pages", {}) if row[0] != "ok"]


def _references(sql: Statements) -> Iterable[Damage]:
    return [
        Damage(f"row {rowid} of {table} refers to a missing row of {parent}")
        for table, rowid, parent, _ in sql.rows("verify_references", {})
    ]


class SqliteBase(Watched, SqlMoment, SqlTriggers, SqlMaintenance):
    """A base for stores on SQLite. Without a ``writer`` it is read-only; ``name`` is shown in messages."""

    _checks: ClassVar[tuple[Check, ...]] = (_pages, _references, *CHECKS)

    def __init__(self, reads: Reads, writer: Writer | None, name: str) -> None:
        super().__init__(reads)
        self.name = name
        self._writer = writer
        self._closed = False
        self._search = has_fts5()
        self._indexing = None if writer is None else Indexing(lambda: writer.work(SearchIndex.batch), name)

    @property
    def commits(self) -> int:
        """Return how many transactions were committed since the store was opened."""
        return self._writer.transactions.commits if self._writer else 0

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return self._notify_on_commit(unit, self._open_writer().submit(unit))

    def submit_all(self, units: Sequence[Unit], answered: Answered, *, awaited: bool) -> None:
        notify = self._notify_on_commits(units, answered)
        self._open_writer().submit_all(units, lambda answers: notify(list(enumerate(answers))), awaited=awaited)

    def _open_writer(self) -> Writer:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._writer is None:
            raise StoreReadOnly(f"{self.name} was opened read-only")
        return self._writer

    async def commit(self, unit: Unit) -> Outcome:
        return await self.submit(unit)

    async def search(self, query: SearchQuery) -> SearchPage:
        self._need_search()
        plan = plan_search(query)
        writer, indexing = self._writer, self._indexing
        complete = indexing is not None and not indexing.is_under_way
        try:
            # Later pages use the index of the first one; new hits would shift the others between pages.
            if indexing is not None and plan.offset == 0:
                complete = await indexing.catch_up(wait=query.wait)
            page = await self._reads.run(lambda sql: find_hits(sql, plan), long=True)
            if page is not None and indexing is None:
                # Indexing is up to other processes, which may be behind.
                complete = await self._reads.run(is_complete, long=True)
        except StoreUnavailable:
            # A damaged index is rebuilt; any other damage makes that fail too.
            if writer is None:
                raise
            page = None
            await writer.work(SearchIndex.make)
        if page is None:
            if indexing is None:
                raise NotSupported(f"{self.name} has no search index yet; open it for writing and search once")
            complete = await indexing.catch_up(wait=query.wait)
            page = await self._reads.run(lambda sql: find_hits(sql, plan), long=True)
        if page is None:
            raise InternalError("the search index was removed during the search; try again")
        return msgspec.structs.replace(page, complete=complete)

    async def rebuild_search(self) -> None:
        self._need_search()
        if self._writer is None or self._indexing is None:
            raise StoreReadOnly(f"{self.name} was opened read-only")
        await self._writer.work(SearchIndex.make)
        await self._indexing.catch_up(wait=True)

    def _need_search(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        if not self._search:
            raise NotSupported("this SQLite was built without FTS5, which searching needs; use a build that has it")

    async def verify(self) -> Sequence[Damage]:
        found = await self._reads.run(lambda sql: run_checks(sql, self._checks, sqlite3.DatabaseError), long=True)
        return tuple(found)

    async def release(self, session_id: str) -> None:
        pass

    async def close(self) -> None:
        self._closed = True
        if self._indexing is not None:
            await self._indexing.close()
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()
