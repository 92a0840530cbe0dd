"""Rules that name no tool: refused where they are set, held against every tool where they were stored before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import InvalidInput
from clew.store.unit import PatchSession, Unit
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.transcript.rule import CAPABILITIES
from tests.integration.http_client import AsgiClient, served
from tests.integration.mcp_peers import ask, rude_server

pytestmark = pytest.mark.rule("PM-10")

UNKNOWN = ("fs.wirte", "fs.*", "shell", "Write", "wirte", "wri.*", "mcp__other", "mcp__other__*", "mcp__rud__echo")
KNOWN = (
    *CAPABILITIES,
    "write",
    "*",
    "bash",
    "w*",
    "look_up",
    "web_fetch",
    "mcp__*",
    "mcp__rude",
    "mcp__rude__*",
    "mcp__rude__a",
    "mcp__ru*",
)


@clew.tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return word


def rule(permission: str, action: str = "deny", pattern: str = "*") -> dict[str, Any]:
    return {"permission": permission, "pattern": pattern, "action": action}


async def test_a_rule_that_names_no_tool_is_refused_with_the_list_by_every_route(tmp_path: Path) -> None:
    """Allow, too: it would be thought to hold. Tools of the host, and of servers that do not run yet, are known."""
    async with served(mcp_servers={"rude": rude_server()}, tools=[look_up]) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        path = f"/api/sessions/{session_id}/permissions"
        for permission in UNKNOWN:
            for action in ("deny", "ask", "allow"):
                answers = [
                    await client.request("PUT", path, {"rules": [rule("bash"), rule(permission, action)]}),
                    await client.post(
                        "/api/rules", {"scope": "session", "session": session_id, **rule(permission, action)}
                    ),
                    await client.post(
                        "/api/rules", {"scope": "project", "workspace": str(tmp_path), **rule(permission, action)}
                    ),
                ]
                assert {one.code for one in answers} == {"invalid_input"}, permission
                assert all("bash, edit" in one.json()["detail"] for one in answers)
                assert all("mcp__rude" in one.json()["detail"] for one in answers)
                assert all("fs.read, fs.write, shell.run" in one.json()["detail"] for one in answers)
        assert (await client.get(path)).json() == {"rules": []}
        for permission in KNOWN:
            assert (await client.request("PUT", path, {"rules": [rule(permission)]})).status == 200, permission
            made = {"scope": "project", "workspace": str(tmp_path), **rule(permission)}
            assert (await client.post("/api/rules", made)).status == 201, permission


async def test_a_host_and_its_agents_name_tools_that_are_there() -> None:
    for permission in ("fs.wirte", "wirte", "web_*_x"):
        with pytest.raises(InvalidInput, match="look_up"):
            async with clew.open("memory:", tools=[look_up], rules=[clew.Rule(permission, "*", "deny")]):
                pass
        agent = clew.Agent(name="own", description="x", prompt="x", rules=(clew.Rule(permission, "*", "deny"),))
        with pytest.raises(InvalidInput, match=r"the agent own.*look_up"):
            async with clew.open("memory:", tools=[look_up], agents=[agent]):
                pass


async def test_a_manifest_names_tools_that_are_there(tmp_path: Path) -> None:
    """The agent is left out, and the notice has the line and the list."""
    folder = tmp_path / "agents"
    folder.mkdir()
    text = "---\ndescription: x\nrules:\n  - {{permission: {0}, pattern: '*', action: deny}}\n---\nx\n"
    for name, permission in {"wrong": "fs.wirte", "right": "mcp__any__x", "able": "fs.write"}.items():
        (folder / f"{name}.md").write_text(text.format(permission))
    async with served(config_dir=tmp_path) as client:
        found = await client.engine.agents()
        assert [one.name for one in found.agents if one.source == "user"] == ["able", "right"]
        [notice] = found.notices
        assert "wrong.md:4: unknown permission 'fs.wirte'; use one of *, bash, edit" in notice


async def stored(client: AsgiClient, session_id: str, *rules: dict[str, Any]) -> None:
    """Put rules into the store as an older version, or another program, did."""
    patch = PatchSession(permissions=tuple({**one, "source": "session"} for one in rules))
    await client.engine.store.commit(Unit(session_id, (patch,)))


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_a_stored_rule_that_names_no_tool_holds_for_every_tool_and_shows_as_that(
    action: str, tmp_path: Path
) -> None:
    """Above what an agent and the host allow, until a person takes it away; one that allows gives nothing."""
    script = [call("look_up", {"word": "x"}), say("one"), call("look_up", {"word": "y"}), say("two")]
    allow = clew.Rule("look_up", "*", "allow")
    async with served(providers=FakeProviders(ScriptedModel(script)), tools=[look_up], rules=[allow]) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        path = f"/api/sessions/{session_id}/permissions"
        await stored(client, session_id, rule("net.load", "allow"), rule("shell.start", action))
        for tool, target in (("look_up", "x"), ("read", "a"), ("bash", "ls"), ("todo", ""), ("mcp__x__y", "z")):
            said = (await client.get(f"{path}/explain?tool={tool}&target={target}")).json()
            assert (said["action"], said["rule"]["permission"], said["rule"]["unknown"]) == (
                action,
                "shell.start",
                True,
            )
            assert "`shell.start *` names no tool that is known here, so it applies to every tool" in said["reason"]
        shown = (await client.get(path)).json()["rules"]
        assert [(one["permission"], one["unknown"]) for one in shown] == [("net.load", True), ("shell.start", True)]
        listed = (await client.get(f"/api/rules?scope=session&session={session_id}")).json()["rules"]
        assert [one["unknown"] for one in listed] == [True, True]
        await client.prompt(session_id, "go")
        status = await client.idle(session_id)
        assert len(status.get("waiting", [])) == (action == "ask")
        if action == "deny":
            # What a client read it may send back; a person settles it by leaving it out.
            kept = [{name: one[name] for name in ("permission", "pattern", "action")} for one in shown]
            assert (await client.request("PUT", path, {"rules": [*kept, rule("bash")]})).status == 200
            assert (await client.request("PUT", path, {"rules": []})).status == 200
            [made] = await ask(client, session_id, "again")
            assert (made["state"], made["output"]) == ("output-available", "y")


async def test_a_pattern_of_such_a_rule_still_counts(tmp_path: Path) -> None:
    async with served() as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        await stored(client, session_id, rule("fs.change", "deny", "./secret/**"))
        answers = {}
        for tool, target in (("read", "secret/a"), ("write", "secret/a"), ("read", "open/a"), ("write", "open/a")):
            said = (
                await client.get(f"/api/sessions/{session_id}/permissions/explain?tool={tool}&target={target}")
            ).json()
            answers[tool, target] = said["action"]
        assert answers == {
            ("read", "secret/a"): "deny",
            ("write", "secret/a"): "deny",
            ("read", "open/a"): "allow",
            ("write", "open/a"): "ask",
        }


async def test_agents_of_other_programs_stay_usable_and_an_unknown_denial_of_theirs_holds(tmp_path: Path) -> None:
    """Tools of theirs that clew does not have are passed over; a word nobody knows is held against every tool."""
    claude, opencode = tmp_path / ".claude" / "agents", tmp_path / ".opencode" / "agent"
    for folder in (claude, opencode):
        folder.mkdir(parents=True)
    (claude / "one.md").write_text(
        "---\nname: one\ndescription: x\ndisallowedTools: NotebookEdit, WebSearch, Foo\n---\nx\n"
    )
    texts = {
        "two": "permission:\n  websearch: deny\n  lsp: ask\n  edit: deny\n",
        "three": "permission:\n  fs.change: deny\n",
        "four": "tools:\n  foo: false\n  my_docs_search: false\n",
        "five": "permission:\n  my_docs_search: deny\n",
    }
    for name, text in texts.items():
        (opencode / f"{name}.md").write_text(f"---\ndescription: x\n{text}---\nx\n")
    async with served() as client:
        actions = {}
        for agent in ("one", *texts):
            session_id = await client.session(workspace_root=str(tmp_path), agent=agent)
            for tool in ("read", "write", "mcp__my_docs__search"):
                path = f"/api/sessions/{session_id}/permissions/explain?tool={tool}&target=a"
                actions[agent, tool] = (await client.get(path)).json()["action"]
        assert actions == {
            **{(agent, "read"): "allow" for agent in ("one", "two", "four", "five")},
            **{(agent, "write"): "ask" for agent in ("one", "four", "five")},
            **{(agent, "mcp__my_docs__search"): "ask" for agent in ("one", "two")},
            ("two", "write"): "deny",
            **{("three", tool): "deny" for tool in ("read", "write", "mcp__my_docs__search")},
            **{(agent, "mcp__my_docs__search"): "deny" for agent in ("four", "five")},
        }
        notices = "\n".join((await client.engine.agents(tmp_path)).notices)
    assert "permission fs.change names no known tool; its deny and ask rules apply to every tool" in notices
    assert "permission websearch is ignored; clew has no such tool" in notices
