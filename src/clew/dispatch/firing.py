"""Firing: schedules that are due, and resources they watch that have changed, become turns. None overlaps itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from clew.dispatch.router import Inbound, Received, Router
from clew.errors import ClewError, InternalError, RowUndecodable, SessionBusy, StoreError, TriggerNotFound
from clew.runtime.host import Host
from clew.runtime.live_sessions import ScheduleMoved
from clew.store.unit import STORE_WIDE, DropSchedule, Guard, PutSchedule, Refused, ScheduleIs, Unit, Write
from clew.transcript.part import text_part
from clew.triggers.envelope import Trigger
from clew.triggers.schedule import WATCH_GAP_MS, Schedule, plan

__all__ = ["Changes", "Firing", "no_schedule"]

log = logging.getLogger("clew.dispatch")

_LONG_MS: Final = 7 * 86_400_000
_AGAIN_MS: Final = 100


class Changes:
    """What all who look at schedules share: one changes them at a time, and the loop that fires them is told."""

    def __init__(self) -> None:
        # Firing and changing read a schedule and write it back.
        self.lock = asyncio.Lock()
        # What was listed before a change is old.
        self.count = 0
        self.on_change: Callable[[], None] = lambda: None
        # Why what a schedule watches cannot be watched now, by its id.
        self.troubles: dict[str, str] = {}


class Firing:
    """Of every owner's schedules; ``router`` takes in what they say."""

    def __init__(self, host: Host, router: Router, changes: Changes) -> None:
        self._host = host
        self._router = router
        self.changes = changes
        # When the last look was. Before the first one nothing is known of the clock.
        self._looked_at: int | None = None

    async def tick(self) -> float | None:
        """Do what is due now; milliseconds until something is due again, None when nothing will be."""
        waits: list[int] = []
        now = self._host.clock.now_ms()
        steady = self._looked_at is not None and self._looked_at <= now
        changes = self.changes.count
        for known in await self._host.store.list_schedules():
            next_at = known.next_fire_at
            if known.paused or known.watches is not None:
                continue
            if not steady or next_at is None or next_at <= now:
                next_at = await self._look(known, changes, now)
            if next_at is not None:
                waits.append(max(next_at - now, 0))
        self._looked_at = now
        return min(waits, default=None)

    async def fire_watch(self, schedule_id: str, heard_at: int) -> int | None:
        """What it watches has changed: start its turn, or say in how many milliseconds that may be. None when it is
        done, here or by another process, or gone."""
        async with self.changes.lock:
            schedule = await self._find(schedule_id)
            last = schedule.last_fired_at or 0 if schedule is not None else 0
            if schedule is None or schedule.paused or last >= heard_at:
                return None
            now = self._host.clock.now_ms()
            if 0 <= now - last < WATCH_GAP_MS:
                return WATCH_GAP_MS - (now - last)
            try:
                await self._check_idle(schedule)
            except SessionBusy:
                return WATCH_GAP_MS
            after = msgspec.structs.replace(schedule, last_fired_at=now, last_id=f"change-{now}", last_error=None)
            try:
                await self._fire(after, now, schedule)
            except ScheduleMoved:
                return _AGAIN_MS
            except ClewError as error:
                why = f"{error.code}: {error}"[:1000]
                await self.keep(msgspec.structs.replace(after, last_error=why, skipped=after.skipped + 1), schedule)
            return None

    async def fire_now(self, schedule: Schedule) -> Received:
        """Run it without being due; its next time stays. Whoever calls holds the lock."""
        await self._check_idle(schedule)
        now = self._host.clock.now_ms()
        own_id = self._host.mint.event().removeprefix("evt_")
        after = msgspec.structs.replace(schedule, last_fired_at=now, last_id=f"now-{own_id}", last_error=None)
        received, _ = await self._fire(after, now, schedule)
        return received

    async def keep(self, schedule: Schedule, old: Schedule) -> bool:
        """Store it, unless it went with its session since it was read, or is not any more what it was made of."""
        try:
            return await self.commit(PutSchedule(schedule), ScheduleIs(old))
        except ClewError:
            if await self._find(schedule.id) is None:
                raise no_schedule(schedule.id) from None
            raise

    async def commit(self, write: Write, *guards: Guard) -> bool:
        """Whether it was written: a guard may say that another process was quicker."""
        unit = Unit(STORE_WIDE, (write,), guards, sync="power")
        return not isinstance(await self._host.store.commit(unit), Refused)

    async def _find(self, schedule_id: str) -> Schedule | None:
        stored = await self._host.store.list_schedules()
        return next((one for one in stored if one.id == schedule_id), None)

    async def _look(self, known: Schedule, changes: int, now: int) -> int | None:
        """Do what one schedule has to do; when it has to do something again."""
        async with self.changes.lock:
            schedule: Schedule | None = known
            if self.changes.count != changes:
                # Changed or removed while another was fired: what is stored now counts.
                schedule = await self._find(known.id)
            if schedule is None or schedule.paused:
                return None
            try:
                return await self._advance(schedule, now)
            except TriggerNotFound:
                # Its session was deleted at this moment, and it went along.
                return None

    async def _advance(self, schedule: Schedule, now: int) -> int | None:
        """Fire the schedule or leave a run out, and note when the next one is, how many were left out, and why."""
        # Counting what was missed in months takes longer than others should wait.
        is_long = now - (schedule.next_fire_at or now) > _LONG_MS
        due, next_at, missed = await asyncio.to_thread(plan, schedule, now) if is_long else plan(schedule, now)
        after = msgspec.structs.replace(schedule, next_fire_at=next_at, skipped=schedule.skipped + missed)
        if due is not None:
            fired = msgspec.structs.replace(after, last_fired_at=now, last_id=str(due), last_error=None)
            try:
                await self._check_idle(schedule)
                _, new = await self._fire(fired, now, schedule)
                if new:
                    return next_at
                after = fired
                if _is_over(fired):
                    await self.commit(DropSchedule(fired.id))
                    return None
            except ScheduleMoved:
                # Another process has fired it, or somebody has changed it: it is looked at anew.
                return now + _AGAIN_MS
            except Exception as error:
                # A row that cannot be read costs the schedule that needs it; a store that fails costs the whole look.
                if isinstance(error, StoreError) and not isinstance(error, RowUndecodable):
                    raise
                if not isinstance(error, ClewError):
                    log.exception("schedule %s could not be fired", schedule.id)
                why = f"{error.code if isinstance(error, ClewError) else InternalError.code}: {error}"[:1000]
                after = msgspec.structs.replace(after, skipped=after.skipped + 1, last_error=why)
        if after != schedule:
            await self.keep(after, schedule)
        return next_at

    async def _fire(self, after: Schedule, now: int, before: Schedule) -> tuple[Received, bool]:
        """Start a run; the schedule as it is afterwards is written in the same unit, which is refused when it is not as
        it was before: so one of several processes fires it."""
        source = "agent" if after.by == "agent" else "mcp" if after.watches is not None else "schedule"
        trigger = Trigger(source=source, fired_at=now, schedule_id=after.id)
        inbound = Inbound(
            source=after.source,
            source_id=after.last_id or "",
            trigger=trigger,
            content={"text": after.prompt},
            parts=(text_part(after.prompt),),
            routing=after.routing if after.routing.title else msgspec.structs.replace(after.routing, title=after.name),
            tags={"source": "cron", "cron_job_id": after.id},
            owner=after.owner,
        )
        write = DropSchedule(after.id) if _is_over(after) else PutSchedule(after)
        return await self._router.receive(inbound, (write,), (ScheduleIs(before),))

    async def _check_idle(self, schedule: Schedule) -> None:
        """Refuse a run while the last one has come in, or is gone on with, and nothing went out for it yet."""
        store, named = self._host.store, (schedule.source, schedule.last_id)
        began = (
            await store.find_event("in", schedule.source, schedule.last_id) if schedule.last_id is not None else None
        )
        left = await store.open_events(began.session_id) if began is not None else ()
        if began is not None and named in [(event.source, event.source_id) for event in left]:
            raise SessionBusy(
                f"the last run of this schedule has not ended: it goes on, or waits, in session {began.session_id}",
                schedule_id=schedule.id,
                session_id=began.session_id,
            )


def _is_over(schedule: Schedule) -> bool:
    """It was to fire once, and has."""
    return not schedule.cron and schedule.next_fire_at is None and schedule.watches is None


def no_schedule(schedule_id: str) -> TriggerNotFound:
    why = f"there is no schedule {schedule_id}; `clew schedule ls` lists those there are"
    return TriggerNotFound(why, schedule_id=schedule_id)
