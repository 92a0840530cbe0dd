"""The SQLite store: one writer thread, readers off the event loop, one owner per file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from clew.errors import (
    InternalError,
    InvalidInput,
    NotSupported,
    StoreClosed,
    StoreReadOnly,
    StoreUnavailable,
)
from clew.ids import SessionIdForm
from clew.store.base import Capabilities, Damage, Rebuilt, SearchPage, SearchQuery
from clew.store.commit_batcher import Answer, Answered
from clew.store.commit_hooks import Watched
from clew.store.disk import check_room
from clew.store.owner import OwnerLock
from clew.store.search import plan_search
from clew.store.sql.conversations import SqlMoment
from clew.store.sql.indexing import Indexing
from clew.store.sql.lost_commits import damage_of, newest_commit, open_losses
from clew.store.sql.maintenance import CHECKS, SqlMaintenance, run_checks
from clew.store.sql.queries import read_sql
from clew.store.sql.sqlite.commit_counter import LOSS_CAUSE, find_loss, read_notes
from clew.store.sql.sqlite.connection import (
    QUERIES,
    connect,
    has_fts5,
    protect,
    remove_files,
    translate,
    uri_to_read,
)
from clew.store.sql.sqlite.migrate import statements
from clew.store.sql.sqlite.pool import ReaderPool
from clew.store.sql.sqlite.rebuild import rebuild
from clew.store.sql.sqlite.search import find_hits
from clew.store.sql.sqlite.search_index import SearchIndex
from clew.store.sql.sqlite.writer import Writer
from clew.store.sql.statements import Statements
from clew.store.sql.triggers import SqlTriggers
from clew.store.unit import Committed, Outcome, Unit

__all__ = ["SqliteStore"]

logger = logging.getLogger("clew.store")


class SqliteStore(Watched, SqlMoment, SqlTriggers, SqlMaintenance):
    """The contract on a SQLite file. See :mod:`clew.store.base` for each method."""

    def __init__(self, path: Path, readers: ReaderPool, writer: Writer | None, lock: OwnerLock | None) -> None:
        super().__init__(readers)
        self.path = path
        self._readers = readers
        self._writer = writer
        self._lock = lock
        self._closed = False
        self._search = has_fts5()
        self._indexing = None if writer is None else Indexing(lambda: writer.work(SearchIndex.batch), str(path))

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def capabilities(self) -> Capabilities:
        shared = SessionIdForm.SHARED
        return Capabilities(
            chunk_durable=True, search=self._search, many_processes=False, session_ids=shared, holds_sessions=False
        )

    @property
    def commits(self) -> int:
        """Return how many transactions were committed since the store was opened."""
        return self._writer.commits if self._writer else 0

    def version(self, session_id: str | None) -> Hashable | None:
        lines = self._readers.lines
        return lines.version(session_id) if lines is not None and self._writer is not None else None

    def announce(self, url: str | None) -> None:
        """Publish the URL of the owner for other processes."""
        if self._lock is not None:
            self._lock.announce(url)

    async def check_writable(self) -> None:
        self._open_writer().check()
        await asyncio.to_thread(self._check_disk)

    def _check_disk(self) -> None:
        if self._lock is not None:
            self._lock.check()
        check_room(self.path, self.path.parent)

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return self._notify_on_commit(unit, self._open_writer().submit(unit))

    def submit_all(self, units: Sequence[Unit], answered: Answered, *, awaited: bool) -> None:
        def notify(answers: Sequence[Answer]) -> None:
            try:
                if self._on_commit is not None:
                    for unit, answer in zip(units, answers, strict=True):
                        if isinstance(answer, Committed):
                            self._on_commit(unit)
            finally:
                answered(list(enumerate(answers)))

        self._open_writer().submit_all(units, notify, awaited=awaited)

    def _open_writer(self) -> Writer:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._writer is None:
            raise StoreReadOnly(f"{self.path} was opened read-only")
        return self._writer

    async def commit(self, unit: Unit) -> Outcome:
        return await self.submit(unit)

    async def search(self, query: SearchQuery) -> SearchPage:
        self._need_search()
        plan = plan_search(query)
        writer, indexing = self._writer, self._indexing
        # A read-only store depends on the indexing of other processes, which may be behind.
        complete = indexing is not None and not indexing.is_under_way
        try:
            # Later pages use the index of the first one; new hits would shift the others between pages.
            if indexing is not None and plan.offset == 0:
                complete = await indexing.catch_up(wait=query.wait)
            page = await self._readers.run(lambda sql: find_hits(sql, plan), long=True)
        except StoreUnavailable:
            # A damaged index is rebuilt; any other damage makes that fail too.
            if writer is None:
                raise
            page = None
            await writer.work(SearchIndex.make)
        if page is None:
            if indexing is None:
                raise NotSupported(f"{self.path} has no search index yet; open it for writing and search once")
            complete = await indexing.catch_up(wait=query.wait)
            page = await self._readers.run(lambda sql: find_hits(sql, plan), long=True)
        if page is None:
            raise InternalError("the search index was removed during the search; try again")
        return msgspec.structs.replace(page, complete=complete)

    async def rebuild_search(self) -> None:
        self._need_search()
        if self._writer is None or self._indexing is None:
            raise StoreReadOnly(f"{self.path} was opened read-only")
        await self._writer.work(SearchIndex.make)
        await self._indexing.catch_up(wait=True)

    def _need_search(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        if not self._search:
            raise NotSupported("this SQLite was built without FTS5, which searching needs; use a build that has it")

    async def verify(self) -> Sequence[Damage]:
        checks = (_pages, _references, *CHECKS, _losses)
        found = await self._readers.run(lambda sql: run_checks(sql, checks, sqlite3.DatabaseError), long=True)
        return (*found, *await self._unnoted())

    async def losses(self) -> tuple[Damage, ...]:
        return (*await self._readers.run(_losses), *await self._unnoted())

    async def _unnoted(self) -> tuple[Damage, ...]:
        """Return a loss that no writer has recorded yet. Notes are read first: the commits they name are read after
        them."""
        if self._writer is not None:
            return ()
        notes = await asyncio.to_thread(read_notes, self.path)
        store_id, held = await self._readers.run(newest_commit)
        loss = find_loss(notes, store_id, held)
        return (damage_of(loss, LOSS_CAUSE),) if loss is not None else ()

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        if self._writer is None:
            raise StoreReadOnly(f"{self.path} was opened read-only")
        first = loss_id.removeprefix("loss-")
        return bool(first.isascii() and first.isdecimal() and await self._writer.accept_loss(int(first) - 1, at))

    async def rebuild(self, target: Path) -> Rebuilt:
        return await asyncio.to_thread(rebuild, self.path, target)

    async def backup(self, target: Path) -> None:
        await asyncio.to_thread(_backup, self.path, target)

    async def write_ledger(self, target: Path) -> None:
        await asyncio.to_thread(_write_ledger, self.path, target)

    async def release(self, session_id: str) -> None:
        pass

    async def close(self) -> None:
        self._closed = True
        if self._indexing is not None:
            await self._indexing.close()
        writer, self._writer = self._writer, None
        if writer is not None:
            await asyncio.to_thread(writer.close)
        await asyncio.to_thread(self._readers.close)
        if self._lock is not None:
            self._lock.release()


def _pages(sql: Statements) -> Iterable[Damage]:
    return [Damage(row[0]) for row in sql.rows("verify_pages", {}) if row[0] != "ok"]


def _references(sql: Statements) -> Iterable[Damage]:
    return [
        Damage(f"row {rowid} of {table} refers to a missing row of {parent}")
        for table, rowid, parent, _ in sql.rows("verify_references", {})
    ]


def _losses(sql: Statements) -> tuple[Damage, ...]:
    return open_losses(sql, LOSS_CAUSE)


def _backup(source: Path, target: Path) -> None:
    """Copy one state of the store with SQLite's backup. In WAL mode its long read blocks no writer; a stepwise copy
    would restart on every write."""
    with (
        _new_file(target),
        contextlib.closing(connect(source, writer=False)) as reader,
        contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy,
    ):
        reader.backup(copy)
        # The copy gets its own store id, so that an older copy in place of the original is recognized.
        copy.execute(QUERIES["name_store_anew"])


def _write_ledger(source: Path, target: Path) -> None:
    """Write one state of the ledger as tables: a view cannot refer to another file."""
    with _new_file(target), contextlib.closing(sqlite3.connect(target, isolation_level=None, uri=True)) as file:
        file.execute("ATTACH ? AS store", (uri_to_read(source),))
        file.execute("BEGIN IMMEDIATE")
        for statement in statements(read_sql("sqlite/ledger_file.sql")):
            file.execute(statement)
        file.execute("COMMIT")


@contextlib.contextmanager
def _new_file(target: Path) -> Iterator[None]:
    """Write a new file; remove it if that fails."""
    if target.exists():
        raise InvalidInput(f"{target} already exists; choose a new file")
    try:
        protect(target)
        yield
    except (sqlite3.Error, OSError) as error:
        remove_files(target)
        if isinstance(error, OSError):
            raise StoreUnavailable(f"{target} cannot be written: {error.strerror or error}") from error
        raise translate(error, target) from error
