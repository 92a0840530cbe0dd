"""The sessions at work: who may act on one, what occupies it, and how its units get into the store.

This is the leaf that everything else of the runtime stands on. One lock per session makes a decision whole inside this
process; the guards of a unit make it true in the store. A session has at most one run, or is occupied by
something that is no run, such as a summary in the making. What a prompt, a queue or an answer is, is not known here.
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
from clew.runtime.host import Host
from clew.runtime.take import plan_fence, plan_free
from clew.store.base import get_session
from clew.store.unit import Refused, Unit
from clew.tools.base import Signal
from clew.transcript.session import Session

__all__ = ["LiveRun", "LiveSessions", "Occupancy", "RouteTaken", "RulesMoved", "ScheduleMoved", "SentMeanwhile"]

T = TypeVar("T")
log = logging.getLogger("clew.run")
_CANCELLED_S: Final = 1.0
"""How long closing waits for work that it has cancelled."""


class ScheduleMoved(Exception):
    """The schedule that a unit fires is not as it was read: another process has fired it, or somebody changed it."""


class RulesMoved(Exception):
    """The rules that a unit replaces are not as they were read: another process has changed them since."""


class RouteTaken(Exception):
    """Another process has made the session of that label or routing key; looked for again, it is there."""


class SentMeanwhile(Exception):
    """Another process has taken the prompt between a look for it and the write; looked for again, it is there."""


class LiveRun(Protocol):
    """A run, as far as others deal with it while it lasts."""

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
        """Until it is over, and whatever follows it by itself has begun."""

    def has_asked(self, request_id: str | None = None) -> bool: ...


class Occupancy(msgspec.Struct, frozen=True):
    """A session that something has which is no run: ``signal`` asks for its end, ``released`` is set at it.

    ``after_turn``: it belongs to a turn that has ended, so closing waits for it. ``epoch`` is by what right it has the
    session among replicas; None where there is one owner.
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
    """The sessions of one engine."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.lease = host.lease
        self._runs: dict[str, LiveRun] = {}
        self._ending: set[LiveRun] = set()
        self._unsettled: dict[str, str] = {}
        self.occupied: dict[str, Occupancy] = {}
        # A lock lives while somebody holds or awaits it, so sessions that are only named leave nothing behind.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._deleting: set[str] = set()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    # Questions

    def lock(self, session_id: str) -> asyncio.Lock:
        return self._locks.setdefault(session_id, asyncio.Lock())

    def find_run(self, session_id: str) -> LiveRun | None:
        return self._runs.get(session_id)

    def live_ids(self) -> tuple[str, ...]:
        """The sessions of which :meth:`is_live` is true."""
        return (*self._runs, *self.occupied)

    def ends(self) -> list[asyncio.Task[Any]]:
        """The end of each thing that goes on: runs, summaries, and whoever has a session in hand at this moment."""

        async def let_go(lock: asyncio.Lock) -> None:
            async with lock:
                pass

        runs = [run.wait() for run in self._runs.values()]
        occupied = [one.released.wait() for one in self.occupied.values()]
        held = [let_go(lock) for lock in self._locks.values() if lock.locked()]
        return [asyncio.get_running_loop().create_task(end) for end in (*runs, *occupied, *held)]

    def is_live(self, session_id: str) -> bool:
        """Something runs on the session, or is being made of it."""
        return session_id in self._runs or session_id in self.occupied

    def is_deleting(self, session_id: str) -> bool:
        return session_id in self._deleting

    def is_open(self, session_id: str) -> bool:
        """Something may begin on the session: it is not being deleted, and the engine is not closing."""
        begins = not self._closing.is_set() and not self.lease.draining
        return (
            begins and session_id not in self._deleting and (not self.lease.shared or self.lease.replica_id is not None)
        )

    def check_free(self, session_id: str) -> None:
        """:class:`SessionBusy` while a run or something else has the session."""
        if session_id in self._runs:
            raise SessionBusy("a run is in flight on this session", session_id=session_id)
        if session_id in self.occupied:
            raise SessionBusy("this session is being summarised", session_id=session_id)

    async def get_open(self, session_id: str) -> Session:
        """The session, unless nothing may begin on it any more."""
        self.check_open(session_id)
        return await get_session(self._host.store, session_id)

    def check_open(self, session_id: str) -> None:
        if session_id in self._deleting:
            raise SessionNotFound("the session is being deleted", session_id=session_id)
        if self._closing.is_set():
            raise StoreClosed("clew is shutting down", session_id=session_id)
        self.lease.check_open()

    # Who has it. All of these are called under the session's lock.

    def add_run(self, run: LiveRun) -> None:
        self._runs[run.session_id] = run
        # Whoever takes a session settles what was left open on it.
        self._unsettled.pop(run.session_id, None)

    def remove_run(self, run: LiveRun) -> None:
        """Its turn is settled: the session is free. Closing still waits for what the run has left to do."""
        if self._runs.get(run.session_id) is run:
            del self._runs[run.session_id]
        self._ending.add(run)

    def forget_run(self, run: LiveRun, *, unsettled: str | None = None) -> None:
        """It is over, however its end was handled. ``unsettled`` is its turn where the store did not take how."""
        self.remove_run(run)
        self._ending.discard(run)
        if unsettled is not None:
            self._unsettled[run.session_id] = unsettled

    async def occupy(self, session_id: str, message: str, *, after_turn: bool) -> Occupancy:
        """Take an idle session for something that is no run; ``release`` must follow. :class:`SessionBusy` when another
        replica has it."""
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
        """It is over. Where the store cannot be told, the next heartbeat finds that nothing here has the session."""
        try:
            if occupancy.epoch is not None:
                with contextlib.suppress(StoreError):
                    await self._host.store.commit(plan_free(occupancy.session_id, occupancy.epoch))
        finally:
            del self.occupied[occupancy.session_id]
            occupancy.released.set()

    def stop(self, session_id: str, reason: str) -> bool:
        """Ask what has the session to end; False when nothing has it."""
        if session_id in self._runs:
            self._runs[session_id].abort(reason)
        elif session_id in self.occupied:
            self.occupied[session_id].signal.abort(reason)
        return self.is_live(session_id)

    def work(self, doing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work that belongs to the engine, whoever waits for it."""
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # One that nobody waits for any more has nobody to tell.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def wait_closing(self, grace_s: float) -> None:
        """Until so long after closing has begun."""
        await self._closing.wait()
        await asyncio.sleep(grace_s)

    # The store, and whoever watches

    async def commit(self, unit: Unit) -> None:
        """Commit a unit; what a guard refused is an error with its reason."""
        outcome = await self._host.store.commit(unit)
        if isinstance(outcome, Refused):
            if outcome.reason in ("stale_epoch", "turn_open", "head_moved", "turn_not_open", "runs_elsewhere"):
                raise SessionBusy("the session was taken by another run", session_id=unit.session_id)
            if outcome.reason == "lease_lapsed":
                raise ReplicaAway("this replica has lost its lease; ask again, and another one answers")
            if outcome.reason == "session_not_found":
                raise SessionNotFound(f"there is no session {unit.session_id}", session_id=unit.session_id)
            if outcome.reason == "event_exists":
                raise DuplicateEvent("this event was received before", session_id=unit.session_id)
            if outcome.reason == "schedule_changed":
                raise ScheduleMoved
            if outcome.reason == "rules_changed":
                raise RulesMoved
            if outcome.reason == "route_taken":
                raise RouteTaken
            if outcome.reason == "alias_taken":
                raise AliasTaken("there is a session of that alias already; take another, or use that one")
            if outcome.reason == "sent_meanwhile":
                raise SentMeanwhile
            raise InternalError(f"a unit was refused: {outcome.reason}", session_id=unit.session_id)

    def publish(self, kind: EventType, session_id: str, **data: Any) -> None:
        self._host.live.publish(Event(kind, {"session_id": session_id, **data}))

    def show(self, session_id: str, status: Status) -> None:
        """Let everybody know what the session does now."""
        self._host.live.set_status(session_id, status)
        self.publish("status", session_id, status=msgspec.to_builtins(status))

    def show_changed(self, session_id: str) -> None:
        """Tell everybody that the session is not as it was."""
        self.publish("session_updated", session_id)

    # The end

    async def close(self, reason: str, within_s: float) -> tuple[str, ...]:
        """Stop every run and wait until each has settled, and that long for what is done after a turn.

        The turns of runs that ended here and are open in the store still; each is told once.
        """
        self._closing.set()
        until = time.monotonic() + within_s
        await self._end_all(reason, but_after_turn=True)
        # A run that has just ended may have begun more of it.
        while self._tasks and time.monotonic() < until:
            await asyncio.wait(set(self._tasks), timeout=until - time.monotonic())
        # What a slow model owes still is not waited for. It ends before the store does.
        await self._end_all(reason)
        late = set(self._tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CANCELLED_S)
        return await self._take_unsettled()

    async def _take_unsettled(self) -> tuple[str, ...]:
        """What was not stored and nobody has settled since, as another replica may have, or a deletion."""
        noted, self._unsettled = self._unsettled, {}
        asked = {one[1]: asyncio.ensure_future(self._is_left_open(*one)) for one in noted.items()}
        if asked:
            # A store that let nothing be written may answer nothing either; then it is not known, and not settled.
            await asyncio.wait(asked.values(), timeout=_CANCELLED_S)
        left = tuple(turn_id for turn_id, open_ in asked.items() if not open_.done() or open_.result())
        for open_ in asked.values():
            open_.cancel()
        for turn_id in left:
            log.error("turn %s has ended and could not be settled; it is settled at the next start", turn_id)
        return left

    async def _is_left_open(self, session_id: str, turn_id: str) -> bool:
        try:
            return (await self._host.store.load_state(session_id)).open_turn_id == turn_id
        except SessionNotFound:
            return False
        except Exception as error:
            # Not known to be settled is not settled.
            log.warning("how session %s was left cannot be read: %s", session_id, error)
            return True

    async def begin_deletion(self, session_id: str, reason: str) -> None:
        """Let nothing begin on the session any more, and end what has it."""
        self._deleting.add(session_id)
        await self._end_all(reason, session_id)

    async def _end_all(self, reason: str, session_id: str | None = None, *, but_after_turn: bool = False) -> None:
        """Stop what has any session, or this one, until nothing has: what was on its way when it was asked, too."""
        while True:
            live = [run for run in self._runs.values() if session_id in (None, run.session_id)]
            # One that has settled may still be seeing what comes next, and needs the store for it.
            ending = [run for run in self._ending if session_id in (None, run.session_id)]
            held = (one for one in self.occupied.values() if session_id in (None, one.session_id))
            occupied = [one for one in held if not (but_after_turn and one.after_turn)]
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
