"""Schedules: kept, shown, changed and removed, by people and by agents; what they lead to is fired elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from clew import ids
from clew.dispatch.firing import Firing, no_schedule
from clew.dispatch.router import Gate, Received, Router
from clew.errors import Conflict, Invalid, InvalidInput, ToolFailed
from clew.runtime.host import Host
from clew.runtime.live_sessions import ScheduleMoved
from clew.runtime.runtime import Runtime
from clew.runtime.served_tools import find_place
from clew.runtime.setting import Setting
from clew.store.base import get_session
from clew.store.unit import DropSchedule, PutSchedule
from clew.tools.base import NextTurn
from clew.transcript.gate import check_value
from clew.triggers.routing import MAX_NAME, Routing, check_routing
from clew.triggers.schedule import (
    MAX_OWN,
    MAX_WATCHED,
    MissedPolicy,
    Schedule,
    Watch,
    check_apart,
    check_cron,
    check_own,
    next_fire,
    read_moment,
)

__all__ = ["MAX_PROMPT", "MAX_SCHEDULES", "SchedulePreview", "Schedules", "check_prompt"]

MAX_PROMPT: Final = 64 * 1024
MAX_SCHEDULES: Final = 1_000
_FAILED: Final = frozenset({"failed", "refused", "unanswered"})
_PREVIEWED: Final = 3
_LONGEST_URI: Final = 2_000


class SchedulePreview(msgspec.Struct, frozen=True):
    """The next moments of a schedule that is not kept yet, and what is wrong with it where it cannot be."""

    times: tuple[int, ...]
    problem: str | None = None


class Schedules:
    """``engine.schedules``. ``tick`` does what is due now; a loop calls it where the store's owner wants one."""

    def __init__(self, host: Host, runtime: Runtime, router: Router, gate: Gate, firing: Firing) -> None:
        self._host = host
        self._router = router
        self._owner = gate.owner
        self._firing = firing
        self._changes = firing.changes
        if gate.owner is None:
            runtime.runner.schedule_turn = self._add_own

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
            await self._firing.commit(PutSchedule(schedule))
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
            raise no_schedule(schedule_id)
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
            if not await self._firing.keep(schedule, old):
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
            await self._firing.commit(DropSchedule(schedule_id))
        self._changes.on_change()

    async def run(self, schedule_id: str) -> Received:
        """Run it now, also while it is paused; its next time stays. ``SessionBusy`` while an earlier run goes on."""
        async with self._changes.lock:
            self._changes.count += 1
            schedule = await self._stored(schedule_id)
            try:
                return await self._firing.fire_now(schedule)
            except ScheduleMoved:
                raise Conflict("this schedule was fired or changed at this moment; try again") from None

    async def tick(self) -> float | None:
        """Do what is due now; milliseconds until something is due again, None when nothing will be."""
        return await self._firing.tick()

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


def check_prompt(prompt: str) -> None:
    if not prompt.strip() or len(prompt.encode()) > MAX_PROMPT:
        raise InvalidInput(f"a prompt is text of 1 to {MAX_PROMPT} bytes")
