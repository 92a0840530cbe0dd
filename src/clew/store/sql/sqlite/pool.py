"""The connections that read: they cannot write, run in threads, and each call sees one state of the store.

What goes over much of the store has threads of its own, so that whoever wants a few rows never waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

from clew.errors import RowUndecodable, StoreClosed
from clew.long_work import AT_ONCE, giving_way
from clew.store.sql.kept_lines import KeptLines
from clew.store.sql.one_state import OneState, TooLong, end_of, measured
from clew.store.sql.quick_reads import QuickReads
from clew.store.sql.sqlite.connection import Connect, SqliteStatements, connect, is_undecodable, translate
from clew.store.sql.statements import IsLong, Reads, Statements
from clew.store.sql.tails import Tails

__all__ = ["ReaderPool"]

T = TypeVar("T")


class ReaderPool:
    """Two lanes of threads with a connection for each. ``run`` gives its call the statements of one read transaction.

    All connect at once: a file that is moved away later stays readable, whichever thread is asked. Blocks.

    ``keep_up`` is called before each read, in its thread, with the session it is about; it has nothing to do where
    ``is_known`` says so.
    """

    keep_up: Callable[[str | None], None] | None = None
    is_known: Callable[[str | None], bool] | None = None
    lines: KeptLines | None = None
    tails: Tails | None = None
    on_spot = False

    def __init__(self, path: Path, threads: int = 2, connect: Connect = connect) -> None:
        self._path = path
        self._closed = False
        self._quick = QuickReads()
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

    async def at_once(
        self,
        ask: Callable[[Reads], Coroutine[Any, Any, T]],
        session_id: str | None = None,
        *,
        hot: bool = False,
        again: str | None = None,
    ) -> T:
        def answered(sql: Statements, *, in_long: bool = False, on_spot: bool = False) -> T:
            return end_of(ask(OneState(sql, self.lines, in_long=in_long, answer=answer, on_spot=on_spot)))

        def answer(call: Callable[[Statements], Any], sql: Statements) -> Any:
            return _answer(call, sql, self._path)

        def noted(sql: Statements, *, on_spot: bool = False) -> T:
            if again is None:
                return answered(sql, on_spot=on_spot)
            begun = time.thread_time()
            found = answered(sql, on_spot=on_spot)
            # Not of one that was given up as too long: that says nothing of how long it takes.
            self._quick.note(session_id, again, time.thread_time() - begun)
            return found

        if (hot and self._is_new(session_id)) or (again is not None and self._is_quick(session_id, again)):
            # Sooner read than a thread wakes up; but the loop waits for nobody who has the connections.
            with contextlib.suppress(Empty, TooLong), self._short.connection(wait=False) as connection:
                return self._read(connection, lambda sql: noted(sql, on_spot=True))
        try:
            return await self._run_in(self._short, noted, session_id)
        except TooLong:
            return await self._run_in(self._long, lambda sql: answered(sql, in_long=True), session_id)

    def _is_new(self, session_id: str | None) -> bool:
        """Whether what a session says of itself is in the system's memory, and nobody else has changed it."""
        new = session_id is not None and self.lines is not None and self.lines.is_new(session_id)
        return new and self.is_known is not None and self.is_known(session_id)

    def _is_quick(self, session_id: str | None, again: str) -> bool:
        """Whether the same was read quickly just now, and nobody else has changed the session."""
        return self._quick.knows(session_id, again) and self.is_known is not None and self.is_known(session_id)

    async def _run_in(self, lane: _Lane, call: Callable[[Statements], T], session_id: str | None) -> T:
        if self._closed:
            raise StoreClosed("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(lane.executor, self._call, lane, call, session_id)

    def _call(self, lane: _Lane, call: Callable[[Statements], T], session_id: str | None) -> T:
        if self.keep_up is not None:
            self.keep_up(session_id)
        with giving_way() if lane.is_long else contextlib.nullcontext(), lane.connection() as connection:
            return self._read(connection, call)

    def _read(self, connection: sqlite3.Connection, call: Callable[[Statements], T]) -> T:
        sql = SqliteStatements(connection, self.tails)
        try:
            # Explicitly deferred: it pins one state for several statements and can never take the write lock.
            connection.execute("BEGIN DEFERRED")
            try:
                return _answer(call, sql, self._path)
            except sqlite3.OperationalError:
                # Once more: what is no UTF-8 comes as \x and two digits, which no JSON has: its row is found damaged.
                connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
                try:
                    return _answer(call, sql, self._path)
                finally:
                    connection.text_factory = str
            finally:
                # Nothing was written; a COMMIT would repeat the error of a statement that met a damaged page.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def backfill(self) -> Future[None] | None:
        """Move the log into the database in a reader's thread, while others write on; None where none is free.

        What is written meanwhile stays in the log, so somebody has to move that, and then the log begins anew.
        """
        if self._closed or not self._long.is_free:
            return None
        return self._long.executor.submit(self._backfill)

    def _backfill(self) -> None:
        with self._long.connection() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        """Wait for reads under way, then let go. Blocks; called off the loop."""
        if not self._closed:
            self._closed = True
            self._short.close()
            self._long.close()


class _Lane:
    """Some threads, and as many connections."""

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
    def connection(self, *, wait: bool = True) -> Iterator[sqlite3.Connection]:
        """One that is free. Raises ``Empty`` where none is and nobody may ``wait``."""
        taken = self._idle.get(wait)
        try:
            yield taken
        finally:
            self._idle.put(taken)

    def close(self) -> None:
        self.executor.shutdown(wait=True)
        for _ in range(self._threads):
            self._idle.get().close()


def _answer(call: Callable[[Statements], T], sql: Statements, path: Path) -> T:
    """What a call reads. What is wrong is told in the store's own words, but for a text that is no UTF-8."""
    try:
        return call(sql)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if is_undecodable(error):
            raise
        raise translate(error, path) from error
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        # A column holds what no unit can have written there, such as NULL where the schema forbids it.
        raise RowUndecodable(f"a row of {path} is not readable: {error!r}") from error
