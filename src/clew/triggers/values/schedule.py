"""Schedules: the times at which runs are due, and the handling of missed runs.

Times are wall-clock times of a zone, computed by cronsim, which treats changes of the clocks like Debian's cron: a
fixed time that is skipped in spring runs right after the gap, one that occurs twice in autumn runs once; an interval of
minutes follows the clock. Pure: the current time is always a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice, pairwise, takewhile
from typing import Final, Literal, NamedTuple

import msgspec

from clew.errors import InvalidInput
from clew.triggers.values.routing import Routing

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
"""The handling of runs that were due while no process owned the store: skipped, or made up for by one run."""

GRACE_MS: Final = 60_000
"""A run that is at most this late does not count as missed."""

MAX_COUNTED: Final = 1_000_000
"""The limit for counting missed runs, if the clock was wrong by decades: two years of one per minute."""

MAX_WATCHED: Final = 10
"""The number of resources a session may watch."""

WATCH_GAP_MS: Final = 60_000
"""The minimum interval of turns for a changing resource; changes in between count as one."""

MAX_OWN: Final = 5
"""The number of schedules an agent may have in its session."""

LEAST_GAP_MS: Final = 5 * 60_000
"""The minimum interval of an agent's own turns: each costs money, possibly unobserved."""

_MAX_COMPARED: Final = 100
FARTHEST_MS: Final = 366 * 86_400_000
_DAY_MS: Final = 86_400_000
_ZONE: Final = re.compile(r"[A-Za-z0-9_+/-]{1,64}", re.ASCII)


class Watch(msgspec.Struct, frozen=True):
    """A resource of an MCP server whose changes fire a schedule."""

    server: str
    uri: str


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A job that fires automatically. ``last_id`` is the source id of its newest run, ``skipped`` counts skipped runs.

    With an empty ``cron`` it fires once, at the time ``at``, and is then removed; or whenever the resource that it
    ``watches`` changes. ``by`` says who made it.
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
        """The source of its events."""
        return f"schedule:{self.id}"


class Plan(NamedTuple):
    """The action now: the time a run is due for, None for no run; the next time; and the number of runs that were due
    before and are skipped."""

    due: int | None
    next_at: int | None
    missed: int = 0


def check_cron(cron: str, timezone: str) -> None:
    """Refuse an invalid expression or time zone."""
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
    """Refuse a schedule of an agent that fires too soon, too late, or too often."""
    minutes = LEAST_GAP_MS // 60_000
    if at is not None:
        if not LEAST_GAP_MS <= at - now <= FARTHEST_MS:
            raise InvalidInput(f"the time must be between {minutes} minutes and a year from now")
        return
    check_cron(cron, timezone)
    moments = list(islice(_fires(cron, timezone, now, reverse=False), 500))
    if any(later - before < LEAST_GAP_MS for before, later in pairwise(moments)):
        raise InvalidInput(f"{cron!r} fires more often than every {minutes} minutes")


def check_apart(schedule: Schedule, others: Iterable[Schedule], now: int) -> None:
    """Refuse a schedule that fires too close to another of the agent's own: five, each with the minimum interval, could
    together fire every minute. Both are iterated, as either may be the rarer one."""
    for other in others:
        for one, two in ((schedule, other), (other, schedule)):
            for moment in islice(_moments(one, now), _MAX_COMPARED):
                near = next(_moments(two, moment - LEAST_GAP_MS), None)
                if near is not None and near < moment + LEAST_GAP_MS:
                    minutes = LEAST_GAP_MS // 60_000
                    raise InvalidInput(
                        f"that is within {minutes} minutes of {other.id}, which this session already has"
                    )


def _moments(schedule: Schedule, after: int) -> Iterator[int]:
    if schedule.cron:
        return _fires(schedule.cron, schedule.timezone, after, reverse=False)
    return (at for at in (schedule.at,) if at is not None and at > after)


def read_moment(text: str, timezone: str) -> int:
    """Return an ISO 8601 time in milliseconds, in the given zone unless it specifies one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{text[:64]!r} is not a time, such as 2027-05-03T09:00") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(timezone))
    return int(moment.timestamp()) * 1000


def next_fire(cron: str, timezone: str, after: int) -> int | None:
    """Return the first time after ``after`` that matches; None if there is none for decades."""
    return next(_fires(cron, timezone, after, reverse=False), None)


def latest_fire(cron: str, timezone: str, now: int) -> int | None:
    """Return the last time up to and including ``now`` that matches."""
    found = next(_fires(cron, timezone, now + 1, reverse=True), None)
    # Searching backwards from the hour that occurs twice misses its first occurrence.
    while found is not None and (later := next_fire(cron, timezone, found)) is not None and later <= now:
        found = later
    return found


def plan(schedule: Schedule, now: int) -> Plan:
    """Return the action of a schedule at ``now``."""
    following = next_fire(schedule.cron, schedule.timezone, now)
    waiting = schedule.next_fire_at
    if schedule.paused:
        return Plan(None, waiting)
    if waiting is None:
        return Plan(None, following)
    if waiting > now:
        # The clock went back: times passed again are already handled. A clock that was wrong by days is ignored.
        stepped_back = following is not None and waiting > following
        return Plan(None, following if stepped_back and _was_wrong(schedule, waiting, now) else waiting)
    latest = latest_fire(schedule.cron, schedule.timezone, now)
    due = waiting if latest is None else max(latest, waiting)
    before = count_fires(schedule.cron, schedule.timezone, waiting, due) if due > waiting else 0
    if schedule.missed == "skip" and now - due > GRACE_MS:
        return Plan(None, following, before + 1)
    return Plan(due, following, before)


def count_fires(cron: str, timezone: str, since: int, until: int) -> int:
    """Return how many times match after ``since``, up to and including ``until``."""
    found = _fires(cron, timezone, since, reverse=False)
    return sum(1 for _ in islice(takewhile(lambda moment: moment <= until, found), MAX_COUNTED))


def _was_wrong(schedule: Schedule, waiting: int, now: int) -> bool:
    """Return whether the time before ``waiting``, run or skipped, was more than a day in the future."""
    if schedule.last_fired_at is None:
        return True
    before = latest_fire(schedule.cron, schedule.timezone, waiting - 1) or 0
    return max(schedule.last_fired_at, before) - now > _DAY_MS


def _fires(cron: str, timezone: str, at: int, *, reverse: bool) -> Iterator[int]:
    """Yield the times after ``at``, or before it, one by one."""
    from cronsim import CronSim, CronSimError

    # Seconds and microseconds separately, to avoid fractions of a millisecond.
    start = datetime.fromtimestamp(at // 1000, UTC).replace(microsecond=at % 1000 * 1000)
    try:
        for found in CronSim(cron, start.astimezone(_zone(timezone)), reverse=reverse):
            moment = int(found.timestamp()) * 1000
            # In the hour that occurs twice, a fixed time is found at its first occurrence, which may be in the past.
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
        raise InvalidInput(f"{name[:64]!r} is not a known time zone, such as Europe/Vienna") from error
