"""The heartbeat: renews this replica's lease and, with each beat, recovers the sessions of dead replicas.

It runs only where several processes serve one store. A beat extends the lease by the store's clock. A replica that
cannot renew in time, or finds its lease lapsed, stops all its runs immediately, writes nothing more, and joins again.
Stop requests from other replicas are durable before they are signalled, so a lost signal costs one beat. Sessions of a
dead replica are acquired by the first replica to find them, settled, and resumed. That work never delays the lease: a
replica that died must not cost the others theirs.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from clew._version import __version__
from clew.clock import Timer
from clew.errors import ClewError, SessionBusy
from clew.session.acquire.acquire import GONE, settle_session
from clew.session.acquire.live_sessions import LiveSessions
from clew.session.acquire.loaded_session import load_session_state
from clew.session.acquire.prepare import prepare_session
from clew.session.acquire.waiting import status_in
from clew.session.cluster.lease import LEASE_LOST
from clew.session.host import Host
from clew.session.prompt.event_replies import EventReplies
from clew.session.prompt.submission import Outcomes, stored_outcome
from clew.session.turn.continuation import Continuation
from clew.session.turn.runner import Runner
from clew.store.deletion import delete_unfinished
from clew.store.unit import STORE_WIDE, BeatReplica, JoinReplica, LeaseHolds, LeaveReplica, Refused, Unit, Write
from clew.transcript.turn_state import OPEN

__all__ = ["Heartbeat"]

log = logging.getLogger("clew.replica")
BEATS: Final = 3
"""Beats per lease time: two may fail before the lease is lost."""
_MAX_CONCURRENT: Final = 8
"""Sessions handled concurrently."""


class Heartbeat:
    """The heartbeat task: ``open`` starts it, ``close`` gives the lease back. Does nothing with a single owner."""

    def __init__(
        self,
        host: Host,
        sessions: LiveSessions,
        runner: Runner,
        continuation: Continuation,
        event_replies: EventReplies,
        outcomes: Outcomes,
    ) -> None:
        self._host = host
        self._lease = host.lease
        self._lease_ms = round(host.config.replica.lease_s * 1000)
        self._sessions = sessions
        self._runner = runner
        self._continuation = continuation
        self._event_replies = event_replies
        self._outcomes = outcomes
        self._lapse_timer: Timer | None = None
        self._lost_id: str | None = None
        self._is_permanent = True
        self._idle: frozenset[str] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, *, stays: bool) -> None:
        """Join, settle the sessions that no live replica runs, and start beating.

        With ``stays`` false, sessions of other replicas are not resumed: this process would soon stop them again.
        """
        if not self._lease.shared:
            return
        self._is_permanent = stays
        await self._join()
        self._start(self._run_every_beat(self.beat, "a heartbeat failed"))
        await delete_unfinished(self._host.store)
        await _for_each(await self._host.store.unsettled_sessions(), partial(self._recover_session, settle=True))
        self._start(self._run_every_beat(self.look, "could not recover the sessions of other replicas"))
        self._start(self._handle_signals())
        self._start(self._handle_events())

    async def close(self) -> None:
        """Leave. Sessions not settled by now can be recovered by any replica."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._lapse_timer is not None:
            self._lapse_timer.cancel()
        replica_id, self._lease.replica_id = self._lease.replica_id, None
        if replica_id is not None:
            try:
                await self._commit(LeaveReplica(replica_id))
            except ClewError as error:
                log.warning("could not release the lease of this replica; it will expire: %s", error)

    async def beat(self) -> None:
        """Renew the lease, or join again."""
        replica_id, sent = self._lease.replica_id, self._host.clock.monotonic_ms()
        if replica_id is None:
            await self._join()
        else:
            write = BeatReplica(replica_id, self._lease_ms, self._lease.draining)
            refused = await self._commit(write, LeaseHolds(replica_id))
            if self._lease.replica_id != replica_id:
                return  # it took too long: the lease was given up meanwhile
            if refused:
                self._lapse()
                return
            self._extend(sent)

    async def look(self) -> None:
        """Apply stop requests, recover orphaned sessions, and resolve outcomes of turns that ran elsewhere."""
        await asyncio.gather(_for_each(self._sessions.live_ids(), self._runner.heed), self._recover_orphaned())
        for message_id, session_id in self._outcomes.awaited().items():
            await self._resolve_outcome(session_id, message_id)

    async def drain(self, within_s: float) -> None:
        """Start nothing more, announce that, and let active runs finish for that long."""
        self._lease.draining = True
        if self._lease.replica_id is not None:
            try:
                await self.beat()
            except ClewError as error:
                log.warning("could not announce that this replica is draining: %s", error)
        until = time.monotonic() + within_s
        # Repeated: a caller that held a session's lock when draining began may have started a run since.
        while (left := until - time.monotonic()) > 0 and (ends := self._sessions.ends()):
            _, late = await asyncio.wait(ends, timeout=left)
            for end in late:
                end.cancel()

    # The lease

    async def _join(self) -> None:
        sent, replica_id = self._host.clock.monotonic_ms(), self._host.mint.replica()
        left = () if self._lost_id is None else (LeaveReplica(self._lost_id),)
        await self._commit(*left, JoinReplica(replica_id, self._host.config.replica.url, __version__, self._lease_ms))
        self._lost_id, self._lease.replica_id = None, replica_id
        self._extend(sent)
        log.info("joined as replica %s", replica_id)

    def _extend(self, sent: float) -> None:
        """Extend the lease from the time of the request; the store's clock started it later."""
        if self._lapse_timer is not None:
            self._lapse_timer.cancel()
        left = self._lease_ms - (self._host.clock.monotonic_ms() - sent)
        self._lapse_timer = self._host.clock.call_later(max(left, 0), self._lapse)

    def _lapse(self) -> None:
        """Give up the lost lease: other replicas may run these sessions by now."""
        lost, self._lease.replica_id = self._lease.replica_id, None
        if lost is not None:
            self._lost_id = lost
            log.error("%s: the store was not reached in time; its runs are stopped here", LEASE_LOST)
        for session_id in self._sessions.live_ids():
            self._sessions.stop(session_id, LEASE_LOST)

    async def _commit(self, *writes: Write | LeaseHolds) -> bool:
        """Return whether the unit was refused."""
        guards = tuple(one for one in writes if isinstance(one, LeaseHolds))
        unit = Unit(STORE_WIDE, tuple(one for one in writes if isinstance(one, Write)), guards)
        return isinstance(await self._host.store.commit(unit), Refused)

    # Background tasks

    def _start(self, doing: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(doing))

    async def _run_every_beat(self, do: Callable[[], Coroutine[Any, Any, None]], failed: str) -> None:
        while True:
            await self._host.clock.sleep(self._lease_ms / BEATS)
            await self._logged(do(), failed)

    async def _handle_signals(self) -> None:
        async for signal in self._host.live.signals():
            if signal.kind == "stop":
                await self._logged(self._runner.heed(signal.session_id), "could not apply a stop signal")

    async def _handle_events(self) -> None:
        while True:
            try:
                async for event in self._host.live.subscribe():
                    session_id = event.data.get("session_id")
                    if event.type == "turn_finished":
                        for message_id, held in self._outcomes.awaited().items():
                            if held == session_id:
                                await self._logged(
                                    self._resolve_outcome(held, message_id), "could not resolve an outcome"
                                )
                return
            except ClewError:
                continue  # the subscription fell behind; each beat checks as well

    async def _logged(self, doing: Coroutine[Any, Any, None], what: str) -> None:
        try:
            await doing
        except Exception as error:
            log.warning("%s: %s", what, error, exc_info=not isinstance(error, ClewError))

    # Orphaned sessions

    async def _recover_orphaned(self) -> None:
        store, replica_id = self._host.store, self._lease.replica_id
        if replica_id is None or self._lease.draining:
            return
        idle: set[str] = set()

        async def recover(session_id: str) -> None:
            if self._sessions.is_live(session_id):
                return
            if (await store.load_state(session_id)).runner is not None:
                await self._recover_session(session_id, settle=True)
            elif session_id in self._idle:
                # Its queue was idle at the previous beat, too: no replica is about to start it.
                await self._recover_session(session_id, settle=False)
            else:
                idle.add(session_id)

        # Each replica in its own order: two that started with the same session would do the work of one.
        seed = zlib.crc32(replica_id.encode())
        orphaned = await store.orphaned_sessions(replica_id)
        await _for_each(sorted(orphaned, key=lambda one: zlib.crc32(one.encode(), seed)), recover)
        self._idle = frozenset(idle)

    async def _recover_session(self, session_id: str, *, settle: bool) -> None:
        """Resume a session that no live replica handles; with ``settle``, settle what was left open first."""
        try:
            resumable = False
            async with self._sessions.lock(session_id):
                if not self._sessions.is_open(session_id) or self._sessions.is_live(session_id):
                    return
                if settle:
                    resumable = await self._settle(session_id)
            if not self._may_resume(session_id):
                return
            if resumable and self._host.config.resume == "safe":
                await self._continuation.resume(session_id)
            async with self._sessions.lock(session_id):
                if self._sessions.is_open(session_id) and not self._sessions.is_live(session_id):
                    await self._runner.fire_idle(session_id)
        except SessionBusy:
            pass  # another replica was faster
        except ClewError as error:
            log.error("could not recover session %s: %s", session_id, error)

    def _may_resume(self, session_id: str) -> bool:
        """Return whether to resume here: even a temporary process does so for turns its own callers wait for."""
        return self._is_permanent or session_id in self._outcomes.awaited().values()

    async def _settle(self, session_id: str) -> bool:
        """Settle what was left open; return whether its turn can be resumed."""
        loaded = await load_session_state(self._host.store, session_id)
        if loaded.open is None and not loaded.cut_off and loaded.state.runner is None:
            return False
        if loaded.is_resumable and not self._may_resume(session_id):
            return False  # a permanent replica may resume it, but not once it is settled
        loaded = await prepare_session(self._host, session_id, loaded)
        await settle_session(self._host.store, loaded, self._host.clock.now_ms(), GONE)
        await self._event_replies.settle(session_id)
        turn = loaded.open.turn if loaded.open is not None else None
        if turn is not None and loaded.waiting is None:
            log.warning("the run of session %s ended with its replica and was settled here", session_id)
            self._sessions.show(session_id, await status_in(self._host, self._sessions, session_id))
            self._sessions.publish("turn_finished", session_id, turn_id=turn.id, reason="error", error=None)
            self._sessions.show_changed(session_id)
        return loaded.is_resumable

    async def _resolve_outcome(self, session_id: str, message_id: str) -> None:
        """Resolve the outcome of a turn that ran elsewhere and is awaited here, from the store."""
        store = self._host.store
        if self._sessions.is_live(session_id):
            return
        holder = await store.find_holder(session_id, message_id)
        if holder is not None and holder.turn.status not in (*OPEN, "unanswered"):
            turn = holder.turn
            line = await store.load_line(session_id, through=turn.id, turns=1, keep_damaged=True)
            last = line.turns[-1].messages[-1].id
            self._outcomes.resolve(message_id, stored_outcome(turn, last))
        elif holder is None:
            row = await store.find_message(session_id, message_id)
            if row is None or row.is_cancelled:
                self._outcomes.cancel(message_id)


async def _for_each(session_ids: Iterable[str], do: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    """Apply ``do`` to the sessions, a few at a time, so that other requests still get to the store."""
    left = list(session_ids)[::-1]

    async def work() -> None:
        while left:
            await do(left.pop())

    await asyncio.gather(*(work() for _ in range(min(_MAX_CONCURRENT, len(left)))))
