"""What a statement of the writer puts aside while it runs: in memory, but for the deletion of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.store.sql.sqlite import writer
from clew.store.sql.sqlite.connection import Scratch, keep_scratch
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.unit import DeleteSession, PatchSession
from clew.testing.scribe import Scribe


async def test_a_deletion_puts_what_it_takes_away_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is as large as the session; everything else is small, and quicker in memory."""
    told: list[str] = []

    def noted(connection: object, where: Scratch) -> None:
        told.append(where)
        keep_scratch(connection, where)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "keep_scratch", noted)
    store = await open_sqlite(tmp_path / "clew.db")
    try:
        gone, stays = await Scribe.create(store), await Scribe.create(store)
        for scribe in (gone, stays):
            await scribe.commit(PatchSession({"title": "one"}))
        await gone.commit(PatchSession({"title": "two"}), DeleteSession())
        assert told == ["MEMORY", "FILE"]
        await stays.commit(PatchSession({"title": "two"}))
        await stays.commit(PatchSession({"title": "three"}))
        assert told == ["MEMORY", "FILE", "MEMORY"]
    finally:
        await store.close()
