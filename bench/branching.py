"""P7: a branch in the middle of a long session, against a copy in plain SQL; then the first read of the branch.

WAIT: how long another session's write waits while a long session is branched and deleted, in one unit and in portions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any
from unittest import mock

import clew
from bench.fill import add_sessions, fill_turns
from bench.measure import Bench, Goal, Line, alternate, ratios
from bench.past import Past, open_past
from clew.ids import Mint
from clew.session.history import branch_line, branch_plan
from clew.store.base import Store
from clew.store.unit import DeleteSession, PatchSession, Unit

__all__ = ["measure", "measure_waits"]


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


async def measure_waits(bench: Bench) -> list[Line]:
    turns, found = bench.size(10_000, 500), dict[str, list[tuple[float, float]]]()
    async with clew.open(f"sqlite:///{bench.path('waits')}", config=clew.Config()) as engine:
        mint, store = Mint(), engine.store
        session_id, other = [await add_sessions(store, mint, 1, lambda _: {}) for _ in range(2)]
        await fill_turns(store, mint, session_id, range(turns))
        last = (await engine.messages(session_id, limit=1))[0].id
        for _ in range(bench.rounds):
            with (
                mock.patch.object(branch_line, "MAX_TURNS_PER_UNIT", turns),
                mock.patch.object(branch_plan, "MAX_TURNS_PER_UNIT", turns),
            ):
                branch, one_branch = await _longest_wait(store, other, engine.branch(session_id, last))
            deletion = store.commit(Unit(branch.id, (DeleteSession(),), sync="power"))
            _, one_deletion = await _longest_wait(store, other, deletion)
            branch, in_portions = await _longest_wait(store, other, engine.branch(session_id, last))
            found.setdefault("branch", []).append((one_branch, in_portions))
            _, in_portions = await _longest_wait(store, other, engine.delete_session(branch.id))
            found.setdefault("deletion", []).append((one_deletion, in_portions))
    return [
        _line(f"longest wait of another write, {what} of {turns:,} turns (raw: in one unit)", took, id_="WAIT")
        for what, took in found.items()
    ]


async def _longest_wait(store: Store, session_id: str, work: Coroutine[Any, Any, Any]) -> tuple[Any, float]:
    """Return what some work returns, and the longest wait of another session's write during it."""
    task, longest = asyncio.ensure_future(work), 0.0
    while not task.done():
        began = time.perf_counter()
        await store.commit(Unit(session_id, (PatchSession(metadata={"at": began}),)))
        longest = max(longest, time.perf_counter() - began)
        await asyncio.sleep(0.002)
    return await task, longest * 1_000


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


def _line(what: str, took: list[tuple[float, float]], goal: Goal | None = None, id_: str = "P7") -> Line:
    raw, ours = [both[0] for both in took], [both[1] for both in took]
    return Line(id_, what, "ms", raw, ours, ratios(ours, raw), goal)
