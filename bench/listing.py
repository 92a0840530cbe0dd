"""P3: list the newest of many sessions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import clew
from bench.fill import add_sessions
from bench.measure import Bench, Goal, Line, alternate, ratios
from bench.raw import RawStore
from clew.ids import Mint
from clew.session.api import Engine

__all__ = ["measure"]

_PAGE = 50


@dataclass(frozen=True, slots=True)
class _Sides:
    """The same number of sessions on both sides."""

    count: int
    floor: RawStore
    engine: Engine

    async def newest(self, times: int) -> tuple[float, float]:
        return await alternate(lambda: self.floor.newest(_PAGE), lambda: self.engine.list_sessions(limit=_PAGE), times)


def _metadata(n: int) -> dict[str, Any]:
    return {"title": f"A session about the thing number {n}", "label": "bench"}


@contextlib.asynccontextmanager
async def _filled(bench: Bench, count: int) -> AsyncIterator[_Sides]:
    floor = RawStore(bench.path(f"list-{count}-raw"))
    floor.add_sessions(count, _metadata)
    async with clew.open(f"sqlite:///{bench.path(f'list-{count}-clew')}", config=clew.Config()) as engine:
        newest = await add_sessions(engine.store, Mint(), count, _metadata)
        page = await engine.list_sessions(limit=_PAGE)
        if page.sessions[0].id != newest or not len(page.sessions) == len(floor.newest(_PAGE)) == _PAGE:
            raise RuntimeError("the two sides list different sessions")
        try:
            yield _Sides(count, floor, engine)
        finally:
            floor.close()


async def measure(bench: Bench) -> list[Line]:
    few, many = bench.size(10_000, 2_000), bench.size(100_000, 20_000)
    took: dict[int, list[tuple[float, float]]] = {few: [], many: []}
    async with contextlib.AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(_filled(bench, count)) for count in took]
        for _ in range(bench.rounds):
            for side in sides:
                took[side.count].append(await side.newest(bench.size(200, 100)))
    lines = []
    for count, both in took.items():
        raw, ours = [pair[0] for pair in both], [pair[1] for pair in both]
        what = f"newest {_PAGE} of {count:,} sessions"
        lines.append(Line("P3", what, "ms", raw, ours, ratios(ours, raw), Goal("≤", 4)))
    raw_grown, grown = ratios(lines[1].raw, lines[0].raw), ratios(lines[1].clew, lines[0].clew)
    what = f"list of {many:,} ÷ of {few:,} sessions (the same)"
    return [*lines, Line("P3", what, "×", raw_grown, grown, grown, Goal("≤", 1.2))]
