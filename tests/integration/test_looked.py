"""Long sessions that held nothing of others' when a store was closed are not gone through when it is opened."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clew.store.sql.sqlite.adoption_notes import looked_path
from clew.store.sql.sqlite.connection import SqliteStatements
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.unit import InsertSession, Refused, Unit
from clew.testing.chunks import text
from clew.testing.scribe import MODEL, Scribe
from clew.transcript.session import Session
from tests.rig.program_002 import Program002
from tests.rounds import rounds

MANY = 6


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clew.store.sql.sqlite.adoption_notes.MANY", MANY)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a session was gone through, by whoever was asked for it."""
    counted: Counter[str] = Counter()
    first = SqliteStatements.first

    def counting(self: Any, name: str, params: Any) -> Any:
        counted[params.get("id", "")] += name == "loose_messages"
        return first(self, name, params)

    monkeypatch.setattr(SqliteStatements, "first", counting)
    return counted


async def make(path: Path, turns: int) -> str:
    """A closed store with a session of so many turns; its id."""
    store = await open_sqlite(path)
    scribe = await Scribe.create(store)
    for n in range(turns):
        await scribe.turn(f"prompt {n}", text("yes"))
    await store.find_view(scribe.session_id)
    await store.close()
    return scribe.session_id


async def messages(path: Path, session_id: str) -> list[str]:
    """What its line holds once the store was opened, and closed again."""
    store = await open_sqlite(path)
    try:
        return await shown(store, session_id)
    finally:
        await store.close()


async def shown(store: SqliteStore, session_id: str) -> list[str]:
    view = await store.find_view(session_id, keep_damaged=True)
    return [] if view is None else ["\n".join(row.texts) for entry in view.turns for row in entry.messages]


@pytest.mark.rule("ST-15")
async def test_a_session_that_is_as_it_was_noted_is_not_gone_through(tmp_path: Path, walks: Counter[str]) -> None:
    """A short one is, which takes no time; and one that clew itself went on with is noted anew."""
    path = tmp_path / "store.db"
    long = await make(path, MANY)
    assert looked_path(path).stat().st_mode & 0o777 == 0o600
    walks.clear()
    for _ in range(3):
        assert len(await messages(path, long)) == 2 * MANY
    assert walks[long] == 0
    short = await make(tmp_path / "short.db", 1)
    await messages(tmp_path / "short.db", short)
    assert (walks[short] >= 1, looked_path(tmp_path / "short.db").exists()) == (True, False)


@pytest.mark.rule("ST-13")
async def test_a_session_begun_here_is_gone_through_only_once_another_program_has_written(
    tmp_path: Path, walks: Counter[str]
) -> None:
    """Until then nobody can have put anything into it. A unit that is refused begins none."""
    path = tmp_path / "store.db"
    store = await open_sqlite(path)
    try:
        scribe = await Scribe.create(store)
        await scribe.turn("prompt", text("yes"))
        assert await shown(store, scribe.session_id) == ["prompt", "yes"]
        assert walks[scribe.session_id] == 0
        with closing(Program002(path)) as program:
            program.say(scribe.session_id, "from elsewhere")
        begun = InsertSession(Session(id=scribe.session_id, agent="a", model=MODEL, created_at=1, updated_at=1))
        assert await store.commit(Unit(scribe.session_id, (begun,))) == Refused("session_exists")
        assert await shown(store, scribe.session_id) == ["prompt", "yes", "from elsewhere"]
    finally:
        await store.close()


@pytest.mark.rule("ST-2")
async def test_what_others_wrote_while_nobody_had_it_open_is_taken_in_whatever_was_noted(tmp_path: Path) -> None:
    """One message more, and one in the place of another that they took away, at the same time."""
    path = tmp_path / "store.db"
    session_id = await make(path, MANY)
    other = Program002(path)
    other.say(session_id, "from elsewhere")
    other.close()
    assert (await messages(path, session_id))[-1] == "from elsewhere"
    with closing(sqlite3.connect(path)) as db, db:
        (held,) = db.execute("SELECT max(created_at) FROM chat_messages").fetchone()
        db.execute("DELETE FROM chat_messages WHERE created_at = ?", [held])
    other = Program002(path)
    id_ = other.say(session_id, "instead")
    other.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE chat_messages SET created_at = ?, updated_at = ? WHERE id = ?", [held + 1, held + 1, id_])
    assert (await messages(path, session_id))[-1] == "instead"


@pytest.mark.parametrize(
    "notes", [b"", b"{", b'{"store_id": "x", "sessions": {}}', b'{"store_id": 1}', b"\xff" * 70_000]
)
async def test_notes_that_do_not_read_or_are_of_another_store_say_nothing(
    tmp_path: Path, walks: Counter[str], notes: bytes
) -> None:
    path = tmp_path / "store.db"
    session_id = await make(path, MANY)
    looked_path(path).write_bytes(notes)
    walks.clear()
    assert len(await messages(path, session_id)) == 2 * MANY
    assert walks[session_id] == 1


@pytest.mark.slow
async def test_under_random_histories_of_two_programs_the_notes_hide_nothing(tmp_path: Path) -> None:
    """Read with the notes and without them, after each of them wrote what it liked."""
    path, chance = tmp_path / "store.db", random.Random(5)
    session_id = await make(path, MANY)
    for n in range(rounds(12)):
        if chance.random() < 0.6:
            other = Program002(path)
            for _ in range(chance.randint(1, 2)):
                other.say(session_id, f"other {n}")
            other.close()
        if chance.random() < 0.3:
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("DELETE FROM chat_messages WHERE rowid = (SELECT max(rowid) FROM chat_messages)")
        if chance.random() < 0.2:
            with closing(sqlite3.connect(path)) as db:
                db.execute("VACUUM")
        copy = tmp_path / f"copy-{n}.db"
        await asyncio.to_thread(copy.write_bytes, path.read_bytes())
        assert await messages(path, session_id) == await messages(copy, session_id)
