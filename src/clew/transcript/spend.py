"""What model calls add up to, in groups. Every sum is over the same rows, so all agree."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

import msgspec

from clew.errors import InvalidInput
from clew.transcript.model_call import ModelCall

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
    "sum_calls",
]

Grouping = Literal["day", "model", "session", "workspace", "owner"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
NANO = 10**9
"""Costs are added up in whole billionths of a dollar: a sum then does not depend on the order it was made in."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_DIGITS = len("20260131")
_FARTHEST = 2**53


class UsageSums(msgspec.Struct, frozen=True):
    """Sums over model calls. ``estimated``: how many of them the provider did not say all the counts of.

    ``unpriced``: how many used something and count as nothing: their model is free, or nobody knows its price.
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
    """The calls that have ``key`` in common; null for those that have none, as of a session that is gone."""

    key: str | None


class UsageReport(msgspec.Struct, frozen=True):
    """Groups by their keys, and what they come to together."""

    groups: tuple[UsageGroup, ...]
    total: UsageSums


class UsageQuery(msgspec.Struct, frozen=True):
    """Which calls are added up: those asked from ``since`` on and before ``until``; of one owner where it is named."""

    by: Grouping
    since: int | None = None
    until: int | None = None
    owner: str | None = None


def sum_calls(calls: Iterable[ModelCall], query: UsageQuery) -> tuple[UsageGroup, ...]:
    """The calls that a query asks for, in groups by their keys; the one without a key comes last."""
    groups: dict[str | None, list[ModelCall]] = {}
    for call in calls:
        in_time = (query.since is None or call.asked_at >= query.since) and (
            query.until is None or call.asked_at < query.until
        )
        if in_time and query.owner in (None, call.owner):
            groups.setdefault(_key(call, query.by), []).append(call)
    return tuple(
        UsageGroup(
            key=key,
            calls=len(held),
            **{name: sum(getattr(call.usage, name) for call in held) for name in held[0].usage.__struct_fields__},
            cost_usd=add_costs(call.cost_usd for call in held),
            estimated=sum(call.estimated for call in held),
            unpriced=sum(call.cost_usd == 0 and call.usage.total > 0 for call in held),
        )
        for key, held in sorted(groups.items(), key=lambda one: (one[0] is None, one[0] or ""))
    )


def report(groups: tuple[UsageGroup, ...]) -> UsageReport:
    """Groups with their sum."""
    sums = {name: sum(getattr(group, name) for group in groups) for name in UsageSums.__struct_fields__}
    return UsageReport(groups, UsageSums(**{**sums, "cost_usd": add_costs(group.cost_usd for group in groups)}))


def parse_bound(value: int | str | None, *, is_end: bool = False) -> int | None:
    """Where a span of time begins or ends, in epoch milliseconds; of a day that is named as the end, its own end."""
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
        if abs(at) < _FARTHEST:
            return at
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(f"{str(value)[:40]!r} is no time; write 2026-01-31, 2026-01-31T08:00Z, or epoch milliseconds")


def add_costs(costs: Iterable[float]) -> float:
    return sum(round(cost * NANO) for cost in costs) / NANO


def _key(call: ModelCall, by: Grouping) -> str | None:
    match by:
        case "day":
            return call.day
        case "model":
            return str(call.model)
        case "session":
            return call.session_id
        case "workspace":
            return call.workspace
        case "owner":
            return call.owner
