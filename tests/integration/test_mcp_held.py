"""What a person has looked at of an MCP server is what is used, by whom it was meant for, and within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.clock import SystemClock
from clew.mcp_server import McpServer
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.tools.mcp.connection import Connection
from tests.integration.http_client import served
from tests.integration.mcp_peers import ask, decide, noted, rude_server, told

pytestmark = [pytest.mark.rule("MC-1"), pytest.mark.slow]
ALLOW = clew.Rule("mcp__rude__*", "*", "allow")


async def test_a_yes_to_definitions_is_none_to_those_that_came_while_it_was_waited_for(tmp_path: Path) -> None:
    """Another session has the server change what its tools are; who was asked before has seen the old ones."""
    notes = tmp_path / "notes"
    model = ScriptedModel(
        [call("mcp__rude", {}), call("mcp__rude__change", {}), say("changed"), call("mcp__rude__echo", {}), say("no")]
    )
    servers = {"rude": rude_server(f"notes={notes}")}
    async with served(providers=FakeProviders(model), mcp_servers=servers, rules=[ALLOW]) as client:
        asking, other = await client.session(), await client.session()
        [door] = await ask(client, asking, "go")
        assert door["state"] == "approval-requested"
        await client.engine.set_permissions(other, [{"permission": "mcp__rude", "pattern": "*", "action": "allow"}])
        assert [told(one) for one in await ask(client, other, "go")] == ["changed"]
        made = [told(one) for one in await decide(client, asking, "once")]
        assert made[0] == "error: the MCP server rude has changed its tools meanwhile; call this again"
        assert made[1].startswith("error: there is no tool")
    assert "echo" not in notes.read_text().splitlines()


async def test_a_call_goes_by_the_definitions_that_were_looked_at_or_is_not_made(tmp_path: Path) -> None:
    """Also where they change between the look and the call."""
    notes = tmp_path / "notes"
    server = msgspec.convert(rude_server(f"notes={notes}"), McpServer)
    connection = Connection("rude", server, None, SystemClock())
    try:
        looked_at = await connection.ready()
        await connection.call("change", {}, lambda _: None, looked_at)
        with pytest.raises(clew.errors.ToolFailed, match="has just changed its tools; the call was not made"):
            await connection.call("echo", {}, lambda _: None, looked_at)
    finally:
        await connection.close()
    assert "echo" not in notes.read_text().splitlines()


async def test_each_owner_has_a_server_of_their_own(tmp_path: Path) -> None:
    """What one owner's calls leave in a server's memory no other owner's calls find."""
    notes = tmp_path / "notes"
    model = ScriptedModel([step for _ in range(3) for step in (call("mcp__rude__echo", {}), say("x"))])
    servers = {"rude": rude_server(f"notes={notes}", trust=True, owners=True)}
    async with served(providers=FakeProviders(model), mcp_servers=servers, rules=[ALLOW]) as client:
        for owner in ("ann", "ben", "ann"):
            scoped = client.engine.scoped(owner)
            session = await scoped.create_session()
            assert (await (await scoped.submit(session.id, "go")).wait()).status == "completed"
    lines = notes.read_text().splitlines()
    assert (lines.count("started"), lines.count("echo")) == (2, 3)


@pytest.mark.rule("OW-1")
async def test_a_program_that_is_not_meant_for_owners_is_started_for_none(tmp_path: Path) -> None:
    """It would run as the server's user: its tools are not there, trusted or not, and it is none of their servers."""
    notes = tmp_path / "notes"
    model = ScriptedModel([call("mcp__rude__echo", {}), say("x"), call("mcp__rude__echo", {}), say("x")])
    servers = {"rude": rude_server(f"notes={notes}", trust=True)}
    async with served(providers=FakeProviders(model), mcp_servers=servers, rules=[ALLOW]) as client:
        theirs = await client.engine.scoped("ann").create_session()
        await (await client.engine.scoped("ann").submit(theirs.id, "go")).wait()
        assert [one.name for one in model.requests[0].tools if one.name.startswith("mcp__")] == []
        assert await client.engine.mcp_servers(session_id=theirs.id) == ()
        assert not notes.exists()
        own = await client.engine.create_session()
        await (await client.engine.submit(own.id, "go")).wait()
    assert "echo" in notes.read_text().splitlines()


async def test_what_a_server_answers_is_cut_as_any_output_is() -> None:
    long = "y" * 100_000
    script = [call("mcp__rude__echo", {"x": long}), say("done")]
    async with served(*script, mcp_servers={"rude": rude_server(trust=True)}, rules=[ALLOW]) as client:
        [made] = await ask(client, await client.session(), "go")
        assert (made["state"], "yyyy" in told(made), len(told(made)) < 31_000) == ("output-available", True, True)


async def test_there_is_an_end_to_servers_that_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that rests makes room for the next."""
    monkeypatch.setattr("clew.tools.mcp.servers._MAX_CONNECTIONS", 1)
    notes = tmp_path / "notes"
    script = [step for _ in range(2) for step in (call("mcp__rude__echo", {}), say("x"))]
    servers = {"rude": rude_server(f"notes={notes}", trust=True)}
    async with served(*script, mcp_servers=servers, rules=[ALLOW]) as client:
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            session = await client.engine.create_session(workspace_root=folder)
            assert [told(one) for one in await ask(client, session.id, "go")] == ["{}"]
        await noted(notes, "ended")
        assert [(one.state, one.runs) for one in await client.engine.mcp_servers()] == [("ready", 1)]


async def test_a_call_that_waited_is_not_made_by_a_server_that_was_switched_off(tmp_path: Path) -> None:
    """Over a restart: it was allowed before, and nobody wants the server any more."""
    store, notes = f"sqlite:///{tmp_path}/x.db", tmp_path / "notes"
    started: dict[str, Any] = {"trust": True}
    async with served(call("mcp__rude__echo", {}), store=store, mcp_servers={"rude": rude_server(**started)}) as client:
        session_id = await client.session()
        [part] = await ask(client, session_id, "go")
        assert part["state"] == "approval-requested"
    off = {"rude": rude_server(f"notes={notes}", enabled=False, **started)}
    async with served(say("no"), store=store, mcp_servers=off) as client:
        [part] = await decide(client, session_id, "once")
        assert part["state"] == "output-error", told(part)
    assert not notes.exists()
