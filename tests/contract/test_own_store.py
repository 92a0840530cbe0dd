"""The store of ``examples/`` keeps every promise that clew's own stores keep, by the suite that ships for that."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import clew
from clew.store.unit import PatchSession
from clew.testing.scribe import Scribe
from clew.testing.store_suite import *
from examples.own_store import TrailStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[TrailStore]:
    store = TrailStore(tmp_path / "trail.jsonl")
    yield store
    await store.close()


async def test_an_engine_works_on_a_store_of_its_hosts_own(tmp_path: Path) -> None:
    """Given as it is, closed with the engine, and the trail has what was written in the order in which it was."""
    trail = tmp_path / "trail.jsonl"
    own = TrailStore(trail)
    async with clew.open(own) as engine:
        session = await engine.create_session(model="demo/echo")
        await (await engine.submit(session.id, "Walk softly.")).wait()
        assert (await engine.messages(session.id))[-1].texts == ["Walk softly."]
        assert engine.store.url == "trail:"
    told = [json.loads(line) for line in trail.read_text().splitlines()]
    assert told[0] == {"at": told[0]["at"], "session": session.id, "writes": ["InsertSession"]}
    assert {one["session"] for one in told} == {session.id}
    with pytest.raises(clew.StoreClosed):
        await own.find_session(session.id)


async def test_a_unit_whose_trail_cannot_be_written_is_not_stored(tmp_path: Path) -> None:
    """It fails with the reason, and what was there before is as it was."""
    own = TrailStore(tmp_path / "trail.jsonl")
    scribe = await Scribe.create(own)
    os.close(own._trail)
    with pytest.raises(OSError, match="Bad file descriptor"):
        await scribe.commit(PatchSession({"title": "lost"}))
    session = await own.find_session(scribe.session_id)
    assert session is not None
    assert session.title is None
    own._trail = -1
    await own.close()
