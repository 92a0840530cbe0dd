"""TURN: whole turns through the public engine, at the start of a session and after 500, against two floors by hand."""

from __future__ import annotations

from typing import Final

from bench.child import run_child
from bench.measure import Bench, Goal, Line, ratios

__all__ = ["FIGURES", "measure"]

FIGURES: Final = {
    "ms": ("a turn", "ms"),
    "cpu": ("CPU of a turn", "ms"),
    "model": ("prompt until the model is asked", "ms"),
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
                told = await run_child("bench.turn_side", side, turns, count, bench.folder)
                found.setdefault((side, turns), []).append(told)
    lines: list[Line] = []
    for turns, when in ((0, "at the start"), (late, f"after {late} turns")):
        for figure, (what, unit) in FIGURES.items():
            ours, floor, hand = ([one[figure] for one in found[side, turns]] for side in ("clew", "journal", "hand"))
            goal = Goal("≤", 2) if figure == "ms" else None
            named = f"{what}, {when} (raw: by hand, chunks durable)"
            lines.append(Line("TURN", named, unit, floor, ours, ratios(ours, floor), goal))
            if figure in ("ms", "cpu", "model"):
                named = f"{what}, {when} (raw: by hand, saved at the end)"
                lines.append(Line("TURN", named, unit, hand, ours, ratios(ours, hand)))
    raw, grown = (
        ratios([one["ms"] for one in found[side, late]], [one["ms"] for one in found[side, 0]])
        for side in ("journal", "clew")
    )
    lines.append(Line("TURN", f"a turn after {late} turns ÷ at the start", "×", raw, grown, grown, Goal("≤", 1.7)))
    return lines
