"""Schedules: kept, changed, and fired when they are due. A schedule never overlaps itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from clew import ids
from clew.dispatch.router import Gate, Inbound, Received, Router
from clew.errors import (
    ClewError,
    Conflict,
    InternalError,
    Invalid,
    InvalidInput,
    RowUndecodable,
    SessionBusy,
    StoreError,
    ToolFailed,
    TriggerNotFound,
)
from clew.runtime.host import Host
from clew.runtime.live_sessions import ScheduleMoved
from clew.runtime.runtime import Runtime
from clew.runtime.served_tools import find_place
from clew.runtime.setting import Setting
from clew.store.base import get_session
from clew.store.unit import STORE_WIDE, DropSchedule, Guard, PutSchedule, Refused, ScheduleIs, Unit, Write
from clew.tools.base import NextTurn
from clew.transcript.gate import check_value
from clew.transcript.part import text_part
from clew.triggers.envelope import Trigger
from clew.triggers.routing import MAX_NAME, Routing, check_routing
from clew.triggers.schedule import (
    MAX_OWN,
    MAX_WATCHED,
    WATCH_GAP_MS,
    MissedPolicy,
    Schedule,
    Watch,
    check_apart,
    check_cron,
    check_own,
    next_fire,
    plan,
    read_moment,
)

__all__ = ["MAX_PROMPT", "MAX_SCHEDULES", "Changes", "SchedulePreview", "Schedules", "check_prompt"]

log = logging.getLogger("clew.dispatch")

MAX_PROMPT: Final = 64 * 1024
MAX_SCHEDULES: Final = 1_000
_FAILED: Final = frozenset({"failed", "refused", "unanswered"})
_LONG_MS: Final = 7 * 86_400_000
_AGAIN_MS: Final = 100
_PREVIEWED: Final = 3
_LONGEST_URI: Final = 2_000


class SchedulePreview(msgspec.Struct, frozen=True):
    """The next moments of a schedule that is not kept yet, and what is wrong with it where it cannot be."""

    times: tuple[int, ...]
    problem: str | None = None


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


class Schedules:
    """``engine.schedules``. ``tick`` does what is due now; a loop calls it where the store's owner wants one."""

    def __init__(self, host: Host, runtime: Runtime, router: Router, gate: Gate, changes: Changes) -> None:
        self._host = host
        self._router = router
        self._owner = gate.owner
        self._changes = changes
        if gate.owner is None:
            runtime.runner.schedule_turn = self._add_own
        # When the last look was. Before the first one nothing is known of the clock.
        self._looked_at: int | None = None

    async def add(
        self,
        cron: str,
        prompt: str,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        missed: MissedPolicy = "skip",
        paused: bool = False,
        routing: Routing | None = None,
    ) -> Schedule:
        """Keep a schedule. Without a routing each run has a session of its own.

        ``missed`` says what becomes of runs that were due while nobody had the store open: ``skip`` or ``once``.
        """
        routing = check_routing(routing or Routing())
        check_cron(cron, timezone)
        return await self._add(
            Schedule(
                id=self._host.mint.schedule(),
                cron=cron,
                prompt=prompt,
                timezone=timezone,
                name=name,
                missed=missed,
                paused=paused,
                routing=routing,
                created_at=self._host.clock.now_ms(),
            )
        )

    async def watch(
        self, session_id: str, server: str, uri: str, *, prompt: str | None = None, name: str | None = None
    ) -> Schedule:
        """Have a session told whenever a resource of an MCP server changes, by a turn of its own: one a minute at most.
        Kept, listed, paused and removed as a schedule. What changes while nobody has the store open is not told."""
        if not uri.strip() or len(uri) > _LONGEST_URI:
            raise InvalidInput(f"a uri is text of 1 to {_LONGEST_URI} characters")
        said = prompt if prompt is not None else f"The resource {uri} of the MCP server {server} has changed."
        return await self._add(
            Schedule(
                id=self._host.mint.schedule(),
                cron="",
                prompt=said,
                name=name,
                watches=Watch(server, uri),
                routing=Routing(session_id=session_id),
                created_at=self._host.clock.now_ms(),
            )
        )

    async def _add(self, schedule: Schedule) -> Schedule:
        check_value(msgspec.to_builtins(schedule), "schedule")
        async with self._changes.lock:
            # Resolved like a session's would be, so that what could never run is refused while somebody is there.
            routing, owner = await self._router.check(schedule.routing)
            # Of one owner's: an agent adds its own through the whole store, and others' must not fill it up.
            known = [one for one in await self._own() if one.owner == owner]
            if len(known) >= MAX_SCHEDULES:
                raise InvalidInput(f"there are {MAX_SCHEDULES} schedules already; remove some first")
            where = schedule.routing.session_id
            own = [one for one in known if one.by == schedule.by == "agent" and one.routing.session_id == where]
            if len(own) >= MAX_OWN:
                raise InvalidInput(f"this session has {MAX_OWN} schedules of its own already; people can remove some")
            schedule = msgspec.structs.replace(schedule, routing=routing, owner=owner)
            if schedule.watches is not None:
                await self._check_watch(schedule, known)
            now = self._host.clock.now_ms()
            if schedule.by == "agent":
                check_apart(schedule, own, now)
            schedule = self._checked(schedule, now)
            await self._commit(PutSchedule(schedule))
        self._changes.on_change()
        return schedule

    async def _check_watch(self, schedule: Schedule, known: Sequence[Schedule]) -> None:
        session = await get_session(self._host.store, schedule.routing.session_id or "")
        same = [one for one in known if one.watches and one.routing.session_id == session.id]
        if any(one.watches == schedule.watches for one in same):
            raise InvalidInput("this session watches that already")
        if len(same) >= MAX_WATCHED:
            raise InvalidInput(f"this session watches {MAX_WATCHED} resources already; remove some first")
        servers, named = self._host.servers, schedule.watches.server if schedule.watches else ""
        if servers is None or named not in servers.names(await find_place(self._host, session)):
            raise InvalidInput(f"this session has no MCP server {named!r}; name it in your config.toml")

    async def fire_watch(self, schedule_id: str, heard_at: int) -> int | None:
        """What it watches has changed: start its turn, or say in how many milliseconds that may be. None when it is
        done, here or by another process, or gone."""
        async with self._changes.lock:
            stored = await self._host.store.list_schedules()
            schedule = next((one for one in stored if one.id == schedule_id), None)
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
                await self._keep(msgspec.structs.replace(after, last_error=why, skipped=after.skipped + 1), schedule)
            return None

    async def _add_own(self, setting: Setting, wanted: NextTurn) -> dict[str, Any]:
        """Keep what an agent wants to be told later, in its own session; what it is told of that."""
        ways = [way for way in (wanted.in_minutes, wanted.at, wanted.cron) if way is not None]
        if len(ways) != 1:
            raise ToolFailed("name one of in_minutes, at and cron")
        if setting.session.kind == "subagent":
            raise ToolFailed("the session of a subagent ends with its task; tell whoever gave it to you")
        now, at = self._host.clock.now_ms(), None
        try:
            if wanted.cron is None:
                in_ms = (wanted.in_minutes or 0) * 60_000
                at = now + in_ms if wanted.at is None else read_moment(wanted.at, wanted.timezone)
            check_own(wanted.cron or "", wanted.timezone, at, now)
            kept = await self._add(
                Schedule(
                    id=self._host.mint.schedule(),
                    cron=wanted.cron or "",
                    at=at,
                    by="agent",
                    prompt=wanted.prompt,
                    timezone=wanted.timezone,
                    # One turn that was asked for is made up for, however late.
                    missed="once" if at is not None else "skip",
                    routing=Routing(session_id=setting.session.id),
                    created_at=now,
                )
            )
        except Invalid as error:
            raise ToolFailed(str(error)) from error
        next_at = datetime.fromtimestamp((kept.next_fire_at or now) / 1000, UTC).isoformat(timespec="seconds")
        return {"schedule_id": kept.id, "next": next_at}

    async def preview(self, cron: str, timezone: str = "UTC") -> SchedulePreview:
        """When a schedule would fire next, without keeping one; or why there can be none like it."""
        try:
            check_cron(cron, timezone)
        except InvalidInput as error:
            return SchedulePreview((), str(error))
        times: list[int] = []
        now = self._host.clock.now_ms()
        while len(times) < _PREVIEWED and (at := next_fire(cron, timezone, times[-1] if times else now)) is not None:
            times.append(at)
        return SchedulePreview(tuple(times))

    async def list(self) -> tuple[Schedule, ...]:
        """All of them. ``last_error`` says why the newest run could not begin, or how it failed."""
        return tuple([await self._told(schedule) for schedule in await self._own()])

    async def get(self, schedule_id: str) -> Schedule:
        return await self._told(await self._stored(schedule_id))

    async def _own(self) -> tuple[Schedule, ...]:
        return tuple(one for one in await self._host.store.list_schedules() if self._owner in (None, one.owner))

    async def _stored(self, schedule_id: str) -> Schedule:
        ids.check_schedule_id(schedule_id)
        found = next((one for one in await self._own() if one.id == schedule_id), None)
        if found is None:
            why = f"there is no schedule {schedule_id}; `clew schedule ls` lists those there are"
            raise TriggerNotFound(why, schedule_id=schedule_id)
        return found

    async def _told(self, schedule: Schedule) -> Schedule:
        """The schedule with what its newest run failed of, which the ledger knows: one that begins every day and fails
        every day must not look well."""
        if (trouble := self._changes.troubles.get(schedule.id)) is not None:
            return msgspec.structs.replace(schedule, last_error=trouble)
        if schedule.last_error is not None or schedule.last_id is None:
            return schedule
        event = await self._host.store.find_event("out", schedule.source, schedule.last_id)
        if event is None or event.status not in _FAILED:
            return schedule
        turn = await self._host.store.find_turn(event.turn_id or "")
        error = turn.error if turn is not None else {}
        said = f"{error.get('code')}: {error.get('message')}" if error else f"it was {event.status}"
        return msgspec.structs.replace(schedule, last_error=f"the run in {event.session_id} failed: {said}"[:1000])

    async def change(self, schedule_id: str, **changes: Any) -> Schedule:
        """Change ``cron``, ``timezone``, ``prompt``, ``name``, ``missed`` or ``paused``.

        What would have been due while it was paused is not made up for.
        """
        unknown = changes.keys() - {"cron", "timezone", "prompt", "name", "missed", "paused"}
        if unknown:
            raise InvalidInput(f"{', '.join(sorted(unknown))} of a schedule cannot be changed; add another")
        if not changes:
            return await self.get(schedule_id)
        check_value(changes, "schedule")
        async with self._changes.lock:
            self._changes.count += 1
            old = await self._stored(schedule_id)
            schedule = msgspec.structs.replace(old, **changes)
            timing = ("cron", "timezone", "paused")
            if [getattr(old, name) for name in timing] != [getattr(schedule, name) for name in timing]:
                schedule = msgspec.structs.replace(schedule, next_fire_at=None)
            schedule = self._checked(schedule, self._host.clock.now_ms())
            if not await self._keep(schedule, old):
                raise Conflict("this schedule was fired or changed at this moment; try again", schedule_id=schedule_id)
        self._changes.on_change()
        return schedule

    async def pause(self, schedule_id: str) -> Schedule:
        return await self.change(schedule_id, paused=True)

    async def resume(self, schedule_id: str) -> Schedule:
        return await self.change(schedule_id, paused=False)

    async def remove(self, schedule_id: str) -> None:
        """Take it out. What it has run stays."""
        async with self._changes.lock:
            self._changes.count += 1
            await self._stored(schedule_id)
            await self._commit(DropSchedule(schedule_id))
        self._changes.on_change()

    async def run(self, schedule_id: str) -> Received:
        """Run it now, also while it is paused; its next time stays. ``SessionBusy`` while an earlier run goes on."""
        async with self._changes.lock:
            self._changes.count += 1
            schedule = await self._stored(schedule_id)
            await self._check_idle(schedule)
            now = self._host.clock.now_ms()
            own_id = self._host.mint.event().removeprefix("evt_")
            after = msgspec.structs.replace(schedule, last_fired_at=now, last_id=f"now-{own_id}", last_error=None)
            try:
                received, _ = await self._fire(after, now, schedule)
            except ScheduleMoved:
                raise Conflict("this schedule was fired or changed at this moment; try again") from None
            return received

    async def tick(self) -> float | None:
        """Do what is due now; milliseconds until something is due again, None when nothing will be."""
        waits: list[int] = []
        now = self._host.clock.now_ms()
        steady = self._looked_at is not None and self._looked_at <= now
        changes = self._changes.count
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

    async def _look(self, known: Schedule, changes: int, now: int) -> int | None:
        """Do what one schedule has to do; when it has to do something again."""
        async with self._changes.lock:
            schedule: Schedule | None = known
            if self._changes.count != changes:
                # Changed or removed while another was fired: what is stored now counts.
                stored = await self._host.store.list_schedules()
                schedule = next((one for one in stored if one.id == known.id), None)
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
                    await self._commit(DropSchedule(fired.id))
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
            await self._keep(after, schedule)
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

    def _checked(self, schedule: Schedule, now: int) -> Schedule:
        """The schedule with its next time, or why it cannot be one."""
        if schedule.watches is not None:
            if schedule.cron:
                raise InvalidInput("what fires by changes of a resource has no times; add a schedule beside it")
        elif schedule.cron:
            check_cron(schedule.cron, schedule.timezone)
            schedule = msgspec.structs.replace(schedule, at=None)
        elif schedule.at is None:
            raise InvalidInput("a schedule needs a cron expression; such as 0 9 * * MON-FRI")
        check_prompt(schedule.prompt)
        if schedule.name is not None and not (schedule.name.strip() and len(schedule.name) <= MAX_NAME):
            raise InvalidInput(f"a name is text of 1 to {MAX_NAME} characters")
        if schedule.missed not in ("skip", "once"):
            raise InvalidInput(f"missed must be skip or once, not {schedule.missed!r}")
        if schedule.next_fire_at is not None or schedule.paused or schedule.watches is not None:
            return schedule
        if schedule.at is not None and schedule.at <= now:
            raise InvalidInput("its one time has passed; run it now, or remove it")
        next_at = schedule.at or next_fire(schedule.cron, schedule.timezone, now)
        if next_at is None:
            raise InvalidInput(f"{schedule.cron!r} never comes")
        return msgspec.structs.replace(schedule, next_fire_at=next_at)

    async def _keep(self, schedule: Schedule, old: Schedule) -> bool:
        """Store it, unless it went with its session since it was read, or is not any more what it was made of."""
        try:
            return await self._commit(PutSchedule(schedule), ScheduleIs(old))
        except ClewError:
            await self._stored(schedule.id)
            raise

    async def _commit(self, write: Write, *guards: Guard) -> bool:
        """Whether it was written: a guard may say that another process was quicker."""
        unit = Unit(STORE_WIDE, (write,), guards, sync="power")
        return not isinstance(await self._host.store.commit(unit), Refused)


def _is_over(schedule: Schedule) -> bool:
    """It was to fire once, and has."""
    return not schedule.cron and schedule.next_fire_at is None and schedule.watches is None


def check_prompt(prompt: str) -> None:
    if not prompt.strip() or len(prompt.encode()) > MAX_PROMPT:
        raise InvalidInput(f"a prompt is text of 1 to {MAX_PROMPT} bytes")
