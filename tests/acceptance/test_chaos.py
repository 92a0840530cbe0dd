"""A short share of the chaos campaign; `make chaos` runs it for as long as one likes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rig.budget import Budget
from tests.rig.chaos import figure, run_in
from tests.rig.chaos_world import Shape

pytestmark = [pytest.mark.slow, pytest.mark.kill, pytest.mark.service]


@pytest.mark.rule("RP-1", "RP-2", "RP-3", "RP-4", "RP-5")
async def test_replicas_of_which_one_freezes_and_that_become_the_next_version_lose_nothing(
    record_property: Any,
) -> None:
    """The sessions of the frozen one are free within twice the lease, and nothing that it writes when it wakes up is
    taken. The next version adds a column to every table; in the end one replica is of this version again, beside two
    of the next."""
    shape = Shape(sessions=4, lease_s=5.0, words=6, think_s=1.5, calm_s=1.0, outlasts=1.3)
    outcome = await run_in(shape, Budget(2, seed=1), faults=("upgraded", "zombie"))
    assert outcome.broken == []
    record_property("figure", figure(outcome.counts))


@pytest.mark.rule("RP-1")
async def test_replicas_without_a_fence_are_found_out() -> None:
    """The control: nothing stands between a replica that wakes up and what it no longer has. The judge minds."""
    # It sleeps until its sessions are settled by the other for sure, however busy the machine is.
    shape = Shape(sessions=6, replicas=2, lease_s=1.5, words=100, think_s=1.0, outlasts=2.5, fencing=False)
    found: list[str] = []
    for seed in (1, 6, 9, 10):
        # In each it sleeps for so long. Whether it wakes up in the middle of a sentence is a matter of chance.
        outcome = await run_in(shape, Budget(1, seed=seed), faults=("zombie",))
        found = [one for one in outcome.broken if "changed afterwards" in one or "are stored" in one]
        if found:
            break
    assert found
