"""The transactions of a writing connection: a group of units commits together, or each of its units alone.

A group runs in one ``BEGIN IMMEDIATE`` transaction without savepoints, because a full disk ends the whole transaction
whatever savepoints it had. When anything in a group fails, the group is rolled back and its units run one by one, so
that only the failing one gets its error.

The :class:`Guard` does what a particular database needs around each transaction; one in memory or a cache needs none.

Each commit is numbered and has one row of the journal, with the chunks of every stream in it; :class:`JournalBook`
keeps track of the rows.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from clew.errors import InternalError, RowUndecodable, StoreGone, StoreUnavailable
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.store.commit_batcher import Answer
from clew.store.sql.apply import UnitWriter
from clew.store.sql.inbox import AdoptionRequest, Work
from clew.store.sql.journal import JournalBook, decode_entries, mark_crc, row_crc, to_mark
from clew.store.sql.line_cache import LineCache
from clew.store.sql.log import EventLog
from clew.store.sql.messages import messages_ending
from clew.store.sql.sqlite.connection import (
    SqliteStatements,
    has_fts5,
    is_broken,
    is_busy,
    keep_scratch_in_memory,
    translate,
)
from clew.store.sql.sqlite.search_index import SearchIndex
from clew.store.sql.statements import Statements
from clew.store.sql.tails import Tails
from clew.store.unit import JournalEntry, Outcome, Unit
from clew.transcript.chunk import encode_rows

__all__ = ["BeforeCommit", "CommitJournal", "Guard", "NoGuard", "Transactions"]

log = logging.getLogger("clew.store")

LOCK_WAIT_S = 60.0


class BeforeCommit(Protocol):
    """A step inside the transaction, after its units were applied. An error rolls the group back, as any other."""

    def __call__(self, units: Sequence[Unit], outcomes: Sequence[Outcome]) -> None: ...


class Guard(Protocol):
    """The steps around a transaction. An error before the commit fails the group, one after it means a lost store."""

    def prepare(self, units: Sequence[Unit]) -> None:
        """Write what these units depend on, in transactions of its own."""
        ...

    def before(self, units: Sequence[Unit]) -> None:
        """Check the database, before the write lock is taken."""
        ...

    def begun(self) -> None:
        """Check what other programs wrote, with the write lock held."""
        ...

    def committed(self, units: Sequence[Unit], outcomes: Sequence[Any]) -> None:
        """Check the database after COMMIT."""
        ...

    def failed(self) -> None:
        """Continue after a transaction was rolled back."""
        ...

    def acknowledge(self, units: Sequence[Unit]) -> None:
        """Record the commit, before its units are answered."""
        ...

    def maintain(self, requests: Sequence[AdoptionRequest], *, wrote: bool) -> None:
        """Do the work between groups: the requests of readers, checkpoints. Logs errors instead of raising them."""
        ...

    def close(self) -> None:
        """End before the connection is closed."""
        ...


class NoGuard:
    """The guard of a database that no other program writes to, and whose loss is not a loss of data."""

    def prepare(self, units: Sequence[Unit]) -> None:
        pass

    def before(self, units: Sequence[Unit]) -> None:
        pass

    def begun(self) -> None:
        pass

    def committed(self, units: Sequence[Unit], outcomes: Sequence[Any]) -> None:
        pass

    def failed(self) -> None:
        pass

    def acknowledge(self, units: Sequence[Unit]) -> None:
        pass

    def maintain(self, requests: Sequence[AdoptionRequest], *, wrote: bool) -> None:
        pass

    def close(self) -> None:
        pass


class Transactions:
    """The writing connection and everything cached about it. Used by one thread at a time.

    ``broken`` is the error that stopped all writing. ``guard`` is replaced before the first unit, if it is.
    """

    guard: Guard

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path | None,
        mint: Mint,
        lines: LineCache,
        log: EventLog | None = None,
        *,
        before_commit: BeforeCommit | None = None,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        self.connection = connection
        self.path = path
        self.name = str(path or "the memory store")
        self.statements = SqliteStatements(connection)
        self.index = SearchIndex(self.statements, available=has_fts5())
        self.journal = CommitJournal(self.statements)
        self.units = UnitWriter(self.statements, mint, self.index, self.journal, log)
        self.lines = lines
        self.guard = NoGuard()
        self.broken: BaseException | None = None
        self.closed = False
        self.commits = 0
        self._before_commit = before_commit
        self._lock_wait_s = lock_wait_s
        self.units.reset()
        lines.forget(self.journal.commit)
        # Larger transactions, such as a long branch, spill to the log before they commit and are read back from it.
        connection.execute("PRAGMA cache_size = -16384")
        keep_scratch_in_memory(connection)

    def check(self) -> None:
        """Raise the error that stopped all writing, if any."""
        if self.broken is not None:
            raise self.broken

    def give_up(self, error: StoreGone) -> None:
        """Stop all writing."""
        if self.broken is None:
            log.error("%s", error)
            self.broken = error

    def write(self, units: Sequence[Unit]) -> list[Answer]:
        """Commit units together; return their outcomes or errors."""
        return self._attempt(units, None)

    def work(self, work: Work) -> Any:
        """Run some work on the search index as one transaction; return its result, or an error."""
        return self._attempt((), work)[0]

    def _attempt(self, units: Sequence[Unit], work: Work | None) -> list[Any]:
        count = len(units) if work is None else 1
        if self.broken is not None:
            return [self.broken] * count
        self.guard.prepare(units)
        try:
            outcomes = self._transact(units, work)
        except Exception as error:
            self.roll_back()
            self.guard.failed()
            if work is not None:
                # Damage to the index alone must not stop all writing; damage to the store fails the next unit.
                self.index.restart()
                return [translate(error, self.path)]
            if isinstance(error, StoreGone):
                self.give_up(error)
            if count > 1 and not is_busy(error):
                return [outcome for unit in units for outcome in self._attempt([unit], None)]
            if is_broken(error):
                self.broken = StoreUnavailable(f"{self.name} is damaged ({error}) and read-only now; run `clew check`")
            return [translate(error, self.path)] * count
        self.commits += 1
        self.guard.acknowledge(units)
        failpoint("writer.after_commit_before_ack")
        return outcomes

    def _transact(self, units: Sequence[Unit], work: Work | None) -> list[Any]:
        self.guard.before(units)
        self.begin()
        self.guard.begun()
        failpoint("writer.in_transaction")
        outcomes = [self.units.apply(unit) for unit in units] if work is None else [work(self.index)]
        self.units.finish()
        if self._before_commit is not None and work is None:
            self._before_commit(units, outcomes)
        failpoint("writer.before_commit")
        self.connection.execute("COMMIT")
        self.lines.committed(self.journal.commit, units)
        self.guard.committed(units, outcomes)
        return outcomes

    def begin(self) -> None:
        """Take the write lock. While another process holds it, the group waits; nothing is dropped."""
        deadline = time.monotonic() + self._lock_wait_s
        while True:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
                log.warning("another process holds the write lock of %s; waiting", self.name)
            else:
                return

    def roll_back(self) -> None:
        # On a full disk SQLite has already rolled back; a second ROLLBACK would raise an error.
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        try:
            self.units.reset()
        except sqlite3.Error as error:
            self.broken = translate(error, self.path)

    def forget(self) -> None:
        """Forget everything cached: another program has written. Epochs, heads and the journal are read again."""
        self.units.reset()
        self.lines.forget(self.journal.commit)
        self.index.restart()

    def close(self) -> None:
        self.closed = True
        self.guard.close()
        self.connection.close()


class CommitJournal:
    """See :class:`clew.store.sql.apply.Journal`. ``commit`` is the number of the newest commit."""

    def __init__(self, statements: Statements) -> None:
        self._sql = statements
        self._book = JournalBook()
        self.tails = Tails()
        self._struck = False
        self.commit = 0

    def reset(self) -> None:
        self.tails.clear()
        marks = {mark.message_id: mark for mark in map(to_mark, self._sql.rows("load_marks", {}))}
        lines = ((n, data, crc) for n, data, crc in self._sql.rows("load_journal", {}))
        self._book.load(lines, marks, lambda ends: messages_ending(self._sql, ends))
        self._struck = False
        found = self._sql.first("get_commits", {})
        if found is None:
            raise InternalError("the row that counts the commits of the store is missing; restore a backup")
        self.commit = found[0]

    def knows(self, message_id: str) -> bool:
        return self._book.knows(message_id)

    def accept(self, session_id: str, message_id: str, entries: Sequence[JournalEntry]) -> None:
        self._book.accept(session_id, message_id, entries)

    def fold(self, session_id: str, message_id: str, through: int) -> None:
        if self._book.fold(message_id, through):
            crc = mark_crc(message_id, through, self._book.name(message_id))
            self._sql.run("set_mark", {"message_id": message_id, "folded_through": through, "crc": crc})

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        """Number the commit, add the journal row of the accepted chunks, and remove rows that all streams have passed.

        The number is part of the journal row, if there is one, at no extra cost. A row is removed only by a commit that
        stores its own number, so the higher of both is always the newest commit.
        """
        self.commit += 1
        if self._book.is_untouched:
            # The case of most commits without streams.
            self._sql.run("set_commits", {"commits": self.commit})
            self._struck = False
            return
        row = self._book.row(self.commit)
        self.tails.note(self.commit, self._book.accepted, self._book.passed, len(row[0]) if row is not None else 0)
        if row is not None:
            data, new = row
            crc = row_crc(self.commit, data)
            self._sql.run("insert_journal_row", {"n": self.commit, "data": data.decode(), "crc": crc})
            for mark in new:
                self._sql.run("add_mark", mark._asdict())
        ranges, unmarked = self._book.done()
        for first, last in ranges:
            self._sql.run("delete_journal_rows", {"first": first, "last": last})
        for message_id in unmarked:
            self._sql.run("delete_mark", {"message_id": message_id})
        self.tails.forget(unmarked)
        if row is None or ranges or self._struck:
            self._sql.run("set_commits", {"commits": self.commit})
        self._struck = False

    def delete_session(self, session_id: str) -> None:
        self._struck = True
        streams, numbers = self._book.forget(session_id)
        self.tails.forget(streams)
        names = {self._book.name(message_id) for message_id in streams}
        for n in numbers:
            if self._book.strike(n, streams):
                self._rewrite(n, names)
            else:
                self._sql.run("delete_journal_rows", {"first": n, "last": n})
                for message_id in self._book.remove(n):
                    self._sql.run("delete_mark", {"message_id": message_id})
        for message_id in streams:
            self._sql.run("delete_mark", {"message_id": message_id})

    def _rewrite(self, n: int, without: Collection[str]) -> None:
        """Remove the chunks of some streams, by their names in rows, from a row that other streams still need."""
        row = self._sql.first("get_journal_row", {"n": n})
        if row is None:
            raise InternalError("a journal row is missing", n=n)
        try:
            streams = decode_entries((row[0], row[1], row[2]))
        except RowUndecodable:
            return  # the whole row is removed once the other streams are folded
        remaining = [
            (name, entry.n, entry.part, entry.chunk)
            for name, entries in streams.items()
            if name not in without
            for entry in entries
        ]
        data = encode_rows(remaining)
        self._sql.run("replace_journal_row", {"n": n, "data": data.decode(), "crc": row_crc(n, data)})
