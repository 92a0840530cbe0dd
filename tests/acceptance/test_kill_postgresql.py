"""Kill -9 on PostgreSQL: the process dies, the server does not; what was shown is stored, what is stored is whole."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.rig.child import Child, Orders, random_plan
from tests.rig.witness import DatabaseWitness, life
from tests.rounds import ON_POSTGRESQL, rounds

pytestmark = [pytest.mark.kill, pytest.mark.service, pytest.mark.rule("RP-6", "ST-12")]

KILLS = rounds(24 if ON_POSTGRESQL else 2)
PASSAGES = ["writer.before_commit", "writer.in_transaction", "writer.after_commit_before_ack"]


@pytest.fixture
def witness(tmp_path: Path, postgres_store_url: str) -> DatabaseWitness:
    return DatabaseWitness(tmp_path / "store", postgres_store_url)


async def test_nothing_shown_is_lost_at_random_kills(witness: DatabaseWitness, record_property: Any) -> None:
    """One store lives through all kills: each start is a recovery, each judgement covers all lives."""
    random = Random(5)
    for number in range(KILLS):
        with Child(Orders(store=witness.url, seed=number, size=120)) as child:
            child.kill_by(random_plan(random))
        witness.add(child)
        assert await witness.judge() == [], f"after kill {number}"
    record_property("figure", f"random kills on PostgreSQL: {witness.figure}")
    if witness.kills >= 24:
        assert witness.acknowledged >= 400
        assert witness.mid_stream >= 8


@pytest.mark.parametrize("passage", PASSAGES if ON_POSTGRESQL else PASSAGES[:1])
async def test_a_kill_at_each_step_of_a_commit_loses_nothing(witness: DatabaseWitness, passage: str) -> None:
    """Before it, in the middle of it, and between it and the word that it is done."""
    life(witness, 3, f"{passage}=kill@30", size=60)
    assert await witness.judge() == []


@pytest.mark.skipif(not ON_POSTGRESQL, reason="the judge is the one that finds it out on SQLite")
async def test_a_child_that_shows_before_it_has_stored_is_found_out(witness: DatabaseWitness) -> None:
    """The control: the same judge, and a child that lies."""
    told: list[str] = []
    for nth in range(12, 60, 6):
        life(witness, nth, f"writer.before_commit=kill@{nth}", size=60, streams=1, ack_early=True)
        told = await witness.judge()
        if told:
            break
    assert any("chunks" in problem for problem in told)
