"""The programs in ``examples/``, as a user's browser meets them: the real AI SDK client against the running app."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import uvicorn

from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait
from tests.integration.http_client import SocketClient, chat_body
from tests.integration.test_ai_client import opened


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[SocketClient]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    serving = asyncio.get_running_loop().create_task(server.serve())
    while not server.started:
        assert not serving.done(), "the app did not start"
        await asyncio.sleep(0.01)
    try:
        yield SocketClient(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        await serving


@pytest.mark.node
@pytest.mark.slow
@pytest.mark.rule("EM-3")
@pytest.mark.parametrize("name", ["chat_starlette", "chat_fastapi"])
async def test_a_chat_of_the_real_client_with_an_approval_a_cut_and_a_refusal(name: str, tmp_path: Path) -> None:
    """Through the host's own routes: what is refused is a problem with a status, not a broken stream."""
    gate = Gate()
    script: list[Any] = [
        [say("Let me look."), call("find_order", {"number": 7})],
        [say("I can pay it back."), call("refund", {"number": 7})],
        say("Done."),
        [say("One two three four five"), wait(gate), say(" and six.")],
    ]
    providers = FakeProviders(ScriptedModel(script))
    app = importlib.import_module(f"examples.{name}").make_app(f"sqlite:///{tmp_path}/shop.db", providers)
    back = asyncio.Event()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            await send(message)
            if message["type"] == "http.response.body" and scope["path"].endswith("/stream"):
                back.set()

        await app(scope, receive, sent)

    async with served(watched) as client:
        made = await asyncio.to_thread(urlopen, Request(f"http://{client.host}/sessions", method="POST"))
        with made:
            session_id = json.load(made)["id"]
        async with opened(client, session_id) as page:
            held = await page.do("send", text="Pay order 7 back")
            asked = [part for part in held["messages"][-1]["parts"] if part.get("state") == "approval-requested"]
            assert [part["type"] for part in asked] == ["tool-refund"]
            held = await page.do("answer", approved=True)
            outputs = [part["output"] for part in held["messages"][-1]["parts"] if "output" in part]
            assert outputs == [{"order": "7", "state": "on its way"}, "order 7 is paid back to Ann"]
            assert (held["status"], held["messages"][-1]["parts"][-1]["text"]) == ("ready", "Done.")
            await page.do("send", text="Count", cut_after=3)
            await gate.reached.wait()
            busy = await client.post("/api/chat", chat_body(session_id, "Me too"))
            assert (busy.status, busy.code) == (409, "run_in_flight")
            resumed = asyncio.ensure_future(page.do("resume"))
            await back.wait()
            gate.set()
            held = await resumed
            said = "".join(part.get("text", "") for part in held["messages"][-1]["parts"])
            assert said == "One two three four five and six."
        nothing = await client.post("/api/chat", {"id": session_id, "messages": []})
        assert (nothing.status, nothing.code) == (422, "invalid_input")
        assert (await client.get(f"/api/chat/{session_id}/stream")).status == 204
