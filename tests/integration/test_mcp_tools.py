"""MCP servers out of the registry give tools: looked at by a person first, asked about like any other, by HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import clew
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say, then
from tests.integration.http_client import served
from tests.integration.mcp_peers import ask, calls, decide, npm_server, told

pytestmark = pytest.mark.rule("MC-1")
SCOPE = "@modelcontextprotocol"


def offered(model: ScriptedModel, request: int) -> list[str]:
    return [tool.name for tool in model.requests[request].tools if tool.name.startswith("mcp__")]


@pytest.mark.node
@pytest.mark.slow
async def test_a_real_server_is_looked_at_by_a_person_before_a_model_is_told_of_its_tools(tmp_path: Path) -> None:
    """The files server: its definitions are asked about with all they say, then each call; "always" holds for both."""
    (tmp_path / "door.txt").write_text("the door is green")
    read = call("mcp__files__read_text_file", {"path": str(tmp_path / "door.txt")})
    model = ScriptedModel([call("mcp__files", {}), read, say("green"), read, say("still green")])
    servers = {"files": npm_server(f"{SCOPE}/server-filesystem", "dist/index.js", str(tmp_path))}
    async with served(providers=FakeProviders(model), mcp_servers=servers) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        [door] = await ask(client, session_id, "which colour has the door?")
        asked = door["approval"]["descriptor"]
        assert (door["type"], door["state"]) == ("tool-mcp__files", "approval-requested")
        assert [one["value"][:7] for one in asked["targets"]] == ["sha256:"]
        assert "+## mcp__files__read_text_file" in asked["change"]["diff"]
        assert "Read the complete contents of a file" in asked["change"]["diff"]
        assert offered(model, 0) == ["mcp__files"]
        door, reading = await decide(client, session_id, "project")
        assert (told(door)[:8], reading["state"]) == ("approved", "approval-requested")
        assert {"mcp__files__read_text_file", "mcp__files__write_file"} <= set(offered(model, 1))
        assert "mcp__files" not in offered(model, 1)
        assert told((await decide(client, session_id, "project"))[1]) == "the door is green"
        # A rule of the project holds for its definitions and for the call: nobody is asked again.
        other = await client.session(workspace_root=str(tmp_path))
        assert told((await ask(client, other, "and now?"))[0]) == "the door is green"


@pytest.mark.node
@pytest.mark.slow
async def test_a_real_server_over_http_is_used_with_its_key_pictures_and_progress(tmp_path: Path) -> None:
    """The reference server, which has one of everything; what it gives is kept and sent to the model."""
    async with everything(tmp_path) as url:
        servers = {"all": {"url": url, "headers": {"authorization": "Bearer x"}}}
        names = ["echo", "get-sum", "get-structured-content", "get-tiny-image", "trigger-long-running-operation"]
        args = [{"message": "hi"}, {"a": 1, "b": 2}, {"location": "Chicago"}, {}, {"duration": 0.1, "steps": 3}]
        made = [call(f"mcp__all__{name}", arg) for name, arg in zip(names, args, strict=True)]
        model = ScriptedModel([call("mcp__all", {}), then(*made), say("all of it")])
        async with served(providers=FakeProviders(model), mcp_servers=servers) as client:
            session_id = await client.session()
            await ask(client, session_id, "try everything")
            await decide(client, session_id, "session")
            answer = await client.post(f"/api/sessions/{session_id}/approvals", {"decision": "once"})
            assert answer.status == 200, answer
            await client.idle(session_id)
            _, echo, added, weather, picture, slow = await calls(client, session_id)
            assert [told(one) for one in (echo, added, slow)] == [
                "Echo: hi",
                "The sum of 1 and 2 is 3.",
                "Long running operation completed. Duration: 0.1 seconds, Steps: 3.",
            ]
            assert json.loads(told(weather)).keys() == {"temperature", "conditions", "humidity"}
            assert "[file image]" in told(picture)
            parts = (await client.messages(session_id))[-1]["parts"]
            assert [one["mediaType"] for one in parts if one["type"] == "file"] == ["image/png"]
            [state] = (await client.get("/api/mcp-servers")).json()["servers"]
            assert (state["state"], state["runs"], state["kind"], len(state["tools"])) == ("ready", 1, "url", 13)
            assert "Bearer" not in str(state)


@pytest.mark.node
@pytest.mark.slow
async def test_two_real_servers_work_side_by_side_and_end_with_the_engine(tmp_path: Path) -> None:
    """A memory and git, trusted by the config; their processes are gone when the store is closed."""
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(tmp_path)], check=True)
    servers = {
        "memory": npm_server(
            f"{SCOPE}/server-memory", "dist/index.js", env={"MEMORY_FILE_PATH": f"{tmp_path}/m.jsonl"}, trust=True
        ),
        "git": npm_server(
            "@cyanheads/git-mcp-server", "dist/index.js", trust=True, env={"MCP_TRANSPORT_TYPE": "stdio"}
        ),
    }
    entity = {"name": "door", "entityType": "thing", "observations": ["is green"]}
    script = [
        [
            call("mcp__memory__create_entities", {"entities": [entity]}),
            call("mcp__git__git_status", {"path": str(tmp_path)}),
        ],
        call("mcp__memory__search_nodes", {"query": "door"}),
        say("done"),
    ]
    rules = [clew.Rule("mcp__*", "*", "allow")]
    # What drives the browser for other tests lives on.
    before = set(children())
    async with served(*script, mcp_servers=servers, rules=rules) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        kept, status, found = await ask(client, session_id, "remember the door")
        assert "is green" in told(kept)
        assert "is green" in told(found)
        assert "main" in told(status) or "master" in told(status)
        running = set(children()) - before
        assert len(running) >= 2
    assert not running & set(children())


def children() -> list[int]:
    """The node processes below this one."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    below, names = {os.getpid()}, {int(pid): comm for pid, _, comm in rows}
    for _ in range(5):
        below |= {int(pid) for pid, parent, _ in rows if int(parent) in below}
    return [pid for pid in below if names.get(pid, "").startswith(("node", "MainThread"))]


@contextlib.asynccontextmanager
async def everything(folder: Path) -> AsyncIterator[str]:
    """The reference server on a port of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = npm_server(f"{SCOPE}/server-everything", "dist/index.js", "streamableHttp")
    env = {"PATH": os.environ["PATH"], "PORT": str(port)}
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            server["command"], *server["args"], env=env, stdout=log, stderr=asyncio.subprocess.PIPE
        )
    try:
        assert process.stderr is not None
        async for line in process.stderr:
            if b"listening" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()
