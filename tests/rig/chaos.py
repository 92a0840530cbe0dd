"""Replicas on one PostgreSQL while replicas die, freeze and are cut off, and their servers restart.

A round is one fault in a running cluster: clients use random replicas, a fault begins and ends, the clients pause, and
all sessions must become idle. In the end every session must accept a prompt, and the judge checks everything that was
acknowledged and shown. ``python -m tests.rig.chaos --control`` runs replicas that write without fencing, which the
judge must detect.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Final

from tests.rig.budget import Budget, Outcome
from tests.rig.chaos_history import judge
from tests.rig.chaos_people import People
from tests.rig.chaos_world import Fault, Shape, World

__all__ = ["ROUNDS", "figure", "run", "run_in"]

ROUNDS: Final = 24
_SAMPLE_S: Final = 0.1


def run(budget: Budget) -> Outcome:
    settings = {
        name: float(os.environ[name.upper()])
        for name in ("lease_s", "think_s", "outlasts")
        if name.upper() in os.environ
    }
    return asyncio.run(run_in(Shape(**settings), budget))  # type: ignore[arg-type]


def figure(counts: Mapping[str, int]) -> str:
    faults = ", ".join(f"{count} {name.removeprefix('fault ')}" for name, count in counts.items() if "fault " in name)
    return (
        f"chaos: {counts.get('rounds', 0)} faults ({faults}) while {counts.get('operations', 0)} operations, "
        f"{counts.get('failed', 0)} of them without an answer; {counts.get('prompts', 0)} prompts acknowledged, "
        f"{counts.get('chunks', 0)} chunks in {counts.get('views', 0)} views; "
        f"{counts.get('broken', 0)} guarantees broken, recovered within {counts.get('longest recovery, ms', 0)} ms"
    )


async def run_in(shape: Shape, budget: Budget, faults: tuple[Fault, ...] | None = None) -> Outcome:
    """Cause the faults in one cluster. All kinds occur in turn, with random details."""
    outcome = Outcome()
    async with World.opened(shape) as world:
        people = People(world, budget.seed)
        watching = asyncio.get_running_loop().create_task(_sample(world, people))
        try:
            async with people.at_work():
                for number in budget.rounds():
                    random = Random(number)
                    kinds = faults or world.faults()
                    fault = kinds[number % len(kinds)]
                    await _round(world, people, fault, random, outcome)
                    outcome.counts["rounds"] += 1
                    outcome.counts[f"fault {fault}"] += 1
                await people.rest()
                # Without fencing the store is broken by then, and only the judge matters.
                unused = await people.use_each() if shape.fencing else ()
                outcome.broken += [f"session {one} no longer accepts prompts" for one in unused]
            found, queued = await people.stored()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        history = people.history
        outcome.broken += judge(history, found, queued, 2 * shape.lease_s)
        if outcome.broken:
            print(world.logs(), file=sys.stderr)
    outcome.counts.update(
        {
            "operations": history.operations.total(),
            "failed": history.failures.total(),
            "prompts": sum(prompt.acknowledged for prompt in history.prompts),
            "views": len(history.views),
            "chunks": sum(view.chunks for view in history.views),
            "broken": len(outcome.broken),
            "longest recovery, ms": round(1000 * max((took for _, took in history.recoveries), default=0.0)),
        }
    )
    return outcome


async def _round(world: World, people: People, fault: Fault, random: Random, outcome: Outcome) -> None:
    people.go_on()
    await asyncio.sleep(random.uniform(0.5, 1.5) * world.shape.calm_s)
    struck = await world.aim(fault, random)
    freed, _ = await asyncio.gather(_freed(world, struck.orphans), world.strike(struck, random))
    if struck.orphans:
        people.history.recoveries.append((fault, freed))
    await people.rest()
    # A run takes seconds, and so may queued ones.
    stuck = await people.until_quiet(20 * world.shape.lease_s)
    outcome.broken += [f"{fault}: session {one} does not become idle" for one in stuck]
    await people.note_settled()


async def _freed(world: World, orphans: frozenset[str]) -> float:
    """Return the seconds until the last turn that ran on the victim was settled by any replica."""
    began = time.monotonic()
    while orphans and time.monotonic() < began + 6 * world.shape.lease_s:
        running = {turn for _, turn in await asyncio.to_thread(world.truth.running)}
        if not running & orphans:
            break
        await asyncio.sleep(_SAMPLE_S)
    return time.monotonic() - began


async def _sample(world: World, people: People) -> None:
    """Check in the store, repeatedly, whether a session has two runs."""
    while True:
        await asyncio.sleep(_SAMPLE_S)
        try:
            running = await asyncio.to_thread(world.truth.running)
        except Exception:
            continue
        for session, count in Counter(session for session, _ in running).items():
            if count > 1:
                turns = frozenset(turn for one, turn in running if one == session)
                people.history.twice.add((session, turns))
