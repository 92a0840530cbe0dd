"""Firing: starts turns for due schedules and for changes of watched resources. No schedule overlaps its own run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from clew.errors import ClewError, InternalError, RowUndecodable, SessionBusy, StoreError, TriggerNotFound
from clew.session.acquire.live_sessions import ScheduleMoved
from clew.session.host import Host
from clew.store.unit import STORE_WIDE, DropSchedule, Guard, PutSchedule, Refused, ScheduleIs, Unit, Write
from clew.transcript.part import text_part
from clew.triggers.router import Inbound, Received, Router, Trigger
from clew.triggers.values.schedule import WATCH_GAP_MS, Schedule, plan

__all__ = ["Changes", "Firing", "no_schedule"]

log = logging.getLogger("clew.triggers")

_THREAD_AFTER_MS: Final = 7 * 86_400_000
_RETRY_MS: Final = 100


class Changes:
    """State shared by all users of schedules: one of them changes schedules at a time, and notifies the firing loop."""

    def __init__(self) -> None:
        # Firing and changing read a schedule and write it back.
        self.lock = asyncio.Lock()
        # Lists read before a change are outdated.
        self.count = 0
        self.on_change: Callable[[], None] = lambda: None
        # The reason why a schedule's resource cannot be watched now, by the schedule's id.
        self.troubles: dict[str, str] = {}


class Firing:
    """The firing of every owner's schedules; ``router`` receives their prompts."""

    def __init__(self, host: Host, router: Router, changes: Changes) -> None:
        self._host = host
        self._router = router
        self.changes = changes
        # The time of the last tick. Before the first one, a change of the clock cannot be noticed.
        self._last_tick_at: int | None = None

    async def tick(self) -> float | None:
        """Fire what is due now; return the milliseconds until the next schedule is due, None if none is."""
        waits: list[int] = []
        now = self._host.clock.now_ms()
        steady = self._last_tick_at is not None and self._last_tick_at <= now
        changes = self.changes.count
        for known in await self._host.store.list_schedules():
            next_at = known.next_fire_at
            if known.paused or known.watches is not None:
                continue
            if not steady or next_at is None or next_at <= now:
                next_at = await self._fire_if_due(known, changes, now)
            if next_at is not None:
                waits.append(max(next_at - now, 0))
        self._last_tick_at = now
        return min(waits, default=None)

    async def fire_watch(self, schedule_id: str, heard_at: int) -> int | None:
        """Start the turn for a changed resource, or return in how many milliseconds that is allowed. None when it is
        done, here or by another process, or when the schedule is gone."""
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
                return _RETRY_MS
            except ClewError as error:
                why = f"{error.code}: {error}"[:1000]
                await self.keep(msgspec.structs.replace(after, last_error=why, skipped=after.skipped + 1), schedule)
            return None

    async def fire_now(self, schedule: Schedule) -> Received:
        """Fire a schedule that is not due; its next time stays. The caller holds the lock."""
        await self._check_idle(schedule)
        now = self._host.clock.now_ms()
        own_id = self._host.mint.event().removeprefix("evt_")
        after = msgspec.structs.replace(schedule, last_fired_at=now, last_id=f"now-{own_id}", last_error=None)
        received, _ = await self._fire(after, now, schedule)
        return received

    async def keep(self, schedule: Schedule, old: Schedule) -> bool:
        """Store a schedule; return False if it was changed since it was read. Raise an error if it is gone."""
        try:
            return await self.commit(PutSchedule(schedule), ScheduleIs(old))
        except ClewError:
            if await self._find(schedule.id) is None:
                raise no_schedule(schedule.id) from None
            raise

    async def commit(self, write: Write, *guards: Guard) -> bool:
        """Commit one write; return False if a guard refused it because another process was faster."""
        unit = Unit(STORE_WIDE, (write,), guards, sync="power")
        return not isinstance(await self._host.store.commit(unit), Refused)

    async def _find(self, schedule_id: str) -> Schedule | None:
        stored = await self._host.store.list_schedules()
        return next((schedule for schedule in stored if schedule.id == schedule_id), None)

    async def _fire_if_due(self, known: Schedule, changes: int, now: int) -> int | None:
        """Fire one schedule if it is due; return when it is due next."""
        async with self.changes.lock:
            schedule: Schedule | None = known
            if self.changes.count != changes:
                # Changed or removed while another one was firing: the stored version counts.
                schedule = await self._find(known.id)
            if schedule is None or schedule.paused:
                return None
            try:
                return await self._advance(schedule, now)
            except TriggerNotFound:
                # Its session was deleted concurrently, and the schedule with it.
                return None

    async def _advance(self, schedule: Schedule, now: int) -> int | None:
        """Fire the schedule or skip a run; store its next time, the number of skipped runs, and the reason."""
        # In a thread: counting the runs missed in months takes long.
        is_long = now - (schedule.next_fire_at or now) > _THREAD_AFTER_MS
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
                # Another process fired it, or a client changed it: read it again.
                return now + _RETRY_MS
            except Exception as error:
                # An unreadable row only affects its own schedule; a failing store ends the whole tick.
                if isinstance(error, StoreError) and not isinstance(error, RowUndecodable):
                    raise
                if not isinstance(error, ClewError):
                    log.exception("could not fire schedule %s", schedule.id)
                why = f"{error.code if isinstance(error, ClewError) else InternalError.code}: {error}"[:1000]
                after = msgspec.structs.replace(after, skipped=after.skipped + 1, last_error=why)
        if after != schedule:
            await self.keep(after, schedule)
        return next_at

    async def _fire(self, after: Schedule, now: int, before: Schedule) -> tuple[Received, bool]:
        """Start a run and store the schedule in the same unit, which is refused if the schedule has changed since it
        was read: so only one of several processes fires it."""
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
        """Raise ``SessionBusy`` while the last run has no reply yet, because it is running or waiting."""
        store, last_event = self._host.store, (schedule.source, schedule.last_id)
        last_run = (
            await store.find_event("in", schedule.source, schedule.last_id) if schedule.last_id is not None else None
        )
        open_events = await store.open_events(last_run.session_id) if last_run is not None else ()
        if last_run is not None and last_event in [(event.source, event.source_id) for event in open_events]:
            raise SessionBusy(
                f"the last run of this schedule is still running or waiting in session {last_run.session_id}",
                schedule_id=schedule.id,
                session_id=last_run.session_id,
            )


def _is_over(schedule: Schedule) -> bool:
    """Return whether a one-time schedule has fired."""
    return not schedule.cron and schedule.next_fire_at is None and schedule.watches is None


def no_schedule(schedule_id: str) -> TriggerNotFound:
    why = f"there is no schedule {schedule_id}; `clew schedule ls` lists those there are"
    return TriggerNotFound(why, schedule_id=schedule_id)
