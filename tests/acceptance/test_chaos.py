"""A short share of the chaos campaign; `make chaos` runs it for as long as one likes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rig.budget import Budget
from tests.rig.chaos import figure, run_in
from tests.rig.chaos_world import Shape

pytestmark = [pytest.mark.slow, pytest.mark.kill, pytest.mark.service]


@pytest.mark.rule("RP-1", "RP-2", "RP-3", "RP-4")
async def test_three_replicas_of_which_one_freezes_and_wakes_up_lose_nothing(record_property: Any) -> None:
    """Its sessions are free within twice the lease, and nothing that it writes afterwards is taken."""
    shape = Shape(sessions=8, lease_s=6.0, words=20, think_s=1.5, outlasts=1.5)
    outcome = await run_in(shape, Budget(1, seed=1), faults=("zombie",))
    assert outcome.broken == []
    record_property("figure", figure(outcome.counts))


@pytest.mark.rule("RP-5")
async def test_replicas_become_the_next_version_one_by_one_while_they_are_used(record_property: Any) -> None:
    """It adds a column to every table there is. In the end one is of this version again, beside two of the next."""
    shape = Shape(sessions=6, valkey=False, lease_s=6.0, words=15, think_s=1.0, outlasts=0.4)
    outcome = await run_in(shape, Budget(1, seed=1), faults=("upgraded",))
    assert outcome.broken == []
    record_property("figure", figure(outcome.counts))


@pytest.mark.rule("RP-1")
async def test_replicas_without_a_fence_are_found_out() -> None:
    """The control: nothing stands between a replica that wakes up and what it no longer has. The judge minds."""
    shape = Shape(sessions=6, lease_s=1.5, words=100, think_s=2.0, outlasts=1.6, fencing=False)
    outcome = await run_in(shape, Budget(1, seed=1), faults=("zombie",))
    assert [one for one in outcome.broken if "changed afterwards" in one or "are stored" in one]
