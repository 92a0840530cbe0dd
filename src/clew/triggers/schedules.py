"""Schedules: created, listed, changed and removed, by users and by agents; :mod:`clew.triggers.firing` fires them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from clew import ids
from clew.errors import Conflict, Invalid, InvalidInput, ToolFailed
from clew.session.acquire.live_sessions import ScheduleMoved
from clew.session.host import Host
from clew.session.prompt.turn_config import TurnConfig
from clew.session.runtime import Runtime
from clew.session.turn.mcp_tools import find_scope
from clew.store.base import get_session
from clew.store.unit import DropSchedule, PutSchedule
from clew.tools.base import NextTurn
from clew.transcript.value_check import check_value
from clew.triggers.firing import Firing, no_schedule
from clew.triggers.router import Received, Router, Scope
from clew.triggers.values.routing import MAX_NAME, Routing, check_routing
from clew.triggers.values.schedule import (
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
_PREVIEW_TIMES: Final = 3
_MAX_URI_CHARS: Final = 2_000


class SchedulePreview(msgspec.Struct, frozen=True):
    """The next times of a schedule that is not stored yet, and what is wrong with it, if anything."""

    times: tuple[int, ...]
    problem: str | None = None


class Schedules:
    """``engine.schedules``. ``tick`` fires what is due now; the dispatcher's loop calls it."""

    def __init__(self, host: Host, runtime: Runtime, router: Router, scope: Scope, firing: Firing) -> None:
        self._host = host
        self._router = router
        self._owner = scope.owner
        self._firing = firing
        self._changes = firing.changes
        if scope.owner is None:
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
        """Store a schedule: five cron fields in a time zone, and a prompt. There are at most 1,000.

        Without a routing each run has its own session; with a ``session_id`` the schedule is deleted with that session.
        ``missed`` decides about runs that were due while no process owned the store: ``skip``, or ``once`` for one. A
        run at most a minute late is not missed. A run that is due while the last one is active is skipped.
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
        """Start a turn in a session whenever a resource of an MCP server changes: at most one a minute. Stored, listed,
        paused and removed like a schedule. Changes while no process owns the store are missed."""
        if not uri.strip() or len(uri) > _MAX_URI_CHARS:
            raise InvalidInput(f"a uri is text of 1 to {_MAX_URI_CHARS} characters")
        message = prompt if prompt is not None else f"The resource {uri} of the MCP server {server} has changed."
        return await self._add(
            Schedule(
                id=self._host.mint.schedule(),
                cron="",
                prompt=message,
                name=name,
                watches=Watch(server, uri),
                routing=Routing(session_id=session_id),
                created_at=self._host.clock.now_ms(),
            )
        )

    async def _add(self, schedule: Schedule) -> Schedule:
        check_value(msgspec.to_builtins(schedule), "schedule")
        async with self._changes.lock:
            # Resolved like a session's values, so that a schedule that could never run is refused now.
            routing, owner = await self._router.check(schedule.routing)
            # Limited per owner: agents add theirs through the whole store, and must not use up the limit of others.
            known = [other for other in await self._list_own() if other.owner == owner]
            if len(known) >= MAX_SCHEDULES:
                raise InvalidInput(f"the limit of {MAX_SCHEDULES} schedules is reached; remove some first")
            where = schedule.routing.session_id
            own = [other for other in known if other.by == schedule.by == "agent" and other.routing.session_id == where]
            if len(own) >= MAX_OWN:
                raise InvalidInput(f"this session already has {MAX_OWN} schedules of its own; a user can remove some")
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
        same = [other for other in known if other.watches and other.routing.session_id == session.id]
        if any(other.watches == schedule.watches for other in same):
            raise InvalidInput("this session already watches that resource")
        if len(same) >= MAX_WATCHED:
            raise InvalidInput(f"this session already watches {MAX_WATCHED} resources; remove some first")
        servers, named = self._host.servers, schedule.watches.server if schedule.watches else ""
        if servers is None or named not in servers.names(await find_scope(self._host, session)):
            raise InvalidInput(f"this session has no MCP server {named!r}; add it to your config.toml")

    async def _add_own(self, config: TurnConfig, wanted: NextTurn) -> dict[str, Any]:
        """Schedule a turn that an agent asked for in its own session; return the tool's answer."""
        timings = [timing for timing in (wanted.in_minutes, wanted.at, wanted.cron) if timing is not None]
        if len(timings) != 1:
            raise ToolFailed("name one of in_minutes, at and cron")
        if config.session.kind == "subagent":
            raise ToolFailed("the session of a subagent ends with its task; report this to the agent that started it")
        now, at = self._host.clock.now_ms(), None
        try:
            if wanted.cron is None:
                in_ms = (wanted.in_minutes or 0) * 60_000
                at = now + in_ms if wanted.at is None else read_moment(wanted.at, wanted.timezone)
            check_own(wanted.cron or "", wanted.timezone, at, now)
            stored = await self._add(
                Schedule(
                    id=self._host.mint.schedule(),
                    cron=wanted.cron or "",
                    at=at,
                    by="agent",
                    prompt=wanted.prompt,
                    timezone=wanted.timezone,
                    # A one-time turn is made up for, however late.
                    missed="once" if at is not None else "skip",
                    routing=Routing(session_id=config.session.id),
                    created_at=now,
                )
            )
        except Invalid as error:
            raise ToolFailed(str(error)) from error
        next_at = datetime.fromtimestamp((stored.next_fire_at or now) / 1000, UTC).isoformat(timespec="seconds")
        return {"schedule_id": stored.id, "next": next_at}

    async def preview(self, cron: str, timezone: str = "UTC") -> SchedulePreview:
        """Return when a schedule would fire next, without storing it; or what is wrong with it."""
        try:
            check_cron(cron, timezone)
        except InvalidInput as error:
            return SchedulePreview((), str(error))
        times: list[int] = []
        now = self._host.clock.now_ms()
        while (
            len(times) < _PREVIEW_TIMES and (at := next_fire(cron, timezone, times[-1] if times else now)) is not None
        ):
            times.append(at)
        return SchedulePreview(tuple(times))

    async def list(self) -> tuple[Schedule, ...]:
        """Return all schedules. ``last_error`` says why the newest run could not start, or how it failed."""
        return tuple([await self._with_last_failure(schedule) for schedule in await self._list_own()])

    async def get(self, schedule_id: str) -> Schedule:
        """Return one schedule, with the time it fires next."""
        return await self._with_last_failure(await self._stored(schedule_id))

    async def _list_own(self) -> tuple[Schedule, ...]:
        stored = await self._host.store.list_schedules()
        return tuple(schedule for schedule in stored if self._owner in (None, schedule.owner))

    async def _stored(self, schedule_id: str) -> Schedule:
        ids.check_schedule_id(schedule_id)
        found = next((schedule for schedule in await self._list_own() if schedule.id == schedule_id), None)
        if found is None:
            raise no_schedule(schedule_id)
        return found

    async def _with_last_failure(self, schedule: Schedule) -> Schedule:
        """Return the schedule with the failure of its newest run, from the ledger: one that starts but fails every day
        must not look healthy."""
        if (trouble := self._changes.troubles.get(schedule.id)) is not None:
            return msgspec.structs.replace(schedule, last_error=trouble)
        if schedule.last_error is not None or schedule.last_id is None:
            return schedule
        event = await self._host.store.find_event("out", schedule.source, schedule.last_id)
        if event is None or event.status not in _FAILED:
            return schedule
        turn = await self._host.store.find_turn(event.turn_id or "")
        error = turn.error if turn is not None else {}
        reason = f"{error.get('code')}: {error.get('message')}" if error else f"its status is {event.status}"
        return msgspec.structs.replace(schedule, last_error=f"the run in {event.session_id} failed: {reason}"[:1000])

    async def change(self, schedule_id: str, **changes: Any) -> Schedule:
        """Change ``cron``, ``timezone``, ``prompt``, ``name``, ``missed`` or ``paused``.

        Runs that would have been due while it was paused are not made up for.
        """
        unknown = changes.keys() - {"cron", "timezone", "prompt", "name", "missed", "paused"}
        if unknown:
            raise InvalidInput(f"{', '.join(sorted(unknown))} of a schedule cannot be changed; add a new one")
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
                raise Conflict("this schedule was fired or changed concurrently; try again", schedule_id=schedule_id)
        self._changes.on_change()
        return schedule

    async def pause(self, schedule_id: str) -> Schedule:
        """Pause a schedule until it is resumed."""
        return await self.change(schedule_id, paused=True)

    async def resume(self, schedule_id: str) -> Schedule:
        """Resume a paused schedule. Runs that would have been due are not made up for."""
        return await self.change(schedule_id, paused=False)

    async def remove(self, schedule_id: str) -> None:
        """Remove a schedule. Its sessions stay."""
        async with self._changes.lock:
            self._changes.count += 1
            await self._stored(schedule_id)
            await self._firing.commit(DropSchedule(schedule_id))
        self._changes.on_change()

    async def run(self, schedule_id: str) -> Received:
        """Run a schedule now, even while it is paused; its next time stays. ``SessionBusy`` while a run is active."""
        async with self._changes.lock:
            self._changes.count += 1
            schedule = await self._stored(schedule_id)
            try:
                return await self._firing.fire_now(schedule)
            except ScheduleMoved:
                raise Conflict("this schedule was fired or changed concurrently; try again") from None

    async def tick(self) -> float | None:
        """Fire what is due now; return the milliseconds until the next schedule is due, None if none is."""
        return await self._firing.tick()

    def _checked(self, schedule: Schedule, now: int) -> Schedule:
        """Return the schedule with its next time; raise ``InvalidInput`` for an invalid one."""
        if schedule.watches is not None:
            if schedule.cron:
                raise InvalidInput("a schedule that watches a resource has no times; add another schedule for those")
        elif schedule.cron:
            check_cron(schedule.cron, schedule.timezone)
            schedule = msgspec.structs.replace(schedule, at=None)
        elif schedule.at is None:
            raise InvalidInput("a schedule needs a cron expression, such as 0 9 * * MON-FRI")
        check_prompt(schedule.prompt)
        if schedule.name is not None and not (schedule.name.strip() and len(schedule.name) <= MAX_NAME):
            raise InvalidInput(f"a name is text of 1 to {MAX_NAME} characters")
        if schedule.missed not in ("skip", "once"):
            raise InvalidInput(f"missed must be skip or once, not {schedule.missed!r}")
        if schedule.next_fire_at is not None or schedule.paused or schedule.watches is not None:
            return schedule
        if schedule.at is not None and schedule.at <= now:
            raise InvalidInput("this one-time schedule is in the past; run it now or delete it")
        next_at = schedule.at or next_fire(schedule.cron, schedule.timezone, now)
        if next_at is None:
            raise InvalidInput(f"{schedule.cron!r} never occurs")
        return msgspec.structs.replace(schedule, next_fire_at=next_at)


def check_prompt(prompt: str) -> None:
    if not prompt.strip() or len(prompt.encode()) > MAX_PROMPT:
        raise InvalidInput(f"a prompt is text of 1 to {MAX_PROMPT} bytes")
