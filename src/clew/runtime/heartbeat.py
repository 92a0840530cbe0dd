"""The heartbeat: keeps this replica's lease, and as often as it beats sees to what others have left, or have asked for.

It exists where several processes serve one store. A beat prolongs the lease by the store's clock. Who cannot do that in
time, or is told that it lapsed, stops everything it runs at once, writes nothing more, and joins anew. Whatever was
asked of a run from elsewhere is durable before it is signalled, so a signal that is lost costs one beat. Sessions whose
replica is gone are taken by whoever is first, settled as they were left, and gone on with. However much there is to see
to, the lease does not wait for it: a replica that died must not cost the others theirs.
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
from clew.runtime.continuation import Continuation
from clew.runtime.host import Host
from clew.runtime.lease import LEASE_LOST
from clew.runtime.live_sessions import LiveSessions
from clew.runtime.outbound import Outbound
from clew.runtime.ready import make_ready
from clew.runtime.runner import Runner
from clew.runtime.settle import GONE
from clew.runtime.standing import load_standing
from clew.runtime.submission import Outcomes, stored_outcome
from clew.runtime.take import settle_session
from clew.runtime.waiting import present_status
from clew.store.unit import STORE_WIDE, BeatReplica, JoinReplica, LeaseHolds, LeaveReplica, Refused, Unit, Write
from clew.transcript.turn_state import OPEN

__all__ = ["Heartbeat"]

log = logging.getLogger("clew.replica")
BEATS: Final = 3
"""So many beats in the time of a lease: two may fail before it is lost."""
_AT_ONCE: Final = 8
"""So many sessions are seen to at once."""


class Heartbeat:
    """Begins with ``open``; ``close`` gives the lease back. Does nothing where the store has one owner."""

    def __init__(
        self,
        host: Host,
        sessions: LiveSessions,
        runner: Runner,
        continuation: Continuation,
        outbound: Outbound,
        outcomes: Outcomes,
    ) -> None:
        self._host = host
        self._lease = host.lease
        self._lease_ms = round(host.config.replica.lease_s * 1000)
        self._sessions = sessions
        self._runner = runner
        self._continuation = continuation
        self._outbound = outbound
        self._outcomes = outcomes
        self._lapsing: Timer | None = None
        self._left: str | None = None
        self._stays = True
        self._idle: frozenset[str] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, *, stays: bool) -> None:
        """Join, settle what nobody alive runs, and begin to beat. Who does not stay goes on with nothing of others':
        it would be stopped again in a moment."""
        if not self._lease.shared:
            return
        self._stays = stays
        await self._join()
        self._begin(self._often(self.beat, "a heartbeat failed"))
        await _each(await self._host.store.unsettled_sessions(), partial(self._see_to, settle=True))
        self._begin(self._often(self.look, "what others left was not seen to"))
        self._begin(self._heed_signals())
        self._begin(self._heed_events())

    async def close(self) -> None:
        """Leave. What was not settled before is anybody's from now on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._lapsing is not None:
            self._lapsing.cancel()
        replica_id, self._lease.replica_id = self._lease.replica_id, None
        if replica_id is not None:
            try:
                await self._commit(LeaveReplica(replica_id))
            except ClewError as error:
                log.warning("this replica could not say that it leaves; its lease lapses by itself: %s", error)

    async def beat(self) -> None:
        """Prolong the lease, or join anew."""
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
            self._hold(sent)

    async def look(self) -> None:
        """What is to stop is stopped, what is adrift is seen to, and who waits for an end elsewhere is told it."""
        await asyncio.gather(_each(self._sessions.live_ids(), self._runner.heed), self._see_to_adrift())
        for message_id, session_id in self._outcomes.awaited().items():
            await self._tell_outcome(session_id, message_id)

    async def drain(self, within_s: float) -> None:
        """Begin nothing any more, say so, and give what runs that long to end by itself."""
        self._lease.draining = True
        if self._lease.replica_id is not None:
            try:
                await self.beat()
            except ClewError as error:
                log.warning("that this replica begins nothing any more is not known to the others yet: %s", error)
        until = time.monotonic() + within_s
        # Again and again: who had a session in hand as this began may have begun something with it since.
        while (left := until - time.monotonic()) > 0 and (ends := self._sessions.ends()):
            _, late = await asyncio.wait(ends, timeout=left)
            for end in late:
                end.cancel()

    # The lease

    async def _join(self) -> None:
        sent, replica_id = self._host.clock.monotonic_ms(), self._host.mint.replica()
        left = () if self._left is None else (LeaveReplica(self._left),)
        await self._commit(*left, JoinReplica(replica_id, self._host.config.replica.url, __version__, self._lease_ms))
        self._left, self._lease.replica_id = None, replica_id
        self._hold(sent)
        log.info("joined as replica %s", replica_id)

    def _hold(self, sent: float) -> None:
        """The lease is good for its time from when it was asked for; the store's clock has begun later."""
        if self._lapsing is not None:
            self._lapsing.cancel()
        left = self._lease_ms - (self._host.clock.monotonic_ms() - sent)
        self._lapsing = self._host.clock.call_later(max(left, 0), self._lapse)

    def _lapse(self) -> None:
        """The lease is lost: whatever runs here may be somebody else's by now."""
        lost, self._lease.replica_id = self._lease.replica_id, None
        if lost is not None:
            self._left = lost
            log.error("%s: its store was not reached in time; what it ran is stopped here", LEASE_LOST)
        for session_id in self._sessions.live_ids():
            self._sessions.stop(session_id, LEASE_LOST)

    async def _commit(self, *writes: Write | LeaseHolds) -> bool:
        """Whether it was refused."""
        guards = tuple(one for one in writes if isinstance(one, LeaseHolds))
        unit = Unit(STORE_WIDE, tuple(one for one in writes if isinstance(one, Write)), guards)
        return isinstance(await self._host.store.commit(unit), Refused)

    # What goes on all the time

    def _begin(self, doing: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(doing))

    async def _often(self, do: Callable[[], Coroutine[Any, Any, None]], failed: str) -> None:
        while True:
            await self._host.clock.sleep(self._lease_ms / BEATS)
            await self._logged(do(), failed)

    async def _heed_signals(self) -> None:
        async for signal in self._host.live.signals():
            if signal.kind == "stop":
                await self._logged(self._runner.heed(signal.session_id), "a signal was not heeded")

    async def _heed_events(self) -> None:
        while True:
            try:
                async for event in self._host.live.subscribe():
                    session_id = event.data.get("session_id")
                    if event.type == "turn_finished":
                        for message_id, held in self._outcomes.awaited().items():
                            if held == session_id:
                                await self._logged(self._tell_outcome(held, message_id), "an end was not told")
                return
            except ClewError:
                continue  # it fell behind; each beat looks as well

    async def _logged(self, doing: Coroutine[Any, Any, None], what: str) -> None:
        try:
            await doing
        except Exception as error:
            log.warning("%s: %s", what, error, exc_info=not isinstance(error, ClewError))

    # What others have left

    async def _see_to_adrift(self) -> None:
        store, replica_id = self._host.store, self._lease.replica_id
        if replica_id is None or self._lease.draining:
            return
        idle: set[str] = set()

        async def see(session_id: str) -> None:
            if self._sessions.is_live(session_id):
                return
            if (await store.load_state(session_id)).runner is not None:
                await self._see_to(session_id, settle=True)
            elif session_id in self._idle:
                # Its queue was idle at the look before, too: nobody is about to go on with it.
                await self._see_to(session_id, settle=False)
            else:
                idle.add(session_id)

        # Each replica in an order of its own: two that began with the same session would do the work of one.
        own = zlib.crc32(replica_id.encode())
        adrift = await store.adrift_sessions(replica_id)
        await _each(sorted(adrift, key=lambda one: zlib.crc32(one.encode(), own)), see)
        self._idle = frozenset(idle)

    async def _see_to(self, session_id: str, *, settle: bool) -> None:
        """Go on with a session that nobody alive sees to; with ``settle`` after what was left open has its end."""
        try:
            resumable = False
            async with self._sessions.lock(session_id):
                if not self._sessions.is_open(session_id) or self._sessions.is_live(session_id):
                    return
                if settle:
                    resumable = await self._settle(session_id)
            if not self._goes_on_with(session_id):
                return
            if resumable and self._host.config.resume == "safe":
                await self._continuation.resume(session_id)
            async with self._sessions.lock(session_id):
                if self._sessions.is_open(session_id) and not self._sessions.is_live(session_id):
                    await self._runner.fire_idle(session_id)
        except SessionBusy:
            pass  # another replica was quicker
        except ClewError as error:
            log.error("session %s could not be seen to: %s", session_id, error)

    def _goes_on_with(self, session_id: str) -> bool:
        """Who does not stay does so where somebody here waits for a turn: there may be nobody else."""
        return self._stays or session_id in self._outcomes.awaited().values()

    async def _settle(self, session_id: str) -> bool:
        """Give what was left open its truthful end; whether its turn can be resumed."""
        standing = await load_standing(self._host.store, session_id)
        if standing.open is None and not standing.cut_off and standing.state.runner is None:
            return False
        if standing.is_resumable and not self._goes_on_with(session_id):
            return False  # who stays may resume it, which nobody does once it is settled
        standing = await make_ready(self._host, session_id, standing)
        await settle_session(self._host.store, standing, self._host.clock.now_ms(), GONE)
        await self._outbound.settle(session_id)
        turn = standing.open.turn if standing.open is not None else None
        if turn is not None and standing.waiting is None:
            log.warning("the run of session %s broke off with its replica and was settled here", session_id)
            self._sessions.show(session_id, await present_status(self._host, self._sessions, session_id))
            self._sessions.publish("turn_finished", session_id, turn_id=turn.id, reason="error", error=None)
            self._sessions.show_changed(session_id)
        return standing.is_resumable

    async def _tell_outcome(self, session_id: str, message_id: str) -> None:
        """Tell whoever waits here for a turn that ran elsewhere how it ended, as the store has it."""
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


async def _each(session_ids: Iterable[str], do: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    """A few at once, however many there are: whoever asks for something meanwhile has the store, too."""
    left = list(session_ids)[::-1]

    async def work() -> None:
        while left:
            await do(left.pop())

    await asyncio.gather(*(work() for _ in range(min(_AT_ONCE, len(left)))))
