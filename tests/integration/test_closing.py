"""The end of an engine: whatever its runs still do with the store comes before the store is closed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import Config
from clew.testing.scripted import FakeProviders, ScriptedModel, say


async def test_a_run_that_has_just_settled_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its outcome is known, and it still looks whether somebody waits in the queue."""
    providers = FakeProviders(ScriptedModel([say("done")]))
    looking: list[str] = []
    looked: list[str] = []
    async with clew.open(f"json:{tmp_path}/store", config=Config(), providers=providers) as engine:
        load_queue = engine.store.load_queue

        async def late(session_id: str) -> Any:
            looking.append(session_id)
            for _ in range(50):
                await asyncio.sleep(0)
            looked.append(session_id)
            return await load_queue(session_id)

        session = await engine.create_session()
        monkeypatch.setattr(engine.store, "load_queue", late)
        submission = await engine.submit(session.id, "hello")
        await submission.wait()
        while len(looking) == len(looked):  # noqa: ASYNC110  # it is left in the middle of a look
            await asyncio.sleep(0)
        begun = len(looked)
    assert (len(looked), looked) == (begun + 1, looking)
    assert [one.message for one in caplog.records if one.levelno >= logging.ERROR] == []
