"""The memory store: the engine on a database in memory. Everything runs inline, in the thread that asks.

A unit is committed when ``submit`` returns, and a read never suspends. So a test on a fake clock runs the same way each
time, and a store of one's own can be built on it.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from clew.clock import Clock, SystemClock
from clew.errors import NotSupported, StoreClosed
from clew.ids import Mint
from clew.store.base import Capabilities, Damage, Rebuilt
from clew.store.sql.line_cache import LineCache
from clew.store.sql.log import EventLog
from clew.store.sql.sqlite.base import SqliteBase
from clew.store.sql.sqlite.connection import QUERIES, SqliteStatements, connect_in_memory, transaction
from clew.store.sql.sqlite.migrate import migrate
from clew.store.sql.sqlite.pool import read_in_transaction, run_read
from clew.store.sql.sqlite.transactions import BeforeCommit, Transactions
from clew.store.sql.sqlite.writer import InlineWriter
from clew.store.sql.statements import IsLong, Reads, ReadTransaction, Statements, end_of

__all__ = ["MemoryStore"]

T = TypeVar("T")


class MemoryStore(SqliteBase):
    """A store whose contents live as long as it is open. See :mod:`clew.store.base` for each method.

    ``before_commit`` is called with every group of units inside its transaction; an error rolls them back.
    """

    def __init__(
        self,
        *,
        event_log: bool = False,
        clock: Clock | None = None,
        mint: Mint | None = None,
        before_commit: BeforeCommit | None = None,
    ) -> None:
        clock = clock or SystemClock()
        connection = _new_database()
        log = EventLog(SqliteStatements(connection), clock) if event_log else None
        if log is not None:
            with transaction(connection):
                log.start()
        lines = LineCache(lambda _: True)
        transactions = Transactions(connection, None, mint or Mint(clock), lines, log, before_commit=before_commit)
        super().__init__(_InlineReads(transactions), InlineWriter(transactions), transactions.name)

    @property
    def url(self) -> str:
        return "memory:"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(chunk_durable=True, search=self._search, many_processes=False, holds_sessions=False)

    def announce(self, url: str | None) -> None:
        """Do nothing: no other process can open this store."""

    async def check_writable(self) -> None:
        self._open_writer().transactions.check()

    async def losses(self) -> tuple[Damage, ...]:
        return ()

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        return False

    async def rebuild(self, target: Path) -> Rebuilt:
        raise NotSupported("a memory: store keeps no event log to rebuild from; a sqlite: one does")

    async def backup(self, target: Path) -> None:
        raise NotSupported("a memory store has nothing to back up; open a sqlite: store to keep sessions")

    async def write_ledger(self, target: Path) -> None:
        raise NotSupported(
            "the ledger is written from a sqlite: store; `clew convert` this one into such a store first"
        )


class _InlineReads:
    """Reads on the writing connection, which is never inside a transaction when a read begins."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self.lines = transactions.lines

    async def run(self, call: Callable[[Statements], T], session_id: str | None = None, *, long: IsLong = False) -> T:
        return self._read(call)

    async def at_once(self, ask: Callable[[Reads], Coroutine[Any, Any, T]], session_id: str | None = None) -> T:
        def run_one(call: Callable[[Statements], Any], sql: Statements) -> Any:
            return run_read(call, sql, None)

        return self._read(lambda sql: end_of(ask(ReadTransaction(sql, self.lines, in_long=True, answer=run_one))))

    def _read(self, call: Callable[[Statements], T]) -> T:
        transactions = self._transactions
        if transactions.closed:
            raise StoreClosed("the store is closed")
        return read_in_transaction(transactions.connection, call, None, transactions.journal.tails)


def _new_database() -> sqlite3.Connection:
    connection = connect_in_memory()
    _template().backup(connection)
    connection.execute(QUERIES["name_store_anew"])
    return connection


@functools.cache
def _template() -> sqlite3.Connection:
    """Return an empty store. Copying it takes a quarter of the time that creating all tables takes."""
    connection = connect_in_memory()
    migrate(connection, Path(":memory:"))
    return connection
