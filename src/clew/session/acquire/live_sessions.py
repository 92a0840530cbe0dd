"""The active sessions: who may act on one, what occupies it, and how its units are committed.

All other runtime modules depend on this one. One lock per session makes decisions atomic inside this process; the
guards of a unit make them true in the store. A session has at most one run, or is occupied by something else, such as a
compaction. Prompts, queues and answers are not known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec

from clew.errors import (
    AliasTaken,
    DuplicateEvent,
    InternalError,
    ReplicaAway,
    SessionBusy,
    SessionNotFound,
    StoreClosed,
    StoreError,
)
from clew.live.base import Event, EventType, LiveStream, Status
from clew.session.acquire.acquire import plan_fence, plan_free
from clew.session.host import Host
from clew.store.base import get_session
from clew.store.unit import Refused, Unit
from clew.tools.base import Signal
from clew.transcript.session import Session

__all__ = ["DuplicateSubmission", "LiveRun", "LiveSessions", "Occupancy", "RouteTaken", "RulesChanged", "ScheduleMoved"]

T = TypeVar("T")
log = logging.getLogger("clew.run")
_CANCEL_WAIT_S: Final = 1.0
"""Seconds to wait on close for cancelled tasks."""


class ScheduleMoved(Exception):
    """The schedule of a unit has changed since it was read: another process fired it, or a client edited it."""


class RulesChanged(Exception):
    """The rules that a unit replaces have changed since they were read, by another process."""


class RouteTaken(Exception):
    """Another process created the session of that label or routing key; look it up again."""


class DuplicateSubmission(Exception):
    """Another process accepted the same prompt between the lookup and the write; look it up again."""


class LiveRun(Protocol):
    """The interface of an active run."""

    @property
    def session_id(self) -> str: ...

    @property
    def user_message_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def live_stream(self) -> LiveStream: ...

    def abort(self, reason: str) -> None: ...

    async def wait(self) -> Any:
        """Wait until it has ended and whatever follows it automatically has started."""

    def has_asked(self, request_id: str | None = None) -> bool: ...


class Occupancy(msgspec.Struct, frozen=True):
    """An active operation on a session that is no run: ``signal`` requests its end, ``released`` is set when it ends.

    ``after_turn``: it belongs to a turn that has ended, so closing waits for it. ``epoch`` is the one it acquired the
    session with; None in a store with a single owner.
    """

    session_id: str
    since: int
    after_turn: bool = False
    epoch: int | None = None
    signal: Signal = msgspec.field(default_factory=Signal)
    released: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def status(self, message: str) -> Status:
        return Status("busy", message=message, started_at=self.since)


class LiveSessions:
    """The active sessions of one engine."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.lease = host.lease
        self._runs: dict[str, LiveRun] = {}
        self._ending: set[LiveRun] = set()
        self._unsettled: dict[str, str] = {}
        self.occupied: dict[str, Occupancy] = {}
        # A lock exists only while a task holds or awaits it, so unused sessions take no memory.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._deleting: set[str] = set()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    # Queries

    def lock(self, session_id: str) -> asyncio.Lock:
        return self._locks.setdefault(session_id, asyncio.Lock())

    def find_run(self, session_id: str) -> LiveRun | None:
        return self._runs.get(session_id)

    def live_ids(self) -> tuple[str, ...]:
        """Return the sessions for which :meth:`is_live` is true."""
        return (*self._runs, *self.occupied)

    def ends(self) -> list[asyncio.Task[Any]]:
        """Return a task per active operation that finishes with it: runs, compactions, and callers holding a lock."""

        async def unlocked(lock: asyncio.Lock) -> None:
            async with lock:
                pass

        runs = [run.wait() for run in self._runs.values()]
        occupied = [occupancy.released.wait() for occupancy in self.occupied.values()]
        locked = [unlocked(lock) for lock in self._locks.values() if lock.locked()]
        return [asyncio.get_running_loop().create_task(end) for end in (*runs, *occupied, *locked)]

    def is_live(self, session_id: str) -> bool:
        """Return whether the session has a run or another active operation."""
        return session_id in self._runs or session_id in self.occupied

    def is_deleting(self, session_id: str) -> bool:
        return session_id in self._deleting

    def is_open(self, session_id: str) -> bool:
        """Return whether runs may start: the session is not being deleted, and the engine not closing."""
        begins = not self._closing.is_set() and not self.lease.draining
        return (
            begins and session_id not in self._deleting and (not self.lease.shared or self.lease.replica_id is not None)
        )

    def check_free(self, session_id: str) -> None:
        """Raise :class:`SessionBusy` while the session has a run or another active operation."""
        if session_id in self._runs:
            raise SessionBusy("a run is in flight on this session", session_id=session_id)
        if session_id in self.occupied:
            raise SessionBusy("this session is being summarised", session_id=session_id)

    async def get_open(self, session_id: str) -> Session:
        """Return the session, or raise if no run may start on it."""
        self.check_open(session_id)
        return await get_session(self._host.store, session_id)

    def check_open(self, session_id: str) -> None:
        if session_id in self._deleting:
            raise SessionNotFound("the session is being deleted", session_id=session_id)
        if self._closing.is_set():
            raise StoreClosed("clew is shutting down", session_id=session_id)
        self.lease.check_open()

    # Ownership. The caller of each of these holds the session's lock.

    def add_run(self, run: LiveRun) -> None:
        self._runs[run.session_id] = run
        # Acquiring a session settles what was left open on it.
        self._unsettled.pop(run.session_id, None)

    def remove_run(self, run: LiveRun) -> None:
        """Free the session of a run whose turn is settled. Closing still waits for the rest of the run."""
        if self._runs.get(run.session_id) is run:
            del self._runs[run.session_id]
        self._ending.add(run)

    def forget_run(self, run: LiveRun, *, unsettled: str | None = None) -> None:
        """Remove a run that has ended. ``unsettled`` is its turn if the store did not accept its end."""
        self.remove_run(run)
        self._ending.discard(run)
        if unsettled is not None:
            self._unsettled[run.session_id] = unsettled

    async def occupy(self, session_id: str, message: str, *, after_turn: bool) -> Occupancy:
        """Acquire an idle session for an operation that is no run; ``release`` must follow.

        Raise :class:`SessionBusy` if another replica has acquired it.
        """
        epoch = None
        if self.lease.shared:
            state = await self._host.store.load_state(session_id)
            await self.commit(plan_fence(session_id, state, self.lease.replica_id or ""))
            epoch = state.epoch + 1
        occupancy = Occupancy(session_id, self._host.clock.now_ms(), after_turn, epoch)
        self.occupied[session_id] = occupancy
        self.show(session_id, occupancy.status(message))
        return occupancy

    async def release(self, occupancy: Occupancy) -> None:
        """End the operation. If the store cannot be reached, the next heartbeat frees the session."""
        try:
            if occupancy.epoch is not None:
                with contextlib.suppress(StoreError):
                    await self._host.store.commit(plan_free(occupancy.session_id, occupancy.epoch))
        finally:
            del self.occupied[occupancy.session_id]
            occupancy.released.set()

    def stop(self, session_id: str, reason: str) -> bool:
        """Ask the active operation to end; return False if there is none."""
        if session_id in self._runs:
            self._runs[session_id].abort(reason)
        elif session_id in self.occupied:
            self.occupied[session_id].signal.abort(reason)
        return self.is_live(session_id)

    def work(self, doing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that belongs to the engine and survives its caller."""
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # If no caller awaits it any more, its exception is dropped.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def wait_closing(self, grace_s: float) -> None:
        """Wait until this long after closing has begun."""
        await self._closing.wait()
        await asyncio.sleep(grace_s)

    # Store and viewers

    async def commit(self, unit: Unit) -> None:
        """Commit a unit; raise an error for a refused one."""
        outcome = await self._host.store.commit(unit)
        if isinstance(outcome, Refused):
            if outcome.reason in ("stale_epoch", "turn_open", "head_moved", "turn_not_open", "runs_elsewhere"):
                raise SessionBusy("the session was acquired by another run", session_id=unit.session_id)
            if outcome.reason == "lease_lapsed":
                raise ReplicaAway("this replica is rejoining the cluster; retry")
            if outcome.reason == "session_not_found":
                raise SessionNotFound(f"there is no session {unit.session_id}", session_id=unit.session_id)
            if outcome.reason == "event_exists":
                raise DuplicateEvent("this event was already received", session_id=unit.session_id)
            if outcome.reason == "schedule_changed":
                raise ScheduleMoved
            if outcome.reason == "rules_changed":
                raise RulesChanged
            if outcome.reason == "route_taken":
                raise RouteTaken
            if outcome.reason == "alias_taken":
                raise AliasTaken("a session with this alias already exists; choose another alias or use that session")
            if outcome.reason == "sent_meanwhile":
                raise DuplicateSubmission
            raise InternalError(f"a unit was refused: {outcome.reason}", session_id=unit.session_id)

    def publish(self, kind: EventType, session_id: str, **data: Any) -> None:
        self._host.live.publish(Event(kind, {"session_id": session_id, **data}))

    def show(self, session_id: str, status: Status) -> None:
        """Publish the current status of the session."""
        self._host.live.set_status(session_id, status)
        self.publish("status", session_id, status=msgspec.to_builtins(status))

    def show_changed(self, session_id: str) -> None:
        """Publish that the session has changed."""
        self.publish("session_updated", session_id)

    # Closing

    async def close(self, reason: str, within_s: float) -> tuple[str, ...]:
        """Stop every run, wait until each has settled, and wait up to ``within_s`` for what follows a turn.

        Return the turns of runs that ended here but are still open in the store, each only once.
        """
        self._closing.set()
        until = time.monotonic() + within_s
        await self._end_all(reason, but_after_turn=True)
        # A run that has just ended may have started such work.
        while self._tasks and time.monotonic() < until:
            await asyncio.wait(set(self._tasks), timeout=until - time.monotonic())
        # Background work that waits for a slow model is not awaited further; it must end before the store does.
        await self._end_all(reason)
        late = set(self._tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CANCEL_WAIT_S)
        return await self._pop_unsettled()

    async def _pop_unsettled(self) -> tuple[str, ...]:
        """Return the turns that were not stored as settled, nor settled since by another replica or a deletion."""
        noted, self._unsettled = self._unsettled, {}
        checks = {one[1]: asyncio.ensure_future(self._is_left_open(*one)) for one in noted.items()}
        if checks:
            # A store that accepts no writes may not answer reads either; such turns count as not settled.
            await asyncio.wait(checks.values(), timeout=_CANCEL_WAIT_S)
        left = tuple(turn_id for turn_id, check in checks.items() if not check.done() or check.result())
        for check in checks.values():
            check.cancel()
        for turn_id in left:
            log.error("turn %s has ended but could not be settled; it is settled at the next start", turn_id)
        return left

    async def _is_left_open(self, session_id: str, turn_id: str) -> bool:
        try:
            return (await self._host.store.load_state(session_id)).open_turn_id == turn_id
        except SessionNotFound:
            return False
        except Exception as error:
            # Unknown counts as not settled.
            log.warning("cannot read the state of session %s: %s", session_id, error)
            return True

    async def begin_deletion(self, session_id: str, reason: str) -> None:
        """Let nothing start on the session any more, and end its active operation."""
        self._deleting.add(session_id)
        await self._end_all(reason, session_id)

    async def _end_all(self, reason: str, session_id: str | None = None, *, but_after_turn: bool = False) -> None:
        """Stop the operations on all sessions, or on one, until there are none, including ones started meanwhile."""
        while True:
            live = [run for run in self._runs.values() if session_id in (None, run.session_id)]
            # A settled run may still start what follows it, and needs the store for that.
            ending = [run for run in self._ending if session_id in (None, run.session_id)]
            occupied = [
                occupancy
                for occupancy in self.occupied.values()
                if session_id in (None, occupancy.session_id) and not (but_after_turn and occupancy.after_turn)
            ]
            if not (live or ending or occupied):
                return
            for run in live:
                run.abort(reason)
            for occupancy in occupied:
                occupancy.signal.abort(reason)
            ends = (*(run.wait() for run in (*live, *ending)), *(occupancy.released.wait() for occupancy in occupied))
            await asyncio.gather(*ends, return_exceptions=True)

    def end_deletion(self, session_id: str) -> None:
        self._deleting.discard(session_id)
