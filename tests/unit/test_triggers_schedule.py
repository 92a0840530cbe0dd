"""When schedules are due: through changes of the clocks, clocks that jump, and time nobody was there."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InvalidInput
from clew.triggers.values.schedule import (
    GRACE_MS,
    Plan,
    Schedule,
    check_cron,
    count_fires,
    latest_fire,
    next_fire,
    plan,
)

VIENNA = "Europe/Vienna"
HOUR, DAY = 3_600_000, 86_400_000


def at(text: str, zone: str = VIENNA, fold: int = 0) -> int:
    """A wall time of a zone; of one that comes twice the first, unless said."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * 1000


def utc(moment: int | None) -> str:
    assert moment is not None
    return datetime.fromtimestamp(moment / 1000, UTC).strftime("%m-%d %H:%M")


def fires(cron: str, start: int, count: int, zone: str = VIENNA) -> list[str]:
    found = []
    moment: int | None = start
    for _ in range(count):
        assert moment is not None
        moment = next_fire(cron, zone, moment)
        found.append(utc(moment))
    return found


@pytest.mark.rule("EV-2")
def test_a_time_the_spring_skips_comes_right_after_the_gap() -> None:
    """On 2027-03-28 Vienna has no 02:30; the day before and after it is there at its time."""
    assert fires("30 2 * * *", at("2027-03-27T00:00"), 3) == ["03-27 01:30", "03-28 01:00", "03-29 00:30"]
    assert fires("*/30 * * * *", at("2027-03-28T01:20"), 4) == [
        "03-28 00:30",
        "03-28 01:00",
        "03-28 01:30",
        "03-28 02:00",
    ]


@pytest.mark.rule("EV-2")
def test_a_time_the_autumn_has_twice_runs_once() -> None:
    """On 2027-10-31 Vienna has two 02:30; a pattern of minutes goes on through both hours."""
    assert fires("30 2 * * *", at("2027-10-30T00:00"), 3) == ["10-30 00:30", "10-31 00:30", "11-01 01:30"]
    assert fires("*/30 * * * *", at("2027-10-31T01:20"), 5) == [
        "10-30 23:30",
        "10-31 00:00",
        "10-31 00:30",
        "10-31 01:00",
        "10-31 01:30",
    ]
    # Asked in the second of the two hours, before the minute: it was there already.
    assert utc(next_fire("30 2 * * *", VIENNA, at("2027-10-31T02:10", fold=1))) == "11-01 01:30"
    assert utc(latest_fire("30 2 * * *", VIENNA, at("2027-10-31T02:10", fold=1))) == "10-31 00:30"


@given(
    st.sampled_from(["30 2 * * *", "*/15 * * * *", "0 0 1 * *", "0 3 * * SUN", "5 4 * * MON-FRI", "0 12 29 2 *"]),
    st.sampled_from(["UTC", VIENNA, "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]),
    st.integers(at("2026-01-01T00:00"), at("2030-01-01T00:00")),
)
def test_the_next_time_is_later_and_the_latest_is_not(cron: str, zone: str, now: int) -> None:
    """Strictly, in every zone, at every millisecond; and the next of the latest is not before now."""
    following, latest = next_fire(cron, zone, now), latest_fire(cron, zone, now)
    assert following is not None
    assert latest is not None
    assert latest <= now < following
    assert next_fire(cron, zone, latest) == following
    assert next_fire(cron, zone, following - 1) == following


@pytest.mark.parametrize(
    "cron",
    ["", "* * * *", "* * * * * *", "60 * * * *", "x", "0 0 31 2 *", "@daily", "* " * 60, "1-", "*/0 * * * *",
     "L/2#9 * * * *", "9" * 90 + " * * * *", "* * * * 1#2/3", "٣ * * * *", "\x00 * * * *"],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(cron: str) -> None:
    """With a sentence, never another error."""
    with pytest.raises(InvalidInput):
        check_cron(cron, "UTC")


@pytest.mark.parametrize(
    "zone", ["", "Nowhere/Else", "../../etc/passwd", "/etc/localtime", "America", "x" * 100, "UTC\n"]
)
def test_what_is_no_zone_is_refused(zone: str) -> None:
    """Paths and folders of the zone database too."""
    with pytest.raises(InvalidInput):
        check_cron("* * * * *", zone)


NINE = at("2027-05-03T09:00")
DAILY = Schedule(id="sch_x", cron="0 9 * * *", prompt="go", created_at=0, timezone=VIENNA, next_fire_at=NINE)


def test_a_run_is_due_at_its_time_and_not_before() -> None:
    """And the one after it is the next day's."""
    assert plan(DAILY, NINE - 1) == Plan(None, NINE)
    assert plan(DAILY, NINE) == Plan(NINE, NINE + DAY)
    assert plan(DAILY, NINE + GRACE_MS) == Plan(NINE, NINE + DAY)


@pytest.mark.rule("EV-2")
def test_missed_runs_are_left_out_or_made_up_for_by_one() -> None:
    """After three days away: none, or one for the newest. A run that has just come due is not a missed one."""
    late = NINE + 2 * DAY + HOUR
    assert plan(DAILY, late) == Plan(None, NINE + 3 * DAY, missed=3)
    once = msgspec.structs.replace(DAILY, missed="once")
    assert plan(once, late) == Plan(NINE + 2 * DAY, NINE + 3 * DAY, missed=2)
    assert plan(DAILY, NINE + 2 * DAY + 20_000) == Plan(NINE + 2 * DAY, NINE + 3 * DAY, missed=2)


@pytest.mark.parametrize(
    ("cron", "since", "until", "count"),
    [
        ("* * * * *", "2027-05-03T09:00", "2027-05-04T09:00", 1440),
        ("0 9 * * MON-FRI", "2027-05-03T09:00", "2027-05-17T09:00", 10),
        ("30 2 * * *", "2027-03-26T02:30", "2027-03-30T02:30", 4),
        ("30 2 * * *", "2027-10-29T02:30", "2027-11-02T02:30", 4),
        ("*/30 2 * * *", "2027-10-30T02:30", "2027-10-31T03:00", 4),
        ("0 9 * * *", "2027-05-03T09:00", "2027-05-03T09:00", 0),
    ],
)
def test_what_was_missed_is_counted_one_by_one(cron: str, since: str, until: str, count: int) -> None:
    """Also over weekends and changes of the clocks: after the one, up to and with the other."""
    assert count_fires(cron, VIENNA, at(since), at(until)) == count


@pytest.mark.rule("EV-2")
def test_a_clock_that_goes_back_runs_nothing_twice() -> None:
    """By hours the next time stands; a clock that was wrong by more than a day is not believed any longer."""
    ran = msgspec.structs.replace(DAILY, next_fire_at=NINE + DAY, last_fired_at=NINE)
    assert plan(ran, NINE - 2 * HOUR) == Plan(None, NINE + DAY)
    assert plan(ran, NINE - 30 * DAY) == Plan(None, NINE - 29 * DAY)


@pytest.mark.rule("EV-2")
def test_a_clock_that_was_wrong_while_a_run_was_left_out_does_not_put_the_next_one_off() -> None:
    """What was left out under the wrong time counts as little as what was run under it."""
    ran = msgspec.structs.replace(DAILY, next_fire_at=NINE + DAY, last_fired_at=NINE)
    wrong = plan(ran, NINE + 400 * DAY + 3 * HOUR)
    assert wrong == Plan(None, NINE + 401 * DAY, missed=400)
    put_off = msgspec.structs.replace(ran, next_fire_at=wrong.next_at)
    assert plan(put_off, NINE + HOUR) == Plan(None, NINE + DAY)
    assert plan(put_off, NINE + 400 * DAY - HOUR) == Plan(None, NINE + 401 * DAY)


def test_a_paused_schedule_does_nothing() -> None:
    """However long it is paused."""
    assert plan(msgspec.structs.replace(DAILY, paused=True), NINE + DAY) == Plan(None, NINE)
