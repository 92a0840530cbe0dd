"""The writer threads: each has a connection and a share of the sessions, and commits everything in its queue together.

Other processes write to the same database, so nothing is cached between transactions: each one first locks the state
rows of its sessions, in a global order, and what it reads under these locks is valid until the commit. When anything in
a group fails, the group is rolled back and its units run one by one, so that only the failing one gets its error.

Each commit has a number, stored in the database with it. When the connection is lost during a commit, the next
connection checks for that number: if it is there, the commit succeeded. If not, the number is invalidated, so that a
delayed server cannot commit it later, and the group runs again.

So no writer caches what the rows hold, and no process reads rows of another process's streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from zlib import crc32

import psycopg

from clew.errors import InternalError, StoreUnavailable
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.store.commit_batcher import Answer
from clew.store.sql import rows
from clew.store.sql.apply import UnitWriter
from clew.store.sql.inbox import Inbox, Item, Work, answer, split_batches
from clew.store.sql.journal import mark_crc, row_crc
from clew.store.sql.postgres.connection import (
    Connection,
    PostgresStatements,
    is_conflict,
    is_cut_off,
    shown_url,
    translate,
)
from clew.store.sql.postgres.search_index import SearchIndex
from clew.store.sql.statements import Statements
from clew.store.unit import (
    STORE_WIDE,
    AliasIsFree,
    CopyLine,
    DeletePortion,
    DeleteSession,
    DigestIsNew,
    JournalEntry,
    LinkBlob,
    Outcome,
    PutBlob,
    PutPrompt,
    RouteIsFree,
    RulesAre,
    Unit,
)
from clew.transcript.chunk import encode_rows
from clew.transcript.session import SessionState

__all__ = ["StreamJournal", "Writer", "Writers"]

log = logging.getLogger("clew.store")

T = TypeVar("T")

SHARED_DATA_LOCK: Final = 0x636C6577_01
"""The lock of data that is stored once and referenced by many sessions; see the statements ``share_kept`` and
``hold_kept``."""
_NAMING: Final = (PutPrompt, PutBlob, LinkBlob, CopyLine)
_MAX_CONFLICTS: Final = 10
"""Retries of a unit after conflicts. Each time another transaction has succeeded, so this limit is not reached in
practice."""
_PAUSE_S: Final = 0.05


class Writers:
    """All writers of a store. A session's units always go to the same one, so they commit in submission order.

    Store-wide units have their own writer, and so has the search index: a heartbeat never waits for a session's lock.
    """

    def __init__(
        self, url: str, connect: Callable[[], Connection], mint: Mint, count: int, gap_ms: float, wait_s: float
    ):
        name = uuid.uuid4().hex
        writers = [Writer(url, connect, mint, f"{name}-{index}", gap_ms, wait_s) for index in range(count + 2)]
        self._indexing, self._store_wide, *self._of_sessions = self._writers = writers

    @property
    def commits(self) -> int:
        """Return how many transactions were committed since the store was opened."""
        return sum(writer.commits for writer in self._writers)

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return self._writer_of(unit.session_id).submit(unit)

    def submit_all(
        self, units: Sequence[Unit], answered: Callable[[Sequence[tuple[int, Answer]]], None], *, awaited: bool
    ) -> None:
        """Submit units to their writers, each of which answers for its own. Without units, but ``awaited``, hurry all
        writers."""
        shares: dict[Writer, list[int]] = {} if units else {writer: [] for writer in self._writers}
        for index, unit in enumerate(units):
            shares.setdefault(self._writer_of(unit.session_id), []).append(index)
        for writer, indexes in shares.items():

            def on_done(answers: Sequence[Answer], indexes: list[int] = indexes) -> None:
                answered(list(zip(indexes, answers, strict=True)))

            writer.submit_all([units[index] for index in indexes], on_done, awaited=awaited)

    def work(self, work: Callable[[SearchIndex], T]) -> asyncio.Future[T]:
        """Run some work on the search index as one transaction."""
        return self._indexing.work(work)

    def close(self) -> None:
        """Finish what was submitted, then stop. Blocks; called off the loop."""
        for writer in self._writers:
            writer.close()

    def _writer_of(self, session_id: str) -> Writer:
        if session_id == STORE_WIDE:
            return self._store_wide
        return self._of_sessions[crc32(session_id.encode()) % len(self._of_sessions)]


class Writer:
    """One thread and its connection, both created with the first unit."""

    def __init__(
        self, url: str, connect: Callable[[], Connection], mint: Mint, name: str, gap_ms: float, wait_s: float
    ) -> None:
        self._url = url
        self._connect = connect
        self._mint = mint
        self._name = name
        self._wait_s = wait_s
        self._inbox = Inbox(0.0, gap_ms)
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._n = 0
        self._in_doubt: list[Any] | None = None
        """The outcomes of commit ``_n`` if it succeeded; None while no commit is in doubt."""
        self.commits = 0

    # From the event loop

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        self._start()
        return self._inbox.put((unit,), None)

    def submit_all(self, units: Sequence[Unit], on_done: Callable[[Sequence[Answer]], None], *, awaited: bool) -> None:
        if units:
            self._start()
        self._inbox.add(units, on_done, awaited=awaited)

    def work(self, work: Callable[[SearchIndex], T]) -> asyncio.Future[T]:
        self._start()
        return self._inbox.put((), work)

    def close(self) -> None:
        self._inbox.close()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None and not self._inbox.closed:
            self._thread = threading.Thread(target=self._run, name=f"clew-writer {self._name[-4:]}", daemon=True)
            self._thread.start()

    # In the writer's thread

    def _run(self) -> None:
        stop = False
        while not stop:
            group: list[Item] = []
            stop = self._inbox.take(group, [])
            for batch in split_batches(group) if group else ():
                units = [unit for item in batch for unit in item.units]
                try:
                    outcomes = self._attempt(units, batch[0].work, time.monotonic() + self._wait_s)
                except BaseException as error:
                    # Every unit must get an answer, and the open transaction must be released.
                    log.exception("a writer of %s failed", shown_url(self._url))
                    self._disconnect()
                    failed = InternalError(f"a writer of {shown_url(self._url)} failed: {error!r}")
                    outcomes = [failed] * sum(item.size for item in batch)
                answer(batch, outcomes)
        with contextlib.suppress(psycopg.Error):
            if self._connection is not None and not self._connection.closed:
                PostgresStatements(self._connection).run("end_writer", {"id": self._name})
                self._connection.commit()
        self._disconnect()

    def _attempt(self, units: list[Unit], work: Work | None, give_up: float) -> list[Any]:
        """Commit units together, or some work; return their outcomes. ``give_up`` is how long to wait for the server or
        a lock."""
        count = len(units) if work is None else 1
        pause, conflicts = 0.0, 0
        while True:
            try:
                done = self._connect_if_needed()
                return self._transact(units, work) if done is None else done
            except Exception as error:
                cause = error.__cause__ if isinstance(error, StoreUnavailable) and error.__cause__ else error
                if is_cut_off(cause):
                    self._disconnect()
                    if time.monotonic() + pause > give_up:
                        failure, self._in_doubt = self._unreachable(error), None
                        return [failure] * count
                    # The first failure is usually an idle connection: the next one may be available immediately.
                    time.sleep(pause)
                    pause = min(max(pause * 2, _PAUSE_S), 1.0)
                    continue
                self._roll_back()
                if count > 1:
                    return [outcome for unit in units for outcome in self._attempt([unit], None, give_up)]
                if is_conflict(error) and conflicts < _MAX_CONFLICTS:
                    conflicts += 1
                    continue
                if isinstance(error, psycopg.errors.LockNotAvailable) and time.monotonic() < give_up:
                    continue
                return [translate(error, self._url)]

    def _transact(self, units: list[Unit], work: Work | None) -> list[Any]:
        connection = self._connection
        if connection is None:
            raise InternalError("a writer has no connection")
        with connection.pipeline() as pipeline:
            sql = PostgresStatements(connection, pipeline)
            sql.run("bound_waits", {})
            index = SearchIndex(sql)
            if work is not None:
                outcomes = [work(index)]
            else:
                applier = UnitWriter(sql, self._mint, index, StreamJournal(sql))
                applier.begin(_lock(sql, units))
                failpoint("writer.in_transaction")
                outcomes = [applier.apply(unit) for unit in units]
                applier.finish()
            failpoint("writer.before_commit")
            self._n += 1
            self._in_doubt = outcomes
            sql.run("mark_writer", {"id": self._name, "n": self._n})
            connection.commit()
        self._in_doubt = None
        self.commits += 1
        failpoint("writer.after_commit_before_ack")
        return outcomes

    # The connection

    def _connect_if_needed(self) -> list[Any] | None:
        """Connect if needed. Return the outcomes of a commit in doubt if it turns out to have succeeded."""
        if self._connection is not None:
            return None
        connection = self._connect()
        try:
            sql = PostgresStatements(connection)
            sql.run("begin_writer", {"id": self._name})
            held = sql.first("lock_writer", {"id": self._name})
            is_done = held is not None and held[0] >= self._n
            if not is_done:
                # Invalidated: a server that commits it late will fail.
                sql.run("mark_writer", {"id": self._name, "n": self._n})
            connection.commit()
            done, self._in_doubt = self._in_doubt if is_done else None, None
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        if done is not None:
            self.commits += 1
        return done

    def _unreachable(self, error: Exception) -> BaseException:
        failure = translate(error, self._url)
        if self._in_doubt is None or not isinstance(failure, StoreUnavailable):
            return failure
        return StoreUnavailable(f"{failure}. It is unknown whether the last change was stored; read it again")

    def _roll_back(self) -> None:
        self._in_doubt = None
        try:
            if self._connection is not None:
                self._connection.rollback()
        except psycopg.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
        self._connection = None


def _route_of(guard: RouteIsFree | AliasIsFree) -> str:
    named = f"alias {guard.alias}" if isinstance(guard, AliasIsFree) else f"{guard.kind} {guard.name}"
    return named if guard.owner is None else f"{named} of {guard.owner}"


def _lock(sql: PostgresStatements, units: Sequence[Unit]) -> dict[str, SessionState | None]:
    """Lock everything these units write to, in a global order; return the states of their sessions."""
    writes = [write for unit in units for write in unit.writes]
    if any(isinstance(write, DeleteSession | DeletePortion) for write in writes):
        sql.first("hold_kept", {"key": SHARED_DATA_LOCK})
    elif any(isinstance(write, _NAMING) for write in writes):
        sql.first("share_kept", {"key": SHARED_DATA_LOCK})
    guards = [guard for unit in units for guard in unit.guards]
    names = {_route_of(one) for one in guards if isinstance(one, RouteIsFree | AliasIsFree)}
    names |= {f"deliveries of {one.source}" for one in guards if isinstance(one, DigestIsNew)}
    names |= {f"rules {one.project}" for one in guards if isinstance(one, RulesAre) and one.project is not None}
    for name in sorted(names):
        sql.first("hold_name", {"name": name})
    ids = sorted({unit.session_id for unit in units} - {STORE_WIDE})
    states: dict[str, SessionState | None] = {STORE_WIDE: None, **dict.fromkeys(ids)}
    if ids:
        for session_id, *state, is_deleted in sql.rows("lock_states", {"ids": rows.encode(ids)}):
            states[session_id] = None if is_deleted else SessionState(*state)
    return states


class StreamJournal:
    """See :class:`clew.store.sql.apply.Journal`."""

    def __init__(self, statements: Statements) -> None:
        self._sql = statements
        self._accepted: dict[str, tuple[str, list[JournalEntry]]] = {}
        self._folded: dict[str, tuple[str, int]] = {}

    def reset(self) -> None:
        self._accepted.clear()
        self._folded.clear()

    def knows(self, message_id: str) -> bool:
        return True  # the row is inserted only if its message exists

    def accept(self, session_id: str, message_id: str, entries: Sequence[JournalEntry]) -> None:
        self._accepted.setdefault(message_id, (session_id, []))[1].extend(entries)

    def fold(self, session_id: str, message_id: str, through: int) -> None:
        self._folded[message_id] = (session_id, through)

    def flush(self) -> None:
        for message_id, (session_id, through) in self._folded.items():
            mark = {"message_id": message_id, "session_id": session_id, "through": through}
            self._sql.run("fold_journal", {**mark, "crc": mark_crc(message_id, through)})
        for message_id, (session_id, entries) in self._accepted.items():
            folded = self._folded.get(message_id, (session_id, 0))[1]
            remaining = [(message_id, entry.n, entry.part, entry.chunk) for entry in entries if entry.n > folded]
            if remaining:
                # With full ids: an older clew may serve the same database and take over the session.
                before, n, data = remaining[0][1] - 1, remaining[-1][1], encode_rows(remaining, in_full=True)
                row = {"message_id": message_id, "session_id": session_id, "n": n, "data": data.decode()}
                crcs = {"crc": row_crc(n, data), "before": before, "mark_crc": mark_crc(message_id, before)}
                self._sql.run("append_chunks", {**row, **crcs})
        self.reset()

    def finish(self) -> None:
        pass

    def delete_session(self, session_id: str) -> None:
        self._sql.run("delete_journal_of_session", {"id": session_id})
