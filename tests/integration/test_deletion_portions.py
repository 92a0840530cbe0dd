"""How a SQLite store deletes a session: a portion at a time, as one unit, and nothing of it goes into another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.store.sql.sqlite.connection import SqliteStatements
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.unit import DeleteSession, InsertMessage
from clew.testing.scribe import Scribe
from clew.transcript.message import MessageRow, PartRow


async def test_a_long_session_is_deleted_in_portions_and_puts_nothing_aside_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a statement changes is kept until it ends: in memory, since a file elsewhere would hold what is deleted."""
    ran: list[tuple[int, int]] = []
    run = SqliteStatements.run

    def noted(self: SqliteStatements, name: str, params: dict[str, object]) -> int:
        changed = run(self, name, params)
        if name == "delete_parts_of_session":
            [scratch] = self._connection.execute("PRAGMA temp_store").fetchone()
            ran.append((changed, scratch))
        return changed

    monkeypatch.setattr(SqliteStatements, "run", noted)
    store = await open_sqlite(tmp_path / "clew.db")
    try:
        gone, stays = await Scribe.create(store), await Scribe.create(store)
        for scribe in (gone, stays):
            parts = [PartRow(scribe.mint.part(), n, {"type": "text", "text": "a"}, 1, 1) for n in range(1_200)]
            row = MessageRow(scribe.mint.message(), scribe.session_id, "user", 1, 1, {}, tuple(parts))
            await scribe.commit(InsertMessage(row))
        await gone.commit(DeleteSession())
        assert ran == [(500, 2), (500, 2), (200, 2)]
        assert await store.session_ids() == (stays.session_id,)
        assert [len(row.parts) for row in await store.load_messages(stays.session_id)] == [1_200]
    finally:
        await store.close()
