"""The scenarios of the run once more, on both file stores: what a person sees does not depend on where it is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.store.files import folder
from clew.testing.scenario import Scenario
from clew.testing.scripted import FakeProviders, ScriptedModel

from .conftest import Open
from .test_scenarios import *  # noqa: F403
from .test_scenarios_asking import *  # noqa: F403
from .test_scenarios_ends import *  # noqa: F403

pytestmark = [pytest.mark.slow, pytest.mark.rule("FS-4")]


@pytest.fixture(params=["jsonl", "json"])
def open_scenario(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open a scenario on a file store of this test; opening it again is a restart."""
    monkeypatch.setattr(folder, "_sync", lambda fd: None)

    @asynccontextmanager
    async def opened(script: Any = (), **options: Any) -> AsyncIterator[Scenario]:
        model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
        url = options.pop("url", f"{request.param}:{tmp_path}/store")
        async with clew.open(url, config=clew.Config(), providers=FakeProviders(model), **options) as engine:
            yield Scenario(engine, model, tmp_path)

    return opened
