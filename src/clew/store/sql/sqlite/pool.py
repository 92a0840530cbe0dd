"""The connections that read: they cannot write, run in threads, and each call sees one state of the store."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import msgspec

from clew.errors import RowUndecodable, StoreClosed
from clew.store.sql.sqlite.connection import Connect, SqliteStatements, connect, is_undecodable, translate
from clew.store.sql.statements import Statements

__all__ = ["ReaderPool"]

T = TypeVar("T")


class ReaderPool:
    """A few threads and a connection for each. ``run`` gives its call the statements of one read transaction.

    All connect at once: a file that is moved away later stays readable, whichever thread is asked. Blocks.

    ``keep_up`` is called before each read, in its thread, with the session it is about.
    """

    keep_up: Callable[[str | None], None] | None = None

    def __init__(self, path: Path, threads: int = 2, connect: Connect = connect) -> None:
        self._path = path
        self._threads = threads
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        with contextlib.ExitStack() as undo:
            for _ in range(threads):
                connection = connect(path, writer=False)
                undo.callback(connection.close)
                self._idle.put(connection)
            undo.pop_all()
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(threads, thread_name_prefix="clew-reader")

    async def run(self, call: Callable[[Statements], T], session_id: str | None = None) -> T:
        if self._executor is None:
            raise StoreClosed("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._call, call, session_id)

    def _call(self, call: Callable[[Statements], T], session_id: str | None) -> T:
        if self.keep_up is not None:
            self.keep_up(session_id)
        connection = self._idle.get()
        sql = SqliteStatements(connection)
        try:
            # Explicitly deferred: it pins one state for several statements and can never take the write lock.
            connection.execute("BEGIN DEFERRED")
            try:
                return call(sql)
            except sqlite3.OperationalError as error:
                if not is_undecodable(error):
                    raise
                # Once more: what is no UTF-8 comes as \x and two digits, which no JSON has: its row is found damaged.
                connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
                try:
                    return call(sql)
                finally:
                    connection.text_factory = str
            finally:
                # Nothing was written; a COMMIT would repeat the error of a statement that met a damaged page.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, self._path) from error
        except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
            # A column holds what no unit can have written there, such as NULL where the schema forbids it.
            raise RowUndecodable(f"a row of {self._path} is not readable: {error!r}") from error
        finally:
            self._idle.put(connection)

    def close(self) -> None:
        """Wait for reads under way, then let go. Blocks; called off the loop."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)
            for _ in range(self._threads):
                self._idle.get().close()
