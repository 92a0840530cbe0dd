"""Every store passes the same suite: each test here runs once per store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clew.ids import Mint
from clew.store.base import Store
from clew.store.memory import MemoryStore
from clew.store.sql.sqlite.store import open_sqlite
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def mint(clock: FakeClock) -> Mint:
    return Mint(clock)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, mint: Mint) -> AsyncIterator[Store]:
    store: Store
    if request.param == "memory":
        store = MemoryStore()
    else:
        store = await open_sqlite(tmp_path / "store.db", clock=clock, mint=mint)
    yield store
    await store.close()


@pytest.fixture
async def scribe(store: Store, clock: FakeClock, mint: Mint) -> Scribe:
    return await Scribe.create(store, clock=clock, mint=mint)
