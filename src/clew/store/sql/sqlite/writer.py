"""The one thread that writes: everything that waits commits together, as soon as something waits.

A group runs in one ``BEGIN IMMEDIATE`` transaction without savepoints, because a full disk ends the whole
transaction whatever savepoints it had. When anything in a group fails, the group is rolled back and its units run
one by one, so that only the failing one sees its error. The strongest sync level in a group is set before BEGIN;
a commit that syncs also makes every earlier commit durable. Waiters are woken by one call into their loop.

Work on the search index goes through the same queue, in a transaction of its own each, so units go in between. So does
what other programs wrote: whoever is about to read a session has it taken in first.
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
from clew.store.hub import Answer
from clew.store.owner import OwnerLock
from clew.store.sql.adopt import Adopter
from clew.store.sql.apply import UnitWriter
from clew.store.sql.inbox import Inbox, Item, Look, Work, answer, runs
from clew.store.sql.kept_lines import KeptLines
from clew.store.sql.log import EventLog
from clew.store.sql.sqlite.acknowledged import Acknowledged
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
from clew.store.sql.sqlite.looked import Looked
from clew.store.sql.sqlite.others import Others
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

_OF_TURNS: Final = (OpenTurn, SetTurn, MoveHead)
_PATIENCE_S: Final = 1.0
"""How long a reader waits until what others wrote was taken in. It reads all the same when that cannot be done now."""
_CHECKPOINT_COMMITS: Final = {"idle": 1, "quiet": 1_000, "busy": 4_000}
_CHECKPOINT_SYNCS: Final = {"idle": 1, "quiet": 80, "busy": 160}
_CHECKPOINT_GROWTH: Final = {"idle": 0, "quiet": 1 << 24, "busy": 1 << 26}
"""After how many commits, synced ones, or bytes the WAL grew by, it is moved into the database: the quieter, sooner.

To sync a file that grows takes half as long again as one that is written over. So it is begun anew soon where commits
are synced, which a checkpoint hardly adds to; where they are not, it would only hold them up.

When nobody writes, all of it is, and the file is emptied: a WAL that is not there cannot be damaged. One whose frames
are in the database already is a danger: where it breaks off, SQLite puts older pages over newer ones."""


T = TypeVar("T")


class SqliteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is kept. ``read_only`` takes no owner lock and never writes."""

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
    """Owns the writing connection from the moment it is started until ``close``."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        mint: Mint,
        options: SqliteOptions,
        log: EventLog | None,
        lock: OwnerLock,
        acknowledged: Acknowledged,
        others: Others,
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
        self._looked = Looked(self._statements, path)
        self._adopter = Adopter(self._statements, self._units, mint, self._looked.is_as_noted)
        self._others = others
        self._lines = lines
        lines.forget(self._journal.commit)
        self._held_up = False
        self._broken: BaseException | None = None
        self._acknowledged = acknowledged
        self._synced = acknowledged.synced
        self.commits = 0
        self._checkpointed = (0, 0, 0)
        self._backfill = backfill
        self._filling: Future[None] | None = None
        self._syncs = 0
        # SQLite's own checkpoints would stall a commit at a moment of its choosing.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        # What outgrows it, such as a long branch, is written to the log before it commits and read back from there.
        connection.execute("PRAGMA cache_size = -16384")
        keep_scratch_in_memory(connection)
        self._watch = Watch(connection, path, lock)
        self._look(None)
        self._thread = threading.Thread(target=self._run, name=f"clew-writer {path.name}", daemon=True)
        self._thread.start()

    # From the event loop

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return self._inbox.put((unit,), None)

    def submit_all(self, units: Sequence[Unit], told: Callable[[Sequence[Answer]], None], *, awaited: bool) -> None:
        """Units that are one item, together with those before them that the writer has not begun with."""
        self._inbox.add(units, told, awaited=awaited)

    def work(self, work: Callable[[SearchIndex], T]) -> asyncio.Future[T]:
        """Do some work on the search index, as one transaction."""
        return self._inbox.put((), work)

    def accept_loss(self, held: int, at: int) -> asyncio.Future[int]:
        """Note that a human has accepted the loss of what came after commit ``held``; whether there was one."""
        params = {"held": held, "at": at}
        return self._inbox.put((), lambda _: self._statements.run("accept_loss", params))

    def keep_up(self, session_id: str | None) -> None:
        """Wait until what others wrote into a session is taken in. Called in the thread of whoever will read it."""
        if self._inbox.closed or self._broken is not None or self._others.is_known(session_id) or self._held_up:
            return
        look = self._inbox.look(session_id)
        if not look.done.wait(_PATIENCE_S):
            # Others keep the file locked, or a large part of it is being moved: nobody waits for that a second time.
            self._held_up = True

    def check(self) -> None:
        """Raise the error that stopped the writer, if any."""
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Finish what was submitted, then end. Blocks; called off the loop."""
        self._inbox.close()
        self._thread.join()

    # In the writer's thread

    def _run(self) -> None:
        stop = False
        while not stop:
            group: list[Item] = []
            looks: list[Look] = []
            stop = self._inbox.take(group, looks)
            self._held_up = False
            if group:
                try:
                    for run in runs(group):
                        self._commit(run)
                except BaseException as error:
                    # Nobody may be left waiting for a thread that is gone; from here on every unit is told.
                    log.exception("the writer of %s failed", self._path)
                    self._broken = InternalError(f"the writer of {self._path} failed: {error!r}")
                    answer(group, [self._broken] * sum(item.size for item in group))
            try:
                self._look_after(group, looks)
            except Exception:
                # What is committed stays, and the next unit is committed all the same; the log is moved another time.
                log.exception("looking after %s failed", self._path)
                self._checkpointed = (self.commits, self._syncs, self._checkpointed[2])
            for look in looks:
                look.done.set()
        if self._broken is None:
            with contextlib.suppress(OSError, sqlite3.Error):
                self._looked.note(self._others.is_known)
        self._others.close()
        self._connection.close()
        self._acknowledged.close()

    def _look_after(self, group: list[Item], looks: list[Look]) -> None:
        """What is done between groups: whether the file is still there, what others wrote, the log."""
        if not group:
            try:
                self._watch.idle()
            except StoreGone as error:
                self._give_up(error)
        for look in looks or ([] if group else [Look(None)]):
            self._look(look.session_id)
            look.done.set()
        self._checkpoint(idle=not group and not looks)

    def _look(self, session_id: str | None) -> None:
        """Take in what others wrote: new sessions, and into this one."""
        if self._broken is not None:
            return
        try:
            self._meet_others()
            if not self._others.is_known(None):
                taken = [self._adopt(new) for new in self._adopter.new_sessions()]
                if all(taken):
                    self._others.looked_at(None)
            if session_id is None or self._others.is_known(session_id):
                return
            if not self._adopter.has_news(session_id) or self._adopt(session_id):
                self._others.looked_at(session_id)
        except Exception as error:
            self._not_taken_in(error)
            self._others.looked_at(session_id)
        finally:
            self._settle_others()

    def _not_taken_in(self, error: Exception) -> None:
        """It stays as it is, and is read as it is; what is wrong with the file itself, the next unit meets.

        Whatever is in their rows, it must not end the writer, whose lock everybody waits for.
        """
        log.warning("what other programs wrote to %s could not be taken in: %r", self._path, error)
        self._roll_back()

    def _settle_others(self) -> None:
        """The writer has changed the file, or looked at it: what the sentinel sees now is known."""
        self._others.end()
        # Asked after the sentinel: somebody may have committed between.
        if self._watch.sees_others():
            self._others.came()

    def _meet_others(self) -> None:
        if self._watch.others_wrote():
            # Nothing that is remembered holds any more: epochs, heads and the journal are what the file says.
            self._units.reset()
            self._lines.forget(self._journal.commit)
            self._index.restart()
            self._others.came()

    def _adopt(self, session_id: str) -> bool:
        """Take in what others wrote into one session, as one transaction. Whether it is not to be tried again."""
        try:
            self._watch.before()
            self._begin()
            self._meet_others()
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
            # One session that cannot be taken in keeps no other from it; one whose turn it was not yet is.
            self._not_taken_in(error)
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
        """Commit units together, or some work; what became of each."""
        count = len(units) if work is None else 1
        if self._broken is not None:
            return [self._broken] * count
        for unit in units:
            # Who goes by a head goes by what others wrote before, too: taken in now, it moves that.
            if HeadIs in map(type, unit.guards) and not self._others.is_known(unit.session_id):
                self._look(unit.session_id)
        try:
            outcomes = self._transact(units, work)
        except Exception as error:
            self._roll_back()
            self._settle_others()
            if work is not None:
                # Damage to the index alone must not end all writing; if the store has any, the next unit meets it.
                self._index.restart()
                return [translate(error, self._path)]
            if isinstance(error, StoreGone):
                self._give_up(error)
            if count > 1 and not is_busy(error):
                return [outcome for unit in units for outcome in self._attempt([unit], None)]
            if is_broken(error):
                self._broken = StoreUnavailable(
                    f"{self._path} is damaged ({error}); it can be read, not written: run clew check"
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
        self._meet_others()
        self._others.begin()
        failpoint("writer.in_transaction")
        outcomes = [self._units.apply(unit) for unit in units] if work is None else [work(self._index)]
        self._units.finish()
        failpoint("writer.before_commit")
        self._connection.execute("COMMIT")
        self._lines.committed(self._journal.commit, units)
        for unit, outcome in zip(units, outcomes, strict=work is None):
            if unit.writes and type(unit.writes[0]) is InsertSession and isinstance(outcome, Committed):
                # Nobody else can have written into it before this commit; whoever does after it is noticed.
                self._looked.saw(unit.session_id)
                self._others.looked_at(unit.session_id)
        self._settle_others()
        self._watch.after()
        for unit in units:
            # What can be sealed, or taken in, once a turn has begun or ended.
            if unit.session_id in self._adopter.again and any(isinstance(one, _OF_TURNS) for one in unit.writes):
                self._others.look_again(unit.session_id)
        return outcomes

    def _note(self, units: list[Unit]) -> None:
        """Note the commit before anybody is told of it."""
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
        # On a full disk SQLite has rolled back by itself; a second ROLLBACK would be an error of its own.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        try:
            self._units.reset()
        except sqlite3.Error as error:
            self._broken = translate(error, self._path)

    def _checkpoint(self, *, idle: bool) -> None:
        """Move the WAL into the database: soon when idle, later between groups, at the latest when it is huge."""
        commits, syncs, size = self._checkpointed
        if self._broken is not None or not self._options.checkpoints or self.commits == commits:
            return
        pace = "idle" if idle else "quiet" if self._inbox.is_empty else "busy"
        filled, self._filling = self._filling, None
        if filled is None:
            rare = self.commits - commits < _CHECKPOINT_COMMITS[pace]
            if rare and self._watch.wal_size - size < _CHECKPOINT_GROWTH[pace]:
                if self._syncs - syncs < _CHECKPOINT_SYNCS[pace]:
                    return
            elif not idle:
                # Most of it beside the writer, for whom it would take as long as dozens of commits.
                self._filling = self._backfill()
        elif not filled.done():
            self._filling = filled
        elif (error := filled.exception()) is not None:
            log.warning("a checkpoint of %s did not succeed: %s", self._path, error)
        if self._filling is not None:
            return
        failpoint("writer.checkpoint")
        self._others.begin()
        try:
            if idle:
                empty_log(self._connection)
            else:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            log.warning("a checkpoint of %s did not succeed: %s", self._path, error)
        finally:
            self._settle_others()
        with contextlib.suppress(StoreGone):  # the next unit is told
            self._watch.learn()
        # The file is used again from its start, so its size says nothing; only growth beyond it does.
        size = self._watch.wal_size
        self._checkpointed = (self.commits - 1 if idle and size else self.commits, self._syncs, size)
