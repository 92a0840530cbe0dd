"""The guard of a store's file: it has one owner, but other programs may write to it too.

Around every transaction the files are checked, the commit is noted before it is acknowledged, and what other programs
wrote is adopted: before a unit that depends on it, when a reader of a session asks for it, and when nothing else is to
be done. The strongest sync level in a group is set before BEGIN; a commit that syncs also makes every earlier commit
durable. Checkpoints run between groups.

SQLite shows a connection that another one has committed. Only the writer's connection can tell its own commits from
those of others, but readers must not wait for a busy writer. So a separate connection, the sentinel, is checked
instead: it is updated after each of the writer's commits, and any later change it sees was made by another program.
While the writer is writing no check is needed: it holds the write lock and knows of all earlier commits.

SQLite continues writing to a file that was removed, renamed or replaced, without an error. Such writes are lost to the
next process that opens the store, so they must not be acknowledged.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from clew.errors import StoreGone
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.store.file_lock import FileId, id_of, is_file
from clew.store.owner import OwnerLock
from clew.store.sql.adopt import Adopter
from clew.store.sql.inbox import AdoptionRequest, Inbox
from clew.store.sql.sqlite.adoption_notes import AdoptionNotes
from clew.store.sql.sqlite.commit_counter import CommitCounter
from clew.store.sql.sqlite.connection import empty_log, is_busy
from clew.store.sql.sqlite.store import SqliteOptions
from clew.store.sql.sqlite.transactions import Transactions
from clew.store.unit import Committed, HeadIs, InsertSession, MoveHead, OpenTurn, SetTurn, Sync, Unit

__all__ = ["ExternalWriters", "OwnedFile"]

log = logging.getLogger("clew.store")

_TURN_WRITES: Final = (OpenTurn, SetTurn, MoveHead)
_CHECKPOINT_COMMITS: Final = {"idle": 1, "quiet": 1_000, "busy": 4_000}
_CHECKPOINT_SYNCS: Final = {"idle": 1, "quiet": 80, "busy": 160}
_CHECKPOINT_GROWTH: Final = {"idle": 0, "quiet": 1 << 24, "busy": 1 << 26}
"""Number of commits, of synced commits, or growth of the WAL in bytes after which it is moved into the database; lower
when there is less to write.

Syncing a growing file takes 1.5 times as long as one that is overwritten. So with synced commits the WAL is restarted
early, where a checkpoint costs little extra; without them it would only cause delays.

When idle, all of it is moved and the file emptied: an empty WAL cannot be damaged. One whose frames are already in the
database is a risk: where it breaks off, SQLite puts older pages over newer ones.
"""


class OwnedFile:
    """See :class:`clew.store.sql.sqlite.transactions.Guard`. Runs in the writer's thread."""

    def __init__(
        self,
        transactions: Transactions,
        path: Path,
        mint: Mint,
        options: SqliteOptions,
        lock: OwnerLock,
        acknowledged: CommitCounter,
        others: ExternalWriters,
        inbox: Inbox,
        backfill: Callable[[], Future[None] | None],
    ) -> None:
        self._transactions = transactions
        self._connection = transactions.connection
        self._path = path
        self._options = options
        self._sync: Sync = "process"
        self._inbox = inbox
        self._adoption_notes = AdoptionNotes(transactions.statements, path)
        self._adopter = Adopter(transactions.statements, transactions.units, mint, self._adoption_notes.is_unchanged)
        self._others = others
        self._acknowledged = acknowledged
        self._synced = acknowledged.synced
        self._checkpointed = (0, 0, 0)
        self._backfill = backfill
        self._backfilling: Future[None] | None = None
        self._syncs = 0
        # SQLite's own checkpoints would stall arbitrary commits.
        self._connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._connection.execute("PRAGMA journal_size_limit = 67108864")
        self._watch = _Watch(self._connection, path, lock)
        self._adopt_changes(None)

    # In a reader's thread

    def wait_for_adoption(self, session_id: str | None) -> None:
        """Wait until other programs' writes to a session are adopted."""
        if not (self._inbox.closed or self._transactions.broken is not None or self._others.is_known(session_id)):
            self._inbox.wait_for_adoption(session_id)

    # Around a transaction

    def prepare(self, units: Sequence[Unit]) -> None:
        for unit in units:
            # A unit guarded by the head depends on other programs' writes: adopting them may move the head.
            if HeadIs in map(type, unit.guards) and not self._others.is_known(unit.session_id):
                self._adopt_changes(unit.session_id)

    def before(self, units: Sequence[Unit]) -> None:
        power = self._options.every_commit_full or any(unit.sync == "power" for unit in units)
        if power != (self._sync == "power"):
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if power else 'NORMAL'}")
            self._sync = "power" if power else "process"
        self._watch.before()

    def begun(self) -> None:
        self._check_external_writers()
        self._others.begin()

    def committed(self, units: Sequence[Unit], outcomes: Sequence[Any]) -> None:
        for unit, outcome in zip(units, outcomes, strict=False):
            if unit.writes and type(unit.writes[0]) is InsertSession and isinstance(outcome, Committed):
                # No other program can have written to it before this commit; later changes are noticed.
                self._adoption_notes.mark_checked(unit.session_id)
                self._others.mark_checked(unit.session_id)
        self._finish_external_check()
        self._watch.after()
        for unit in units:
            # A turn that begins or ends may allow more to be sealed or adopted.
            if unit.session_id in self._adopter.again and any(isinstance(one, _TURN_WRITES) for one in unit.writes):
                self._others.invalidate(unit.session_id)

    def failed(self) -> None:
        self._finish_external_check()

    def acknowledge(self, units: Sequence[Unit]) -> None:
        commit = self._transactions.journal.commit
        if self._sync == "power":
            self._synced = commit
            self._syncs += 1
        sessions = list(dict.fromkeys(unit.session_id for unit in units))
        self._acknowledged.note(commit, self._synced, sessions)

    def close(self) -> None:
        if self._transactions.broken is None:
            with contextlib.suppress(OSError, sqlite3.Error):
                self._adoption_notes.note(self._others.is_known)
        self._others.close()
        self._acknowledged.close()

    # Between groups

    def maintain(self, requests: Sequence[AdoptionRequest], *, wrote: bool) -> None:
        """Check the files, adopt what other programs wrote, checkpoint."""
        try:
            if not wrote:
                try:
                    self._watch.idle()
                except StoreGone as error:
                    self._transactions.give_up(error)
            for request in requests or ([] if wrote else [AdoptionRequest(None)]):
                self._adopt_changes(request.session_id)
                request.done.set()
            self._checkpoint(idle=not wrote and not requests)
        except Exception:
            # Committed units stay committed and the next one can commit; the checkpoint is retried later.
            log.exception("maintenance of %s failed", self._path)
            self._checkpointed = (self._transactions.commits, self._syncs, self._checkpointed[2])

    def _adopt_changes(self, session_id: str | None) -> None:
        """Adopt what other programs wrote: new sessions, and changes to this one."""
        if self._transactions.broken is not None:
            return
        try:
            self._check_external_writers()
            if not self._others.is_known(None):
                adopted = [self._adopt(new) for new in self._adopter.new_sessions()]
                if all(adopted):
                    self._others.mark_checked(None)
            if session_id is None or self._others.is_known(session_id):
                return
            if not self._adopter.has_news(session_id) or self._adopt(session_id):
                self._others.mark_checked(session_id)
        except Exception as error:
            self._adoption_failed(error)
            self._others.mark_checked(session_id)
        finally:
            self._finish_external_check()

    def _adoption_failed(self, error: Exception) -> None:
        """Log and roll back a failed adoption. Unadopted rows stay as they are; the next unit reports damage to the
        file.

        Whatever the rows contain must not stop the writer, which holds the store's lock.
        """
        log.warning("changes of other programs to %s could not be imported: %r", self._path, error)
        self._transactions.roll_back()

    def _finish_external_check(self) -> None:
        """Record that the writer is done: what the sentinel sees now is known."""
        self._others.end()
        # Checked after the sentinel: another program may have committed in between.
        if self._watch.sees_others():
            self._others.invalidate_all()

    def _check_external_writers(self) -> None:
        if self._watch.others_wrote():
            self._transactions.forget()
            self._others.invalidate_all()

    def _adopt(self, session_id: str) -> bool:
        """Adopt what other programs wrote into one session, as one transaction. Return False if it must be retried."""
        transactions = self._transactions
        try:
            self._watch.before()
            transactions.begin()
            self.begun()
            if not self._adopter.adopt(session_id):
                self._connection.execute("ROLLBACK")
                return True
            transactions.units.finish()
            failpoint("writer.adopted")
            self._connection.execute("COMMIT")
            transactions.lines.forget(transactions.journal.commit, session_id)
            self._watch.after()
        except Exception as error:
            # A session that cannot be adopted must not block others; it is retried only if the file was locked.
            self._adoption_failed(error)
            return not is_busy(error)
        transactions.commits += 1
        self._acknowledged.note(transactions.journal.commit, self._synced, [session_id])
        return True

    def _checkpoint(self, *, idle: bool) -> None:
        """Move the WAL into the database: early when idle, later between groups, at the latest when it is very
        large."""
        commits, syncs, size = self._checkpointed
        committed = self._transactions.commits
        if self._transactions.broken is not None or not self._options.checkpoints or committed == commits:
            return
        pace = "idle" if idle else "quiet" if self._inbox.is_empty else "busy"
        backfilled, self._backfilling = self._backfilling, None
        if backfilled is None:
            rare = committed - commits < _CHECKPOINT_COMMITS[pace]
            if rare and self._watch.wal_size - size < _CHECKPOINT_GROWTH[pace]:
                if self._syncs - syncs < _CHECKPOINT_SYNCS[pace]:
                    return
            elif not idle:
                # Most of it in another thread; in the writer it would take as long as dozens of commits.
                self._backfilling = self._backfill()
        elif not backfilled.done():
            self._backfilling = backfilled
        elif (error := backfilled.exception()) is not None:
            log.warning("a checkpoint of %s failed: %s", self._path, error)
        if self._backfilling is not None:
            return
        failpoint("writer.checkpoint")
        self._others.begin()
        try:
            if idle:
                empty_log(self._connection)
            else:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            log.warning("a checkpoint of %s failed: %s", self._path, error)
        finally:
            self._finish_external_check()
        with contextlib.suppress(StoreGone):  # the next unit gets the error
            self._watch.learn()
        # The file is reused from its start, so only growth beyond its size counts.
        size = self._watch.wal_size
        self._checkpointed = (committed - 1 if idle and size else committed, self._syncs, size)


class ExternalWriters:
    """The state of external writes since the store was checked. ``is_known`` may be called in any thread."""

    def __init__(self, sentinel: sqlite3.Connection) -> None:
        self._sentinel = sentinel
        self._lock = threading.Lock()
        self._writing = False
        self._version = self._data_version()
        self._checked: set[str | None] = set()

    def is_known(self, session_id: str | None) -> bool:
        """Return whether no other program has committed since this session, or with None the whole store, was
        checked."""
        with self._lock:
            try:
                return (self._writing or self._data_version() == self._version) and session_id in self._checked
            except sqlite3.Error:
                return True  # the read itself will report what is wrong with the file

    def invalidate_all(self) -> None:
        """Record that other programs have committed: everything must be checked again."""
        self._checked.clear()

    def invalidate(self, session_id: str | None) -> None:
        self._checked.discard(session_id)

    def mark_checked(self, session_id: str | None) -> None:
        self._checked.add(session_id)

    def begin(self) -> None:
        """Record that the writer has the write lock, so no other program can commit."""
        with self._lock:
            self._writing = True

    def end(self) -> None:
        """Record that the writer is done: what the sentinel sees now is its own, or already noticed by it."""
        with self._lock:
            self._version = self._data_version()
            self._writing = False

    def close(self) -> None:
        with self._lock:
            self._sentinel.close()

    def _data_version(self) -> int:
        version: int = self._sentinel.execute("PRAGMA data_version").fetchone()[0]
        return version


class _Watch:
    """Tracks the identity of the database and its write-ahead log, and their sizes after the last write."""

    def __init__(self, connection: sqlite3.Connection, path: Path, lock: OwnerLock) -> None:
        self._connection = connection
        self._wal = str(path) + "-wal"
        self._lock = lock
        self._version = self._data_version()
        self._others = False
        self._wal_file: FileId | None = None
        self.learn()

    def idle(self) -> None:
        """Check the files while nothing is written, so that the owner file is restored and a loss noticed."""
        self._lock.check()

    def before(self) -> None:
        """Check before a transaction that both files exist and are not shorter than before."""
        if self._lock.check().st_size < self._size and not self.sees_others():
            raise self._lock.gone(f"{self._lock.path} was truncated")
        wal = self._wal_now()
        if wal is not None and wal.st_size < self.wal_size and not (wal.st_size == 0 and self._is_checkpointed()):
            raise self._lock.gone(f"{self._wal} was truncated")

    def after(self) -> None:
        """Check after a commit, before it is acknowledged."""
        self._lock.stays()
        wal = self._wal_now()
        self.wal_size = wal.st_size if wal is not None else 0

    def learn(self) -> None:
        """Record the current sizes after the writer itself has changed them."""
        self._size = self._lock.check().st_size
        wal = self._wal_now()
        self.wal_size = wal.st_size if wal is not None else 0

    def others_wrote(self) -> bool:
        """Return whether another connection has committed since the last call."""
        self.sees_others()
        others, self._others = self._others, False
        return others

    def sees_others(self) -> bool:
        """Return whether another connection has committed since the last check; ``others_wrote`` will still report
        it."""
        before, self._version = self._version, self._data_version()
        if before != self._version:
            self._size = 0
            self._others = True
        return before != self._version

    def _data_version(self) -> int:
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _wal_now(self) -> os.stat_result | None:
        try:
            found = os.stat(self._wal)
        except OSError as error:
            if self._wal_file is None:
                return None
            raise self._lost_wal() from error
        if self._wal_file is None:
            self._wal_file = id_of(found)
        elif not is_file(found, self._wal_file):
            raise self._lost_wal()
        return found

    def _lost_wal(self) -> StoreGone:
        """Return the error for a lost WAL. SQLite still has the file open, so its content is moved into the
        database."""
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            return self._lock.gone(f"{self._wal} was removed ({error})")
        return self._lock.gone(f"{self._wal} was removed")

    def _is_checkpointed(self) -> bool:
        """Return whether an empty log was moved into the database, which another program may do."""
        try:
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error:
            return False
        if not busy:
            self.learn()
        return not busy
