"""Changes of a resource of an MCP server come in as events: a turn of the session that watches it, bounded, listed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.triggers.values.schedule import MAX_WATCHED
from tests.integration.http_client import AsgiClient, served
from tests.integration.mcp_peers import MODERN, ask, noted, rude_server, told

pytestmark = [pytest.mark.rule("EV-5"), pytest.mark.slow]
ALLOW = clew.Rule("mcp__*", "*", "allow")
DOOR = "file:///door"
MINUTE_MS = 60_000


async def watch(client: AsgiClient, session_id: str, **more: Any) -> Any:
    body = {"session_id": session_id, "server": "rude", "uri": DOOR, **more}
    return await client.post("/api/schedules/watch", body)


async def turns(client: AsgiClient, session_id: str) -> list[tuple[str, Any]]:
    """The prompts of a session, each with what fired it."""
    rows = [one for one in await client.messages(session_id) if one["role"] == "user"]
    return [(one["parts"][0]["text"], one["metadata"].get("trigger", {}).get("source")) for one in rows]


async def changed(client: AsgiClient, session_id: str, count: int) -> None:
    """Wait until so many prompts are there, and nothing runs."""
    async with asyncio.timeout(60), client.open("GET", "/api/events") as reply:
        frames = reply.frames()
        while len(await turns(client, session_id)) < count:
            await anext(frames)
    await client.idle(session_id)


async def test_a_change_starts_a_turn_and_many_changes_start_one_a_minute(tmp_path: Path) -> None:
    """With 002's envelope, in the ledger too; listed, paused and removed by people as a schedule is."""
    notes, clock = tmp_path / "notes", FakeClock()
    touch = call("mcp__rude__touch", {"uri": DOOR, "times": 5})
    model = ScriptedModel([touch, say("touched"), say("I see"), touch, say("again"), say("I see that, too")])
    servers = {"rude": rude_server(f"notes={notes}", trust=True)}
    options: dict[str, Any] = {"mcp_servers": servers, "rules": [ALLOW], "clock": clock}
    async with served(providers=FakeProviders(model), **options) as client:
        session_id, other = await client.session(), await client.session()
        answer = await watch(client, session_id)
        assert answer.status == 201, answer
        kept = answer.json()
        assert kept["watches"] == {"server": "rude", "uri": DOOR}
        await noted(notes, f"subscribed {DOOR}")
        await ask(client, other, "touch it")
        await changed(client, session_id, 1)
        said = f"The resource {DOOR} of the MCP server rude has changed."
        assert await turns(client, session_id) == [(said, "mcp")]
        ledger = (await client.get(f"/api/events/ledger?session={session_id}&direction=in")).json()["events"]
        assert [event["source"] for event in ledger] == [f"schedule:{kept['id']}"]
        # Five more within the minute wait for its end, and are one.
        clock.advance(1000)
        await ask(client, other, "touch it again")
        assert len(await turns(client, session_id)) == 1
        clock.advance(MINUTE_MS)
        await changed(client, session_id, 2)
        assert await turns(client, session_id) == [(said, "mcp")] * 2
        [listed] = (await client.get("/api/schedules")).json()["schedules"]
        assert (listed["id"], listed["last_error"], listed["next_fire_at"]) == (kept["id"], None, None)
        for refused in (await watch(client, session_id), await watch(client, other, server="nobody")):
            assert (refused.status, refused.code) == (422, "invalid_input")
        assert (await watch(client, "ses_" + "0" * 26)).status == 404
        patched = await client.request("PATCH", f"/api/schedules/{kept['id']}", {"cron": "0 9 * * *"})
        assert (patched.status, patched.code) == (422, "invalid_input")
        assert (await client.request("DELETE", f"/api/schedules/{kept['id']}")).status == 204
        # Nobody listens any more, so it is released as any other.
        clock.advance(30 * MINUTE_MS)
        await noted(notes, "ended")


async def test_a_watch_outlives_a_restart_and_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    """The server is begun for it; one that does not tell of changes, or is not there any more, is told in the list."""
    store = f"sqlite:///{tmp_path}/x.db"
    async with served(store=store, mcp_servers={"rude": rude_server(trust=True)}) as client:
        session_id = await client.session()
        assert (await watch(client, session_id, prompt="The door!")).status == 201
    notes = tmp_path / "notes"
    model = ScriptedModel([call("mcp__rude__touch", {"uri": f"{DOOR}/lock"}), say("x"), say("I see")])
    servers = {"rude": rude_server(f"notes={notes}", trust=True)}
    async with served(store=store, providers=FakeProviders(model), mcp_servers=servers, rules=[ALLOW]) as client:
        await noted(notes, f"subscribed {DOOR}")
        await ask(client, await client.session(), "touch it")
        await changed(client, session_id, 1)
        assert await turns(client, session_id) == [("The door!", "mcp")]
    secretive = rude_server("secretive", trust=True)
    for given, why in (({"rude": secretive}, "does not report changes: nobody hears of that"), ({}, "no MCP server")):
        async with asyncio.timeout(60), served(store=store, mcp_servers=given) as client:
            error = None
            while not error:
                # Each look is a request of its own, and the listening goes on between them.
                [listed] = (await client.get("/api/schedules")).json()["schedules"]
                error = listed["last_error"]
            assert why in error


@pytest.mark.rule("MC-1")
async def test_a_server_of_the_newest_protocol_tells_of_its_tools_and_resources() -> None:
    """Over a stream it is listened to by; what it then says of its tools is asked for anew."""
    wanted = {"add": {"a": 1, "b": 2}, "touch": {}, "slam": {}}

    def follow(request: clew.ModelRequest) -> Any:
        last = request.messages[-1]
        name = str(last.parts[0].get("text")) if last.role == "user" else ""
        return call(f"mcp__new__{name}", wanted[name]) if name in wanted else say("x")

    server = {"command": sys.executable, "args": [str(MODERN)], "trust": True}
    providers = FakeProviders(ScriptedModel(otherwise=follow))
    options: dict[str, Any] = {"mcp_servers": {"new": server}, "rules": [ALLOW]}
    async with asyncio.timeout(60), served(providers=providers, **options) as client:
        session_id, other = await client.session(), await client.session()
        assert (await watch(client, session_id, server="new", uri="note://door")).status == 201
        assert told((await ask(client, other, "add"))[0]) == "3"
        while not await turns(client, session_id):
            # It is listened to soon; until then a change is nobody's.
            assert told((await ask(client, other, "touch"))[0]) == "touched"
        assert await turns(client, session_id) == [
            ("The resource note://door of the MCP server new has changed.", "mcp")
        ]
        assert told((await ask(client, other, "slam"))[0]) == "bang"


async def test_a_watch_that_is_paused_is_told_nothing_and_there_is_an_end_to_them(tmp_path: Path) -> None:
    """Gone on with, it hears what changes from then on."""
    notes = tmp_path / "notes"
    touch = call("mcp__rude__touch", {"uri": DOOR})
    model = ScriptedModel([touch, say("touched"), touch, say("again"), say("I see")])
    servers = {"rude": rude_server(f"notes={notes}", trust=True)}
    async with served(providers=FakeProviders(model), mcp_servers=servers, rules=[ALLOW]) as client:
        session_id, other = await client.session(), await client.session()
        kept = [(await watch(client, session_id, uri=f"{DOOR}{n or ''}")).json() for n in range(MAX_WATCHED)]
        refused = await watch(client, session_id, uri="file:///window")
        assert (refused.status, refused.code) == (422, "invalid_input")
        path = f"/api/schedules/{kept[0]['id']}"
        await noted(notes, f"subscribed {DOOR}")
        assert (await client.request("PATCH", path, {"paused": True})).status == 200
        await ask(client, other, "touch it")
        assert await client.engine.schedules.tick() is None
        assert await turns(client, session_id) == []
        assert (await client.request("PATCH", path, {"paused": False})).status == 200
        await ask(client, other, "touch it again")
        await changed(client, session_id, 1)
        assert [source for _, source in await turns(client, session_id)] == ["mcp"]
