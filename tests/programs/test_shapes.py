"""Files and databases in the shapes of real programs, written by hand from facts: names of columns and keys.

``make test-programs`` asks the programs themselves (``real_programs.py``).
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.history.check import check
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, hang, say
from tests.programs.written import weigh, write

PLACE = {"workerId": "w", "workspaceId": "ws"}


def spoken(messages: list[Any]) -> list[tuple[str, list[Any]]]:
    """Each message with its texts, calls and results."""
    keys = ("text", "output", "errorText")
    return [
        (message.role, [part[key] for part in message.parts for key in keys if part.get(key)]) for message in messages
    ]


# The three tables, with more columns than the description has


GRIDA = """
CREATE TABLE chat_sessions (
    id TEXT PRIMARY KEY, title TEXT NOT NULL DEFAULT 'New Chat', agent TEXT NOT NULL, workspace_id TEXT,
    workspace_root TEXT, model_json TEXT, mode TEXT, parent_id TEXT, parent_message_id TEXT,
    permissions_json TEXT NOT NULL DEFAULT '[]', metadata_json TEXT NOT NULL DEFAULT '{}',
    prompt_tokens INTEGER NOT NULL DEFAULT 0, completion_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0, cache_read INTEGER NOT NULL DEFAULT 0,
    cache_write INTEGER NOT NULL DEFAULT 0, total_tokens INTEGER NOT NULL DEFAULT 0, cost_usd REAL NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, archived_at INTEGER
);
CREATE TABLE chat_messages (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE, role TEXT NOT NULL,
    metadata_json TEXT NOT NULL DEFAULT '{}', hidden_at INTEGER, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE TABLE chat_parts (
    id TEXT PRIMARY KEY, message_id TEXT NOT NULL REFERENCES chat_messages (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL, "index" INTEGER NOT NULL, type TEXT NOT NULL, data_json TEXT NOT NULL,
    tool_call_id TEXT, tool_state TEXT, continuation_run_id TEXT, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX idx_chat_parts_message_index ON chat_parts (message_id, "index");
PRAGMA user_version = 3;
"""
MODELS = [None, '{"provider_id": "gg", "tier": "pro"}', '{"provider_id": "gg", "model_id": null}', '{"tier": "pro"}']


def make_database(path: Path, **columns: Sequence[str | None]) -> list[str]:
    """Write a session with a call that waits for an approval for each value of a column; return their ids."""
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(GRIDA)
        found = [(name, value) for name, values in columns.items() for value in values]
        return [make_session(db, place, *one) for place, one in enumerate(found)]


def make_session(db: sqlite3.Connection, number: int, column: str, value: str | None) -> str:
    session_id, now = f"ses_1f5a2d984000000000000abcd{number}", 1_795_122_452_000 + number
    waits = {"type": "tool-weigh", "toolCallId": "c1", "state": "approval-requested", "input": {"path": "x"}}
    parts: list[tuple[str, dict[str, Any]]] = [
        (f"client000000000{number}", {"type": "text", "text": "Löffel 🥄"}),
        (f"msg_{number}", waits),
    ]
    sessions = "INSERT INTO chat_sessions (id, agent, created_at, updated_at) VALUES (?, 'grida', ?, ?)"
    db.execute(sessions, (session_id, now, now))
    db.execute(f"UPDATE chat_sessions SET {column} = ? WHERE id = ?", (value, session_id))
    for place, (message_id, part) in enumerate(parts):
        messages = "INSERT INTO chat_messages (id, session_id, role, created_at, updated_at) VALUES (?, ?, ?, ?, ?)"
        db.execute(messages, (message_id, session_id, ("user", "assistant")[place], now + place, now + place))
        hoisted = (part.get("toolCallId"), part.get("state"))
        held = (f"prt_{number}_{place}", message_id, session_id, part["type"], json.dumps(part), *hoisted, now, now)
        db.execute("INSERT INTO chat_parts VALUES (?, ?, ?, 0, ?, ?, ?, ?, NULL, ?, ?)", held)
    return session_id


@pytest.mark.rule("ST-13")
async def test_a_session_whose_program_has_not_chosen_a_model_yet_opens_and_goes_on(tmp_path: Path) -> None:
    """No model, or only half of one: the default answers, and the columns of the program stay."""
    path = tmp_path / "sessions.db"
    ids = make_database(path, model_json=MODELS)
    providers = FakeProviders(ScriptedModel(otherwise=lambda _: say("Two.")))
    async with clew.open(f"sqlite:///{path}", providers=providers, config=clew.Config()) as e:
        found = {session.id: str(session.model) for session in (await e.list_sessions()).sessions}
        models = ["unknown/unknown", "gg/unknown", "gg/unknown", "unknown/unknown"]
        assert found == dict(zip(ids, models, strict=True))
        await (await e.submit(ids[0], "How many?")).wait()
        assert spoken(await e.messages(ids[0])) == [
            ("user", ["Löffel 🥄"]),
            ("assistant", ["aborted; its effects are unknown"]),
            ("user", ["How many?"]),
            ("assistant", ["Two."]),
        ]
        assert await check(e.store) == []
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)


@pytest.mark.rule("ST-13")
async def test_a_call_left_open_in_a_session_that_cannot_be_adopted_keeps_no_store_from_opening(tmp_path: Path) -> None:
    """Recovery leaves alone what was not taken in; the other sessions are there, and the check names it."""
    path = tmp_path / "sessions.db"
    ids = make_database(path, model_json=["[]"], metadata_json=["{"], permissions_json=["5"])
    async with clew.open(f"sqlite:///{path}", providers=FakeProviders(ScriptedModel([])), config=clew.Config()) as e:
        assert sorted(str(problem.session_id) for problem in await check(e.store)) == ids
        assert (await e.create_session()).id not in ids


# A log and a file that the other program continues after clew was killed


def continue_log(place: Path) -> None:
    """Append what another program of 003 appends, with the numbers it gives."""
    log = place / "session.jsonl"
    seq = max(json.loads(line)["seq"] for line in log.read_text().split("\n") if line)
    at = {"recordType": "message", "schemaVersion": 1, "timestamp": "2031-02-11T10:00:00Z"}
    records: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "theirs"}]},
        {"role": "assistant", "content": [{"type": "toolCall", "id": "t1", "name": "read", "arguments": {}}]},
        {
            "role": "toolResult",
            "toolCallId": "t1",
            "toolName": "read",
            "isError": False,
            "content": [{"type": "text", "text": "a spoon"}],
        },
    ]
    with log.open("a") as file:
        for number, record in enumerate(records, seq + 1):
            file.write(json.dumps({**at, "seq": number, **record}) + "\n")


def continue_file(path: Path) -> None:
    """Add what Molf adds to its messages, give the session another name, and write the file anew."""
    session = json.loads(path.read_text())
    at = 1_928_000_000_000
    session["messages"] += [
        {"id": "msg_x1", "role": "user", "content": "theirs", "timestamp": at},
        {
            "id": "msg_x2",
            "role": "assistant",
            "content": "",
            "timestamp": at + 1,
            "toolCalls": [{"toolCallId": "t1", "toolName": "read", "args": {}}],
        },
        {
            "id": "msg_x3",
            "role": "tool",
            "content": "a spoon",
            "timestamp": at + 2,
            "toolCallId": "t1",
            "toolName": "read",
        },
    ]
    session["name"] = "renamed"
    path.write_text(json.dumps(session, indent=2, ensure_ascii=False))


@pytest.mark.rule("FS-2", "FS-4")
@pytest.mark.parametrize(("kind", "state"), [("jsonl", "running"), ("json", "waiting")])
async def test_what_another_program_says_after_a_kill_stays_in_the_conversation(
    tmp_path: Path, kind: str, state: str
) -> None:
    """The turn that was cut off, or waited, ends where it is; theirs follows it, and clew goes on below that."""
    reached = Gate()
    script: list[Any] = [[say("Looking."), call("weigh", {"path": "x"}, id="w1")], [say("It "), hang(reached)]]
    async with clew.open(
        f"{kind}:{tmp_path}/store", providers=FakeProviders(ScriptedModel(script)), tools=[weigh], config=clew.Config()
    ) as e:
        session = await e.create_session(title="told", metadata=PLACE)
        action = "allow" if state == "running" else "ask"
        await e.set_permissions(session.id, [{"permission": "weigh", "pattern": "*", "action": action}])
        await e.submit(session.id, "Weigh x")
        if state == "running":
            await reached.reached.wait()
        else:
            await anext(status async for status in e.watch_status(session.id) if status.waiting)
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        await e.abort(session.id)
    place = tmp_path / "copy" / "sessions" / session.id
    if kind == "jsonl":
        continue_log(place)
    else:
        continue_file(place.with_suffix(".json"))
    async with clew.open(
        f"{kind}:{tmp_path}/copy", providers=FakeProviders(ScriptedModel([say("Yes.")])), config=clew.Config()
    ) as e:
        await (await e.submit(session.id, "Still there?")).wait()
        shown = spoken(await e.messages(session.id))
        assert [role for role, _ in shown] == ["user", "assistant"] * 3
        assert shown[1][1][0] == "Looking."
        assert shown[2:] == [
            ("user", ["theirs"]),
            ("assistant", ["a spoon"]),
            ("user", ["Still there?"]),
            ("assistant", ["Yes."]),
        ]
        assert (await e.get_status(session.id)).waiting == ()
        assert await check(e.store) == []
        assert (await e.get_session(session.id)).title == ("renamed" if kind == "json" else "told")
    async with clew.open(f"{kind}:{tmp_path}/copy", read_only=True, config=clew.Config()) as e:
        assert (await e.get_session(session.id)).title == ("renamed" if kind == "json" else "told")


@pytest.mark.rule("FS-3")
async def test_a_flipped_bit_in_a_name_renames_no_session(tmp_path: Path) -> None:
    """A program that renames a session rewrites its file, in a form of its own."""
    async with clew.open(f"json:{tmp_path}", config=clew.Config(), providers=FakeProviders(ScriptedModel([]))) as e:
        session = await e.create_session(title="boats", metadata=PLACE)
    path = tmp_path / "sessions" / f"{session.id}.json"
    path.write_bytes(path.read_bytes().replace(b'"name":"boats"', b'"name":"coats"'))
    async with clew.open(f"json:{tmp_path}", read_only=True, config=clew.Config()) as e:
        assert (await e.get_session(session.id)).title == "boats"
        assert [problem.session_id for problem in await check(e.store)] == [session.id]


# The file of a session, as Molf reads it


def read_file(path: Path) -> tuple[str, list[Any]]:
    """Return the name and what the model would be sent, by the keys that Molf reads."""
    session = json.loads(path.read_text())
    assert session["sessionId"] == path.stem
    assert isinstance(session["lastActiveAt"], int)
    messages = session["messages"]
    checkpoints = [place for place, one in enumerate(messages) if one.get("summary") and one["role"] == "user"]
    read: list[Any] = []
    for one in messages[checkpoints[-1] if checkpoints else 0 :]:
        assert isinstance(one["content"], str)
        assert isinstance(one["timestamp"], int)
        calls = [[each["toolCallId"], each["toolName"], each["args"]] for each in one.get("toolCalls", ())]
        result = [one["toolCallId"], one["toolName"]] if one["role"] == "tool" else []
        read.append([one["role"], one["content"], *calls, *result])
    return session["name"], read


@pytest.mark.rule("FS-3")
async def test_a_program_that_reads_content_and_tool_messages_reads_a_json_session(tmp_path: Path) -> None:
    """Branch and summary, calls with their results as messages of their own, and the name."""
    ids = await write(f"json:{tmp_path}")
    name, read = read_file(tmp_path / "sessions" / f"{ids['branch']}.json")
    assert name.endswith("(branch)")
    assert [one[0] for one in read] == ["user", "assistant", "user", "assistant", "tool", "tool", "user"]
    _, said, (first, *one), (second, *other) = read[3]
    assert said == "I will weigh them.\n\nOne weighs 42 g."
    assert (one, other) == (["weigh", {"path": "a/ü.txt"}], ["weigh", {"path": "missing"}])
    assert read[4:6] == [
        ["tool", "weight of a/ü.txt:\n42 g", first, "weigh"],
        ["tool", "there is no such file: 🫥", second, "weigh"],
    ]
    _, read = read_file(tmp_path / "sessions" / f"{ids['talk']}.json")
    assert [one[0] for one in read] == ["user", "assistant", "assistant", "user", "assistant"]
    assert read[1][1].startswith("## Goal")
    assert [one[1] for one in read[2:]] == ["the right way", "And now?", "at the end"]


@pytest.mark.rule("FS-3")
async def test_a_session_of_such_a_program_is_continued_in_its_own_keys(tmp_path: Path) -> None:
    """Its messages stay; those that clew adds have the same keys, and a call that clew closed has its result."""
    session_id = "2f1c3b6e-8a4d-4c57-9b1e-0d6a7f3e5c21"
    path = tmp_path / "sessions" / f"{session_id}.json"
    path.parent.mkdir()
    session = {
        "sessionId": session_id,
        "name": "Boats",
        "workerId": "w",
        "workspaceId": "ws",
        "metadata": {"from": "tui"},
        "createdAt": 1_795_122_453_593,
        "lastActiveAt": 1_795_122_453_600,
        "messages": [],
    }
    path.write_text(json.dumps(session))
    continue_file(path)
    theirs = json.loads(path.read_text())["messages"]
    path.write_text(json.dumps({**session, "messages": theirs[:2]}))
    async with clew.open(
        f"json:{tmp_path}", providers=FakeProviders(ScriptedModel([say("Here.")])), config=clew.Config()
    ) as e:
        await (await e.submit(session_id, "Who?")).wait()
        assert await check(e.store) == []
    closed = "aborted; its effects are unknown"
    assert read_file(path) == (
        "Boats",
        [
            ["user", "theirs"],
            ["assistant", "", ["t1", "read", {}]],
            ["tool", closed, "t1", "read"],
            ["user", "Who?"],
            ["assistant", "Here."],
        ],
    )
    async with clew.open(f"json:{tmp_path}", providers=FakeProviders(ScriptedModel([])), config=clew.Config()) as e:
        assert spoken(await e.messages(session_id))[1] == ("assistant", [closed])
        assert await check(e.store) == []


# An export while a turn is open


@pytest.mark.rule("IO-2")
async def test_an_export_while_a_turn_is_open_ends_at_its_newest_message(tmp_path: Path) -> None:
    """The head is still before the turn: a program that starts there would show nothing of it."""
    reached = Gate()
    script: list[Any] = [[say("Looking."), call("weigh", {"path": "x"}, id="w1")], hang(reached)]
    async with clew.open(
        f"sqlite:///{tmp_path}/c.db", providers=FakeProviders(ScriptedModel(script)), tools=[weigh]
    ) as e:
        session = await e.create_session(title="open")
        await e.set_permissions(session.id, [{"permission": "weigh", "pattern": "*", "action": "allow"}])
        await e.submit(session.id, "Weigh x")
        await reached.reached.wait()
        records = [json.loads(line) for line in (await e.export(session.id, "pi")).splitlines()]
        await e.abort(session.id)
    parents = {record["id"]: record.get("parentId") for record in records}
    # pi takes the newest line for the place where the session stands.
    line: list[str] = []
    above = records[-1]["id"]
    while above is not None:
        line, above = [above, *line], parents[above]
    named = {record["id"]: record.get("message", {}).get("role", record["type"]) for record in records}
    assert [named[id_] for id_ in line] == ["user", "assistant", "toolResult", "assistant", "session_info"]
