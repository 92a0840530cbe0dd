"""Statements of the source documents that no other test proves, each reached through a front.

A docstring begins with the document and its lines. `tests/sources.toml` names the tests of all other statements.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import failpoints
from clew.providers.base import ModelInfo
from clew.testing import chunks as c
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, chunks, say, then, wait
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from tests.integration.http_client import Client, served
from tests.integration.http_history import talked
from tests.readers import reader_001, reader_003
from tests.rig.program_002 import Program002, make_plain


async def begin(client: Client, allowed: str, **fields: Any) -> str:
    """A session in which a tool may run."""
    session_id = await client.session(**fields)
    body = {"rules": [{"permission": allowed, "pattern": "*", "action": "allow"}]}
    assert (await client.request("PUT", f"/api/sessions/{session_id}/permissions", body)).status == 200
    return session_id


def rows(file: Path, sql: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(file)) as db:
        return db.execute(sql).fetchall()


@pytest.mark.rule("US-3", "CP-1")
@pytest.mark.parametrize("kind", ["input", "output", "reasoning", "cache_read", "cache_write"])
async def test_every_kind_of_count_takes_room_in_the_window(kind: str) -> None:
    """Source 000:38-39. A cached token is cheaper and not smaller."""
    info = ModelInfo(model=Model("test", "model"), window=200_000, max_output=4_000)
    model = ScriptedModel([then(say("one"), usage=Usage(**{kind: 50_000}))])
    async with served(providers=FakeProviders(model, infos=[info])) as client:
        session_id, _ = await talked(client, "first")
        gauge = (await client.get(f"/api/sessions/{session_id}/context")).json()
        assert (gauge["used"], gauge["measured"]) == (50_000, True)


@pytest.mark.rule("RW-1", "BR-2")
async def test_going_back_and_branching_leave_the_files_as_they_are(tmp_path: Path) -> None:
    """Source 000:85,127-128. What a turn wrote stays; a branch works in the same folder and has no part of a run."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    gate = Gate()
    script = [call("write", {"path": "made.txt", "content": "by a turn"}), say("written"), [say("two"), wait(gate)]]
    async with served(*script) as client:
        session_id = await begin(client, "write", workspace_root=str(workspace))
        await client.prompt(session_id, "write it")
        await client.idle(session_id)
        [first, answer] = await client.messages(session_id)
        branch = await client.post(f"/api/sessions/{session_id}/branch", {"from_message_id": answer["id"]})
        assert (branch.status, branch.json()["workspace_root"]) == (201, str(workspace))
        await client.prompt(session_id, "more")
        await gate.reached.wait()
        assert (await client.status(branch.json()["id"])) == {"state": "idle"}
        gate.set()
        await client.idle(session_id)
        path = f"/api/sessions/{session_id}/rewind"
        assert (await client.post(path, {"message_id": first["id"], "mode": "edit"})).status == 200
        assert await client.messages(session_id) == []
        assert len(await client.messages(branch.json()["id"])) == 2
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"made.txt": "by a turn"}


@pytest.mark.rule("RN-1")
async def test_a_call_that_takes_too_long_ends_as_an_error() -> None:
    """Source 000:256-257. The model is told, and the turn goes on."""

    @clew.tool(timeout_ms=1)
    async def sleep() -> str:
        """Never return."""
        await asyncio.Event().wait()
        return ""

    async with served(call("sleep", {}), say("well"), tools=[sleep]) as client:
        session_id = await begin(client, "sleep")
        await client.prompt(session_id, "rest")
        await client.idle(session_id)
        [_, answer] = await client.messages(session_id)
        [told] = [part for part in answer["parts"] if part["type"] == "tool-sleep"]
        assert (told["state"], told["errorText"]) == (
            "output-error",
            "sleep did not end within 0.001 s and was stopped; its effects are unknown",
        )


@pytest.mark.rule("SR-5", "EV-3")
async def test_a_status_event_has_the_shape_of_the_status() -> None:
    """Source 000:336-338. Each change goes to all who listen to the host, as the session's own status says it."""
    gate = Gate()
    async with served([say("one"), wait(gate)]) as client, client.open("GET", "/api/events") as reply:
        frames = reply.frames()
        assert (await anext(frames))["type"] == "hello"
        session_id = await client.session()
        await client.prompt(session_id, "go")
        await gate.reached.wait()
        status = await client.status(session_id)
        gate.set()
        told = []
        async for event in frames:
            if event["type"] == "status":
                told.append(event)
            if event["type"] == "turn_finished":
                break
        assert told == [
            {"type": "status", "session_id": session_id, "status": status},
            {"type": "status", "session_id": session_id, "status": {"state": "idle"}},
        ]


@pytest.mark.rule("SR-4", "ST-13")
async def test_open_calls_of_every_tool_are_closed_before_the_next_request(tmp_path: Path) -> None:
    """Source 000:285-291. Left by a process that died, of whatever program it was."""
    file = tmp_path / "store.db"
    make_plain(file)
    with contextlib.closing(Program002(file)) as other:
        session_id = other.open_session()
        other.say(session_id, "do it all")
        message_id = other.begin_answer(session_id)
        kinds = ["tool-bash", "tool-web_fetch", "dynamic-tool", "tool-task"]
        for kind in kinds:
            call_ = {"type": kind, "toolCallId": kind, "state": "input-available", "input": {}}
            other.put_part(message_id, call_ if kind != "dynamic-tool" else {**call_, "toolName": "there_look"})
    model = ScriptedModel([say("well")])
    async with served(providers=FakeProviders(model), store=f"sqlite:///{file}") as client:
        await client.prompt(session_id, "go on")
        await client.idle(session_id)
        stored = [part for message in await client.messages(session_id) for part in message["parts"]]
    sent = [part for message in model.requests[0].messages for part in message.parts]
    for parts in (sent, stored):
        closed = [(part["type"], part["state"]) for part in parts if "toolCallId" in part]
        assert closed == [(kind, "output-error") for kind in kinds]


# 002: what stands in the rows


@pytest.mark.rule("ST-1", "MS-1", "MS-4")
async def test_a_session_and_its_messages_have_the_keys_of_the_format(tmp_path: Path) -> None:
    """Source 002:17-22,41-55,82-89, 000:218-221. As a program that knows only the three tables finds them."""
    file = tmp_path / "store.db"
    async with served(say("one"), say("two"), store=f"sqlite:///{file}") as client:
        plain = await client.session()
        placed = await begin(client, "write", workspace_root=str(tmp_path))
        await client.prompt(placed, "first")
        await client.idle(placed)
        await client.prompt(placed, "second", model="test/other", agent="explore")
        await client.idle(placed)
    sql = "SELECT id, workspace_root, permissions_json, model_json, metadata_json, created_at, updated_at"
    sessions = {row[0]: row[1:] for row in rows(file, f"{sql} FROM chat_sessions")}
    assert sessions[plain][:2] == (None, "[]")
    root, rules, model, _, created, updated = sessions[placed]
    assert (root, json.loads(model)) == (str(tmp_path), {"provider_id": "test", "model_id": "other"})
    [rule] = json.loads(rules)
    kept = {"permission": "write", "pattern": "*", "action": "allow", "source": "session"}
    assert {key: rule[key] for key in kept} == kept
    assert 1_700_000_000_000 < created <= updated
    kinds = [(role, json.loads(data)) for role, data in rows(file, f"SELECT role, metadata_json {_ORDERED}")]
    assert [role for role, _ in kinds] == ["user", "assistant"] * 2
    assert [data["model"]["model_id"] for _, data in kinds] == ["model", "model", "other", "other"]
    assert [data.get("agent") for _, data in kinds] == [None, None, "explore", "explore"]
    for _, answer in kinds[1::2]:
        assert answer["usage"].keys() == {"input", "output", "reasoning", "cache_read", "cache_write"}
        assert len(answer["system_prompt_digest"]) == 64
    never = {"queued_at", "snapshot_id", "trigger", "hidden_at"}
    assert [never & data.keys() for _, data in kinds] == [set()] * 4


_ORDERED = "FROM chat_messages ORDER BY created_at, id"


@pytest.mark.rule("SV-2", "SV-6", "ST-1")
async def test_a_step_writes_its_parts_as_the_table_of_the_format_says(tmp_path: Path) -> None:
    """Source 002:62-66,131-142. One row for each, numbered from 0 in the order of the stream."""
    file = tmp_path / "store.db"
    pieces = [
        *(c.reasoning("hm"), c.text("so"), c.source("https://example.org"), c.document("a page")),
        *(c.file("data:text/plain;base64,aGk=", media_type="text/plain"), c.data("note", {"n": 1})),
    ]
    step = [*(chunks(*piece) for piece in pieces), call("ls", {"path": "."}), call("nothing", {"a": 1})]
    async with served(step, say("done"), store=f"sqlite:///{file}") as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        await client.prompt(session_id, "all of it")
        await client.idle(session_id)
        [_, answer] = await client.messages(session_id)
    stored = rows(
        file,
        'SELECT "index", type, tool_state, tool_call_id, data_json FROM chat_parts '
        'WHERE message_id = (SELECT max(id) FROM chat_messages) ORDER BY "index"',
    )
    assert [row[0] for row in stored] == list(range(len(stored)))
    assert [json.loads(row[4]) for row in stored] == answer["parts"]
    assert [(kind, state) for _, kind, state, _, _ in stored] == [
        ("step-start", None),
        ("reasoning", None),
        ("text", None),
        ("source-url", None),
        ("source-document", None),
        ("file", None),
        ("data-note", None),
        ("tool-ls", "output-available"),
        ("tool-nothing", "output-error"),
        ("step-start", None),
        ("text", None),
    ]
    hoisted = [(data.get("toolCallId"), data.get("state")) for data in answer["parts"] if "toolCallId" in data]
    assert [(call_id, state) for _, _, state, call_id, _ in stored if call_id] == hoisted


# 001 and 003: what stands in the files


@pytest.mark.rule("FS-1", "FS-3")
@pytest.mark.parametrize("kind", ["json", "jsonl"])
async def test_a_session_file_is_replaced_whole_by_a_rename(kind: str, tmp_path: Path) -> None:
    """Source 001:39-40, 003:254. An open old one is read to its end; where the rename fails the old one stays."""
    async with served(say("one"), say("two"), store=f"{kind}:{tmp_path / 'store'}") as client:
        session_id = await client.session(title="before")
        folder = tmp_path / "store" / "sessions"
        file = folder / f"{session_id}.json" if kind == "json" else folder / session_id / "metadata.json"
        with file.open() as held:
            number = file.stat().st_ino
            assert (await client.request("PATCH", f"/api/sessions/{session_id}", {"title": "after"})).status == 200
            assert file.stat().st_ino != number
            assert "before" in held.read()
        assert "after" in file.read_text()
        before = file.read_bytes()
        failpoints.arm("files.before_rename=raise")
        try:
            await client.request("PATCH", f"/api/sessions/{session_id}", {"title": "never"})
        finally:
            failpoints.disarm()
        assert file.read_bytes() == before
        assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.rule("FS-3", "RN-4")
async def test_a_json_message_has_every_field_of_the_format(tmp_path: Path) -> None:
    """Source 001:25-33. A file of a prompt, of which there may be ten; a result, the counts, the model."""
    step = then(say("let me see"), call("ls", {"path": "."}), usage=Usage(input=7, output=3))
    async with served(step, say("done"), store=f"json:{tmp_path / 'store'}") as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        url = "data:text/plain;base64,aGk="
        file = {"type": "file", "mediaType": "text/plain", "filename": "hi.txt", "url": url}
        body = {"parts": [{"type": "text", "text": "look"}, file]}
        refused = await client.post(f"/api/sessions/{session_id}/prompt", {"parts": [file] * 11})
        assert (refused.status, refused.code) == (422, "too_many_files")
        assert (await client.post(f"/api/sessions/{session_id}/prompt", body)).status == 202
        await client.idle(session_id)
    asked, answer = reader_001.read_session(tmp_path / "store", session_id)["messages"]
    assert (asked["role"], asked["text"], len(asked["files"])) == ("user", "look", 1)
    assert asked["files"][0]["name"] == "hi.txt"
    assert (answer["text"], answer["model"]) == ("let me see\n\ndone", "test/model")
    assert answer["usage"] == {"inputTokens": 17, "outputTokens": 8}
    assert [(one["name"], one["isError"]) for one in answer["toolCalls"]] == [("ls", False)]
    assert [key for message in (asked, answer) for key in ("synthetic", "summary") if message.get(key)] == []


@pytest.mark.rule("FS-1")
async def test_a_log_and_its_metadata_have_the_keys_of_the_format(tmp_path: Path) -> None:
    """Source 003:31-61,75-86. Records of calls and results, times, a session's own prompt and its sums."""
    script = [call("ls", {"path": "."}), call("nothing", {}), then(say("done"), usage=Usage(input=1, output=2))]
    async with served(*script, store=f"jsonl:{tmp_path / 'store'}") as client:
        metadata = {"system_prompt": "Speak like a sailor."}
        session_id = await client.session(title="Boats", workspace_root=str(tmp_path), metadata=metadata)
        await client.prompt(session_id, "what is here?")
        await client.idle(session_id)
        total = (await client.get(f"/api/sessions/{session_id}")).json()["total_tokens"]
    folder = tmp_path / "store" / "sessions" / session_id
    found = reader_003.read_metadata(folder)
    assert found["id"] == session_id
    assert (found["name"], found["model"], found["source"]) == ("Boats", "test/model", "interactive")
    assert (found["systemPromptOverride"], found["metrics"]["totalTokens"]) == ("Speak like a sailor.", total)
    assert found["createdAt"] <= found["lastMessageAt"]
    assert found["createdAt"].endswith("Z")
    records = reader_003.read_records(folder)
    assert {record["timestamp"][10] + record["timestamp"][-1] for record in records} == {"TZ"}
    assert [record["seq"] for record in records] == sorted({record["seq"] for record in records})
    assert [(record["role"], record.get("isError")) for record in records] == [
        ("user", None),
        ("assistant", None),
        ("toolResult", False),
        ("assistant", None),
        ("toolResult", True),
        ("assistant", None),
    ]
    called = [block["id"] for record in records for block in record["content"] if block["type"] == "toolCall"]
    assert [record["toolCallId"] for record in records if record["role"] == "toolResult"] == called
    assert found["messageCount"] == len(records)
