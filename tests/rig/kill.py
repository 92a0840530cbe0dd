"""Kill -9 at random moments, over SQLite and both file stores: what was acknowledged is there afterwards.

A store lives through the kills of a batch: each start is a recovery, each judgement covers all lives. The children are
forked from a process that has everything loaded: a child is at work within milliseconds, and most kills hit it
there. Each store has its control, a child that acknowledges before its commit, and the judge must find it out.
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

__all__ = ["BATCH", "ROUNDS", "figure", "is_found_out", "run"]

ROUNDS: Final = 2_000
BATCH: Final = 10

Store = Literal["sqlite", "jsonl", "json"]
_TURN: Final[tuple[tuple[Store, str], ...]] = (
    ("sqlite", "process"),
    ("jsonl", "process"),
    ("sqlite", "power"),
    ("json", "process"),
)
"""Which store a batch is about: half of them SQLite."""
_CONTROLS: Final[dict[Store, tuple[str, range]]] = {
    "sqlite": ("writer.before_commit", range(20, 80, 7)),
    "jsonl": ("files.before_append", range(20, 80, 7)),
    "json": ("files.before_rename", range(4, 24, 2)),
}


def _witness(store: Store, folder: Path) -> Witness:
    return Witness(folder / "store.db") if store == "sqlite" else FileWitness(folder / "store", store)


def _live(witness: Witness, seed: int, folder: Path, how: dict[str, Any], outcome: Outcome) -> bool:
    """One life and its end; whether all was as it must be."""
    with Child(Orders(store=witness.url, seed=seed, **how)) as child:
        child.kill_by(random_plan(Random(seed)))
    witness.hear(child)
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
            store, durability = _TURN[first // BATCH % len(_TURN)]
            size = Random(first).choice((60, 200, 500) if store == "sqlite" else (60, 120))
            how = {"durability": durability, "size": size, "streams": 6 if store == "sqlite" else 3}
            folder = Path(name) / str(first)
            folder.mkdir()
            witness = _witness(store, folder)
            for seed in range(first, first + rounds):
                outcome.counts[store] += 1
                if not _live(witness, seed, folder, how, outcome) or budget.spent:
                    break
            outcome.counts["ahead"] += witness.ahead if witness.keeps_chunks else 0
            shutil.rmtree(folder)
        for store in _CONTROLS:
            if not is_found_out(store, Path(name)):
                outcome.broken.append(f"control: {store} acknowledged before its commit, and was not found out")
    return outcome


def is_found_out(store: Store, folder: Path) -> bool:
    """Whether a child that acknowledges before its commit is found to have lied. It dies in a commit; which one holds
    what it has acknowledged is tried out."""
    point, passages = _CONTROLS[store]
    for nth in passages:
        place = folder / f"control-{store}-{nth}"
        place.mkdir()
        witness = _witness(store, place)
        orders = Orders(store=witness.url, seed=nth, size=60, streams=1, ack_early=True)
        with Child(orders, failpoints=f"{point}=kill@{nth}") as child:
            if child.wait() != -signal.SIGKILL:
                raise AssertionError(f"the control did not die: {child.how_it_ended()}")
        witness.hear(child)
        problems = asyncio.run(witness.judge())
        shutil.rmtree(place)
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
