"""P8: move the head back over half of a long session and forward again, against plain updates of the same rows."""

from __future__ import annotations

import time

from bench.measure import Bench, Goal, Line, median, ratios, settle
from bench.past import Past, open_past

__all__ = ["measure"]


async def measure(bench: Bench) -> list[Line]:
    turns, times = bench.size(2_000, 400), bench.size(7, 3)
    async with open_past(bench, turns) as past:
        took = [await _there_and_back(past, times) for _ in range(bench.rounds)]
    half = turns // 2
    return [
        _line(f"rewind by {half:,} turns", took, 0),
        _line(f"head set back, {half:,} turns on", took, 2),
    ]


async def _there_and_back(past: Past, times: int) -> tuple[float, ...]:
    """Return the medians in milliseconds: raw and clew back, raw and clew forward."""
    engine, floor, since = past.engine, past.floor, past.moment(past.middle)
    head = (await engine.store.load_state(past.session_id)).head_turn_id
    took: list[list[float]] = [[], [], [], []]
    settle()
    for _ in range(times):
        marks = [time.perf_counter()]
        hidden = floor.hide(past.raw_session, since, since)
        marks.append(time.perf_counter())
        rewound = await engine.rewind(past.session_id, past.users[past.middle], mode="edit")
        marks.append(time.perf_counter())
        floor.show(past.raw_session, since)
        marks.append(time.perf_counter())
        await engine.set_head(past.session_id, head)
        marks.append(time.perf_counter())
        if hidden != len(rewound.hidden):
            raise RuntimeError(f"the two sides hid different amounts: {hidden}, {len(rewound.hidden)}")
        for one, begin, end in zip(took, marks, marks[1:], strict=False):
            one.append(end - begin)
    return tuple(median(one) * 1000 for one in took)


def _line(what: str, took: list[tuple[float, ...]], at: int) -> Line:
    raw, ours = [one[at] for one in took], [one[at + 1] for one in took]
    return Line("P8", what, "ms", raw, ours, ratios(ours, raw), Goal("≤", 2))
