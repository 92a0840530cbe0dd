"""A database of another program that uses names of clew's, for tables or for columns (issue 31; ST-16)."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import StoreUnavailable
from clew.session.history.check import check
from clew.store.sql.sqlite.connection import QUERIES, connect
from clew.store.sql.sqlite.migrate import MIGRATIONS
from clew.store.sql.sqlite.names import MADE
from clew.store.sql.statements import read_sql
from tests.integration.command_line import Run
from tests.integration.command_line import run as run
from tests.integration.test_other_programs import ask, opened, said, told
from tests.integration.test_other_programs_versions import content
from tests.rig.program_002 import SCHEMA, Program002, make_plain

pytestmark = pytest.mark.rule("ST-16")

_SEARCH = ("search_texts", "search_index", "search_index_data", "search_index_idx", "search_index_docsize")
OWN = sorted({*MADE.findall(read_sql("sqlite/schema.sql")), *_SEARCH} - {"clew_schema"})
OWN_TABLES = [name for name in OWN if not name.startswith("chat_") or name.startswith("chat_turns")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


def take_names(path: Path, names: list[str]) -> None:
    """Another program's tables of these names, each with a row."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for name in names:
            connection.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, theirs TEXT)")
            connection.execute(f"INSERT INTO {name} VALUES (1, ?)", (name,))


def their_rows(path: Path, names: list[str]) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(f"SELECT * FROM {name}").fetchall() for name in names]


async def use(path: Path, target: Path) -> None:
    """Everything that reads or writes tables of clew's own."""
    with closing(Program002(path)) as program:
        theirs = program.open_session("theirs")
        program.say(theirs, "hello")
        program.answer(theirs, "ariadne")
        async with opened(path, config=clew.Config(event_log=True)) as engine:
            await ask(engine, theirs, "thread")
            await ask(engine, theirs, "wrong")
            assert (await engine.search("ariadne", wait=True)).total == 1
            wrong = (await engine.messages(theirs))[-2].id
            await engine.rewind(theirs, wrong)
            branch = await engine.branch(theirs, (await engine.messages(theirs))[0].id)
            await engine.rename_session(branch.id, "a branch")
            await engine.schedules.add("* * * * *", "x", routing=clew.Routing(session_id=branch.id))
            assert [one.title for one in (await engine.list_sessions()).sessions] == ["a branch", "hello"]
            await engine.backup(target.with_name("backup.db"))
            await engine.write_ledger(target.with_name("ledger.db"))
            rebuilt = await engine.rebuild(target)
            assert (rebuilt.differences, rebuilt.sessions) == ((), 2)
            assert await check(engine.store) == []
            await engine.delete_session(branch.id)
            assert await told(engine, theirs) == said(program, theirs)
        async with opened(path, read_only=True) as engine:
            assert len(await engine.messages(theirs)) == 5
            assert (await engine.search("ariadne", wait=True)).total == 1
        async with opened(target.with_name("backup.db")) as engine:
            assert len((await engine.list_sessions()).sessions) == 2
            assert await check(engine.store) == []


@pytest.mark.parametrize("names", [["event_log", "blobs", "turns"], ["search_index"], OWN_TABLES], ids=len)
async def test_a_table_whose_name_clew_uses_does_not_stop_the_file_from_opening(path: Path, names: list[str]) -> None:
    """clew's own then has a prefix, whatever is done with the store; the other program's rows stay."""
    make_plain(path)
    take_names(path, names)
    before = their_rows(path, names)
    await use(path, path.with_name("rebuilt.db"))
    assert their_rows(path, names) == before
    async with opened(path) as engine:
        assert await check(engine.store) == []
        await engine.store.rebuild_search()
    assert their_rows(path, names) == before


def test_the_command_line_works_on_such_a_file(path: Path, run: Run, tmp_path: Path) -> None:
    """Listing, converting, checking and the ledger, over the command line."""
    make_plain(path)
    take_names(path, OWN_TABLES)
    with closing(Program002(path)) as program:
        program.say(program.open_session("theirs"), "hello")
    store = ("--store", f"sqlite:///{path}")
    assert [row["id"] for row in json.loads(run("ls", "--json", *store)[1])["sessions"]] == ["theirs"]
    assert run("check", *store)[0] == 0
    assert run("convert", f"sqlite:///{path}", f"jsonl:{tmp_path}/files")[0] == 0
    assert run("ledger", str(tmp_path / "ledger.db"), *store)[0] == 0
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        assert ledger.execute("SELECT text FROM messages").fetchall() == [("hello",)]


async def test_an_index_of_the_same_name_but_other_columns_is_left_alone(path: Path) -> None:
    """The lists of clew name their indexes, so it makes its own; one that is the same is shared."""
    make_plain(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE INDEX chat_sessions_listed ON chat_sessions (agent)")
        connection.execute('CREATE INDEX IF NOT EXISTS "chat_sessions_by_parent" ON chat_sessions(parent_id)')
    async with opened(path) as engine:
        await engine.create_session()
        assert len((await engine.list_sessions()).sessions) == 1
        assert await check(engine.store) == []
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT name FROM sqlite_master WHERE name LIKE 'clew_chat%'"
        assert connection.execute(query).fetchall() == [("clew_chat_sessions_listed",)]


async def test_a_migration_takes_a_prefix_where_a_name_was_taken_meanwhile(path: Path) -> None:
    """A file of an older clew, in which another program has made a table that a newer clew wants to make."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for name in MIGRATIONS[:12]:
            connection.executescript(read_sql(f"sqlite/migrations/{name}"))
        connection.executescript("PRAGMA application_id = 0x636C6577; PRAGMA user_version = 12;")
    names = ["adopted_messages", "replicas", "chat_parts_files"]
    take_names(path, names)
    before = their_rows(path, names)
    await use(path, path.with_name("rebuilt.db"))
    assert their_rows(path, names) == before


async def test_a_name_that_is_taken_twice_is_refused_and_nothing_is_changed(path: Path) -> None:
    make_plain(path)
    take_names(path, ["blobs", "clew_blobs"])
    before = content(path)
    with pytest.raises(StoreUnavailable, match="clew needs the name clew_blobs for itself"):
        async with opened(path):
            raise AssertionError("it was opened")
    assert content(path) == before


async def test_columns_with_names_of_clews_columns_confuse_no_statement(path: Path) -> None:
    """002:146-148 - every statement of clew's works with any column of any table of its own added to the three."""
    async with clew.open(f"sqlite:///{path}", config=clew.Config()) as engine:
        await engine.store.rebuild_search()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {row[1] for table in tables for row in connection.execute(f"PRAGMA table_info({table})")}
        for table in ("chat_sessions", "chat_messages", "chat_parts"):
            has = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for column in sorted(columns - has - {"title", "hidden_at", "workspace_id"}):
                connection.execute(f'ALTER TABLE {table} ADD COLUMN "{column}"')
    failed = {}
    with closing(connect(path, writer=True)) as connection:
        for name in ("make_copied", "make_copied_turns"):
            connection.execute(QUERIES[name])
        for name, statement in QUERIES.items():
            try:
                connection.execute(f"EXPLAIN {statement}", dict.fromkeys(_parameters(statement)))
            except sqlite3.OperationalError as error:
                if "already exists" not in str(error):
                    failed[name] = str(error)
            except sqlite3.ProgrammingError:
                pass  # it has a parameter without a name
    assert failed == {}
    async with opened(path) as engine:
        session_id = (await engine.create_session(title="one")).id
        await ask(engine, session_id, "hello")
        await engine.branch(session_id, (await engine.messages(session_id))[0].id)
        assert await check(engine.store) == []


def _parameters(statement: str) -> list[str]:
    return re.findall(r":(\w+)", statement)


THEIRS = {
    "in capitals": (
        "CREATE TABLE Blobs (a)",
        "CREATE TABLE SEARCH_TEXTS (a)",
        "CREATE INDEX CHAT_SESSIONS_LISTED ON chat_parts (type)",
    ),
    "prefixed only": (
        "CREATE TABLE clew_blobs (a)",
        "CREATE TABLE clew_search_index (a)",
        "CREATE VIEW clew_ledger_turns AS SELECT 1",
        "CREATE INDEX Clew_chat_sessions_listed ON chat_sessions (agent)",
    ),
}


@pytest.mark.parametrize("theirs", list(THEIRS.values()), ids=list(THEIRS))
async def test_names_in_other_letters_or_with_the_prefix_are_theirs(path: Path, theirs: tuple[str, ...]) -> None:
    """SQLite compares names without case, and a name with clew's prefix is not clew's for that."""
    make_plain(path)
    with closing(sqlite3.connect(path)) as connection:
        for statement in theirs:
            connection.execute(statement)
    tables = [statement.split()[2] for statement in theirs if "TABLE" in statement]
    for text in ("first", "second"):
        async with opened(path, config=clew.Config(event_log=True)) as engine:
            session_id = (await engine.create_session()).id
            file = {
                "type": "file",
                "mediaType": "text/plain",
                "filename": "a",
                "url": "data:text/plain;base64,aGVsbG8=",
            }
            await (await engine.submit(session_id, [file, {"type": "text", "text": text}])).wait()
            assert (await engine.search(text, wait=True)).total > 0
            assert await check(engine.store) == []
    assert their_rows(path, tables) == [[] for _ in tables]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("CREATE TABLE clew_schema (theirs)", "a table clew_schema of another program"),
        (
            SCHEMA.replace("updated_at INTEGER NOT NULL\n)", "updated_at INTEGER NOT NULL\n) WITHOUT ROWID"),
            "WITHOUT ROWID",
        ),
    ],
    ids=["clew_schema", "without rowid"],
)
async def test_a_file_that_clew_cannot_work_in_is_refused_before_anything_changes(
    path: Path, script: str, why: str
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    if "chat_sessions" not in script:
        make_plain(path)
    before = content(path)
    with pytest.raises(StoreUnavailable, match=why):
        async with opened(path):
            raise AssertionError("it was opened")
    assert content(path) == before
