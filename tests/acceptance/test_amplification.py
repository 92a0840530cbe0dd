"""Saving costs what the text costs, however long the reply gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c


async def bytes_per_chunk(path: Path, chunks: int) -> float:
    """Bytes written to the WAL for each four-character chunk of a reply, one chunk a commit."""
    store = await open_sqlite(path, SqliteOptions(checkpoints=False))
    try:
        opened = await (await Scribe.create(store)).prompt("go")
        recorder = opened.recorder()
        wal = path.with_name(path.name + "-wal")
        before = wal.stat().st_size
        recorder.write(c.TextStart(id="t"))
        for _ in range(chunks):
            recorder.write(c.TextDelta(id="t", delta="word"))
            await recorder.flush()
        recorder.write(c.TextEnd(id="t"))
        await recorder.close(*opened.settling())
        written = wal.stat().st_size - before
    finally:
        await store.close()
    return written / chunks


@pytest.mark.rule("SV-4")
@pytest.mark.slow
async def test_bytes_written_per_chunk_do_not_grow_with_the_reply(tmp_path: Path, record_property: Any) -> None:
    """50,000 chunks cost at most 1.2 times per chunk what 500 do."""
    costs = {n: await bytes_per_chunk(tmp_path / f"{n}.db", n) for n in (500, 5_000, 50_000)}
    shown = ", ".join(f"{n:,} chunks: {cost:,.0f}" for n, cost in costs.items())
    record_property("figure", f"bytes to the WAL per chunk, one chunk a commit: {shown}")
    assert costs[50_000] <= 1.2 * costs[500]
