"""A short share of the chaos campaign; `make chaos` runs it for as long as one likes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rig.budget import Budget
from tests.rig.chaos import figure, run_in
from tests.rig.chaos_world import Shape

pytestmark = [pytest.mark.slow, pytest.mark.kill, pytest.mark.service]


async def test_one_server_that_dies_and_freezes_loses_nothing_it_acknowledged(record_property: Any) -> None:
    """On a file, with the same people and the same judge as a cluster."""
    outcome = await run_in(Shape(sessions=6, postgres=False, lease_s=1.0, words=12, think_s=1.0), Budget(2))
    assert outcome.broken == []
    record_property("figure", figure(outcome.counts))
