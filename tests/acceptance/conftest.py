"""An engine with a scripted model, for scenarios that read like transcripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import ReplicaConfig
from clew.testing.scenario import Scenario
from clew.testing.scripted import FakeProviders, ScriptedModel
from tests.rounds import ON_POSTGRESQL

NOT_ON_POSTGRESQL = {
    "test_damage.py": "rows are damaged in the file itself",
    "test_ledger.py": "the views of the turn ledger are SQLite's",
    "test_rebuild.py": "no event log is kept on PostgreSQL",
    "test_stopped_words.py": "a kill is a copy of the file there",
    "test_a_damaged_turn_beside_the_line_keeps_no_call_open": "a row is damaged in the file itself",
    "test_a_queue_survives_a_restart_paused": "on a shared store whoever is there next goes on with a queue (RP-4)",
}
Open = Callable[..., AbstractAsyncContextManager[Scenario]]


@pytest.fixture
def open_scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Open a scenario on a store of this test; opening it again is a restart. ``CLEW_TEST_STORE=postgresql`` takes
    PostgreSQL where a test does not say which kind it wants."""
    usual = f"sqlite:///{tmp_path}/store.db"
    if ON_POSTGRESQL:
        for name in (request.path.name, request.function.__name__):
            if name in NOT_ON_POSTGRESQL:
                pytest.skip(NOT_ON_POSTGRESQL[name])
        usual = request.getfixturevalue("postgres_store_url")

    @asynccontextmanager
    async def opened(script: Any = (), **options: Any) -> AsyncIterator[Scenario]:
        model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
        url = options.pop("url", usual)
        # A test that moves its clock by hours lets no heartbeat come in between: the lease lasts longer than that.
        config = clew.Config(replica=ReplicaConfig(lease_s=10_000_000)) if "clock" in options else clew.Config()
        async with clew.open(url, config=config, providers=FakeProviders(model), **options) as engine:
            yield Scenario(engine, model, tmp_path)

    return opened


@pytest.fixture(params=["sqlite", "memory"])
def open_both(request: pytest.FixtureRequest, open_scenario: Open) -> Open:
    """A scenario on each store; on the one that lies in a file, opening it again is a restart."""

    def opened(script: Any = (), **options: Any) -> Any:
        return open_scenario(script, **options, **({"url": "memory:"} if request.param == "memory" else {}))

    return opened
