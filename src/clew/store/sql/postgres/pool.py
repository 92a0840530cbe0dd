"""Reader connections: used in threads, each call in its own transaction, which sees one state and cannot write.

Reads of much of the store have threads of their own. A lost connection is reopened, and its read is retried until the
store's wait time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import LifoQueue
from typing import Any, Final, TypeVar

import msgspec
import psycopg

from clew.errors import RowUndecodable, StoreClosed, StoreUnavailable
from clew.long_work import AT_ONCE
from clew.store.sql.postgres.connection import (
    Connection,
    PostgresStatements,
    connect,
    is_conflict,
    is_cut_off,
    shown_url,
    translate,
)
from clew.store.sql.statements import IsLong, Reads, ReadTransaction, Statements, TooLong, end_of, measured

__all__ = ["ReaderPool"]

T = TypeVar("T")

_PAUSE_S: Final = 0.05
"""Initial pause between two attempts to reach the server; it grows with each attempt."""


class ReaderPool:
    """Two lanes of threads, each thread with a connection opened on first use."""

    lines = None

    def __init__(self, url: str, threads: int, wait_s: float) -> None:
        self._url = url
        self._wait_s = wait_s
        self._closed = False
        self._short = _Lane("clew-reader", url, threads, is_long=False)
        self._long = _Lane("clew-long-reader", url, AT_ONCE, is_long=True)

    async def run(self, call: Callable[[Statements], T], session_id: str | None = None, *, long: IsLong = False) -> T:
        if long is not True:
            try:
                return await self._run_in(self._short, lambda sql: measured(call, sql, long))
            except TooLong:
                pass
        return await self._run_in(self._long, call)

    async def at_once(self, ask: Callable[[Reads], Coroutine[Any, Any, T]], session_id: str | None = None) -> T:
        def run_all(sql: Statements, *, in_long: bool) -> T:
            return end_of(ask(ReadTransaction(sql, None, in_long=in_long, answer=lambda call, sql: call(sql))))

        try:
            return await self._run_in(self._short, lambda sql: run_all(sql, in_long=False))
        except TooLong:
            return await self._run_in(self._long, lambda sql: run_all(sql, in_long=True))

    async def _run_in(self, lane: _Lane, call: Callable[[Statements], T]) -> T:
        if self._closed:
            raise StoreClosed("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(lane.executor, self._call, lane, call)

    def _call(self, lane: _Lane, call: Callable[[Statements], T]) -> T:
        give_up, pause = time.monotonic() + self._wait_s, _PAUSE_S
        while True:
            try:
                with lane.connection() as connection:
                    return _read(connection, call)
            except (psycopg.Error, StoreUnavailable) as error:
                cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
                # A reader only conflicts with a newer clew that adds to the tables.
                again = cause is not None and (is_cut_off(cause) or is_conflict(cause))
                if not again or self._closed or time.monotonic() + pause > give_up:
                    raise translate(error, self._url) from error
                # The first failure is usually an idle connection: the next one may be available immediately.
                time.sleep(pause)
                pause = min(pause * 2, 1.0)
            except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
                # A column holds a value that no unit can have written.
                raise RowUndecodable(f"a row of {shown_url(self._url)} cannot be decoded: {error!r}") from error

    def close(self) -> None:
        """Wait for running reads, then close. Blocks; called off the loop."""
        if not self._closed:
            self._closed = True
            self._short.close()
            self._long.close()


class _Lane:
    """Threads with at most as many connections."""

    def __init__(self, name: str, url: str, threads: int, *, is_long: bool) -> None:
        self.is_long = is_long
        self._url = url
        # Last in, first out: only as many connections are opened as are needed concurrently.
        self._idle: LifoQueue[Connection | None] = LifoQueue()
        self._threads = threads
        for _ in range(threads):
            self._idle.put(None)
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        connection = self._idle.get()
        try:
            if connection is None:
                connection = connect(self._url, reader=True)
            yield connection
        finally:
            if connection is not None and connection.closed:
                connection = None
            self._idle.put(connection)

    def close(self) -> None:
        self.executor.shutdown(wait=True)
        for _ in range(self._threads):
            held = self._idle.get()
            if held is not None:
                held.close()


def _read(connection: Connection, call: Callable[[Statements], T]) -> T:
    try:
        # BEGIN is sent along with the first statement, and nothing waits for ROLLBACK.
        with connection.pipeline() as pipeline:
            read = call(PostgresStatements(connection, pipeline))
            connection.execute("ROLLBACK")
        return read
    finally:
        # Nothing was written, and a lost connection has no transaction to end.
        if not connection.closed:
            with contextlib.suppress(psycopg.OperationalError):
                connection.rollback()
