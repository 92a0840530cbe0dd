"""Sums of model calls, in groups. Every sum is computed from the same rows, so all agree."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

import msgspec

from clew.errors import InvalidInput

__all__ = [
    "GROUPINGS",
    "NANO",
    "Grouping",
    "UsageGroup",
    "UsageQuery",
    "UsageReport",
    "UsageSums",
    "add_costs",
    "parse_bound",
    "report",
]

Grouping = Literal["day", "model", "session", "workspace", "owner"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
NANO = 10**9
"""Costs are added up in whole billionths of a dollar, so that a sum does not depend on its order."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_DIGITS = len("20260131")
_MAX_TIME_MS = 2**53


class UsageSums(msgspec.Struct, frozen=True):
    """Sums over model calls. ``estimated`` counts those whose provider did not report all counts.

    ``unpriced`` counts calls that used tokens at no cost: the model is free, or its price is unknown.
    """

    calls: int
    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_write: int
    cost_usd: float
    estimated: int
    unpriced: int


class UsageGroup(UsageSums, frozen=True, kw_only=True):
    """The calls that share ``key``; null for calls without one, such as those of a deleted session."""

    key: str | None


class UsageReport(msgspec.Struct, frozen=True):
    """Groups by key, and their total."""

    groups: tuple[UsageGroup, ...]
    total: UsageSums


class UsageQuery(msgspec.Struct, frozen=True):
    """The calls to add up: made at or after ``since`` and before ``until``, and of ``owner`` if given."""

    by: Grouping
    since: int | None = None
    until: int | None = None
    owner: str | None = None


def report(groups: tuple[UsageGroup, ...]) -> UsageReport:
    """Return the groups with their total."""
    sums = {name: sum(getattr(group, name) for group in groups) for name in UsageSums.__struct_fields__}
    return UsageReport(groups, UsageSums(**{**sums, "cost_usd": add_costs(group.cost_usd for group in groups)}))


def parse_bound(value: int | str | None, *, is_end: bool = False) -> int | None:
    """Parse the start or end of a time range into epoch milliseconds; a day given as the end is included."""
    if value is None:
        return None
    try:
        if isinstance(value, int) or (value.isascii() and value.isdigit() and len(value) != _DAY_DIGITS):
            at = int(value)
        else:
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            is_day = is_end and len(value) <= len("2026-01-31")
            at = (moment + timedelta(days=is_day) - _EPOCH) // timedelta(milliseconds=1)
        if abs(at) < _MAX_TIME_MS:
            return at
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(f"{str(value)[:40]!r} is not a time; use 2026-01-31, 2026-01-31T08:00Z, or epoch milliseconds")


def add_costs(costs: Iterable[float]) -> float:
    return sum(round(cost * NANO) for cost in costs) / NANO
