"""PLAN: the time to plan the compaction of a long session. A summary takes seconds, so there is no goal."""

from __future__ import annotations

import time

from bench.measure import Bench, Line, median, settle
from bench.past import open_past
from clew.compaction.plan import plan_compaction
from clew.session.context.context import load_context
from clew.session.prompt.turn_config import resolve

__all__ = ["measure"]


async def measure(bench: Bench) -> list[Line]:
    turns, times = bench.size(2_000, 400), bench.size(7, 3)
    rounds: list[float] = []
    async with open_past(bench, turns) as past:
        session = await past.engine.get_session(past.session_id)
        turn_config = await resolve(past.engine.host, session, model=None, agent=None, attended=False)
        context = await load_context(past.engine.host, turn_config)
        for _ in range(bench.rounds):
            took: list[float] = []
            settle()
            for _ in range(times):
                begin = time.perf_counter()
                plan = plan_compaction(context, session.id, open_turn_id=None, inside=False, auto=False)
                took.append(time.perf_counter() - begin)
                if plan is None:
                    raise RuntimeError("nothing to compact")
            rounds.append(median(took) * 1000)
    return [Line("PLAN", f"plan a compaction of {turns:,} loaded turns", "ms", (), rounds)]
