"""A database of another program that keeps a version of its own in it, and more tables and columns than 002 has."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from clew.errors import SchemaTooNew, StoreUnavailable
from clew.session.history.check import check
from clew.store.sql.sqlite.migrate import APPLICATION_ID, SCHEMA_VERSION
from tests.integration.command_line import Run
from tests.integration.command_line import run as run
from tests.integration.test_other_programs import ask, opened, said, told
from tests.rig.program_002 import SCHEMA, Program002, make_plain

pytestmark = pytest.mark.rule("ST-16")

_MORE = """
ALTER TABLE chat_sessions ADD COLUMN color TEXT;
ALTER TABLE chat_messages ADD COLUMN stars INTEGER NOT NULL DEFAULT 3;
ALTER TABLE chat_parts ADD COLUMN blob_ref BLOB;
CREATE TABLE schema_migrations (name TEXT PRIMARY KEY);
INSERT INTO schema_migrations VALUES ('0001_chat'), ('0002_color');
CREATE TABLE folders (id INTEGER PRIMARY KEY, session_id TEXT REFERENCES chat_sessions (id) ON DELETE CASCADE);
CREATE TRIGGER folders_follow AFTER INSERT ON chat_sessions BEGIN INSERT INTO folders (session_id) VALUES (NEW.id); END;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


def header(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as connection:
        owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return owner, version


def content(path: Path) -> bytes:
    return path.read_bytes()


def execute(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(script)


def theirs(path: Path, message_id: str) -> list[Any]:
    """What the other program keeps beyond the three tables' own columns."""
    with closing(sqlite3.connect(path)) as connection:
        return [
            connection.execute("SELECT id, color FROM chat_sessions WHERE color IS NOT NULL").fetchall(),
            connection.execute("SELECT stars FROM chat_messages WHERE id = ?", (message_id,)).fetchall(),
            connection.execute("SELECT blob_ref FROM chat_parts WHERE message_id = ?", (message_id,)).fetchall(),
            connection.execute("SELECT name FROM schema_migrations ORDER BY name").fetchall(),
        ]


@pytest.mark.parametrize("owner", [0, 0x7468656D])
@pytest.mark.parametrize("version", [0, 1, 7, SCHEMA_VERSION - 1, SCHEMA_VERSION, SCHEMA_VERSION + 1, 99, -1])
async def test_a_database_opens_whatever_its_user_version_is_and_keeps_it(path: Path, owner: int, version: int) -> None:
    """Taken in, continued and opened again; the other program finds its version, columns and tables as before."""
    make_plain(path)
    execute(path, f"{_MORE} PRAGMA application_id = {owner}; PRAGMA user_version = {version};")
    with closing(Program002(path)) as program:
        session_id = program.open_session("theirs")
        first = program.say(session_id, "hello")
        program.execute("UPDATE chat_sessions SET color = 'red'")
        program.execute("UPDATE chat_messages SET stars = 5")
        program.execute("UPDATE chat_parts SET blob_ref = x'00ff'")
        before = theirs(path, first)
        for turn in range(2):
            async with opened(path) as engine:
                await ask(engine, session_id, f"more {turn}")
                assert await told(engine, session_id) == said(program, session_id)
                assert await check(engine.store) == []
            assert (header(path), theirs(path, first)) == ((owner, version), before)
        program.say(session_id, "bye")
        async with opened(path) as engine:
            assert (await told(engine, session_id))[-1] == "user: bye"


@pytest.mark.parametrize("maker", ["clew", "the other program"])
@pytest.mark.parametrize("version", [1, 5, SCHEMA_VERSION + 1])
async def test_another_program_may_migrate_its_part_of_the_file_later(path: Path, version: int, maker: str) -> None:
    """It adds a column and numbers its version; clew neither upgrades nor refuses the file for it."""
    if maker == "the other program":
        make_plain(path)
    async with opened(path) as engine:
        session_id = (await engine.create_session()).id
        await ask(engine, session_id, "one")
    execute(path, f"{_MORE} PRAGMA user_version = {version};")
    owner = header(path)[0]
    for text in ("two", "three"):
        async with opened(path) as engine:
            await ask(engine, session_id, text)
            assert await check(engine.store) == []
        assert header(path) == (owner, version)
    async with opened(path, read_only=True) as engine:
        words = [
            f"{role}: {text}" for n in ("one", "two", "three") for role, text in (("user", n), ("assistant", f"re {n}"))
        ]
        assert await told(engine, session_id) == words


@pytest.mark.parametrize("maker", ["clew", "the other program"])
@pytest.mark.parametrize("version", [0, 3, SCHEMA_VERSION])
async def test_a_file_of_a_newer_clew_is_refused_whatever_its_user_version_is(
    path: Path, version: int, maker: str
) -> None:
    """Clew's own version decides, and the file is not changed."""
    if maker == "the other program":
        make_plain(path)
    async with opened(path) as engine:
        await engine.create_session()
    newer = f"UPDATE clew_schema SET version = {SCHEMA_VERSION + 1}; PRAGMA user_version = {version};"
    execute(path, newer + "PRAGMA wal_checkpoint(TRUNCATE);")
    before = content(path)
    for read_only in (False, True):
        with pytest.raises(SchemaTooNew, match=f"format {SCHEMA_VERSION + 1}, this one knows {SCHEMA_VERSION}"):
            async with opened(path, read_only=read_only):
                raise AssertionError("it was opened")
    assert content(path) == before


@pytest.mark.parametrize("value", [None, "'soon'", "-1"])
async def test_a_version_that_does_not_read_is_an_error_and_no_other_version(path: Path, value: str | None) -> None:
    """Nothing is migrated by guess."""
    async with opened(path) as engine:
        await engine.create_session()
    change = f"CREATE TABLE clew_schema (version); INSERT INTO clew_schema VALUES ({value});" if value else ""
    change = change or "CREATE TABLE clew_schema (version);"
    execute(path, f"DROP TABLE clew_schema; {change} PRAGMA wal_checkpoint(TRUNCATE);")
    before = content(path)
    with pytest.raises(StoreUnavailable, match="clew_schema is invalid"):
        async with opened(path):
            raise AssertionError("it was opened")
    assert content(path) == before


async def test_the_header_of_clews_own_files_says_whose_they_are(path: Path) -> None:
    """As it always did: for `file`, and for older versions of clew, which refuse what is newer."""
    async with opened(path):
        pass
    assert header(path) == (APPLICATION_ID, SCHEMA_VERSION)


@pytest.mark.parametrize("version", [7, 99])
def test_the_command_line_lists_and_shows_such_a_database(path: Path, run: Run, version: int) -> None:
    """The first command takes it in."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"{SCHEMA} PRAGMA user_version = {version};")
    with closing(Program002(path)) as program:
        session_id = program.open_session("theirs")
        program.say(session_id, "hello")
        program.answer(session_id, "there")
    code, out, err = run("ls", "--json", "--store", f"sqlite:///{path}")
    assert (code, [row["id"] for row in orjson.loads(out)["sessions"]], err) == (0, [session_id], "")
    code, out, _ = run("show", session_id, "--store", f"sqlite:///{path}")
    assert (code, "hello" in out, "there" in out) == (0, True, True)
    assert (header(path)[1], run("check", "--store", f"sqlite:///{path}")[0]) == (version, 0)
