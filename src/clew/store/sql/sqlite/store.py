"""The SQLite store: one writer thread, readers off the event loop, one owner per file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

# What writes is imported with the owner of a file: a reader needs none of it.
import msgspec

from clew.errors import InvalidInput, StoreReadOnly, StoreUnavailable
from clew.ids import SessionIdForm
from clew.store.base import Capabilities, Damage, Rebuilt
from clew.store.disk import check_room
from clew.store.owner import OwnerLock
from clew.store.sql.sqlite.base import SqliteBase
from clew.store.sql.sqlite.commit_counter import (
    LOSS_CAUSE,
    damage_of,
    find_loss,
    newest_commit,
    open_losses,
    read_notes,
)
from clew.store.sql.sqlite.connection import (
    QUERIES,
    connect,
    protect,
    remove_files,
    translate,
    uri_to_read,
)
from clew.store.sql.sqlite.migrate import statements
from clew.store.sql.sqlite.names import find_prefixed, translator
from clew.store.sql.sqlite.pool import ReaderPool
from clew.store.sql.statements import Statements, read_sql

if TYPE_CHECKING:
    from clew.store.sql.sqlite.writer import Writer

__all__ = ["SqliteOptions", "SqliteStore", "new_file"]


class SqliteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a store. ``read_only`` takes no owner lock and never writes."""

    read_only: bool = False
    every_commit_full: bool = False
    window_ms: float = 0.0
    gap_ms: float = 1.0
    lock_wait_ms: float = 60_000.0
    reader_threads: int = 2
    max_pages: int | None = None
    checkpoints: bool = True
    event_log: bool = False


logger = logging.getLogger("clew.store")


def _losses(sql: Statements) -> tuple[Damage, ...]:
    return open_losses(sql, LOSS_CAUSE)


class SqliteStore(SqliteBase):
    """The contract on a SQLite file. See :mod:`clew.store.base` for each method."""

    _checks = (*SqliteBase._checks, _losses)

    def __init__(self, path: Path, readers: ReaderPool, writer: Writer | None, lock: OwnerLock | None) -> None:
        super().__init__(readers, writer, str(path))
        self.path = path
        self._readers = readers
        self._lock = lock

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def capabilities(self) -> Capabilities:
        shared = SessionIdForm.SHARED
        return Capabilities(
            chunk_durable=True, search=self._search, many_processes=False, session_ids=shared, holds_sessions=False
        )

    def announce(self, url: str | None) -> None:
        """Publish the URL of the owner for other processes."""
        if self._lock is not None:
            self._lock.announce(url)

    async def check_writable(self) -> None:
        self._open_writer().transactions.check()
        await asyncio.to_thread(self._check_disk)

    def _check_disk(self) -> None:
        if self._lock is not None:
            self._lock.check()
        check_room(self.path, self.path.parent)

    async def verify(self) -> Sequence[Damage]:
        return (*await super().verify(), *await self._unnoted())

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
        if not (first.isascii() and first.isdecimal()):
            return False
        statements, params = self._writer.transactions.statements, {"held": int(first) - 1, "at": at}
        return bool(await self._writer.work(lambda _: statements.run("accept_loss", params)))

    async def rebuild(self, target: Path) -> Rebuilt:
        from clew.store.sql.sqlite.rebuild import rebuild

        return await asyncio.to_thread(rebuild, self.path, target)

    async def backup(self, target: Path) -> None:
        await asyncio.to_thread(_backup, self.path, target)

    async def write_ledger(self, target: Path) -> None:
        await asyncio.to_thread(_write_ledger, self.path, target)

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self._readers.close)
        if self._lock is not None:
            self._lock.release()


def _backup(source: Path, target: Path) -> None:
    """Copy one state of the store with SQLite's backup. In WAL mode its long read blocks no writer; a stepwise copy
    would restart on every write."""
    with (
        new_file(target),
        contextlib.closing(connect(source, writer=False)) as reader,
        contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy,
    ):
        reader.backup(copy)
        # The copy gets its own store id, so that an older copy in place of the original is recognized.
        copy.execute(translator(find_prefixed(copy))(QUERIES["name_store_anew"]))


def _write_ledger(source: Path, target: Path) -> None:
    """Write one state of the ledger as tables: a view cannot refer to another file."""
    with new_file(target), contextlib.closing(sqlite3.connect(target, isolation_level=None, uri=True)) as file:
        file.execute("ATTACH ? AS store", (uri_to_read(source),))
        own = translator(find_prefixed(file, "store"))
        file.execute("BEGIN IMMEDIATE")
        for statement in statements(read_sql("sqlite/ledger_file.sql")):
            file.execute(own(statement))
        file.execute("COMMIT")


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[None]:
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
