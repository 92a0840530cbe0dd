"""Agents that a project has for Claude Code and opencode, as a person meets them: listed, run, and never freer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from tests.integration.command_line import Run, run
from tests.integration.http_client import AsgiClient, served

__all__ = ["run"]

REVIEWER = """\
---
name: reviewer
description: Use this agent to review. Examples: <example>Context: "x" user: 'go'</example>
tools: Read, Grep, Bash(git diff:*), mcp__github__get, mcp__web, WebSearch
disallowedTools: Bash
model: claude-opus-4-6
maxTurns: 900
color: cyan
---
You review.
"""
PLANNER = """\
---
description: Plans and changes nothing.
mode: primary
model: sonnet
temperature: 0.1
steps: 7
tools:
  "*": false
  read: true
  write: true
permission:
  edit: deny
  bash:
    "*": deny
    "git log*": allow
  read:
    "*.env": deny
    "src/a?": ask
  webfetch: ask
  external_directory: allow
---
You plan.
"""
CONFIG = """\
{
  // comments are allowed
  "agent": {
    "docs": {"description": "Writes // docs", "prompt": "{file:./prompts/docs.txt}",
      "permission": {"*": "deny", "read": "allow"},},
    "build": {"model": "anthropic/claude-haiku-4-5"},
    "off": {"description": "x", "prompt": "x", "disable": true},
    "env": {"description": "x", "prompt": "{env:SECRET}"},
    "out": {"description": "x", "prompt": "{file:../secret.txt}"},
    "odd": {"description": "x", "prompt": "x", "permission": {"bash": "sometimes"}},
  },
}
"""


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    put(place, ".clew/agents/mine.md", "---\ndescription: The project's own.\n---\nYou are mine.\n")
    put(place, ".claude/agents/mine.md", "---\ndescription: Another's.\n---\nYou are not.\n")
    put(place, ".claude/agents/reviewer.md", REVIEWER)
    put(
        place,
        ".claude/agents/free.md",
        "---\ndescription: Free.\npermissionMode: bypassPermissions\nhooks:\n  Stop: []\n---\nDo.",
    )
    put(place, ".opencode/agent/planner.md", PLANNER)
    put(place, "opencode.json", CONFIG)
    put(place, "prompts/docs.txt", "You write docs.")
    put(tmp_path, "secret.txt", "secret")
    return place


async def agents_of(client: AsgiClient, place: Path) -> tuple[dict[str, Any], list[str]]:
    told = (await client.get(f"/api/agents?workspace={quote(str(place))}")).json()
    return {one["name"]: one for one in told["agents"]}, [one.replace(f"{place}/", "") for one in told["notices"]]


async def test_agents_of_other_programs_are_listed_with_what_was_left_out(work: Path) -> None:
    """Keys are read into clew's own, those that mean nothing here are named, and nothing is granted."""
    async with served() as client:
        agents, notices = await agents_of(client, work)
        assert sorted(agents) == ["assistant", "docs", "explore", "free", "mine", "planner", "reviewer"]
        keys = ("description", "mode", "tools", "max_steps", "source")
        told = {name: tuple(agents[name].get(key) for key in keys) for name in ("reviewer", "planner", "docs")}
        said = "Use this agent to review. Examples: <example>Context: \"x\" user: 'go'</example>"
        assert told == {
            "reviewer": (
                said,
                "subagent",
                ["read", "grep", "mcp__github__get", "mcp__web__*", "WebSearch"],
                100,
                "project",
            ),
            "planner": ("Plans and changes nothing.", "primary", ["read", "write"], 7, "project"),
            "docs": ("Writes // docs", "subagent", ["read"], 100, "project"),
        }
        assert agents["mine"]["description"] == "The project's own."
        assert notices == [
            ".claude/agents/free.md: clew has no equivalent for hooks; ignored",
            ".claude/agents/free.md: permissionMode: bypassPermissions is ignored; a project cannot grant permissions",
            ".claude/agents/reviewer.md: clew has no equivalent for color; ignored",
            ".claude/agents/reviewer.md: Bash(git diff:*) of tools: clew supports only whole tools here; "
            "it is not offered",
            ".claude/agents/reviewer.md: WebSearch of tools: clew has no such tool; it is offered only if one exists",
            ".claude/agents/mine.md: ignored; the project already has an agent of this name",
            ".claude/agents/reviewer.md: max_steps 900 exceeds the limit for projects; 100 is used",
            ".opencode/agent/planner.md: permission external_directory is ignored; clew always asks",
            ".opencode/agent/planner.md: model is ignored; 'sonnet' is not provider/model; the session's model is used",
            "opencode.json: agent 'docs': the rule allowing read * is ignored; a project cannot grant permissions",
            "opencode.json: agent 'build' is ignored; it has no prompt",
            "opencode.json: agent 'env' has a composed prompt; only a single {file:…} is supported; "
            "the agent is ignored",
            f"opencode.json: agent 'out': its prompt ../secret.txt leads out of {work}; the agent is ignored",
            "opencode.json: agent 'odd': bash must be allow, ask or deny, or a map of them; the agent is ignored",
            ".claude/agents/reviewer.md: its model cannot be used; there is no provider 'anthropic'; there are test",
        ]


DENIED, DONE = "output-error", "output-available"


@pytest.mark.parametrize(
    ("agent", "tool", "arguments", "state"),
    [
        ("planner", "read", {"path": "a/.env"}, DENIED),
        ("planner", "read", {"path": "opencode.json"}, DONE),
        ("planner", "write", {"path": "x.txt", "content": "x"}, DENIED),
        ("planner", "bash", {"command": "git log"}, DENIED),
        ("docs", "read", {"path": "opencode.json"}, DONE),
        ("docs", "ls", {"path": "."}, DENIED),
        ("quiet", "read", {"path": "opencode.json"}, DENIED),
        ("free", "write", {"path": "x.txt", "content": "x"}, None),
    ],
)
async def test_such_an_agent_is_refused_what_its_file_refuses_and_granted_nothing(
    work: Path, agent: str, tool: str, arguments: dict[str, Any], state: str | None
) -> None:
    """Whatever else the user has allowed; what nobody has allowed is asked for, as from any agent of a project."""
    put(work, "a/.env", "KEY=1")
    put(work, ".opencode/agents/quiet.md", "---\ndescription: Quiet.\npermission: deny\n---\nSay nothing.")
    model = ScriptedModel([call(tool, arguments), say("done")])
    async with served(providers=FakeProviders(model)) as client:
        session = await client.session(agent=agent, workspace_root=str(work))
        rules = [{"permission": tool, "pattern": "*", "action": "allow"}] if state else []
        assert (await client.request("PUT", f"/api/sessions/{session}/permissions", {"rules": rules})).status == 200
        await client.chat(session, "go")
        [part] = [one for one in (await client.messages(session))[-1]["parts"] if one["type"] == f"tool-{tool}"]
        assert part["state"] == (state or "approval-requested")
        assert not (work / "x.txt").exists()


async def test_what_opencode_json_refuses_all_agents_holds_for_each(tmp_path: Path) -> None:
    """Those in it and those beside it; where it cannot be read nobody knows what it refuses, and none is there."""
    put(tmp_path, ".opencode/agent/beside.md", "---\ndescription: x\npermission:\n  bash: ask\n---\nx")
    inside = '"agent": {"inside": {"description": "x", "prompt": "x"}}'
    put(tmp_path, "opencode.json", f'{{"permission": {{"bash": "deny", "read": "allow"}}, {inside}}}')
    put(tmp_path, "opencode.jsonc", '{"tools": {"write": false}, /* no more */}')
    for agent in ("inside", "beside"):
        for tool, arguments in (("bash", {"command": "id"}), ("write", {"path": "x.txt", "content": "x"})):
            model = ScriptedModel([call(tool, arguments), say("done")])
            async with served(providers=FakeProviders(model)) as client:
                session = await client.session(agent=agent, workspace_root=str(tmp_path))
                rules = [{"permission": "*", "pattern": "*", "action": "allow"}]
                await client.request("PUT", f"/api/sessions/{session}/permissions", {"rules": rules})
                await client.chat(session, "go")
                parts = (await client.messages(session))[-1]["parts"]
                assert [one["state"] for one in parts if one["type"] == f"tool-{tool}"] == [DENIED]
    put(tmp_path, "opencode.jsonc", "{")
    async with served() as client:
        agents, notices = await agents_of(client, tmp_path)
        assert sorted(agents) == ["assistant", "explore"]
        assert [one for one in notices if "opencode" in one] == [
            "opencode.jsonc: it is not JSON: Input data was truncated; no opencode agents are loaded"
        ]


async def test_a_session_gives_work_to_an_agent_of_another_program(work: Path) -> None:
    """Its description is told to the model, and its prompt is its own."""
    model = ScriptedModel([call("task", {"agent": "free", "prompt": "help"}), say("helped"), say("done")])
    async with served(providers=FakeProviders(model)) as client:
        session = await client.session(workspace_root=str(work))
        rules = [{"permission": "task", "pattern": "*", "action": "allow"}]
        assert (await client.request("PUT", f"/api/sessions/{session}/permissions", {"rules": rules})).status == 200
        await client.chat(session, "go")
        assert ["free: Free." in model.requests[0].system, "Do." in model.requests[1].system] == [True, True]


def test_at_a_terminal_the_agents_of_a_folder_are_listed_with_what_was_left_out(run: Run, tmp_path: Path) -> None:
    """Of this folder, whoever wrote them; no store is needed."""
    put(tmp_path, ".claude/agents/free.md", "---\ndescription: Free.\ncolor: red\n---\nDo.")
    code, out, err = run("agents")
    own = [line for line in out.splitlines() if " builtin " not in line]
    assert (code, own, err) == (
        0,
        [
            "free       subagent  project  Free.",
            "",
            f"{tmp_path}/.claude/agents/free.md: clew has no equivalent for color; ignored",
        ],
        "",
    )
    assert json.loads(run("agents", "--json")[1])["notices"] == [out.splitlines()[-1]]


def one(**fields: Any) -> str:
    return json.dumps({"agent": {"x": {"description": "x", "prompt": "x", **fields}}})


HOSTILE = {
    "a comment without end": "/*" * 30_000,
    "a text without end": '{"agent": {"x": "' + '\\"' * 30_000,
    "a value that is nested deep": one(a=0).replace("0", "[" * 900 + "]" * 900),
    "a value that is nested deeper": one(a=0).replace("0", "[" * 9_000 + "]" * 9_000),
    "a list in the place of agents": '{"agent": [1]}',
    "too many rules": one(permission={f"s{n}_a_b_c_d_e": "deny" for n in range(500)}),
    "signs that cannot be seen": one(description="x\x1b[31m", **{"\x1b]0;": 1}),
    "a pattern that cannot be seen": one(permission={"bash": {"\0": "deny"}}),
}


@pytest.mark.parametrize("text", list(HOSTILE.values()), ids=list(HOSTILE))
async def test_a_hostile_file_costs_its_own_agents_and_nothing_else(tmp_path: Path, text: str) -> None:
    """The others are there, a reason is told in signs that can be seen, and a session works."""
    put(tmp_path, "opencode.json", text)
    put(tmp_path, ".claude/agents/free.md", "---\ndescription: Free.\n---\nDo.")
    (tmp_path / ".opencode").symlink_to("/etc")
    async with served(say("yes")) as client:
        agents, notices = await agents_of(client, tmp_path)
        assert "free" in agents
        assert notices
        assert all(text.isprintable() for text in [*notices, *(agent["description"] for agent in agents.values())])
        session = await client.session(workspace_root=str(tmp_path))
        assert (await client.chat(session, "go"))[-1] == {"type": "finish", "finishReason": "stop"}
