"""Who has which MCP server, from when to when: config, agents, sessions, folders; idle ones, killed hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.tools.mcp_tools import ServerScope
from tests.integration.command_line import Run, run
from tests.integration.http_client import AsgiClient, served
from tests.integration.mcp_peers import RUDE, ask, noted, rude_server, told

__all__ = ["run"]
pytestmark = [pytest.mark.rule("MC-1"), pytest.mark.slow]
ALLOW = clew.Rule("mcp__*", "*", "allow")
HOUR_MS = 60 * 60 * 1000


def offered(model: ScriptedModel, request: int = -1) -> list[str]:
    """The servers, or tools, that a model was told of; of one with many tools the first."""
    names = [tool.name for tool in model.requests[request].tools if tool.name.startswith("mcp__")]
    return [name for name in names if name.count("__") == 1 or name.endswith("__echo")]


async def states(client: AsgiClient, **where: Any) -> dict[str, tuple[str, int, str]]:
    found = await client.engine.mcp_servers(**where)
    return {one.name: (one.state, one.runs, one.source) for one in found}


@pytest.mark.rule("RN-5")
async def test_an_idle_server_is_released_and_begun_again_by_the_next_call_alone(tmp_path: Path) -> None:
    """What its tools are is known meanwhile; a turn that calls none starts nothing."""
    notes, clock = tmp_path / "notes", FakeClock()
    echo = call("mcp__rude__echo", {})
    script = [echo, say("one"), say("nothing to do"), echo, say("two")]
    servers = {"rude": rude_server(f"notes={notes}", trust=True)}
    async with served(*script, mcp_servers=servers, rules=[ALLOW], clock=clock) as client:
        session_id = await client.session()
        await ask(client, session_id, "go")
        assert await states(client) == {"rude": ("ready", 1, "user")}
        clock.advance(HOUR_MS / 2)
        await noted(notes, "ended")
        await ask(client, session_id, "go")
        assert await states(client) == {"rude": ("idle", 0, "user")}
        assert told((await ask(client, session_id, "go"))[0]) == "{}"
    assert notes.read_text().splitlines().count("started") == 2


async def test_a_session_that_is_given_servers_has_them_alone_and_they_end_with_it(tmp_path: Path) -> None:
    """By a front, for as long as this process; another session neither has nor sees them."""
    notes = tmp_path / "notes"
    model = ScriptedModel([call("mcp__mine__echo", {}), say("x"), say("y")])
    given = {"servers": {"mine": rude_server(f"notes={notes}", trust=True)}}
    async with served(providers=FakeProviders(model), rules=[ALLOW]) as client:
        session_id, other = await client.session(), await client.session()
        answer = await client.request("PUT", f"/api/sessions/{session_id}/mcp-servers", given)
        assert [(one["name"], one["source"]) for one in answer.json()["servers"]] == [("mine", "session")]
        assert told((await ask(client, session_id, "go"))[0]) == "{}"
        await ask(client, other, "go")
        assert offered(model) == []
        assert (await states(client), await states(client, session_id=other)) == ({}, {})
        place = ServerScope(session_id=session_id, owner=None, workspace=None)
        assert client.engine.host.servers is not None
        [mine] = await client.engine.host.servers.serve(place, ("mine",))
        assert (await client.request("DELETE", f"/api/sessions/{session_id}")).status == 204
        await noted(notes, "ended")
        # A run that still had its tools would begin it again, with nobody to end it.
        [tool] = [one for one in mine.tools if one.name == "mcp__mine__echo"]
        with pytest.raises(clew.errors.ToolFailed, match="was removed"):
            await tool.execute({}, None)  # type: ignore[arg-type]
        wrong: list[dict[str, Any]] = [{"a__b": {"command": "x"}}, {"x": {}}, {"x": {"url": "ftp://x"}}]
        for bad in (*wrong, {"x": {"command": "y", "url": "http://x"}}):
            refused = await client.request("PUT", f"/api/sessions/{other}/mcp-servers", {"servers": bad})
            assert (refused.status, refused.code) == (422, "invalid_input"), bad


async def test_a_folder_alone_starts_no_program(tmp_path: Path) -> None:
    """What a project's agent says of a server is ignored and told; it may name one of the user's. A user's own may say
    one out, and neither has more than it names."""
    mark, project, user = tmp_path / "started", tmp_path / "project", tmp_path / "config"
    manifest = "---\ndescription: x\nmcp_servers:\n  - rude\n  - {{name: own, command: touch, args: ['{0}']}}\n---\nx\n"
    for folder in (project / ".clew" / "agents", user / "agents"):
        folder.mkdir(parents=True)
    (project / ".clew" / "agents" / "theirs.md").write_text(manifest.format(mark))
    (user / "agents" / "mine.md").write_text(manifest.format(mark))
    (user / "agents" / "plain.md").write_text("---\ndescription: x\ntools: [read, mcp__rude__echo]\n---\nx\n")
    (user / "agents" / "none.md").write_text("---\ndescription: x\ntools: [read]\n---\nx\n")
    servers = {"rude": rude_server(trust=True), "other": rude_server(trust=True)}
    model = ScriptedModel([say("x")] * 4)
    async with served(providers=FakeProviders(model), mcp_servers=servers, config_dir=user) as client:
        notices = (await client.engine.agents(project)).notices
        assert [one.partition("theirs.md: ")[2] for one in notices] == [
            "its settings for the MCP servers own are ignored; a project cannot start a program or connect to a host. "
            "Define them in your own config.toml"
        ]
        seen = {}
        for agent in ("theirs", "none", "plain", "mine"):
            assert not mark.exists()
            await ask(client, await client.session(workspace_root=str(project), agent=agent), "go")
            seen[agent] = [one.name for one in model.requests[-1].tools if one.name.startswith("mcp__")]
    assert {agent: len(names) for agent, names in seen.items()} == {"theirs": 17, "none": 0, "plain": 1, "mine": 18}
    assert mark.exists()
    assert seen["mine"][0] == "mcp__own"


async def test_where_nobody_is_there_to_ask_only_what_was_taken_already_is_there() -> None:
    """Neither tools nor a placeholder of a server without review; a rule for its definitions gives them."""
    model = ScriptedModel([say("x")] * 2)
    async with served(providers=FakeProviders(model), mcp_servers={"rude": rude_server()}) as client:
        session_id = await client.session()
        for expected in ([], ["mcp__rude__echo"]):
            submission = await client.engine.submit(session_id, "go", attended=False)
            assert (await submission.wait()).status == "completed"
            assert offered(model) == expected
            [state] = await client.engine.mcp_servers()
            rule = {"permission": "mcp__rude", "pattern": state.digest, "action": "allow"}
            await client.engine.set_permissions(session_id, [rule])


@pytest.mark.parametrize(
    ("rule", "started", "tools"),
    [
        (clew.Rule("mcp__rude", "*", "deny"), False, []),
        (clew.Rule("mcp__rude__*", "*", "deny"), False, []),
        (clew.Rule("mcp__*", "*", "deny", pinned=True), False, []),
        (clew.Rule("mcp__rude__echo", "*", "deny"), True, ["mcp__rude__echo"]),
        (clew.Rule("mcp__rude__*", "*fragile*", "deny"), True, ["mcp__rude__echo"]),
        (clew.Rule("mcp__other__*", "*", "deny"), True, ["mcp__rude__echo"]),
    ],
)
async def test_a_server_that_the_rules_deny_throughout_is_not_started(
    rule: clew.Rule, started: bool, tools: list[str], tmp_path: Path
) -> None:
    """Whatever the config trusts, no model is told of it; a rule that leaves something of it starts it."""
    model, notes = ScriptedModel([say("x"), say("y")]), tmp_path / "notes"
    servers = {"rude": rude_server(f"notes={notes}", trust=True)}
    async with served(providers=FakeProviders(model), mcp_servers=servers, rules=[rule]) as client:
        session_id = await client.session()
        await ask(client, session_id, "go")
        assert (offered(model), notes.exists()) == (tools, started)
        assert await states(client) == {"rude": ("ready", 1, "user") if started else ("idle", 0, "user")}
        # A person's own rule is nearer than the host's, unless that is pinned.
        allow = {"permission": "mcp__rude*", "pattern": "*", "action": "allow"}
        await client.engine.set_permissions(session_id, [allow])
        await ask(client, session_id, "go")
        assert offered(model) == ([] if rule.pinned else ["mcp__rude__echo"])


async def test_a_server_of_which_an_agent_names_only_what_is_denied_is_not_started(tmp_path: Path) -> None:
    """By name, and by how names begin; with one tool that is not denied it is there."""
    user, notes = tmp_path / "config", tmp_path / "notes"
    (user / "agents").mkdir(parents=True)
    for name, tools in {"shut": "mcp__rude__die, mcp__rude__fl*", "open": "mcp__rude__die, mcp__rude__echo"}.items():
        (user / "agents" / f"{name}.md").write_text(f"---\ndescription: x\ntools: [read, {tools}]\n---\nx\n")
    model = ScriptedModel([say("x"), say("y")])
    servers = {"rude": rude_server(f"notes={notes}", trust=True)}
    rules = [clew.Rule(f"mcp__rude__{name}", "*", "deny") for name in ("die", "f*")]
    async with served(providers=FakeProviders(model), mcp_servers=servers, rules=rules, config_dir=user) as client:
        for agent, expected in {"shut": ([], False), "open": (["mcp__rude__echo"], True)}.items():
            await ask(client, await client.session(agent=agent), "go")
            assert (offered(model), notes.exists()) == expected, agent


async def test_a_session_that_only_reads_starts_no_server(tmp_path: Path) -> None:
    """None of its tools would be there, whatever the config trusts; in another mode it is started, and they are."""
    model, notes = ScriptedModel([say("x"), say("y")]), tmp_path / "notes"
    servers = {"rude": rude_server(f"notes={notes}", trust=True)}
    async with served(providers=FakeProviders(model), mcp_servers=servers) as client:
        session_id = await client.session()
        await client.engine.patch_session(session_id, mode="read_only")
        await ask(client, session_id, "go")
        assert (offered(model), notes.exists()) == ([], False)
        assert await states(client) == {"rude": ("idle", 0, "user")}
        await client.engine.patch_session(session_id, mode="ask")
        await ask(client, session_id, "go")
        assert offered(model) == ["mcp__rude__echo"]


HOST = """
import asyncio, sys
import clew
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say

async def main():
    servers = {"rude": {"command": sys.executable, "args": ["-I", sys.argv[1], f"notes={sys.argv[2]}"], "trust": True}}
    providers = FakeProviders(ScriptedModel([call("mcp__rude__hang", {}), say("x")]))
    rules = [clew.Rule("mcp__*", "*", "allow")]
    async with clew.open("memory:", providers=providers, mcp_servers=servers, rules=rules) as engine:
        session = await engine.create_session(model="test/x")
        await (await engine.submit(session.id, "go")).wait()

asyncio.run(main())
"""


@pytest.mark.rule("PM-9")
@pytest.mark.kill
async def test_a_host_that_is_killed_takes_its_servers_along(tmp_path: Path) -> None:
    """In the middle of a call, without a chance to say so."""
    notes = tmp_path / "notes"
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", HOST, str(RUDE), str(notes))
    try:
        await noted(notes, "hangs")
        pid = next(int(line.split()[1]) for line in notes.read_text().splitlines() if line.startswith("pid "))
        server = os.pidfd_open(pid)
        host.send_signal(signal.SIGKILL)
        await host.wait()
        ended, _, _ = await asyncio.to_thread(select.select, [server], [], [], 60)
        os.close(server)
        assert ended
    finally:
        with contextlib.suppress(ProcessLookupError):
            host.kill()
        await host.wait()


def test_the_command_lists_servers_starts_them_and_shows_no_secret(run: Run) -> None:
    """With all that a server says of its tools, and the digest that pins it."""
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "clew"
    folder.mkdir(parents=True, exist_ok=True)
    args = json.dumps(rude_server()["args"])
    (folder / "config.toml").write_text(
        f'[mcp_servers.rude]\ncommand = "{sys.executable}"\nargs = {args}\nenv = {{ COLOUR = "very-secret-1" }}\n'
        '[mcp_servers.far]\nurl = "http://127.0.0.1:9/mcp"\nenabled = false\nheaders = { X = "very-secret-2" }\n'
    )
    # Before there is a store, too: this is what somebody does who has just named one.
    code, out, _ = run("mcp-servers")
    assert (code, [line.split()[:2] for line in out.splitlines()]) == (0, [["far", "off"], ["rude", "idle"]])
    code, out, _ = run("mcp-servers", "rude", "--start", "--json")
    [server] = json.loads(out)["servers"]
    assert (code, server["state"], len(server["tools"])) == (0, "ready", 17)
    code, out, _ = run("mcp-servers", "rude", "--start")
    assert "It can echo." in out
    assert server["digest"] in out
    assert run("mcp-servers", "nobody")[0] == 3
    for words in (("mcp-servers", "--json"), ("config",), ("config", "--json")):
        assert "very-secret" not in run(*words)[1]
