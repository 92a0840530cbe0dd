"""``clew acp`` as a process, against clients that others wrote: the official one of npm, and acpx.

``tests/node/acp.mjs`` is the official client; every line that clew wrote to it is held against the protocol's schema.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.fronts.cli.command import find_server
from tests.integration.acp_client import SCHEMA, Refusal, check_line, connected
from tests.integration.http_client import texts
from tests.integration.processes import CLEW, SLOW, command, environment, serving

pytestmark = [pytest.mark.node, pytest.mark.slow]
NODE = Path(__file__).parents[1] / "node"
WRITE = "!write note.txt written by the agent"


class Client:
    """The official client, which starts the agent itself. ``updates`` are all that it was told, in order."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.updates: list[dict[str, Any]] = []
        self.order: list[str] = []
        self.cancelled = 0

    async def do(self, order: str, **fields: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": order, **fields}).encode() + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise AssertionError((await self._process.communicate())[1].decode())
        outcome = json.loads(line)
        for one in outcome["lines"]:
            message = json.loads(one)
            check_line(message)
            if message.get("method") == "session/update":
                self.updates.append(message["params"]["update"])
                self.order.append(message["params"]["update"]["sessionUpdate"])
            elif message.get("method") == "$/cancel_request":
                self.cancelled += 1
            elif "id" in message and "method" not in message:
                self.order.append("answer")
        if "error" in outcome:
            raise AssertionError(outcome["error"])
        return outcome.get("result")

    async def ask(self, method: str, **params: Any) -> Any:
        return await self.do("ask", method=method, params=params)

    async def prompt(self, session_id: str, text: str) -> str:
        prompt = [{"type": "text", "text": text}]
        return str((await self.ask("session/prompt", sessionId=session_id, prompt=prompt))["stopReason"])

    async def begin(self, session_id: str, text: str) -> None:
        prompt = [{"type": "text", "text": text}]
        await self.do("begin", method="session/prompt", params={"sessionId": session_id, "prompt": prompt})

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one["content"].get("text", "") for one in self.updates if one["sessionUpdate"] == kind)

    def forget(self) -> None:
        self.updates.clear()
        self.order.clear()


@contextlib.asynccontextmanager
async def official(tmp_path: Path) -> AsyncIterator[Client]:
    if not SCHEMA.exists():
        pytest.fail("the real client is not installed in tests/node: run make, which does it", pytrace=False)
    process = await asyncio.create_subprocess_exec(
        *("node", "acp.mjs", CLEW, "acp"),
        cwd=NODE,
        env=environment(tmp_path),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=1 << 26,
    )
    client = Client(process)
    try:
        yield client
    finally:
        # The agent ends when its stdin does.
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def stored_texts(tmp_path: Path, session_id: str) -> list[str]:
    """What is stored, read beside whoever has it."""
    async with clew.open(f"sqlite:///{tmp_path}/store.db", read_only=True, config=clew.Config()) as engine:
        return ["".join(message.texts) for message in await engine.messages(session_id)]


@pytest.mark.rule("AC-1", "AC-2", "AC-3")
@pytest.mark.kill
async def test_the_official_client_runs_a_long_script_and_the_agent_is_killed_in_each_phase(tmp_path: Path) -> None:
    """New, tools with permission, cancel, kill -9 while it runs and while it asks, load, resume, list, delete."""
    folder = {"cwd": str(tmp_path), "mcpServers": []}
    async with official(tmp_path) as client:
        await client.do("start", capabilities={"session": {"notices": {}, "compaction": {}}})
        session_id = (await client.ask("session/new", **folder))["sessionId"]
        named = {"sessionId": session_id}
        await client.ask("session/set_config_option", **named, configId="model", value="demo/tools")
        assert await client.prompt(session_id, WRITE) == "end_turn"
        assert (tmp_path / "note.txt").read_text() == "written by the agent"
        await client.do("permit", option="deny")
        assert await client.prompt(session_id, "!write other.txt no") == "end_turn"
        assert not (tmp_path / "other.txt").exists()

        # Cancelled while it says something without end, and while it asks.
        await client.ask("session/set_config_option", **named, configId="model", value="demo/long")
        await client.ask("session/set_config_option", **named, configId="effort", value="slow")
        client.forget()
        await client.begin(session_id, "900 words")
        await client.do("until", chars=8)
        await client.do("tell", method="session/cancel", params=named)
        assert await client.do("end") == {"stopReason": "cancelled"}
        said = client.said()
        assert len(said) >= 8
        assert (await stored_texts(tmp_path, session_id))[-1] == said
        await client.ask("session/set_config_option", **named, configId="model", value="demo/tools")
        await client.do("permit", option="cancelled")
        assert await client.prompt(session_id, "!write other.txt no") == "cancelled"

        # Killed while it speaks; what was shown is there, and it is gone on with.
        await client.ask("session/set_config_option", **named, configId="model", value="demo/long")
        await client.ask("session/set_config_option", **named, configId="effort", value="slow")
        client.forget()
        await client.begin(session_id, "900 words")
        await client.do("until", chars=8)
        await client.do("kill")
        shown = client.said()
        assert (await stored_texts(tmp_path, session_id))[-1].startswith(shown)
        await client.do("start")
        client.forget()
        await client.ask("session/load", **named, **folder)
        assert "answer" not in client.order[:-1][: client.order.index("answer")]
        assert shown in client.said()
        assert client.said("user_message_chunk").startswith(WRITE)

        # Killed while it asks, and again: the request waits, is asked anew, and answered at last.
        await client.ask("session/set_config_option", **named, configId="model", value="demo/tools")
        await client.do("permit", option=None)
        await client.begin(session_id, "!write late.txt late")
        for option in (None, "once"):
            await client.do("until", text="(asked)")
            await client.do("kill")
            assert not (tmp_path / "late.txt").exists()
            await client.do("permit", option=option)
            await client.do("start")
            client.forget()
            await client.ask("session/resume", **named, **folder)
            assert client.said() == ""
        await client.do("until", text="late.txt")
        assert (tmp_path / "late.txt").read_text() == "late"

        # Killed right after new, with nothing under way.
        other = (await client.ask("session/new", **folder))["sessionId"]
        await client.do("kill")
        await client.do("start")
        listed = (await client.ask("session/list", cwd=str(tmp_path)))["sessions"]
        assert {one["sessionId"] for one in listed} == {session_id, other}
        assert await client.ask("session/delete", sessionId=other) in ({}, None)
        assert [one["sessionId"] for one in (await client.ask("session/list"))["sessions"]] == [session_id]
        assert (await client.do("close"))["code"] == 0


@pytest.mark.rule("AC-2", "AC-3")
async def test_beside_a_server_the_editor_joins_what_the_page_began_and_the_page_answers_it(tmp_path: Path) -> None:
    """Two fronts of one store: a run is joined where it is, an answer elsewhere settles what is asked, and a closed
    editor ends nothing."""
    async with serving(tmp_path) as server, official(tmp_path) as client:
        http = server.client
        session_id = await http.session(model="demo/long", workspace_root=str(tmp_path))
        named = {"sessionId": session_id, "cwd": str(tmp_path)}
        await client.do("start")
        await http.prompt(session_id, "2000 words", model=SLOW)
        await client.ask("session/resume", **named)
        await client.do("until", chars=8)
        joined = client.said()
        # Cancelled here, it has ended there.
        await client.do("tell", method="session/cancel", params={"sessionId": session_id})
        await http.idle(session_id)
        assert joined in texts((await http.messages(session_id))[-1])
        assert client.said("user_message_chunk") == ""

        await client.ask("session/set_config_option", sessionId=session_id, configId="model", value="demo/tools")
        await client.do("permit", option=None)
        await client.begin(session_id, WRITE)
        await client.do("until", text="(asked)")
        waiting = (await http.status(session_id))["waiting"]
        answered = {"decision": "once"}
        await http.post(f"/api/sessions/{session_id}/approvals/{waiting[0]['approval_id']}", answered)
        assert await client.do("end") == {"stopReason": "end_turn"}
        assert (tmp_path / "note.txt").read_text() == "written by the agent"
        assert client.cancelled == 1

        # Closed in the middle, the turn goes on in the server.
        await client.ask("session/set_config_option", sessionId=session_id, configId="model", value="demo/long")
        await client.ask("session/set_config_option", sessionId=session_id, configId="effort", value="slow")
        await client.begin(session_id, "40 words")
        await client.do("until", chars=8)
        assert (await client.do("close"))["code"] == 0
        await http.idle(session_id)
        assert len(texts((await http.messages(session_id))[-1]).split()) == 40


@pytest.mark.rule("AC-3")
async def test_a_server_that_is_killed_fails_the_prompt_and_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was shown is stored; the editor's session goes on with the next server, without being opened anew."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    async with contextlib.AsyncExitStack() as leaving:
        async with serving(tmp_path) as server:
            engine = await find_server(None)
            client = await leaving.enter_async_context(connected(engine, find_again=lambda: find_server(None)))
            await client.initialize()
            session_id = await client.new(tmp_path)
            named = {"sessionId": session_id}
            await client.ask("session/set_config_option", {**named, "configId": "model", "value": "demo/long"})
            await client.ask("session/set_config_option", {**named, "configId": "effort", "value": "slow"})
            prompt = client.prompt(session_id, "900 words")
            await client.until(lambda: len(client.said()) > 20)
            server.process.kill()
            with pytest.raises(Refusal, match="connection to the server lost; the conversation is saved"):
                await prompt
        shown = client.said()
        assert (await stored_texts(tmp_path, session_id))[-1].startswith(shown)
        before = len(client.messages)
        async with serving(tmp_path):
            # It looks how the session stands as soon as the server is there.
            await client.until(lambda: [one for one in client.messages[before:] if one.get("method")])
            await client.ask("session/set_config_option", {**named, "configId": "effort", "value": "default"})
            assert await client.prompt(session_id, "3 words") == {"stopReason": "end_turn"}
            await leaving.aclose()


async def test_alone_it_ends_in_order_and_writes_nothing_but_the_protocol(tmp_path: Path) -> None:
    """A second one is told who has the store; SIGTERM settles what runs; what clew logs goes to stderr."""
    process = await asyncio.create_subprocess_exec(
        *(CLEW, "acp"), cwd=tmp_path, env=environment(tmp_path), stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=1 << 24
    )
    assert process.stdin is not None
    assert process.stdout is not None
    folder = {"cwd": str(tmp_path), "mcpServers": []}
    for id_, (method, params) in enumerate([("initialize", {"protocolVersion": 1}), ("session/new", folder)]):
        asked = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        process.stdin.write(json.dumps(asked).encode() + b"\nno JSON\n")
    made = ""
    while not made:
        message = json.loads(await process.stdout.readline())
        made = (message.get("result") or {}).get("sessionId", "")
    code, out, err = await command(tmp_path, "acp")
    assert (code, out) == (4, "")
    assert f"process {process.pid}" in err
    prompt = {"sessionId": made, "prompt": [{"type": "text", "text": "hello"}]}
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": prompt}).encode())
    process.stdin.write(b"\n")
    while b"chunk" not in (line := await process.stdout.readline()):
        assert line
    process.send_signal(signal.SIGTERM)
    rest, _ = await process.communicate()
    assert process.returncode == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    async with clew.open(f"sqlite:///{tmp_path}/store.db", read_only=True, config=clew.Config()) as engine:
        assert (await engine.get_status(made)).state == "idle"
        assert len(await engine.messages(made)) == 2


@pytest.mark.rule("AC-1", "AC-3")
async def test_acpx_talks_with_it(tmp_path: Path) -> None:
    """A client on the command line, by somebody else: a session of its own, a prompt, a tool it is allowed."""
    (tmp_path / "config/clew").mkdir(parents=True)
    (tmp_path / "config/clew/config.toml").write_text('default_model = "demo/tools"\n')
    agent = f"{CLEW} acp"
    words = ("--agent", agent, "--cwd", str(tmp_path), "--approve-all", "--format", "json", "exec", WRITE)
    process = await asyncio.create_subprocess_exec(
        *("node", str(NODE / "node_modules/acpx/dist/cli.js"), *words),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (out, err)
    assert (tmp_path / "note.txt").read_text() == "written by the agent", (out, err)
    assert "end_turn" in out.decode()
