"""``clew export --to 002``: a file with the format's three tables alone, which other programs open (issue 31; IO-3)."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.history.check import check
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from tests.integration.command_line import Run
from tests.integration.command_line import run as run
from tests.integration.test_other_programs import ask, opened, said, told
from tests.integration.test_schema import FOREIGN_KEYS, INDEXES, TABLES
from tests.rig.program_002 import Program002

pytestmark = pytest.mark.rule("IO-3", "ST-1")

_SECRET = "sk-ant-api03-" + "A1b2C3d4E5f6" * 7
_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def fill(store: str) -> tuple[str, str]:
    """A session with a call, a rewind, a file and a rule; and a branch of it."""
    script: list[Any] = [[call("read", {"path": "no.txt"})], say("one"), say("two"), say("three")]
    place = {"workerId": "w", "workspaceId": "s"}
    async with clew.open(store, providers=FakeProviders(ScriptedModel(script)), config=clew.Config()) as engine:
        session_id = (await engine.create_session(title="Boats", metadata=place)).id
        await ask(engine, session_id, f"look, {_SECRET}")
        await ask(engine, session_id, "wrong")
        await engine.rewind(session_id, (await engine.messages(session_id))[-2].id, mode="edit")
        file = {
            "type": "file",
            "mediaType": "image/png",
            "url": "data:image/png;base64," + base64.b64encode(_PNG).decode(),
        }
        await (await engine.submit(session_id, [{"type": "text", "text": "this"}, file])).wait()
        rules = [("ls *", "allow"), ("rm *", "deny")]
        named = [{"permission": "bash", "pattern": pattern, "action": action} for pattern, action in rules]
        await engine.set_permissions(session_id, named)
        branch = await engine.branch(session_id, (await engine.messages(session_id))[0].id)
        return session_id, branch.id


def assert_plain(path: Path) -> None:
    """Columns, types, defaults, keys and indexes of the document, WAL, and nothing else at all (002:13-79)."""
    with closing(sqlite3.connect(path)) as db:
        assert {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type <> 'index'")} == set(TABLES)
        for table, columns in TABLES.items():
            info = db.execute(f"PRAGMA table_info({table})").fetchall()
            assert {name: (kind, bool(must), default) for _, name, kind, must, default, _ in info} == columns
            keys = db.execute(f"PRAGMA foreign_key_list({table})").fetchall()
            assert {(row[3], row[2], row[4], row[6]) for row in keys} == FOREIGN_KEYS[table]
            indexes = [row for row in db.execute(f"PRAGMA index_list({table})").fetchall() if row[3] == "c"]
            named = {tuple(one[2] for one in db.execute(f"PRAGMA index_info({row[1]})")) for row in indexes}
            assert named == INDEXES[table]
        pragmas = [
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "user_version", "application_id")
        ]
        assert pragmas == ["wal", 0, 0]
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "json"])
def test_a_whole_store_is_a_file_of_the_three_tables_and_opens_again(tmp_path: Path, run: Run, kind: str) -> None:
    """Ids of the format's kind whatever the store, files inside of their messages, no secrets and no permissions."""
    store = f"sqlite:///{tmp_path}/a.db" if kind == "sqlite" else f"{kind}:{tmp_path}/a"
    session_id, branch_id = asyncio.run(fill(store))
    target = tmp_path / "plain.db"
    code, out, err = run("export", "--to", "002", str(target), "--store", store)
    assert (code, out) == (0, f"{target}\n"), err
    assert "2 sessions, 3 secrets redacted" in err or "2 sessions" in err
    assert_plain(target)
    assert _SECRET.encode() not in target.read_bytes()

    async def read() -> list[str]:
        async with clew.open(store, config=clew.Config(), read_only=True) as engine:
            return await told(engine, session_id)

    shown = asyncio.run(read())
    with closing(Program002(target)) as program:
        rows = program.execute("SELECT id, parent_id, permissions_json, total_tokens FROM chat_sessions ORDER BY id")
        ids = {id_ for id_, *_ in rows}
        assert ids == {session_id, branch_id} or kind != "sqlite"
        assert all(id_.startswith("ses_") and len(id_) == 30 for id_ in ids)
        [parent] = [one for _, one, *_ in rows if one is not None]
        [(permissions, tokens)] = [row[2:] for row in rows if row[0] == parent]
        assert parent in ids
        assert [(rule["pattern"], rule["action"]) for rule in json.loads(permissions)] == [("rm *", "deny")]
        assert tokens > 0
        conversation = said(program, parent)
        assert conversation[1:] == shown[1:]
        assert "wrong" not in str(conversation)
        parts = [part for message in program.conversation(parent) for part in message["parts"]]
        [file] = [part for part in parts if part["type"] == "file"]
        assert base64.b64decode(file["url"].partition(",")[2]) == _PNG
        shape = program.execute("SELECT DISTINCT substr(id, 1, 4), length(id) FROM chat_parts")
        assert shape == [("prt_", 30)]
        program.say(parent, "on with it")

    async def go_on() -> None:
        async with opened(target) as engine:
            assert (await told(engine, parent))[1:] == [*shown[1:], "user: on with it"]
            assert {one.title for one in (await engine.list_sessions()).sessions} >= {"Boats"}
            await (await engine.continue_turn(parent)).wait()
            assert await check(engine.store) == []

    asyncio.run(go_on())


def test_one_session_with_its_secrets(tmp_path: Path, run: Run) -> None:
    """Only where both are asked for."""
    store = f"sqlite:///{tmp_path}/a.db"
    session_id, branch_id = asyncio.run(fill(store))
    target = tmp_path / "plain.db"
    code, _, err = run("export", branch_id, "--to", "002", str(target), "--keep-secrets", "--store", store)
    assert (code, "1 session\n" in err) == (0, True), err
    assert_plain(target)
    with closing(Program002(target)) as program:
        assert program.execute("SELECT id, parent_id FROM chat_sessions") == [(branch_id, session_id)]
        assert said(program, branch_id) == [f"user: look, {_SECRET}"]


def test_nothing_is_written_over_and_nothing_half_is_left(tmp_path: Path, run: Run) -> None:
    """A file that exists stays; a session that does not exist leaves no file."""
    store = f"sqlite:///{tmp_path}/a.db"
    asyncio.run(fill(store))
    target = tmp_path / "plain.db"
    target.write_text("mine")
    code, _, err = run("export", "--to", "002", str(target), "--store", store)
    assert (code != 0, "already exists" in err, target.read_text()) == (True, True, "mine")
    code, _, err = run("export", "ses_" + "0" * 26, "--to", "002", str(tmp_path / "new.db"), "--store", store)
    assert (code != 0, (tmp_path / "new.db").exists()) == (True, False)
    code, _, err = run("export", "x", "y", "--store", store)
    assert (code != 0, "with --to" in err) == (True, True)
