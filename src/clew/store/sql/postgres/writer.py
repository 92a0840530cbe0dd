"""The threads that write: each has a connection, some of the sessions, and commits all that waits for it together.

Other processes write to the same database, so nothing is known from one transaction to the next: each begins by taking
the rows of its sessions' states, in one order for everybody, and what is read under them holds until the commit. When
anything in a group fails, it is rolled back and its units run one by one, so that only the failing one sees its error.

Each commit has a number, kept in the database with it. Where the connection is lost in the middle of one, the next
connection looks whether that number is there: then it was done. If it is not, it is given up, so that it can never be
done by a server that is only late, and the group runs again.
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
from clew.store.hub import Answer
from clew.store.sql import rows
from clew.store.sql.apply import UnitWriter
from clew.store.sql.inbox import Inbox, Item, Work, answer, runs
from clew.store.sql.postgres.connection import (
    Connection,
    PostgresStatements,
    is_conflict,
    is_cut_off,
    shown_url,
    translate,
)
from clew.store.sql.postgres.search_index import SearchIndex
from clew.store.sql.postgres.stream_journal import StreamJournal
from clew.store.unit import (
    STORE_WIDE,
    AliasIsFree,
    CopyLine,
    DeleteSession,
    DigestIsNew,
    LinkBlob,
    Outcome,
    PutBlob,
    PutPrompt,
    RouteIsFree,
    RulesAre,
    Unit,
)
from clew.transcript.session import SessionState

__all__ = ["Writer", "Writers"]

log = logging.getLogger("clew.store")

T = TypeVar("T")

KEPT: Final = 0x636C6577_01
"""The lock of what is kept once and named by many sessions; see the statements ``share_kept`` and ``hold_kept``."""
_NAMING: Final = (PutPrompt, PutBlob, LinkBlob, CopyLine)
_CONFLICTS: Final = 10
"""So often a unit gives way to others. Each time somebody else has got on, so this is never reached in turn."""
_PAUSE_S: Final = 0.05


class Writers:
    """All writers of a store. A session's units go to one of them, so they are committed in the order they came.

    What is nobody's has a writer of its own, and so has the search index: a heartbeat waits for no session's lock.
    """

    def __init__(
        self, url: str, connect: Callable[[], Connection], mint: Mint, count: int, gap_ms: float, wait_s: float
    ):
        name = uuid.uuid4().hex
        writers = [Writer(url, connect, mint, f"{name}-{place}", gap_ms, wait_s) for place in range(count + 2)]
        self._indexing, self._store_wide, *self._of_sessions = self._writers = writers

    @property
    def commits(self) -> int:
        """How many transactions were committed since the store was opened."""
        return sum(writer.commits for writer in self._writers)

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        return self._writer_of(unit.session_id).submit(unit)

    def submit_all(
        self, units: Sequence[Unit], answered: Callable[[Sequence[tuple[int, Answer]]], None], *, awaited: bool
    ) -> None:
        """Each writer answers for its own; none, when they are awaited, are so everywhere."""
        shares: dict[Writer, list[int]] = {} if units else {writer: [] for writer in self._writers}
        for place, unit in enumerate(units):
            shares.setdefault(self._writer_of(unit.session_id), []).append(place)
        for writer, places in shares.items():

            def told(answers: Sequence[Answer], places: list[int] = places) -> None:
                answered(list(zip(places, answers, strict=True)))

            writer.submit_all([units[place] for place in places], told, awaited=awaited)

    def work(self, work: Callable[[SearchIndex], T]) -> asyncio.Future[T]:
        """Do some work on the search index, as one transaction."""
        return self._indexing.work(work)

    def close(self) -> None:
        """Finish what was submitted, then end. Blocks; called off the loop."""
        for writer in self._writers:
            writer.close()

    def _writer_of(self, session_id: str) -> Writer:
        if session_id == STORE_WIDE:
            return self._store_wide
        return self._of_sessions[crc32(session_id.encode()) % len(self._of_sessions)]


class Writer:
    """One thread and its connection, both made when the first unit comes."""

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
        self._doubt: list[Any] | None = None
        """What came of the units of commit ``_n``, if that was done; None while nothing is in doubt."""
        self.commits = 0

    # From the event loop

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        self._start()
        return self._inbox.put((unit,), None)

    def submit_all(self, units: Sequence[Unit], told: Callable[[Sequence[Answer]], None], *, awaited: bool) -> None:
        if units:
            self._start()
        self._inbox.add(units, told, awaited=awaited)

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
            for run in runs(group) if group else ():
                units = [unit for item in run for unit in item.units]
                try:
                    outcomes = self._attempt(units, run[0].work, time.monotonic() + self._wait_s)
                except BaseException as error:
                    # Nobody may be left waiting; what holds the transaction open goes.
                    log.exception("a writer of %s failed", shown_url(self._url))
                    self._let_go()
                    failed = InternalError(f"a writer of {shown_url(self._url)} failed: {error!r}")
                    outcomes = [failed] * sum(item.size for item in run)
                answer(run, outcomes)
        with contextlib.suppress(psycopg.Error):
            if self._connection is not None and not self._connection.closed:
                PostgresStatements(self._connection).run("end_writer", {"id": self._name})
                self._connection.commit()
        self._let_go()

    def _attempt(self, units: list[Unit], work: Work | None, give_up: float) -> list[Any]:
        """Commit units together, or some work; what became of each. ``give_up`` is until when the server, or a lock, is
        waited for."""
        count = len(units) if work is None else 1
        pause, conflicts = 0.0, 0
        while True:
            try:
                done = self._ready()
                return self._transact(units, work) if done is None else done
            except Exception as error:
                cause = error.__cause__ if isinstance(error, StoreUnavailable) and error.__cause__ else error
                if is_cut_off(cause):
                    self._let_go()
                    if time.monotonic() + pause > give_up:
                        told, self._doubt = self._unreachable(error), None
                        return [told] * count
                    # The first loss is that of a connection that lay idle: the next one may be had at once.
                    time.sleep(pause)
                    pause = min(max(pause * 2, _PAUSE_S), 1.0)
                    continue
                self._roll_back()
                if count > 1:
                    return [outcome for unit in units for outcome in self._attempt([unit], None, give_up)]
                if is_conflict(error) and conflicts < _CONFLICTS:
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
            self._doubt = outcomes
            sql.run("mark_writer", {"id": self._name, "n": self._n})
            connection.commit()
        self._doubt = None
        self.commits += 1
        failpoint("writer.after_commit_before_ack")
        return outcomes

    # The connection

    def _ready(self) -> list[Any] | None:
        """Be connected. What came of a commit that was in doubt, if it turns out that it was done."""
        if self._connection is not None:
            return None
        connection = self._connect()
        try:
            sql = PostgresStatements(connection)
            sql.run("begin_writer", {"id": self._name})
            held = sql.first("lock_writer", {"id": self._name})
            is_done = held is not None and held[0] >= self._n
            if not is_done:
                # Given up: a server that has not come to it yet fails there.
                sql.run("mark_writer", {"id": self._name, "n": self._n})
            connection.commit()
            done, self._doubt = self._doubt if is_done else None, None
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        if done is not None:
            self.commits += 1
        return done

    def _unreachable(self, error: Exception) -> BaseException:
        told = translate(error, self._url)
        if self._doubt is None or not isinstance(told, StoreUnavailable):
            return told
        return StoreUnavailable(f"{told}. Whether the last change was stored is not known: read it again")

    def _roll_back(self) -> None:
        self._doubt = None
        try:
            if self._connection is not None:
                self._connection.rollback()
        except psycopg.Error:
            self._let_go()

    def _let_go(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
        self._connection = None


def _route_of(guard: RouteIsFree | AliasIsFree) -> str:
    named = f"alias {guard.alias}" if isinstance(guard, AliasIsFree) else f"{guard.kind} {guard.name}"
    return named if guard.owner is None else f"{named} of {guard.owner}"


def _lock(sql: PostgresStatements, units: Sequence[Unit]) -> dict[str, SessionState | None]:
    """Take what these units write to, in one order for everybody; how their sessions stand."""
    writes = [write for unit in units for write in unit.writes]
    if any(isinstance(write, DeleteSession) for write in writes):
        sql.first("hold_kept", {"key": KEPT})
    elif any(isinstance(write, _NAMING) for write in writes):
        sql.first("share_kept", {"key": KEPT})
    guards = [guard for unit in units for guard in unit.guards]
    names = {_route_of(one) for one in guards if isinstance(one, RouteIsFree | AliasIsFree)}
    names |= {f"deliveries of {one.source}" for one in guards if isinstance(one, DigestIsNew)}
    names |= {f"rules {one.project}" for one in guards if isinstance(one, RulesAre) and one.project is not None}
    for name in sorted(names):
        sql.first("hold_name", {"name": name})
    ids = sorted({unit.session_id for unit in units} - {STORE_WIDE})
    states: dict[str, SessionState | None] = {STORE_WIDE: None, **dict.fromkeys(ids)}
    if ids:
        for session_id, *state in sql.rows("lock_states", {"ids": rows.encode(ids)}):
            states[session_id] = SessionState(*state)
    return states
