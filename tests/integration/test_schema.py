"""The three tables as the storage format says, and nothing of ours inside them."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.history.check import check
from clew.store.sql.sqlite import rebuild
from clew.store.sql.sqlite.connection import QUERIES, connect
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.sql.statements import load_queries, read_sql
from clew.testing.chunks import reasoning, text, tool_call, tool_output
from clew.testing.scribe import Scribe
from clew.transcript.usage import Usage
from clew.triggers.values.routing import Routing

# column: (type, required, default); written out from the format's description, not from our SQL
SESSIONS = {
    "id": ("TEXT", True, None),
    "agent": ("TEXT", True, None),
    "workspace_root": ("TEXT", False, None),
    "model_json": ("TEXT", True, None),
    "parent_id": ("TEXT", False, None),
    "parent_message_id": ("TEXT", False, None),
    "permissions_json": ("TEXT", True, "'[]'"),
    "metadata_json": ("TEXT", True, "'{}'"),
    "prompt_tokens": ("INTEGER", True, "0"),
    "completion_tokens": ("INTEGER", True, "0"),
    "reasoning_tokens": ("INTEGER", True, "0"),
    "cache_read": ("INTEGER", True, "0"),
    "cache_write": ("INTEGER", True, "0"),
    "total_tokens": ("INTEGER", True, "0"),
    "cost_usd": ("REAL", True, "0"),
    "created_at": ("INTEGER", True, None),
    "updated_at": ("INTEGER", True, None),
    "archived_at": ("INTEGER", False, None),
}
MESSAGES = {
    "id": ("TEXT", True, None),
    "session_id": ("TEXT", True, None),
    "role": ("TEXT", True, None),
    "metadata_json": ("TEXT", True, "'{}'"),
    "created_at": ("INTEGER", True, None),
    "updated_at": ("INTEGER", True, None),
}
PARTS = {
    "id": ("TEXT", True, None),
    "message_id": ("TEXT", True, None),
    "session_id": ("TEXT", True, None),
    "index": ("INTEGER", True, None),
    "type": ("TEXT", True, None),
    "data_json": ("TEXT", True, None),
    "tool_call_id": ("TEXT", False, None),
    "tool_state": ("TEXT", False, None),
    "created_at": ("INTEGER", True, None),
    "updated_at": ("INTEGER", True, None),
}
TABLES = {"chat_sessions": SESSIONS, "chat_messages": MESSAGES, "chat_parts": PARTS}
INDEXES: dict[str, set[tuple[str, ...]]] = {
    "chat_sessions": {("agent", "updated_at"), ("workspace_root", "updated_at"), ("parent_id",), ("archived_at",)},
    "chat_messages": {("session_id", "created_at")},
    "chat_parts": {("message_id", "index"), ("session_id",), ("tool_call_id",)},
}
FOREIGN_KEYS: dict[str, set[tuple[str, ...]]] = {
    "chat_sessions": set(),
    "chat_messages": {("session_id", "chat_sessions", "id", "CASCADE")},
    "chat_parts": {("message_id", "chat_messages", "id", "CASCADE")},
}


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A store with a small conversation in it, closed."""
    path = tmp_path / "store.db"
    store = await open_sqlite(path)
    scribe = await Scribe.create(store, metadata={"title": "thread", "mine": [1]}, workspace_root="/w")
    await scribe.turn(
        "what is here?",
        [
            *reasoning("I should look"),
            *tool_call("bash", {"command": "ls"}, id="call_1"),
            *tool_output("a\nb", call="call_1"),
            *text("Two files: a and b."),
        ],
        usage=Usage(11, 7, 5, 3, 2),
    )
    await store.close()
    return path


@pytest.mark.rule("ST-1")
async def test_the_three_tables_have_exactly_the_columns_keys_and_indexes_of_the_format(file: Path) -> None:
    """Types, NOT NULL, defaults, primary keys, cascades and required indexes; no column more, none less."""
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        for table, columns in TABLES.items():
            info = db.execute(f"PRAGMA table_info({table})").fetchall()
            assert {name: (kind, bool(required), default) for _, name, kind, required, default, _ in info} == columns
            assert [name for _, name, _, _, _, key in info if key] == ["id"]
            keys = db.execute(f"PRAGMA foreign_key_list({table})").fetchall()
            assert {(row[3], row[2], row[4], row[6]) for row in keys} == FOREIGN_KEYS[table]
            plain = {
                tuple(column[2] for column in db.execute(f"PRAGMA index_info({index[1]})"))
                for index in db.execute(f"PRAGMA index_list({table})").fetchall()
                if not index[2] and not index[4]
            }
            assert INDEXES[table] <= plain


@pytest.mark.rule("ST-1", "SV-6")
async def test_any_reader_of_the_format_can_read_a_clew_file(file: Path) -> None:
    """Plain SQL and json, nothing of clew: the conversation is there, hydratable part by part."""
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        session = db.execute(
            "SELECT id, agent, workspace_root, model_json, permissions_json, metadata_json, prompt_tokens, "
            "completion_tokens, reasoning_tokens, cache_read, cache_write, total_tokens FROM chat_sessions"
        ).fetchone()
        messages = db.execute(
            "SELECT id, role, metadata_json FROM chat_messages WHERE session_id = ? ORDER BY created_at, id",
            (session[0],),
        ).fetchall()
        parts = {
            message[0]: db.execute(
                "SELECT type, data_json, tool_call_id, tool_state FROM chat_parts WHERE message_id = ? "
                'ORDER BY "index"',
                (message[0],),
            ).fetchall()
            for message in messages
        }
    assert session[1:3] == ("assistant", "/w")
    assert json.loads(session[3]) == {"provider_id": "demo", "model_id": "echo"}
    assert json.loads(session[4]) == []
    assert json.loads(session[5]) == {"title": "thread", "mine": [1]}
    assert session[6:] == (11, 7, 5, 3, 2, 28)
    assert [message[1] for message in messages] == ["user", "assistant"]
    usage = {"input": 11, "output": 7, "reasoning": 5, "cache_read": 3, "cache_write": 2}
    assert json.loads(messages[1][2])["usage"] == usage
    hydrated: list[dict[str, Any]] = [json.loads(row[1]) for row in parts[messages[1][0]]]
    assert hydrated == [
        {"type": "step-start"},
        {"type": "reasoning", "id": "r1", "text": "I should look", "state": "done"},
        {
            "type": "tool-bash",
            "toolCallId": "call_1",
            "state": "output-available",
            "input": {"command": "ls"},
            "output": "a\nb",
        },
        {"type": "text", "text": "Two files: a and b.", "state": "done"},
    ]
    assert [(row[0], row[2], row[3]) for row in parts[messages[1][0]]] == [
        ("step-start", None, None),
        ("reasoning", None, None),
        ("tool-bash", "call_1", "output-available"),
        ("text", None, None),
    ]


@pytest.mark.rule("ST-1")
async def test_deleting_a_session_row_by_hand_takes_its_messages_and_parts(file: Path) -> None:
    """The cascade is in the schema, for any program that turns foreign keys on."""
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("DELETE FROM chat_sessions")
        counts = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES]
    assert counts == [0, 0, 0]


@pytest.mark.rule("ST-2")
async def test_everything_else_is_a_table_of_its_own(file: Path) -> None:
    """And what is looked up inside JSON has an expression index."""
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert tables - set(TABLES) == {
            "session_state",
            "chat_turns",
            "turn_messages",
            "turn_steps",
            "model_calls",
            "head_moves",
            "pruned_outputs",
            "message_queue",
            "message_seals",
            "store_losses",
            "store_marks",
            "stream_journal",
            "journal_marks",
            "system_prompts",
            "blobs",
            "blob_links",
            "project_rules",
            "adopted_messages",
            "search_docs",
            "search_marks",
            "ledger_events",
            "schedules",
            "webhooks",
            "event_log",
            "replicas",
            "workspace_snapshots",
            "clew_schema",
        }
    for name, query in QUERIES.items():
        if "json_extract" in query and query.startswith("SELECT"):
            assert "INDEXED BY" in query, f"{name} looks into JSON without an index"


async def test_every_table_is_compared_with_the_log_or_named_as_not_compared(file: Path) -> None:
    """A table that nobody compares could be missing from the log without anybody noticing."""
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {*rebuild.TABLES["compared"], *rebuild.TABLES["not_compared"]}
    assert set(rebuild._COPIED_TABLES) <= rebuild.TABLES["compared"].keys()


@pytest.mark.rule("EV-1")
async def test_no_program_can_change_what_stands_in_the_ledger(file: Path) -> None:
    """The database itself refuses it; when its session goes, what it says does, and who and when stay."""
    async with clew.open(f"sqlite:///{file}", config=clew.Config()) as engine:
        got = await engine.events.receive("test", "1", Routing(key="k", model="demo/echo"), text="one")
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError, match="only grows"):
            db.execute("UPDATE ledger_events SET at = 0")
        with pytest.raises(sqlite3.IntegrityError, match="only grows"):
            db.execute("UPDATE ledger_events SET data_json = '{}'")
        db.execute("DELETE FROM chat_sessions WHERE id = ?", (got.session_id,))
        [row, _] = db.execute("SELECT id, source, source_id, routing_json, data_json FROM ledger_events ORDER BY seq")
        assert row == (got.event_id, "test", "1", '{"key":"k"}', "{}")
        for change in ("at = 0", 'data_json = \'{"text": "one"}\''):
            with pytest.raises(sqlite3.IntegrityError, match="only grows"):
                db.execute(f"UPDATE ledger_events SET {change}")


@pytest.mark.rule("EV-1")
async def test_the_ledger_is_read_by_its_indexes(file: Path) -> None:
    """By session, by turn, and what is open; none sorts, none walks the whole ledger for a part of it."""
    params = dict.fromkeys(re.findall(r":([a-z_]+)", " ".join(QUERIES.values())), None)
    db = connect(file, writer=False)
    try:
        plans = {
            name: " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", params))
            for name in (
                "list_events_of_session",
                "list_events_of_source",
                "list_events_of_turn",
                "open_events",
                "find_event",
                "load_labelled",
            )
        }
    finally:
        db.close()
    assert "SEARCH e USING INDEX ledger_events_by_session (session_id=? AND seq<?)" in plans["list_events_of_session"]
    assert "SEARCH e USING INDEX ledger_events_by_source (source=? AND seq<?)" in plans["list_events_of_source"]
    assert not any("TEMP B-TREE FOR ORDER BY" in plans[f"list_events_of_{of}"] for of in ("session", "source"))
    assert "SEARCH e USING INTEGER PRIMARY KEY" in plans["list_events_of_turn"]
    assert "ledger_events USING COVERING INDEX ledger_events_once" in plans["open_events"]
    assert "SEARCH e USING INDEX ledger_events_once (source=? AND source_id=? AND direction=?)" in plans["find_event"]
    assert "SEARCH s USING INDEX chat_sessions_by_label" in plans["load_labelled"]
    assert "SCAN ledger_events USING INDEX" not in plans["list_events_of_turn"]


@pytest.mark.rule("ST-6")
async def test_the_plans_of_listing_are_pinned(file: Path) -> None:
    """Each list walks the index made for it in order; the plain one sorts nothing and reads no message."""
    params = dict.fromkeys(re.findall(r":([a-z_]+)", " ".join(QUERIES.values())), None)
    db = connect(file, writer=False)
    try:
        plans = {
            name: [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", params)]
            for name in QUERIES
            if name.startswith("list_")
        }
    finally:
        db.close()
    assert plans["list_sessions"] == [
        "SEARCH s USING INDEX chat_sessions_listed ((updated_at,id)<(?,?))",
        "SEARCH t USING PRIMARY KEY (session_id=?) LEFT-JOIN",
        # Only where a session has no state: another program's that was not taken in, or one that has lost it.
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH c USING COVERING INDEX chat_turns_by_session (session_id=?)",
    ]
    flagged = [step for step in plans["list_flagged_sessions"] if "chat_sessions" in step or "B-TREE" in step]
    assert flagged == [
        "SEARCH s USING INDEX chat_sessions_listed ((updated_at,id)<(?,?))",
        "SEARCH s USING INDEX chat_sessions_unlisted ((updated_at,id)<(?,?))",
    ]
    assert (
        plans["list_sessions_of_agent"][0] == "SEARCH s USING INDEX chat_sessions_by_agent (agent=? AND updated_at<?)"
    )
    assert not any("chat_messages" in step or "chat_parts" in step for plan in plans.values() for step in plan)


def test_nothing_decides_by_the_projection() -> None:
    """``hidden_at`` is written for others and never asked for: it is in no WHERE clause."""
    for query in load_queries("sqlite/queries.sql").values():
        assert "hidden" not in query.partition("WHERE")[2]
    assert "hidden" not in read_sql("sqlite/schema.sql")


async def test_the_engine_and_the_judge_agree_with_the_plain_reader(file: Path) -> None:
    """The same file through the front door."""
    async with clew.open(f"sqlite:///{file}") as engine:
        session = (await engine.list_sessions()).sessions[0]
        assert (session.title, session.total_tokens) == ("thread", 28)
        assert [message.role for message in await engine.messages(session.id)] == ["user", "assistant"]
        assert await check(engine.store) == []


async def test_a_damaged_row_of_a_trigger_costs_itself(file: Path) -> None:
    """The store opens, the others are there and fire, and a look at the whole store names it."""
    async with clew.open(f"sqlite:///{file}", config=clew.Config(), triggers=False) as engine:
        await engine.events.receive("test", "1", Routing(key="k", model="demo/echo"), text="one")
        broken = await engine.schedules.add("* * * * *", "x", routing=Routing(model="demo/echo"))
        kept = await engine.schedules.add("* * * * *", "y", routing=Routing(model="demo/echo"))
        await engine.webhooks.add("broken")
        await engine.webhooks.add("kept")
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute("DROP TRIGGER ledger_events_never_change")
        db.execute("UPDATE ledger_events SET data_json = '{' WHERE direction = 'in'")
        db.execute("UPDATE schedules SET data_json = '{}' WHERE id = ?", (broken.id,))
        db.execute("UPDATE webhooks SET data_json = 'x' WHERE name = 'broken'")
    async with clew.open(f"sqlite:///{file}", config=clew.Config()) as engine:
        assert [one.id for one in await engine.schedules.list()] == [kept.id]
        assert [one.name for one in await engine.webhooks.list()] == ["kept"]
        assert "damaged" in (await engine.events.list(direction="in")).events[0].data
        assert [one.id for one in await engine.store.verify()] == [broken.id, "broken"]
