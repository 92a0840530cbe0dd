"""P7: a branch in the middle of a long session, against a copy in plain SQL; then the first read of the branch."""

from __future__ import annotations

from bench.measure import Bench, Goal, Line, alternate, ratios
from bench.past import Past, open_past

__all__ = ["measure"]


async def measure(bench: Bench) -> list[Line]:
    turns, times = bench.size(2_000, 400), bench.size(7, 3)
    copied: list[tuple[float, float]] = []
    read: list[tuple[float, float]] = []
    async with open_past(bench, turns) as past:
        point = await _point(past)
        branch = (await past.engine.branch(past.session_id, point)).id
        raw_branch = past.floor.branch(past.raw_session, past.moment(past.middle - 1))
        await _check(past, branch, raw_branch)
        for _ in range(bench.rounds):
            copied.append(
                await alternate(
                    lambda: past.floor.branch(past.raw_session, past.moment(past.middle - 1)),
                    lambda: past.engine.branch(past.session_id, point),
                    times,
                )
            )
            read.append(
                await alternate(lambda: past.floor.load(raw_branch), lambda: past.engine.messages(branch), times)
            )
    return [
        _line(f"branch in the middle of {turns:,} turns", copied, Goal("≤", 1.5)),
        _line(f"read the whole branch, {turns // 2:,} turns", read),
    ]


async def _point(past: Past) -> str:
    """Return the last message of the first half."""
    messages = await past.engine.messages(past.session_id)
    return messages[past.middle * 2 - 1].id


async def _check(past: Past, branch: str, raw_branch: str) -> None:
    """Check that both sides copied the same number of messages and parts."""
    found = [
        (len(raw := past.floor.load(raw_branch)), sum(len(message["parts"]) for message in raw)),
        (len(ours := await past.engine.messages(branch)), sum(len(message.parts) for message in ours)),
    ]
    if found != [(past.middle * 2, past.middle * 5)] * 2:
        raise RuntimeError(f"the two sides copied different amounts: {found}")


def _line(what: str, took: list[tuple[float, float]], goal: Goal | None = None) -> Line:
    raw, ours = [both[0] for both in took], [both[1] for both in took]
    return Line("P7", what, "ms", raw, ours, ratios(ours, raw), goal)
