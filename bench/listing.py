"""P3: the newest sessions of many."""

from __future__ import annotations

from typing import Any

import clew
from bench.fill import add_sessions
from bench.measure import Bench, Goal, Line, alternate, ratios
from bench.raw import RawStore
from clew.ids import Mint

__all__ = ["measure"]

_PAGE = 50


def _metadata(n: int) -> dict[str, Any]:
    return {"title": f"What was said about the thing number {n}", "label": "bench"}


async def measure(bench: Bench) -> list[Line]:
    lines: list[Line] = []
    took: list[tuple[list[float], list[float]]] = []
    counts = (bench.size(10_000, 2_000), bench.size(100_000, 20_000))
    for count in counts:
        raw, ours = await _newest(bench, count)
        took.append((raw, ours))
        what = f"newest {_PAGE} of {count:,} sessions"
        lines.append(Line("P3", what, "ms", raw, ours, ratios(ours, raw), Goal("≤", 4)))
    (few_raw, few), (many_raw, many) = took
    what = f"list of {counts[1]:,} ÷ of {counts[0]:,} sessions (the same)"
    lines.append(Line("P3", what, "×", ratios(many_raw, few_raw), ratios(many, few), ratios(many, few), Goal("≤", 1.2)))
    return lines


async def _newest(bench: Bench, count: int) -> tuple[list[float], list[float]]:
    floor = RawStore(bench.path(f"list-{count}-raw"))
    floor.add_sessions(count, _metadata)
    raw: list[float] = []
    ours: list[float] = []
    async with clew.open(f"sqlite:///{bench.path(f'list-{count}-clew')}", config=clew.Config()) as engine:
        newest = await add_sessions(engine.store, Mint(), count, _metadata)
        page = await engine.list_sessions(limit=_PAGE)
        assert page.sessions[0].id == newest
        assert len(page.sessions) == len(floor.newest(_PAGE)) == _PAGE
        for _ in range(bench.rounds):
            both = await alternate(
                lambda: floor.newest(_PAGE), lambda: engine.list_sessions(limit=_PAGE), bench.size(200, 100)
            )
            raw.append(both[0])
            ours.append(both[1])
    floor.close()
    return raw, ours
