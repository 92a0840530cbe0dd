"""Rules on capabilities, through HTTP and the command line: tools of clew, of a host and of an MCP server."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import InvalidInput
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.transcript.rule import CAPABILITIES
from tests.integration.command_line import Run, run
from tests.integration.http_client import AsgiClient, served
from tests.integration.mcp_peers import ask, decide, rude_server

__all__ = ["run"]
pytestmark = [pytest.mark.rule("PM-10"), pytest.mark.rule("PM-2")]


@clew.tool(capabilities={"fs.write": "path"}, needs_workspace=True)
def save(path: str, context: clew.ToolContext) -> str:
    """Save something."""
    assert context.workspace is not None
    (context.workspace / path).write_text("saved")
    return "saved"


@clew.tool
async def guess(word: str) -> str:
    """Do what nobody knows."""
    return f"guessed {word}"


def rule(permission: str, action: str = "deny", pattern: str = "*") -> dict[str, Any]:
    return {"permission": permission, "pattern": pattern, "action": action}


async def explained(client: AsgiClient, session_id: str, tool: str, target: str = "x") -> str:
    path = f"/api/sessions/{session_id}/permissions/explain?tool={tool}&target={target}"
    return str((await client.get(path)).json()["action"])


async def test_a_rule_on_a_capability_holds_for_tools_of_clew_of_a_host_and_of_a_server(tmp_path: Path) -> None:
    """Above what the host allows each of them: denied, or asked about where the tool does not say. A person may then
    allow the call once, and what a rule allows is done unasked again."""
    script = [
        *(call("write", {"path": "a", "content": "x"}), say("1")),
        *(call("save", {"path": "b"}), say("2")),
        *(call("guess", {"word": "w"}), say("3")),
        *(call("mcp__rude__echo", {"text": "t"}), say("4")),
        *(call("bash", {"command": "touch c"}), say("5")),
        *(call("save", {"path": "out/d"}), say("6")),
    ]
    allowed = [clew.Rule(name, "*", "allow") for name in ("write", "save", "guess", "mcp__*", "bash")]
    async with served(
        providers=FakeProviders(ScriptedModel(script)),
        tools=[save, guess],
        rules=[*allowed, clew.Rule("save", "./**", "allow")],
        mcp_servers={"rude": rude_server(trust=True)},
    ) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        path = f"/api/sessions/{session_id}/permissions"
        assert (await client.request("PUT", path, {"rules": [rule("fs.write")]})).status == 200
        for text in ("write", "save"):
            [made] = await ask(client, session_id, text)
            assert (made["state"], "`fs.write *` denies it" in made["errorText"]) == ("output-error", True), made
        for text in ("guess", "echo"):
            [made] = await ask(client, session_id, text)
            assert made["state"] == "approval-requested"
            [made] = await decide(client, session_id, "once")
            assert made["state"] == "output-available"
        [made] = await ask(client, session_id, "touch")
        assert (made["state"], os.listdir(tmp_path)) == ("output-error", [])
        os.mkdir(tmp_path / "out")
        narrow = [rule("fs.write"), rule("fs.write", "allow", "./out/**")]
        assert (await client.request("PUT", path, {"rules": narrow})).status == 200
        [made] = await ask(client, session_id, "save")
        assert (made["state"], (tmp_path / "out" / "d").read_text()) == ("output-available", "saved")


async def test_a_rule_on_a_capability_is_listed_and_explained_as_known(tmp_path: Path) -> None:
    """For each tool, and for the capability itself; rules of a project and of an agent are as good."""
    async with served(tools=[save, guess]) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        made = await client.post(
            "/api/rules", {"scope": "project", "workspace": str(tmp_path), **rule("net.fetch", "deny", "*.test")}
        )
        await client.post(
            "/api/rules", {"scope": "session", "session": session_id, **rule("fs.write", "ask", "./a/**")}
        )
        listed = (await client.get(f"/api/rules?session={session_id}")).json()["rules"]
        assert [(one["permission"], one.get("unknown", False)) for one in listed[:2]] == [
            ("fs.write", False),
            ("net.fetch", False),
        ]
        assert made.status == 201
        actions = {
            (tool, target): await explained(client, session_id, tool, target)
            for tool, target in (
                ("web_fetch", "https://a.test/x"),
                ("net.fetch", "a.test"),
                ("net.fetch", "b.org"),
                ("save", "a/x"),
                ("fs.read", "x"),
                ("guess", "x"),
            )
        }
        assert actions == {
            ("web_fetch", "https://a.test/x"): "deny",
            ("net.fetch", "a.test"): "deny",
            ("net.fetch", "b.org"): "ask",
            ("save", "a/x"): "ask",
            ("fs.read", "x"): "ask",
            ("guess", "x"): "ask",
        }
        url = f"/api/sessions/{session_id}/permissions/explain?tool=save&target=a/x"
        said = (await client.get(url)).json()
        assert (said["rule"]["permission"], said["reason"]) == (
            "fs.write",
            "the session rule `fs.write ./a/**` asks",
        )
        assert (await client.get(url.replace("tool=save&target=a/x", "tool=fs.write&target=%00"))).status == 422


async def test_a_project_may_deny_reading_what_every_agent_may_read(tmp_path: Path) -> None:
    """A rule that names a tool is more specific, so clew repeats the denial for what it grants."""
    folder = tmp_path / ".clew" / "agents"
    folder.mkdir(parents=True)
    text = "---\ndescription: x\nrules:\n  - {permission: fs.read, pattern: './secret/**', action: deny}\n---\nx\n"
    (folder / "shy.md").write_text(text)
    async with served() as client:
        session_id = await client.session(workspace_root=str(tmp_path), agent="shy")
        assert [await explained(client, session_id, tool, "secret/a") for tool in ("read", "grep", "ls")] == [
            "deny"
        ] * 3
        assert await explained(client, session_id, "bash", "cat secret/a") == "deny"
        assert await explained(client, session_id, "read", "open/a") == "allow"


async def test_a_server_whose_calls_are_denied_is_not_started(tmp_path: Path) -> None:
    """And a rule that allows its calls does not accept its definitions."""
    async with served(say("one"), say("two"), mcp_servers={"rude": rude_server()}) as client:
        for action, state in (("deny", "idle"), ("allow", "ready")):
            session_id = await client.session(workspace_root=str(tmp_path))
            await client.request(
                "PUT", f"/api/sessions/{session_id}/permissions", {"rules": [rule("mcp.call", action)]}
            )
            assert await ask(client, session_id, "hello") == []
            [server] = await client.engine.mcp_servers(session_id=session_id)
            assert server.state == state
            assert await explained(client, session_id, "mcp__rude__echo") == action
            assert await explained(client, session_id, "mcp__rude") == ("deny" if action == "deny" else "ask")


def test_the_command_line_takes_capabilities_and_refuses_others_with_the_list(run: Run, tmp_path: Path) -> None:
    """It warns of names that are no tool of clew's, and a capability is none of these."""
    run("run", "hello", "--model", "demo/echo")
    session = json.loads(run("ls", "--json")[1])["sessions"][0]["id"]
    for capability in ("agent.spawn", "fs.write"):
        code, _, error = run("rules", "add", "deny", capability, "*")
        assert (code, error) == (0, "")
    assert run("rules", "explain", "task", "coder", "--session", session) == (
        0,
        "deny: the project rule `agent.spawn *` denies it\n",
        "",
    )
    assert run("rules", "explain", "fs.write", "a", "--session", session)[1] == (
        "deny: the project rule `fs.write *` denies it\n"
    )
    code, _, error = run("rules", "add", "deny", "fs.wirte", "*")
    assert code == 2
    assert all(name in error for name in ("web_fetch", *CAPABILITIES))


@pytest.mark.parametrize("action", ["deny", "allow"])
def test_a_stored_rule_that_names_nothing_known_is_shown_by_check_until_it_is_settled(
    action: str, run: Run, tmp_path: Path
) -> None:
    """It is no damage, so the store counts as whole."""
    run("run", "hello", "--model", "demo/echo")
    session = json.loads(run("ls", "--json")[1])["sessions"][0]["id"]
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        rules = json.dumps([{**rule("fs.change", action), "source": "session"}])
        connection.execute("UPDATE chat_sessions SET permissions_json = ?", (rules,))
    [listed] = json.loads(run("check", "--json")[1])["unknown_rules"]
    code, text, _ = run("check")
    remark = "  unknown permission" + "; applies to every tool" * (action == "deny")
    assert (code, text) == (
        0,
        f"session {session}\n  {listed['id']}  {action:<5}  fs.change *{remark}\n1 sessions, 0 problems\n",
    )
    assert run("rules", "revoke", listed["id"], "--session", session)[0] == 0
    assert run("check")[1] == "1 sessions, 0 problems\n"


async def test_a_host_gives_rules_on_capabilities_and_tools_that_declare_real_ones() -> None:
    """Pinned, one holds above every rule of a person."""
    async with served(tools=[save], rules=[clew.Rule("fs.write", "*", "deny", pinned=True)]) as client:
        session_id = await client.session()
        await client.engine.set_permissions(session_id, [rule("save", "allow"), rule("fs.write", "allow")])
        assert await explained(client, session_id, "save", "") == "deny"

    class Wrong:
        name, description, input_schema, timeout_ms = "wrong", "x", {"type": "object"}, 1_000
        needs_workspace = asks_human = False
        capabilities = ("fs.everything",)

    with pytest.raises((TypeError, InvalidInput), match=r"fs\.everything"):
        async with clew.open("memory:", tools=[Wrong()]):  # type: ignore[list-item]
            pass
