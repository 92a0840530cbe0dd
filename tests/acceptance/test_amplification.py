"""Saving costs what the text costs, however long the reply gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c

MEASURED = 500


async def bytes_per_chunk(path: Path, chunks: int) -> float:
    """Bytes written to the WAL for each of the last 500 four-character chunks of a reply, one chunk a commit."""
    store = await open_sqlite(path, SqliteOptions(checkpoints=False))
    try:
        opened = await (await Scribe.create(store)).prompt("go")
        recorder = opened.recorder()
        wal = path.with_name(path.name + "-wal")
        recorder.write(c.TextStart(id="t"))
        # What comes before only has to be there: ten chunks a commit.
        for number in range(chunks - MEASURED):
            recorder.write(c.TextDelta(id="t", delta="word"))
            if number % 10 == 9:
                await recorder.flush()
        await recorder.flush()
        before = wal.stat().st_size
        for _ in range(MEASURED):
            recorder.write(c.TextDelta(id="t", delta="word"))
            await recorder.flush()
        written = wal.stat().st_size - before
        recorder.write(c.TextEnd(id="t"))
        await recorder.close(*opened.settling())
    finally:
        await store.close()
    return written / MEASURED


@pytest.mark.rule("SV-4")
@pytest.mark.slow
async def test_bytes_written_per_chunk_do_not_grow_with_the_reply(tmp_path: Path, record_property: Any) -> None:
    """The last of 50,000 chunks cost at most 1.2 times what the first 500 do; the benchmarks count them all."""
    costs = {n: await bytes_per_chunk(tmp_path / f"{n}.db", n) for n in (500, 5_000, 50_000)}
    shown = ", ".join(f"at {n:,}: {cost:,.0f}" for n, cost in costs.items())
    record_property("figure", f"bytes to the WAL per chunk, one chunk a commit: {shown}")
    assert costs[50_000] <= 1.2 * costs[500]
