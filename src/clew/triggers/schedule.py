"""Schedules: when the next run is due, and what to do with runs that were missed.

Times are wall times of a zone, worked out by cronsim, which does with a change of the clocks what Debian's cron does:
a fixed time that is skipped in spring comes right after the gap, one that comes twice in autumn runs once; a pattern
of every so many minutes goes by what the clock shows. Pure: the time is always given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice, pairwise, takewhile
from typing import Final, Literal, NamedTuple

import msgspec

from clew.errors import InvalidInput
from clew.triggers.routing import Routing

__all__ = [
    "GRACE_MS",
    "MAX_OWN",
    "MAX_WATCHED",
    "WATCH_GAP_MS",
    "MissedPolicy",
    "Plan",
    "Schedule",
    "Watch",
    "check_apart",
    "check_cron",
    "check_own",
    "count_fires",
    "latest_fire",
    "next_fire",
    "plan",
    "read_moment",
]

MissedPolicy = Literal["skip", "once"]
"""What becomes of runs that were due while nobody was there: left out, or made up for by one."""

GRACE_MS: Final = 60_000
"""A run that is at most this late is not a missed one."""

MOST_COUNTED: Final = 1_000_000
"""Of a clock that was wrong by decades no more missed runs are counted: two years of one every minute."""

MAX_WATCHED: Final = 10
"""So many resources a session may watch."""

WATCH_GAP_MS: Final = 60_000
"""Changes of a resource start turns that are this far apart at least; those in between are one."""

MAX_OWN: Final = 5
"""So many schedules an agent may keep for its session."""

LEAST_GAP_MS: Final = 5 * 60_000
"""An agent's own turns are this far apart at least: each costs money, and nobody may be looking."""

_COMPARED: Final = 100
FARTHEST_MS: Final = 366 * 86_400_000
_DAY_MS: Final = 86_400_000
_ZONE: Final = re.compile(r"[A-Za-z0-9_+/-]{1,64}", re.ASCII)


class Watch(msgspec.Struct, frozen=True):
    """A resource of an MCP server, whose changes are what a schedule fires by."""

    server: str
    uri: str


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A job that fires by itself. ``last_id`` is the source id of its newest run, ``skipped`` counts runs left out.

    Where ``cron`` is empty it fires once, ``at`` a moment, and is gone then; or it fires whenever what it ``watches``
    changes. ``by`` says who made it.
    """

    id: str
    cron: str
    prompt: str
    created_at: int
    at: int | None = None
    by: Literal["person", "agent"] = "person"
    timezone: str = "UTC"
    name: str | None = None
    missed: MissedPolicy = "skip"
    paused: bool = False
    routing: Routing = Routing()
    next_fire_at: int | None = None
    last_fired_at: int | None = None
    last_id: str | None = None
    last_error: str | None = None
    skipped: int = 0
    owner: str | None = None
    watches: Watch | None = None

    @property
    def source(self) -> str:
        """What its events have as their source."""
        return f"schedule:{self.id}"


class Plan(NamedTuple):
    """What is to be done now: the moment a run is due for, None for no run; when the next one is; and how many were due
    before now and are left out."""

    due: int | None
    next_at: int | None
    missed: int = 0


def check_cron(cron: str, timezone: str) -> None:
    """Refuse an expression or a zone that is none."""
    from cronsim import CronSim, CronSimError  # here and below when it is needed: importing clew stays quick

    zone = _zone(timezone)
    if len(cron) > 100 or len(cron.split()) != 5:
        raise InvalidInput(
            "cron is five fields: minute, hour, day of month, month, day of week; such as 0 9 * * MON-FRI"
        )
    try:
        CronSim(cron, datetime(2024, 1, 1, tzinfo=zone))
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        raise InvalidInput(f"{cron!r} is not a schedule: {error}") from error


def check_own(cron: str, timezone: str, at: int | None, now: int) -> None:
    """Refuse what an agent may not ask for: too soon, too far off, or too often."""
    minutes = LEAST_GAP_MS // 60_000
    if at is not None:
        if not LEAST_GAP_MS <= at - now <= FARTHEST_MS:
            raise InvalidInput(f"that is not between {minutes} minutes and a year from now")
        return
    check_cron(cron, timezone)
    moments = list(islice(_fires(cron, timezone, now, reverse=False), 500))
    if any(later - before < LEAST_GAP_MS for before, later in pairwise(moments)):
        raise InvalidInput(f"{cron!r} comes more often than every {minutes} minutes")


def check_apart(schedule: Schedule, others: Iterable[Schedule], now: int) -> None:
    """Refuse what comes too close to another of the agent's own: five that keep their distance, each from itself,
    would come every minute. Both sides are gone through, as either may be the one that comes seldom."""
    for other in others:
        for one, two in ((schedule, other), (other, schedule)):
            for moment in islice(_moments(one, now), _COMPARED):
                near = next(_moments(two, moment - LEAST_GAP_MS), None)
                if near is not None and near < moment + LEAST_GAP_MS:
                    minutes = LEAST_GAP_MS // 60_000
                    raise InvalidInput(
                        f"that comes within {minutes} minutes of {other.id}, which this session has already"
                    )


def _moments(schedule: Schedule, after: int) -> Iterator[int]:
    if schedule.cron:
        return _fires(schedule.cron, schedule.timezone, after, reverse=False)
    return (at for at in (schedule.at,) if at is not None and at > after)


def read_moment(text: str, timezone: str) -> int:
    """A time in ISO 8601, by the clock of the zone unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{text[:64]!r} is not a time; such as 2027-05-03T09:00") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(timezone))
    return int(moment.timestamp()) * 1000


def next_fire(cron: str, timezone: str, after: int) -> int | None:
    """The first moment after ``after`` that the expression names; None when there is none for decades."""
    return next(_fires(cron, timezone, after, reverse=False), None)


def latest_fire(cron: str, timezone: str, now: int) -> int | None:
    """The last moment up to and with ``now`` that the expression names."""
    found = next(_fires(cron, timezone, now + 1, reverse=True), None)
    # Looking back from the hour that comes twice misses what was in it the first time.
    while found is not None and (later := next_fire(cron, timezone, found)) is not None and later <= now:
        found = later
    return found


def plan(schedule: Schedule, now: int) -> Plan:
    """What a schedule has to do at ``now``."""
    following = next_fire(schedule.cron, schedule.timezone, now)
    waiting = schedule.next_fire_at
    if schedule.paused:
        return Plan(None, waiting)
    if waiting is None:
        return Plan(None, following)
    if waiting > now:
        # The clock went back: what it passes again was dealt with. One that was wrong by days is not believed.
        went_back = following is not None and waiting > following
        return Plan(None, following if went_back and _was_wrong(schedule, waiting, now) else waiting)
    latest = latest_fire(schedule.cron, schedule.timezone, now)
    due = waiting if latest is None else max(latest, waiting)
    before = count_fires(schedule.cron, schedule.timezone, waiting, due) if due > waiting else 0
    if schedule.missed == "skip" and now - due > GRACE_MS:
        return Plan(None, following, before + 1)
    return Plan(due, following, before)


def count_fires(cron: str, timezone: str, since: int, until: int) -> int:
    """How many moments the expression names after ``since``, up to and with ``until``."""
    found = _fires(cron, timezone, since, reverse=False)
    return sum(1 for _ in islice(takewhile(lambda moment: moment <= until, found), MOST_COUNTED))


def _was_wrong(schedule: Schedule, waiting: int, now: int) -> bool:
    """Whether the time of which ``waiting`` is the next one was more than a day ahead, run or left out."""
    if schedule.last_fired_at is None:
        return True
    before = latest_fire(schedule.cron, schedule.timezone, waiting - 1) or 0
    return max(schedule.last_fired_at, before) - now > _DAY_MS


def _fires(cron: str, timezone: str, at: int, *, reverse: bool) -> Iterator[int]:
    """The moments after ``at``, or before it, one by one."""
    from cronsim import CronSim, CronSimError

    # From whole seconds and microseconds, so that no fraction of a millisecond comes of it.
    start = datetime.fromtimestamp(at // 1000, UTC).replace(microsecond=at % 1000 * 1000)
    try:
        for found in CronSim(cron, start.astimezone(_zone(timezone)), reverse=reverse):
            moment = int(found.timestamp()) * 1000
            # In the hour that comes twice a fixed time is found where it was the first time, which may be behind.
            if (moment < at) if reverse else (moment > at):
                yield moment
                at = moment
    except (OverflowError, CronSimError):
        return


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        if not _ZONE.fullmatch(name):
            raise ValueError(name)
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise InvalidInput(f"{name[:64]!r} is not a time zone this machine knows; such as Europe/Vienna") from error
