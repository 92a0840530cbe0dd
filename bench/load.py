"""P2: a session read whole as the model sees it, and the end of a session of any length."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import clew
from bench.fill import add_sessions, fill_turns
from bench.measure import Bench, Goal, Line, alternate, ratios
from bench.raw import RawStore
from clew.engine import Engine
from clew.ids import Mint

__all__ = ["filled", "measure"]

_TAIL = 40
"""The messages of twenty turns."""


@contextlib.asynccontextmanager
async def filled(bench: Bench, turns: int) -> AsyncIterator[tuple[RawStore, str, Engine, str]]:
    """The same session of that many turns, on both sides."""
    floor = RawStore(bench.path(f"load-{turns}-raw"))
    raw_session = floor.add_sessions(1, lambda _: {})
    floor.fill(raw_session, range(turns))
    async with clew.open(f"sqlite:///{bench.path(f'load-{turns}-clew')}", config=clew.Config()) as engine:
        mint = Mint()
        session_id = await add_sessions(engine.store, mint, 1, lambda _: {})
        await fill_turns(engine.store, mint, session_id, range(turns))
        try:
            yield floor, raw_session, engine, session_id
        finally:
            floor.close()


async def measure(bench: Bench) -> list[Line]:
    lines: list[Line] = []
    tails: dict[int, tuple[list[float], list[float]]] = {}
    whole = bench.size(2_000, 500)
    lengths = (200, whole, bench.size(20_000, 2_000))
    for turns in lengths:
        async with filled(bench, turns) as (floor, raw_session, engine, session_id):
            if turns == whole:
                lines.append(await _whole(bench, floor, raw_session, engine, session_id, turns))
            tails[turns] = await _tail(bench, floor, raw_session, engine, session_id)
    for turns, (raw, ours) in tails.items():
        lines.append(Line("P2", f"last 20 of {turns:,} turns", "ms", raw, ours, ratios(ours, raw), Goal("≤", 3)))
    shortest, longest = tails[lengths[0]], tails[lengths[-1]]
    grown = ratios(longest[1], shortest[1])
    what = f"last 20 of {lengths[-1]:,} ÷ of {lengths[0]:,} turns (the same)"
    lines.append(Line("P2", what, "×", ratios(longest[0], shortest[0]), grown, grown, Goal("≤", 1.2)))
    return lines


async def _whole(bench: Bench, floor: RawStore, raw_session: str, engine: Engine, session_id: str, turns: int) -> Line:
    assert len(floor.load(raw_session)) == len(await engine.messages(session_id, view="model")) == turns * 2
    raw: list[float] = []
    ours: list[float] = []
    for _ in range(bench.rounds):
        both = await alternate(
            lambda: floor.load(raw_session), lambda: engine.messages(session_id, view="model"), bench.size(9, 5)
        )
        raw.append(both[0])
        ours.append(both[1])
    return Line("P2", f"model view of {turns:,} turns", "ms", raw, ours, ratios(ours, raw), Goal("≤", 1.6))


async def _tail(
    bench: Bench, floor: RawStore, raw_session: str, engine: Engine, session_id: str
) -> tuple[list[float], list[float]]:
    assert len(floor.load_last(raw_session, _TAIL)) == len(await engine.messages(session_id, limit=_TAIL)) == _TAIL
    raw: list[float] = []
    ours: list[float] = []
    for _ in range(bench.rounds):
        both = await alternate(
            lambda: floor.load_last(raw_session, _TAIL),
            lambda: engine.messages(session_id, limit=_TAIL),
            bench.size(200, 100),
        )
        raw.append(both[0])
        ours.append(both[1])
    return raw, ours
