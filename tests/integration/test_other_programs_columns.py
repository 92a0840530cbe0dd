"""Columns of another program that say what clew keeps in metadata (issue 31; ST-16; 002:13-36, 41-63)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clew.session.history.check import check
from tests.integration.command_line import Run
from tests.integration.command_line import run as run
from tests.integration.test_other_programs import ask, opened, said, told
from tests.rig.program_002 import Program002, make_plain

pytestmark = pytest.mark.rule("ST-16")

_PLAIN = """
ALTER TABLE chat_sessions ADD COLUMN title TEXT;
ALTER TABLE chat_sessions ADD COLUMN workspace_id TEXT;
ALTER TABLE chat_messages ADD COLUMN hidden_at INTEGER;
ALTER TABLE chat_messages ADD COLUMN stars INTEGER NOT NULL DEFAULT 3;
"""
_REQUIRED = """
ALTER TABLE chat_sessions ADD COLUMN title TEXT NOT NULL DEFAULT '';
ALTER TABLE chat_sessions ADD COLUMN workspace_id VARCHAR(20) NOT NULL DEFAULT '';
ALTER TABLE chat_messages ADD COLUMN hidden_at BIGINT NOT NULL DEFAULT 0;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


def make(path: Path, columns: str) -> None:
    make_plain(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(columns)


def shown(program: Program002, session_id: str) -> list[str]:
    """The conversation as a program sees it that goes by the column alone."""
    rows = program.execute(
        "SELECT m.role, p.data_json ->> '$.text' FROM chat_messages m JOIN chat_parts p ON p.message_id = m.id"
        " WHERE m.session_id = ? AND ifnull(m.hidden_at, 0) = 0 AND p.type = 'text' ORDER BY m.created_at, p.\"index\"",
        session_id,
    )
    return [f"{role}: {text}" for role, text in rows]


def columns_of(program: Program002, session_id: str) -> tuple[Any, ...]:
    return program.execute("SELECT title, workspace_id FROM chat_sessions WHERE id = ?", session_id)[0]


@pytest.mark.parametrize("columns", [_PLAIN, _REQUIRED], ids=["nullable", "required"])
async def test_titles_and_hidden_messages_are_kept_in_step_both_ways(path: Path, columns: str) -> None:
    """Before clew opens the file, while it is open, and while it is not."""
    make(path, columns)
    none = "" if columns is _REQUIRED else None
    with closing(Program002(path)) as program:
        session_id = program.open_session("theirs", title="old")
        other = program.open_session("other", title="from metadata")
        program.execute("UPDATE chat_sessions SET title = 'Boats', workspace_id = 'w-1' WHERE id = 'theirs'")
        program.say(session_id, "hello")
        program.answer(session_id, "there")
        wrong = program.say(session_id, "wrong")
        program.execute("UPDATE chat_messages SET hidden_at = 5 WHERE id = ?", wrong)
        async with opened(path) as engine:
            session = await engine.get_session(session_id)
            assert (session.title, session.metadata["workspaceId"]) == ("Boats", "w-1")
            assert columns_of(program, other) == ("from metadata", none)
            assert await told(engine, session_id) == ["user: hello", "assistant: there"]
            await ask(engine, session_id, "more")
            await engine.rename_session(session_id, "Ships")
            assert columns_of(program, session_id) == ("Ships", "w-1")
            more = (await engine.messages(session_id))[-2].id
            await engine.rewind(session_id, more)
            assert shown(program, session_id) == await told(engine, session_id) == said(program, session_id)
            before = await told(engine, session_id)
            none_hidden = 0 if columns is _REQUIRED else None
            program.execute("UPDATE chat_messages SET hidden_at = ? WHERE id <> ?", none_hidden, wrong)
            shown_again = await told(engine, session_id)
            assert (shown_again[:-1], shown_again[-1]) == (before, "assistant: re more")
            assert shown(program, session_id) == shown_again == said(program, session_id)
            assert await check(engine.store) == []
            program.execute("UPDATE chat_sessions SET title = 'Sails' WHERE id = ?", session_id)
            assert (await engine.get_session(session_id)).title == "Sails"
            branch = await engine.branch(session_id, more)
            assert shown(program, branch.id) == await told(engine, branch.id)
            mine = await engine.create_session(title="mine", metadata={"workspaceId": "w-2"})
            assert columns_of(program, mine.id) == ("mine", "w-2")
            await engine.rename_session(mine.id, "")
            assert columns_of(program, mine.id) == (none, "w-2")
            assert await check(engine.store) == []
        # clew is not running.
        answer = program.messages(session_id)[-1]["id"]
        program.execute("UPDATE chat_messages SET hidden_at = 9000000000000 WHERE id IN (?, ?)", more, answer)
        program.execute(
            "UPDATE chat_sessions SET title = ?, metadata_json = '{\"title\":\"x\"}' WHERE id = 'other'", "y"
        )
        third = program.open_session("third")
        program.execute("UPDATE chat_sessions SET title = 'third' WHERE id = ?", third)
        async with opened(path) as engine:
            assert await told(engine, session_id) == ["user: hello", "assistant: there"] == shown(program, session_id)
            titles = {one.id: one.title for one in (await engine.list_sessions()).sessions}
            assert (titles["other"], titles["third"], titles[session_id]) == ("y", "third", "Sails")
            assert await check(engine.store) == []
            await engine.delete_session(session_id, force=True)
        assert program.execute("SELECT count(*) FROM chat_messages WHERE session_id = ?", session_id) == [(0,)]


def test_the_command_line_shows_and_sets_the_title_of_the_column(path: Path, run: Run) -> None:
    """Where the other program adds the column later, too."""
    store = ("--store", f"sqlite:///{path}")
    make(path, "")
    with closing(Program002(path)) as program:
        session_id = program.open_session("theirs", title="one")
        program.say(session_id, "hello")
        assert run("ls", *store)[0] == 0
        program.execute("ALTER TABLE chat_sessions ADD COLUMN title TEXT")
        assert run("pin", session_id, *store)[0] == 0
        assert program.execute("SELECT title FROM chat_sessions") == [("one",)]
        program.execute("UPDATE chat_sessions SET title = 'three'")
        [row] = json.loads(run("ls", "--json", *store)[1])["sessions"]
        assert row["title"] == "three"


@pytest.mark.parametrize("type_", ["BLOB", "REAL", "JSON", "BOOLEAN"])
async def test_columns_of_another_kind_stay_as_they_are(path: Path, type_: str) -> None:
    """Nothing is guessed of a column that cannot hold the value."""
    make(path, f"ALTER TABLE chat_messages ADD COLUMN hidden_at {type_} DEFAULT 7.5;")
    with closing(Program002(path)) as program:
        session_id = program.open_session("theirs")
        first = program.say(session_id, "hello")
        async with opened(path) as engine:
            await ask(engine, session_id, "more")
            await engine.rewind(session_id, first, mode="edit")
            assert await check(engine.store) == []
        assert {row for (row,) in program.execute("SELECT hidden_at FROM chat_messages")} == {7.5}


async def test_metadata_that_does_not_read_stops_no_write(path: Path) -> None:
    """The other program may store anything there; its own columns stay writable."""
    make(path, _PLAIN)
    with closing(Program002(path)) as program:
        session_id = program.open_session("theirs")
        program.say(session_id, "hello")
        async with opened(path):
            pass
        program.execute("UPDATE chat_sessions SET metadata_json = '{'")
        program.execute("UPDATE chat_sessions SET title = 'x'")
        program.execute("UPDATE chat_messages SET metadata_json = 'no'")
        program.execute("UPDATE chat_messages SET hidden_at = 1")
        assert program.execute("SELECT title, metadata_json FROM chat_sessions") == [("x", "{")]
