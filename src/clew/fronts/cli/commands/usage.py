"""``clew usage``: token usage and cost of model calls, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Final

from clew.errors import SessionNotFound
from clew.fronts.cli.command import Json, Store, open_store, option, show
from clew.transcript.spend import Grouping, UsageReport, UsageSums

__all__ = ["usage"]

_COLUMNS: Final = ("calls", "input", "output", "reasoning", "cache_read", "cache_write")


async def usage(
    *,
    by: Annotated[Grouping, option("How to group calls.")] = "day",
    since: Annotated[str | None, option("The first day, or the start time (UTC).", "--from")] = None,
    until: Annotated[str | None, option("The last day, or the end time (UTC).", "--to")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show token usage and cost of all model calls: answers, titles, summaries, failed attempts.

    Example: clew usage --by model --from 2026-01-01
    """
    async with open_store(store) as engine:
        found = await engine.usage(by, since=since, until=until)
        titles: dict[str | None, str] = {}
        for key in [group.key for group in found.groups] if by == "session" and not json else ():
            with suppress(SessionNotFound):
                titles[key] = (key and (await engine.get_session(key)).title) or ""
    show(json, found, _table(by, found, titles))


def _table(by: Grouping, found: UsageReport, titles: Mapping[str | None, str]) -> Iterator[str]:
    rows = [(by, *(name.replace("_", " ") for name in _COLUMNS), "cost", "")]
    named = ((one, one.key if one.key is not None else "(none)") for one in found.groups)
    rows += [_row(name, group, titles.get(group.key, "")) for group, name in named]
    unpriced = f"{found.total.unpriced} free or without a known price" if found.total.unpriced else ""
    rows.append(_row("total", found.total, unpriced))
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for first, *cells in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells[:-1], widths[1:-1], strict=True))
        yield "  ".join((first.ljust(widths[0]), *numbers, cells[-1])).rstrip()


def _row(name: str, sums: UsageSums, note: str) -> tuple[str, ...]:
    about = "  ".join(filter(None, (f"{sums.estimated} estimated" if sums.estimated else "", note)))
    return name, *(f"{getattr(sums, column):,}" for column in _COLUMNS), f"${sums.cost_usd:,.4f}", about
