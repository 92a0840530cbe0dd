"""The load test as a campaign: batches of sessions stream at once until the budget is spent."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.rig.budget import Budget, Outcome
from tests.rig.server_load import Load, soak

__all__ = ["BATCH", "ROUNDS", "figure", "run"]

ROUNDS: Final = 1_000
BATCH: Final = 200
"""Number of sessions that stream at once; ``make soak`` runs a thousand."""


def run(budget: Budget) -> Outcome:
    outcome = Outcome()
    for first, sessions in budget.batches(BATCH):
        with tempfile.TemporaryDirectory(prefix="clew-soak-") as folder:
            done = asyncio.run(soak(Load(sessions=sessions), Path(folder)))
        outcome.counts["rounds"] += sessions
        outcome.counts["broken"] += len(done.problems)
        outcome.broken += [f"sessions from {first}: {problem[:500]}" for problem in done.problems]
    return outcome


def figure(counts: Counter[str]) -> str:
    return f"soak: {counts['rounds']} sessions, {BATCH} at once, {counts['broken']} problems"
