"""Reader connections: they cannot write, run in threads, and each call sees one state of the store.

Reads of much of the store have their own threads, so that short reads never wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from clew.errors import RowUndecodable, StoreClosed
from clew.long_work import AT_ONCE
from clew.store.sql.line_cache import LineCache
from clew.store.sql.sqlite.connection import Connect, SqliteStatements, connect, is_undecodable, translate
from clew.store.sql.statements import IsLong, Reads, ReadTransaction, Statements, TooLong, end_of, measured
from clew.store.sql.tails import Tails

__all__ = ["ReaderPool", "read_in_transaction", "run_read"]

T = TypeVar("T")


class ReaderPool:
    """Two lanes of threads with a connection each. ``run`` gives its call the statements of one read transaction.

    All connections are opened immediately: a file that is moved away later stays readable in every thread. Blocks.

    ``wait_for_adoption`` is called before each read, in its thread, with the id of the session.
    """

    wait_for_adoption: Callable[[str | None], None] | None = None
    lines: LineCache | None = None
    tails: Tails | None = None

    def __init__(self, path: Path, threads: int = 2, connect: Connect = connect) -> None:
        self._path = path
        self._closed = False
        with contextlib.ExitStack() as undo:
            self._short = _Lane("clew-reader", threads, path, connect, is_long=False)
            undo.callback(self._short.close)
            self._long = _Lane("clew-long-reader", AT_ONCE, path, connect, is_long=True)
            undo.pop_all()

    async def run(self, call: Callable[[Statements], T], session_id: str | None = None, *, long: IsLong = False) -> T:
        if long is not True:
            try:
                return await self._run_in(self._short, lambda sql: measured(call, sql, long), session_id)
            except TooLong:
                pass
        return await self._run_in(self._long, call, session_id)

    async def at_once(self, ask: Callable[[Reads], Coroutine[Any, Any, T]], session_id: str | None = None) -> T:
        def run_all(sql: Statements, *, in_long: bool = False) -> T:
            return end_of(ask(ReadTransaction(sql, self.lines, in_long=in_long, answer=run_one)))

        def run_one(call: Callable[[Statements], Any], sql: Statements) -> Any:
            return run_read(call, sql, self._path)

        try:
            return await self._run_in(self._short, run_all, session_id)
        except TooLong:
            return await self._run_in(self._long, lambda sql: run_all(sql, in_long=True), session_id)

    async def _run_in(self, lane: _Lane, call: Callable[[Statements], T], session_id: str | None) -> T:
        if self._closed:
            raise StoreClosed("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(lane.executor, self._call, lane, call, session_id)

    def _call(self, lane: _Lane, call: Callable[[Statements], T], session_id: str | None) -> T:
        if self.wait_for_adoption is not None:
            self.wait_for_adoption(session_id)
        with lane.connection() as connection:
            return self._read(connection, call)

    def _read(self, connection: sqlite3.Connection, call: Callable[[Statements], T]) -> T:
        return read_in_transaction(connection, call, self._path, self.tails)

    def backfill(self) -> Future[None] | None:
        """Move the log into the database in a reader's thread, while writes continue; None if no thread is free.

        Writes made meanwhile stay in the log; once they are moved as well, the log starts over.
        """
        if self._closed or not self._long.is_free:
            return None
        return self._long.executor.submit(self._backfill)

    def _backfill(self) -> None:
        with self._long.connection() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        """Wait for running reads, then close. Blocks; called off the loop."""
        if not self._closed:
            self._closed = True
            self._short.close()
            self._long.close()


class _Lane:
    """Threads with a connection each."""

    def __init__(self, name: str, threads: int, path: Path, connect: Connect, *, is_long: bool) -> None:
        self.is_long = is_long
        self._threads = threads
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        with contextlib.ExitStack() as undo:
            for _ in range(threads):
                connection = connect(path, writer=False)
                undo.callback(connection.close)
                self._idle.put(connection)
            undo.pop_all()
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    @property
    def is_free(self) -> bool:
        return not self._idle.empty()

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Borrow a connection, and wait until one is free."""
        connection = self._idle.get()
        try:
            yield connection
        finally:
            self._idle.put(connection)

    def close(self) -> None:
        self.executor.shutdown(wait=True)
        for _ in range(self._threads):
            self._idle.get().close()


def read_in_transaction(
    connection: sqlite3.Connection, call: Callable[[Statements], T], path: Path | None, tails: Tails | None = None
) -> T:
    """Run a read on one state of the database."""
    sql = SqliteStatements(connection, tails)
    try:
        # Explicitly deferred: it fixes one state for several statements and can never take the write lock.
        connection.execute("BEGIN DEFERRED")
        try:
            return run_read(call, sql, path)
        except sqlite3.OperationalError:
            # Retry with invalid UTF-8 as \\x and two digits, which is invalid JSON, so that the row is reported as
            # damaged.
            connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
            try:
                return run_read(call, sql, path)
            finally:
                connection.text_factory = str
        finally:
            # Nothing was written; a COMMIT would repeat the error of a statement that met a damaged page.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise translate(error, path) from error


def run_read(call: Callable[[Statements], T], sql: Statements, path: Path | None) -> T:
    """Run a read and translate its errors, except for texts that are not UTF-8."""
    try:
        return call(sql)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if is_undecodable(error):
            raise
        raise translate(error, path) from error
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        # A column holds a value that no unit can have written, such as NULL where the schema forbids it.
        raise RowUndecodable(f"a row of {path or 'the store'} cannot be decoded: {error!r}") from error
