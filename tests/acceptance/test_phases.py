"""Abort, kill and a provider's death in every phase, then going on in any way: a true bill, and nothing runs twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.acceptance.phases import DEATHS, HITS, NEXTS, PHASES, Hit, Next, Phase, World
from tests.integration.wire_cases import WIRES, Break, Wire
from tests.rounds import rounds

pytestmark = [pytest.mark.slow, pytest.mark.rule("US-1", "US-5", "RN-8")]


@pytest.fixture(autouse=True, scope="module")
def no_waiting() -> Iterator[None]:
    """A try that failed is made again at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clew.providers.retry._FIRST_MS", 1)
        yield


ACTS = st.tuples(
    st.sampled_from(PHASES),
    st.sampled_from(HITS),
    st.sampled_from(DEATHS),
    st.lists(st.sampled_from(NEXTS), min_size=1, max_size=2),
)


@settings(max_examples=rounds(10))
@given(wire=st.sampled_from(WIRES), acts=st.lists(ACTS, min_size=1, max_size=3))
async def test_a_session_that_is_hit_in_any_phase_goes_on_with_a_true_bill(
    wire: Wire, acts: list[tuple[Phase, Hit, Break, list[Next]]]
) -> None:
    """Spend is what the wire had said and a marked estimate of the rest; no provider would refuse what is sent next."""
    with tempfile.TemporaryDirectory() as folder:
        async with World(Path(folder), wire) as world:
            for phase, hit, how, nexts in acts:
                await world.live_through(phase, hit, how, nexts)
