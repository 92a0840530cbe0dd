"""P2: read a whole session as the model sees it, and the end of sessions of any length."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import clew
from bench.fill import add_sessions, fill_turns
from bench.measure import Bench, Goal, Line, alternate, ratios
from bench.raw import RawStore
from clew.ids import Mint
from clew.session.api import Engine

__all__ = ["measure"]

_TAIL = 40
"""The messages of twenty turns."""


@dataclass(frozen=True, slots=True)
class _Sides:
    """The same session on both sides."""

    turns: int
    floor: RawStore
    raw_session: str
    engine: Engine
    session_id: str

    async def whole(self, times: int) -> tuple[float, float]:
        return await alternate(
            lambda: self.floor.load(self.raw_session),
            lambda: self.engine.messages(self.session_id, view="model"),
            times,
        )

    async def tail(self, times: int) -> tuple[float, float]:
        return await alternate(
            lambda: self.floor.load_last(self.raw_session, _TAIL),
            lambda: self.engine.messages(self.session_id, limit=_TAIL),
            times,
        )

    async def check(self) -> None:
        """Check that both sides return the same number of messages."""
        whole = len(self.floor.load(self.raw_session)), len(await self.engine.messages(self.session_id, view="model"))
        last = (
            len(self.floor.load_last(self.raw_session, _TAIL)),
            len(await self.engine.messages(self.session_id, limit=_TAIL)),
        )
        if whole != (self.turns * 2,) * 2 or last != (_TAIL,) * 2:
            raise RuntimeError(f"the two sides hold different messages: {whole}, {last}")


@contextlib.asynccontextmanager
async def _filled(bench: Bench, turns: int) -> AsyncIterator[_Sides]:
    floor = RawStore(bench.path(f"load-{turns}-raw"))
    raw_session = floor.add_sessions(1, lambda _: {})
    floor.fill(raw_session, range(turns))
    async with clew.open(f"sqlite:///{bench.path(f'load-{turns}-clew')}", config=clew.Config()) as engine:
        mint = Mint()
        session_id = await add_sessions(engine.store, mint, 1, lambda _: {})
        await fill_turns(engine.store, mint, session_id, range(turns))
        both = _Sides(turns, floor, raw_session, engine, session_id)
        await both.check()
        try:
            yield both
        finally:
            floor.close()


async def measure(bench: Bench) -> list[Line]:
    short, middle, long = 200, bench.size(2_000, 500), bench.size(20_000, 2_000)
    # Measured alone: the floor's garbage collection would traverse clew's data of the long sessions.
    async with _filled(bench, middle) as alone:
        whole = [await alone.whole(bench.size(5, 3)) for _ in range(bench.rounds)]
    tails: dict[int, list[tuple[float, float]]] = {short: [], middle: [], long: []}
    async with contextlib.AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(_filled(bench, turns)) for turns in tails]
        for _ in range(bench.rounds):
            for side in sides:
                tails[side.turns].append(await side.tail(bench.size(100, 50)))
    lines = [_line(f"model view of {middle:,} turns", whole, Goal("≤", 1.6))]
    lines += [_line(f"last 20 of {turns:,} turns", took, Goal("≤", 3)) for turns, took in tails.items()]
    raw_grown, grown = (
        ratios([both[side] for both in tails[long]], [both[side] for both in tails[short]]) for side in (0, 1)
    )
    what = f"last 20 of {long:,} ÷ of {short:,} turns (the same)"
    return [*lines, Line("P2", what, "×", raw_grown, grown, grown, Goal("≤", 1.2))]


def _line(what: str, took: list[tuple[float, float]], goal: Goal) -> Line:
    raw, ours = [both[0] for both in took], [both[1] for both in took]
    return Line("P2", what, "ms", raw, ours, ratios(ours, raw), goal)
