"""The writer thread: everything in its queue commits together, as soon as there is something.

A group runs in one ``BEGIN IMMEDIATE`` transaction without savepoints, because a full disk ends the whole transaction
whatever savepoints it had. When anything in a group fails, the group is rolled back and its units run one by one, so
that only the failing one gets its error. The strongest sync level in a group is set before BEGIN; a commit that syncs
also makes every earlier commit durable. Waiting callers are woken by one call into their loop.

Work on the search index goes through the same queue, in separate transactions, so units can go in between. So does the
adoption of what other programs wrote: a reader of a session has it adopted first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from clew.errors import InternalError, StoreGone, StoreUnavailable
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.store.commit_batcher import Answer
from clew.store.owner import OwnerLock
from clew.store.sql.adopt import Adopter
from clew.store.sql.apply import UnitWriter
from clew.store.sql.inbox import AdoptionRequest, Inbox, Item, Work, answer, split_batches
from clew.store.sql.kept_lines import KeptLines
from clew.store.sql.log import EventLog
from clew.store.sql.sqlite.adoption_notes import AdoptionNotes
from clew.store.sql.sqlite.commit_counter import CommitCounter
from clew.store.sql.sqlite.commit_journal import CommitJournal
from clew.store.sql.sqlite.connection import (
    SqliteStatements,
    empty_log,
    has_fts5,
    is_broken,
    is_busy,
    keep_scratch_in_memory,
    translate,
)
from clew.store.sql.sqlite.external_writers import ExternalWriters
from clew.store.sql.sqlite.search_index import SearchIndex
from clew.store.sql.sqlite.watch import Watch
from clew.store.unit import (
    Committed,
    HeadIs,
    InsertSession,
    MoveHead,
    OpenTurn,
    Outcome,
    SetTurn,
    Sync,
    Unit,
)

__all__ = ["SqliteOptions", "Writer"]

log = logging.getLogger("clew.store")

_TURN_WRITES: Final = (OpenTurn, SetTurn, MoveHead)
_MAX_ADOPTION_WAIT_S: Final = 1.0
"""How long a reader waits for adoption. It reads anyway if adoption is not possible now."""
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


T = TypeVar("T")


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


class Writer:
    """The owner of the writing connection, from construction until ``close``."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        mint: Mint,
        options: SqliteOptions,
        log: EventLog | None,
        lock: OwnerLock,
        acknowledged: CommitCounter,
        others: ExternalWriters,
        lines: KeptLines,
        backfill: Callable[[], Future[None] | None],
    ) -> None:
        self._connection = connection
        self._path = path
        self._statements = SqliteStatements(connection)
        self._index = SearchIndex(self._statements, available=has_fts5())
        self._journal = CommitJournal(self._statements)
        self._units = UnitWriter(self._statements, mint, self._index, self._journal, log)
        self.tails = self._journal.tails
        self._units.reset()
        self._options = options
        self._sync: Sync = "process"
        self._inbox = Inbox(options.window_ms, options.gap_ms)
        self._adoption_notes = AdoptionNotes(self._statements, path)
        self._adopter = Adopter(self._statements, self._units, mint, self._adoption_notes.is_unchanged)
        self._others = others
        self._lines = lines
        lines.forget(self._journal.commit)
        self._adoption_stalled = False
        self._broken: BaseException | None = None
        self._acknowledged = acknowledged
        self._synced = acknowledged.synced
        self.commits = 0
        self._checkpointed = (0, 0, 0)
        self._backfill = backfill
        self._backfilling: Future[None] | None = None
        self._syncs = 0
        # SQLite's own checkpoints would stall arbitrary commits.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        # Larger transactions, such as a long branch, spill to the log before they commit and are read back from it.
        connection.execute("PRAGMA cache_size = -16384")
        keep_scratch_in_memory(connection)
        self._watch = Watch(connection, path, lock)
        self._adopt_changes(None)
        self._thread = threading.Thread(target=self._run, name=f"clew-writer {path.name}", daemon=True)
        self._thread.start()

    # From the event loop

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return self._inbox.put((unit,), None)

    def submit_all(self, units: Sequence[Unit], on_done: Callable[[Sequence[Answer]], None], *, awaited: bool) -> None:
        """Submit units as one item, together with earlier ones that the writer has not started."""
        self._inbox.add(units, on_done, awaited=awaited)

    def work(self, work: Callable[[SearchIndex], T]) -> asyncio.Future[T]:
        """Run some work on the search index as one transaction."""
        return self._inbox.put((), work)

    def accept_loss(self, held: int, at: int) -> asyncio.Future[int]:
        """Record that a user accepted the loss of what followed commit ``held``; return whether there was one."""
        params = {"held": held, "at": at}
        return self._inbox.put((), lambda _: self._statements.run("accept_loss", params))

    def wait_for_adoption(self, session_id: str | None) -> None:
        """Wait until other programs' writes to a session are adopted. Called in the reader's thread."""
        if (
            self._inbox.closed
            or self._broken is not None
            or self._others.is_known(session_id)
            or self._adoption_stalled
        ):
            return
        request = self._inbox.request_adoption(session_id)
        if not request.done.wait(_MAX_ADOPTION_WAIT_S):
            # The file is locked, or much of it is being checkpointed: later readers do not wait again.
            self._adoption_stalled = True

    def check(self) -> None:
        """Raise the error that stopped the writer, if any."""
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Finish what was submitted, then stop. Blocks; called off the loop."""
        self._inbox.close()
        self._thread.join()

    # In the writer's thread

    def _run(self) -> None:
        stop = False
        while not stop:
            group: list[Item] = []
            requests: list[AdoptionRequest] = []
            stop = self._inbox.take(group, requests)
            self._adoption_stalled = False
            if group:
                try:
                    for batch in split_batches(group):
                        self._commit(batch)
                except BaseException as error:
                    # Every unit must get an answer, now and after this thread has stopped.
                    log.exception("the writer of %s failed", self._path)
                    self._broken = InternalError(f"the writer of {self._path} failed: {error!r}")
                    answer(group, [self._broken] * sum(item.size for item in group))
            try:
                self._do_maintenance(group, requests)
            except Exception:
                # Committed units stay committed and the next one can commit; the checkpoint is retried later.
                log.exception("maintenance of %s failed", self._path)
                self._checkpointed = (self.commits, self._syncs, self._checkpointed[2])
            for request in requests:
                request.done.set()
        if self._broken is None:
            with contextlib.suppress(OSError, sqlite3.Error):
                self._adoption_notes.note(self._others.is_known)
        self._others.close()
        self._connection.close()
        self._acknowledged.close()

    def _do_maintenance(self, group: list[Item], requests: list[AdoptionRequest]) -> None:
        """Do the work between groups: check the files, adopt what other programs wrote, checkpoint."""
        if not group:
            try:
                self._watch.idle()
            except StoreGone as error:
                self._give_up(error)
        for request in requests or ([] if group else [AdoptionRequest(None)]):
            self._adopt_changes(request.session_id)
            request.done.set()
        self._checkpoint(idle=not group and not requests)

    def _adopt_changes(self, session_id: str | None) -> None:
        """Adopt what other programs wrote: new sessions, and changes to this one."""
        if self._broken is not None:
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
        self._roll_back()

    def _finish_external_check(self) -> None:
        """Record that the writer is done: what the sentinel sees now is known."""
        self._others.end()
        # Checked after the sentinel: another program may have committed in between.
        if self._watch.sees_others():
            self._others.invalidate_all()

    def _check_external_writers(self) -> None:
        if self._watch.others_wrote():
            # All cached state is invalid: epochs, heads and the journal must be read from the file.
            self._units.reset()
            self._lines.forget(self._journal.commit)
            self._index.restart()
            self._others.invalidate_all()

    def _adopt(self, session_id: str) -> bool:
        """Adopt what other programs wrote into one session, as one transaction. Return False if it must be retried."""
        try:
            self._watch.before()
            self._begin()
            self._check_external_writers()
            self._others.begin()
            if not self._adopter.adopt(session_id):
                self._connection.execute("ROLLBACK")
                return True
            self._units.finish()
            failpoint("writer.adopted")
            self._connection.execute("COMMIT")
            self._lines.forget(self._journal.commit, session_id)
            self._watch.after()
        except Exception as error:
            # A session that cannot be adopted must not block others; it is retried only if the file was locked.
            self._adoption_failed(error)
            return not is_busy(error)
        self.commits += 1
        self._acknowledged.note(self._journal.commit, self._synced, [session_id])
        return True

    def _give_up(self, error: StoreGone) -> None:
        if self._broken is None:
            log.error("%s", error)
            self._broken = error

    def _commit(self, group: list[Item]) -> None:
        answer(group, self._attempt([unit for item in group for unit in item.units], group[0].work))

    def _attempt(self, units: list[Unit], work: Work | None) -> list[Any]:
        """Commit units together, or some work; return their outcomes."""
        count = len(units) if work is None else 1
        if self._broken is not None:
            return [self._broken] * count
        for unit in units:
            # A unit guarded by the head depends on other programs' writes: adopting them may move the head.
            if HeadIs in map(type, unit.guards) and not self._others.is_known(unit.session_id):
                self._adopt_changes(unit.session_id)
        try:
            outcomes = self._transact(units, work)
        except Exception as error:
            self._roll_back()
            self._finish_external_check()
            if work is not None:
                # Damage to the index alone must not stop all writing; damage to the store fails the next unit.
                self._index.restart()
                return [translate(error, self._path)]
            if isinstance(error, StoreGone):
                self._give_up(error)
            if count > 1 and not is_busy(error):
                return [outcome for unit in units for outcome in self._attempt([unit], None)]
            if is_broken(error):
                self._broken = StoreUnavailable(
                    f"{self._path} is damaged ({error}) and read-only now; run `clew check`"
                )
            return [translate(error, self._path)] * count
        self.commits += 1
        self._note(units)
        failpoint("writer.after_commit_before_ack")
        return outcomes

    def _transact(self, units: list[Unit], work: Work | None) -> list[Any]:
        power = self._options.every_commit_full or any(unit.sync == "power" for unit in units)
        if power != (self._sync == "power"):
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if power else 'NORMAL'}")
            self._sync = "power" if power else "process"
        self._watch.before()
        self._begin()
        self._check_external_writers()
        self._others.begin()
        failpoint("writer.in_transaction")
        outcomes = [self._units.apply(unit) for unit in units] if work is None else [work(self._index)]
        self._units.finish()
        failpoint("writer.before_commit")
        self._connection.execute("COMMIT")
        self._lines.committed(self._journal.commit, units)
        for unit, outcome in zip(units, outcomes, strict=work is None):
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
        return outcomes

    def _note(self, units: list[Unit]) -> None:
        """Note the commit before it is acknowledged."""
        commit = self._journal.commit
        if self._sync == "power":
            self._synced = commit
            self._syncs += 1
        sessions = list(dict.fromkeys(unit.session_id for unit in units))
        self._acknowledged.note(commit, self._synced, sessions)

    def _begin(self) -> None:
        """Take the write lock. While another process holds it, the group waits; nothing is dropped."""
        deadline = time.monotonic() + self._options.lock_wait_ms / 1000
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
                log.warning("another process holds the write lock of %s; waiting", self._path)
            else:
                return

    def _roll_back(self) -> None:
        # On a full disk SQLite has already rolled back; a second ROLLBACK would raise an error.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        try:
            self._units.reset()
        except sqlite3.Error as error:
            self._broken = translate(error, self._path)

    def _checkpoint(self, *, idle: bool) -> None:
        """Move the WAL into the database: early when idle, later between groups, at the latest when it is very
        large."""
        commits, syncs, size = self._checkpointed
        if self._broken is not None or not self._options.checkpoints or self.commits == commits:
            return
        pace = "idle" if idle else "quiet" if self._inbox.is_empty else "busy"
        backfilled, self._backfilling = self._backfilling, None
        if backfilled is None:
            rare = self.commits - commits < _CHECKPOINT_COMMITS[pace]
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
        self._checkpointed = (self.commits - 1 if idle and size else self.commits, self._syncs, size)
