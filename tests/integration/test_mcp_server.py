"""clew as an MCP server: the official client searches, lists and reads sessions, and can change nothing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

import clew
from clew.fronts.mcp import make_server
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from tests.integration.processes import CLEW, environment

pytestmark = pytest.mark.rule("MC-2")
NUMBERS = range(10, 22)
KEY = "sk-ant-api03-" + "aB3dE5gH7jK9" * 8


async def fill(store: str, folder: Path) -> str:
    (folder / "door.txt").write_text("the door is green")
    model = ScriptedModel([call("read", {"path": "door.txt"}), say("it is green"), say(f"never say {KEY}")])
    async with clew.open(store, config=clew.Config(), providers=FakeProviders(model)) as engine:
        session = await engine.create_session(model="test/x", workspace_root=folder, title="The green door")
        for text in ("which colour has the door?", "and the key?"):
            assert (await (await engine.submit(session.id, text)).wait()).status == "completed"
        other = await engine.create_session(model="test/x", title="Something else")
        assert other.id != session.id
        return session.id


async def exported(store: str, session_id: str) -> Any:
    async with clew.open(store, config=clew.Config(), read_only=True) as engine:
        whole = json.loads(await engine.export(session_id, redact=False))
        return {key: value for key, value in whole.items() if "exported" not in key}


def told(result: Any) -> Any:
    assert not result.is_error, result
    text = result.content[0].text
    return json.loads(text) if text.startswith("{") else text


@pytest.mark.slow
async def test_another_agent_finds_and_reads_what_was_said_and_changes_nothing(tmp_path: Path) -> None:
    """Over stdin and stdout, beside nobody who has the store; a key that was said is not handed on."""
    store = f"sqlite:///{tmp_path}/x.db"
    session_id = await fill(store, tmp_path)
    before = await exported(store, session_id)
    server = StdioServerParameters(command=str(CLEW), args=["mcp", "--store", store], env=environment(tmp_path))
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name: tool.annotations and tool.annotations.read_only_hint for tool in tools} == {
            "search_sessions": True,
            "list_sessions": True,
            "read_session": True,
        }
        found = told(await client.call_tool("search_sessions", {"query": "colour"}))
        assert [(hit["session_id"], hit["role"], hit["title"]) for hit in found["hits"]] == [
            (session_id, "user", "The green door")
        ]
        listed = told(await client.call_tool("list_sessions", {"title": "green"}))
        assert [one["session_id"] for one in listed["sessions"]] == [session_id]
        read = told(await client.call_tool("read_session", {"session_id": session_id}))
        for words in ("# The green door", "which colour has", "the door is green", "it is green", "never say"):
            assert words in read
        assert KEY not in read
        last = told(await client.call_tool("read_session", {"session_id": session_id, "limit": 1}))
        assert "which colour" not in last
        rest = last.split('before="')[1].split('"')[0]
        older = told(await client.call_tool("read_session", {"session_id": session_id, "before": rest}))
        assert "which colour" in older
        assert "never say" not in older
        for arguments in (
            {"session_id": "ses_0000000000000000000000000000"},
            {"session_id": "../x"},
            {"session_id": session_id, "before": "nonsense"},
            {"session_id": session_id, "limit": 100_000},
            {},
        ):
            assert (await client.call_tool("read_session", arguments)).is_error, arguments
        assert told(await client.call_tool("list_sessions", {}))["sessions"][0]["title"] == "Something else"
    assert await exported(store, session_id) == before


async def test_what_is_found_and_listed_is_what_was_asked_for_and_no_secret_of_it(tmp_path: Path) -> None:
    """By session, folder and title; keys are struck out of titles and passages, too."""
    model = ScriptedModel([say("hello"), say("hello")])
    async with clew.open(f"sqlite:///{tmp_path}/x.db", config=clew.Config(), providers=FakeProviders(model)) as engine:
        here, there = [
            await engine.create_session(model="test/x", workspace_root=folder, title=f"{name} {KEY}")
            for folder, name in ((tmp_path, "here"), (None, "there"))
        ]
        for session in (here, there):
            await (await engine.submit(session.id, f"the lantern {KEY}")).wait()

        @contextlib.asynccontextmanager
        async def lent(_: bool) -> AsyncIterator[Any]:
            yield engine

        async with Client(make_server(lent)) as client:
            found = told(await client.call_tool("search_sessions", {"query": "lantern"}))
            assert (found["total"], KEY in json.dumps(found)) == (2, False)
            assert all(hit["title"] and "lantern" in hit["snippet"] for hit in found["hits"])
            found = told(await client.call_tool("search_sessions", {"query": "lantern", "session_id": here.id}))
            assert [hit["session_id"] for hit in found["hits"]] == [here.id]
            listed = told(await client.call_tool("list_sessions", {}))
            assert (len(listed["sessions"]), KEY in json.dumps(listed)) == (2, False)
            listed = told(await client.call_tool("list_sessions", {"folder": str(tmp_path)}))
            assert [one["session_id"] for one in listed["sessions"]] == [here.id]
            first = told(await client.call_tool("list_sessions", {"limit": 1}))
            more = {"limit": 1, "cursor": first["next_cursor"]}
            second = told(await client.call_tool("list_sessions", more))
            assert {one["session_id"] for page in (first, second) for one in page["sessions"]} == {here.id, there.id}


async def test_what_is_read_at_once_has_an_end_and_the_rest_can_be_asked_for() -> None:
    """So that a long session does not fill the other agent's memory."""
    model = ScriptedModel([say(f"answer {n}: {'word ' * 2_000}") for n in NUMBERS])
    async with clew.open("memory:", config=clew.Config(), providers=FakeProviders(model)) as engine:
        session = await engine.create_session(model="test/x")
        for n in NUMBERS:
            await (await engine.submit(session.id, f"prompt {n}")).wait()

        @contextlib.asynccontextmanager
        async def lent(_: bool) -> AsyncIterator[Any]:
            yield engine

        async with Client(make_server(lent)) as client:
            pages, seen = 0, ""
            rest: dict[str, str] = {}
            while pages == 0 or rest:
                read = told(await client.call_tool("read_session", {"session_id": session.id, **rest}))
                assert len(read) < 50_000
                seen, pages = read + seen, pages + 1
                rest = {"before": read.split('before="')[1].split('"')[0]} if 'before="' in read else {}
            assert pages > 1
            places = [seen.index(f"prompt {n}") for n in NUMBERS]
            assert (places, [seen.count(f"answer {n}:") for n in NUMBERS]) == (sorted(places), [1] * len(NUMBERS))
