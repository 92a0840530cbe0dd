"""How far a reader of the three tables alone is behind a viewer (issue 31; 002:107-132)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from clew.config import SavePolicy
from clew.store.sql.sqlite.opening import open_sqlite
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c

_STEP_MS = 10


async def worst_lag(path: Path, policy: SavePolicy | None, delta: str, count: int) -> int:
    """How many milliseconds of an answer that was shown were missing in ``chat_parts``, at worst."""
    clock = FakeClock()
    store = await open_sqlite(path)
    try:
        scribe = await Scribe.create(store, clock=clock)
        opened = await scribe.prompt("go")
        recorder = opened.recorder(policy=policy)
        recorder.write(c.TextStart(id="t"))
        worst = 0
        with closing(sqlite3.connect(path)) as reader:
            query = "SELECT data_json FROM chat_parts WHERE message_id = ? AND type = 'text'"
            for n in range(1, count + 1):
                clock.advance(_STEP_MS)
                recorder.write(c.TextDelta(id="t", delta=delta))
                await recorder.flush()
                row = reader.execute(query, (recorder.message.id,)).fetchone()
                read = len(json.loads(row[0])["text"]) // len(delta) if row else 0
                worst = max(worst, (n - read) * _STEP_MS)
        await recorder.close(*opened.settling())
    finally:
        await store.close()
    return worst


@pytest.mark.rule("SV-3")
@pytest.mark.parametrize("lag_ms", [50, 250, 1_000])
async def test_a_plain_reader_is_as_far_behind_as_is_configured(tmp_path: Path, lag_ms: int) -> None:
    """002:107-132 - of a short answer it sees every chunk within that time; by default within 250 ms."""
    policy = None if lag_ms == 250 else SavePolicy(parts_lag_ms=lag_ms)
    assert await worst_lag(tmp_path / "store.db", policy, "ab ", 150) < lag_ms + _STEP_MS


async def test_of_a_long_answer_it_is_behind_in_proportion(tmp_path: Path) -> None:
    """Each save of a part writes all of it: at 40,000 characters after six tenths of a second at most."""
    assert await worst_lag(tmp_path / "store.db", SavePolicy(parts_lag_ms=50), "w" * 400, 100) <= 620
