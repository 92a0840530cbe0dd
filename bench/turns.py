"""TURN: whole turns through the public engine, at the start and after 500, against two hand-written floors."""

from __future__ import annotations

from typing import Final

from bench.child import run_child
from bench.measure import Bench, Goal, Line, ratios

__all__ = ["METRICS", "measure"]

METRICS: Final = {
    "ms": ("a turn", "ms"),
    "cpu": ("CPU of a turn", "ms"),
    "model": ("prompt until the model is called", "ms"),
    "first": ("prompt until the first word of the reply is shown", "ms"),
    "written": ("written by a turn", "KB"),
    "rss": ("memory", "MB"),
    "cold": ("the first turn after opening", "ms"),
}
_SIDES: Final = ("hand", "journal", "clew")


async def measure(bench: Bench) -> list[Line]:
    late, count = bench.size(500, 50), bench.size(40, 5)
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(bench.rounds):
        for turns in (0, late):
            for side in _SIDES:
                report = await run_child("bench.turn_side", side, turns, count, bench.folder)
                found.setdefault((side, turns), []).append(report)
    lines: list[Line] = []
    for turns, when in ((0, "at the start"), (late, f"after {late} turns")):
        for metric, (what, unit) in METRICS.items():
            ours, floor, hand = ([one[metric] for one in found[side, turns]] for side in ("clew", "journal", "hand"))
            goal = Goal("≤", 2) if metric == "ms" else None
            named = f"{what}, {when} (raw: hand-written, chunks durable)"
            lines.append(Line("TURN", named, unit, floor, ours, ratios(ours, floor), goal))
            if metric in ("ms", "cpu", "model"):
                named = f"{what}, {when} (raw: hand-written, saved at the end)"
                lines.append(Line("TURN", named, unit, hand, ours, ratios(ours, hand)))
    raw, grown = (
        ratios([one["ms"] for one in found[side, late]], [one["ms"] for one in found[side, 0]])
        for side in ("journal", "clew")
    )
    lines.append(Line("TURN", f"a turn after {late} turns ÷ at the start", "×", raw, grown, grown, Goal("≤", 1.7)))
    return lines
