"""Provider connections that break at any event, and sessions that are interrupted in any phase and continued.

A round breaks a guarantee if text is lost, an ending is reported wrongly, the usage is not what the provider reported
plus a marked estimate of the rest, a tool runs twice for one call, or a request is sent that the provider would reject.
"""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.acceptance.phases import DEATHS, HITS, NEXTS, PHASES, World
from tests.integration.wire_cases import ANSWERS, BREAKS, RICH, WIRES
from tests.integration.wire_table import cut, judge
from tests.integration.wired import wired
from tests.rig.budget import Budget, Outcome

__all__ = ["ROUNDS", "figure", "run"]

ROUNDS: Final = 1_000
_BATCH: Final = 50
_PATIENCE_S: Final = 30.0


def run(budget: Budget) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clew.providers.retry._FIRST_MS", 1)
        return asyncio.run(_run(budget))


async def _run(budget: Budget) -> Outcome:
    outcome = Outcome()
    for first, count in budget.batches(_BATCH):
        wire = WIRES[first // _BATCH % len(WIRES)]
        async with wired(wire) as server:
            for seed in range(first, first + count):
                dice = Random(seed)
                count, how = dice.randrange(len(ANSWERS[RICH][wire])), dice.choice(BREAKS)
                steps = [f"{how} after {count} events"]
                try:
                    async with asyncio.timeout(_PATIENCE_S):
                        await judge(server, cut(wire, count, how, steps[0]))
                        await _hit(dice, steps)
                except Exception as error:
                    at = traceback.extract_tb(error.__traceback__)[-1]
                    reason = f"{type(error).__name__} in {at.name}, {at.line}: {error}"
                    outcome.broken.append(f"seed {seed}: {wire}, {'; '.join(steps)}: {reason}")
                outcome.counts.update(rounds=1, acts=len(steps))
    return outcome


async def _hit(dice: Random, steps: list[str]) -> None:
    wire = dice.choice(WIRES)
    with tempfile.TemporaryDirectory() as folder:
        async with World(Path(folder), wire) as world:
            for _ in range(dice.randint(1, 3)):
                phase, hit, how = dice.choice(PHASES), dice.choice(HITS), dice.choice(DEATHS)
                nexts = [dice.choice(NEXTS) for _ in range(dice.randint(1, 2))]
                steps.append(f"{wire}: {hit} {phase} ({how}), then {', '.join(nexts)}")
                await world.live_through(phase, hit, how, nexts)


def figure(counts: dict[str, int]) -> str:
    return f"phases: {counts['rounds']} rounds, {counts['acts']} breaks and hits"
