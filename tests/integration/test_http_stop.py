"""Stopping over HTTP and on the command line: the queue is paused, says so, and says how it goes on."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import clew
from clew.testing.scripted import Gate, call, say, wait
from tests.integration.command_line import Run
from tests.integration.command_line import run as run
from tests.integration.http_client import Client, served, texts
from tests.integration.test_http_runs import listening, until

DAMAGE = {
    "its call": "UPDATE chat_parts SET data_json = '{' WHERE tool_call_id IS NOT NULL",
    "its metadata": "UPDATE chat_messages SET metadata_json = '{' WHERE role = 'assistant'",
    "its row": "DELETE FROM chat_messages WHERE role = 'assistant'",
    "the prompt": "UPDATE chat_messages SET metadata_json = '{' WHERE role = 'user'",
}


async def stopped(client: Client, gate: Gate) -> str:
    """A session whose turn was aborted where its model had come to the gate, with two prompts behind it."""
    session_id = await client.session()
    await client.prompt(session_id, "first")
    await gate.reached.wait()
    for text in ("second", "third"):
        await client.prompt(session_id, text)
    async with listening(client) as events:
        assert (await client.post(f"/api/sessions/{session_id}/abort")).json() == {"aborted": True}
        await until(events, "turn_finished")
    return session_id


async def said(client: Client, session_id: str) -> list[str]:
    return [texts(message) for message in await client.messages(session_id)]


@pytest.mark.rule("SR-10", "SR-7")
async def test_an_abort_pauses_the_queue_and_everything_says_so() -> None:
    """The status, the session, the list and the queue; ``continue`` with ``queue`` ends it."""
    gate = Gate()
    async with served(wait(gate), say("2"), say("3")) as client:
        session_id = await stopped(client, gate)
        base = f"/api/sessions/{session_id}"
        idle = {"state": "idle", "paused": True, "paused_by": "abort"}
        assert await client.status(session_id) == idle
        assert (await client.get(base)).json()["status"] == idle
        assert [one["status"] for one in (await client.get("/api/sessions")).json()["sessions"]] == [idle]
        queue = (await client.get(f"{base}/queue")).json()
        assert [texts(one) for one in queue.pop("messages")] == ["second", "third"]
        assert queue == {"paused": True, "paused_by": "abort"}
        async with listening(client) as events:
            assert (await client.post(f"{base}/continue", {"queue": True})).status == 202
            for _ in range(2):
                await until(events, "turn_finished")
        assert await said(client, session_id) == ["first", "", "second", "2", "third", "3"]
        assert await client.status(session_id) == {"state": "idle"}
        assert (await client.get(f"{base}/queue")).json() == {"messages": []}
        assert (await client.post(f"{base}/continue", {"queue": True})).code == "nothing_to_continue"


@pytest.mark.rule("SR-10")
async def test_an_abort_with_go_on_drains_the_queue_and_other_words_are_refused() -> None:
    """An idle session may be aborted, too: its queue stays as it is."""
    gate = Gate()
    async with served(wait(gate), say("2")) as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}/abort"
        assert (await client.post(path, {"queue": "go_on"})).json() == {"aborted": False}
        await client.prompt(session_id, "first")
        await gate.reached.wait()
        await client.prompt(session_id, "second")
        assert (await client.post(path, {"queue": "perhaps"})).code == "invalid_input"
        async with listening(client) as events:
            assert (await client.post(path, {"queue": "go_on"})).json() == {"aborted": True}
            for _ in range(2):
                await until(events, "turn_finished")
        assert (await said(client, session_id))[-2:] == ["second", "2"]
        assert await client.status(session_id) == {"state": "idle"}


@pytest.mark.rule("SR-10")
def test_the_command_line_says_that_a_queue_is_paused_and_goes_on(run: Run, tmp_path: Path) -> None:
    """After a restart, as every command is one; --queue starts it, and what was aborted is not answered anew."""
    url = f"sqlite:///{tmp_path}/store.db"

    async def prepare() -> str:
        async with clew.open(url) as engine:
            session = await engine.create_session(model="demo/echo")
            slow = {"provider_id": "demo", "model_id": "long", "variant": "slow"}
            first = await engine.submit(session.id, "2000 words", model=slow)
            for text in ("second", "third"):
                await engine.submit(session.id, text, model="demo/echo")
            await engine.abort(session.id)
            assert (await first.wait()).status == "aborted"
            return session.id

    session_id = asyncio.run(prepare())
    code, out, _ = run("queue", session_id)
    words = f"paused after a stop; `clew continue {session_id} --queue`, or send a prompt, to resume"
    assert (code, [line.partition("  ")[2] or line for line in out.splitlines()]) == (0, ["second", "third", words])
    shown = json.loads(run("queue", session_id, "--json")[1])
    assert (len(shown.pop("messages")), shown) == (2, {"paused": True, "paused_by": "abort"})
    assert run("abort", session_id)[1] == f"nothing was running\nthe queue is {words}\n"
    run("queue", session_id, "--cancel", shown_id(run, session_id, 1))
    code, out, _ = run("continue", session_id, "--queue")
    assert (code, out) == (0, "second\n")
    assert run("queue", session_id)[1] == ""


@pytest.mark.rule("SR-7", "SR-10")
def test_the_command_line_changes_a_queue_as_the_page_does(run: Run, tmp_path: Path) -> None:
    """In other words, in another order, held back and let go; with no server it stays until what it let go has run."""
    url = f"sqlite:///{tmp_path}/store.db"

    async def prepare() -> str:
        async with clew.open(url) as engine:
            session = await engine.create_session(model="demo/echo", title="t")
            await engine.submit(session.id, "2000 words", model="demo/long:slow")
            for text in ("second", "third", "fourth"):
                await engine.submit(session.id, text, model="demo/echo")
            await engine.abort(session.id)
            return session.id

    session_id = asyncio.run(prepare())

    def told(*words: str) -> list[str]:
        code, out, err = run("queue", session_id, *words)
        assert (code, err) == (0, "")
        return [line.partition("  ")[2] or line for line in out.splitlines()]

    two, three, four = (shown_id(run, session_id, n) for n in range(3))
    assert told("--edit", two, "--text", "2nd")[:3] == ["2nd", "third", "fourth"]
    assert told("--move", four, "--before", two)[:3] == ["fourth", "2nd", "third"]
    assert told("--move", two)[:3] == ["fourth", "third", "2nd"]
    held = f"paused by you; `clew continue {session_id} --queue` to resume"
    assert told("--pause") == ["fourth", "third", "2nd", held]
    code, out, err = run("queue", session_id, "--resume")
    assert (code, out, err.startswith("clew: running the queue; ")) == (0, "", True)
    shown = json.loads(run("show", session_id, "--json")[1])["messages"]
    assert [part["text"] for message in shown[-6:] for part in message["parts"] if part["type"] == "text"] == [
        text for text in ("fourth", "third", "2nd") for _ in range(2)
    ]
    assert told("--pause") == ["no queued messages, so nothing to pause"]
    for words in (["--pause", "--resume"], ["--edit", three], ["--before", three], ["--text", "x"]):
        assert run("queue", session_id, *words)[0] == 2


def shown_id(run: Run, session_id: str, place: int) -> str:
    return str(json.loads(run("queue", session_id, "--json")[1])["messages"][place]["id"])


@pytest.mark.rule("SR-10")
@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_session_that_waits_on_something_damaged_can_be_aborted(tmp_path: Path, damage: str) -> None:
    """It cannot be answered, and says what to do; no session is stuck. What is damaged stays as it is."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with served(call("write", {"path": "a", "content": "x"}), store=url) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        await client.prompt(session_id, "write")
        [asked] = (await client.idle(session_id))["waiting"]
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        connection.execute(DAMAGE[damage])
    async with served(say("fine"), store=url) as client:
        base = f"/api/sessions/{session_id}"
        answered = await client.post(f"{base}/approvals/{asked['approval_id']}", {"decision": "once"})
        assert (answered.status, answered.code) == (409, "conflict")
        assert "abort it" in answered.json()["detail"]
        assert (await client.post(f"{base}/abort")).json() == {"aborted": True}
        assert await client.status(session_id) == {"state": "idle"}
        await client.prompt(session_id, "go on")
        assert await client.idle(session_id) == {"state": "idle"}
        assert (await said(client, session_id))[-2:] == ["go on", "fine"]
    assert not (tmp_path / "a").exists()
