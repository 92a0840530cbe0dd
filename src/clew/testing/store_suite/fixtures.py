"""Fixtures of the suite, except ``store``, which the test file of a store defines."""

from __future__ import annotations

import pytest

from clew.ids import Mint
from clew.store.base import Store
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe

__all__ = ["clock", "mint", "other", "scribe"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def mint(clock: FakeClock) -> Mint:
    return Mint(clock)


@pytest.fixture
async def scribe(store: Store, clock: FakeClock, mint: Mint) -> Scribe:
    return await Scribe.create(store, clock=clock, mint=mint)


@pytest.fixture
async def other(scribe: Scribe) -> Scribe:
    """Create a second session after the first."""
    return await Scribe.create(scribe.store, clock=scribe.clock, mint=scribe.mint)
