"""Kill -9 at random times, on SQLite and both file stores: acknowledged data must survive.

A store survives the kills of a batch: each start is a recovery, and each judgement covers all processes so far. The
children are forked from a process with all modules loaded, so that they start within milliseconds and most kills hit
them at work. Each store has a control: a child that acknowledges before its commit, which the judge must detect.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

from tests.rig.budget import Budget, Outcome
from tests.rig.child import Child, Orders, random_plan
from tests.rig.witness import FileWitness, Witness

__all__ = ["BATCH", "ROUNDS", "detects_lie", "figure", "run"]

ROUNDS: Final = 2_000
BATCH: Final = 10

Store = Literal["sqlite", "jsonl", "json"]
_ORDER: Final[tuple[tuple[Store, str], ...]] = (
    ("sqlite", "process"),
    ("jsonl", "process"),
    ("sqlite", "power"),
    ("json", "process"),
)
"""The stores of successive batches; half of them are SQLite."""
_CONTROLS: Final[dict[Store, tuple[str, range]]] = {
    "sqlite": ("writer.before_commit", range(20, 80, 7)),
    "jsonl": ("files.before_append", range(20, 80, 7)),
    "json": ("files.before_rename", range(4, 24, 2)),
}


def _witness(store: Store, folder: Path) -> Witness:
    return Witness(folder / "store.db") if store == "sqlite" else FileWitness(folder / "store", store)


def _run_one(witness: Witness, seed: int, folder: Path, how: dict[str, Any], outcome: Outcome) -> bool:
    """Run and kill one child; return whether the store is as it must be."""
    with Child(Orders(store=witness.url, seed=seed, **how)) as child:
        child.kill_by(random_plan(Random(seed)))
    witness.add(child)
    outcome.counts["rounds"] += 1
    outcome.counts["in mid-stream"] += child.mid_stream
    outcome.counts["acknowledged"] += child.acks
    problems = asyncio.run(witness.judge())
    if problems:
        outcome.counts["broken"] += 1
        outcome.broken.append(f"seed {seed} ({how}, {witness.url.partition(':')[0]}): {problems[:3]}")
    return not problems


def run(budget: Budget) -> Outcome:
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="clew-kill-") as name:
        for first, rounds in budget.batches(BATCH):
            store, durability = _ORDER[first // BATCH % len(_ORDER)]
            size = Random(first).choice((60, 200, 500) if store == "sqlite" else (60, 120))
            how = {"durability": durability, "size": size, "streams": 6 if store == "sqlite" else 3}
            folder = Path(name) / str(first)
            folder.mkdir()
            witness = _witness(store, folder)
            for seed in range(first, first + rounds):
                outcome.counts[store] += 1
                if not _run_one(witness, seed, folder, how, outcome) or budget.spent:
                    break
            outcome.counts["ahead"] += witness.ahead if witness.requires_chunks else 0
            shutil.rmtree(folder)
        for store in _CONTROLS:
            if not detects_lie(store, Path(name)):
                outcome.broken.append(f"control: {store} acknowledged before its commit, undetected")
    return outcome


def detects_lie(store: Store, folder: Path) -> bool:
    """Return whether the judge detects a child that acknowledges before its commit. It dies in a commit; several are
    tried until one contains acknowledged data."""
    point, hits = _CONTROLS[store]
    for nth in hits:
        path = folder / f"control-{store}-{nth}"
        path.mkdir()
        witness = _witness(store, path)
        orders = Orders(store=witness.url, seed=nth, size=60, streams=1, ack_early=True)
        with Child(orders, failpoints=f"{point}=kill@{nth}") as child:
            if child.wait() != -signal.SIGKILL:
                raise AssertionError(f"the control did not die: {child.how_it_ended()}")
        witness.add(child)
        problems = asyncio.run(witness.judge())
        shutil.rmtree(path)
        if problems:
            return True
    return False


def figure(counts: Counter[str]) -> str:
    stores = ", ".join(f"{store} {counts[store]}" for store in ("sqlite", "jsonl", "json"))
    return (
        f"kill: {counts['rounds']} kills ({stores}; {counts['in mid-stream']} in mid-stream), "
        f"{counts['broken']} lost something of {counts['acknowledged']} acknowledged chunks, "
        f"{counts['ahead']} chunks stored and not yet acknowledged"
    )
