"""The soak as a campaign: so many sessions stream at once, and again, until there were enough or the time is up."""

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
"""How many sessions stream at once; ``make soak`` takes a thousand."""


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
    return f"soak: {counts['rounds']} sessions, {BATCH} at once, {counts['broken']} things wrong"
