"""A session's state says how its newest turn ended: in lists, of itself, on the command line, after a restart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clew.clock import SystemClock
from clew.ids import Mint
from clew.testing.chunks import tool_call
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c
from clew.transcript.metadata import local_place
from tests.integration.command_line import Run, run
from tests.integration.http_client import chat_body, served
from tests.integration.processes import SSE, Server, serving
from tests.integration.test_full_disk import KINDS, configure, long_answer, store_on
from tests.integration.wire_server import WireServer, ok, refuse

__all__ = ["run"]


async def states(server: Server, session: str) -> tuple[Any, Any, Any]:
    """Of the list, of the session, and of its status: each with why."""
    [listed] = (await server.client.get("/api/sessions")).json()["sessions"]
    one = (await server.client.get(f"/api/sessions/{session}")).json()
    status = (await server.client.get(f"/api/sessions/{session}/status")).json()
    told = [(each["state"], each.get("problem", {}).get("code")) for each in (listed["status"], one["status"], status)]
    return told[0], told[1], told[2]


async def send(server: Server, session: str, text: str) -> None:
    body = chat_body(session, text, f"u-{text}", model="mock/m")
    async with server.client.open("POST", "/api/chat", body, headers=SSE) as reply:
        assert [chunk async for chunk in reply.frames()][-1] == "[DONE]"


@pytest.mark.service
@pytest.mark.kill
@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_turn_is_a_failed_session_until_another_turn_or_a_rewind(
    tmp_path: Path, run: Run, kind: str
) -> None:
    """Also for a server, or a command, that was not there when it failed."""
    store = store_on(tmp_path, kind)
    async with WireServer() as wire:
        configure(tmp_path, wire)
        async with serving(tmp_path, "--store", store) as server:
            session = await server.client.session(title="fails", metadata=local_place(None))
            wire.always(*refuse(400, {"error": {"message": "no"}}))
            await send(server, session, "hello")
            failed = await states(server, session)
            assert failed == (("error", failed[2][1]),) * 3
            assert failed[2][1] is not None
            server.process.kill()
            await server.process.communicate()
        code, out, _ = await asyncio.to_thread(run, "ls", "--json", "--store", store)
        assert (code, json.loads(out)["sessions"][0]["status"]["state"]) == (0, "error")
        async with serving(tmp_path, "--store", store) as server:
            assert await states(server, session) == failed
            wire.always(*ok(), *long_answer(64))
            await send(server, session, "again")
            assert await states(server, session) == (("idle", None),) * 3
            wire.always(*refuse(400, {"error": {"message": "no"}}))
            await send(server, session, "fails again")
            assert await states(server, session) == failed
            rewound = await server.client.post(f"/api/sessions/{session}/rewind", {"message_id": "u-fails again"})
            assert rewound.status == 200, rewound
            assert await states(server, session) == (("idle", None),) * 3
            assert (await server.client.post(f"/api/sessions/{session}/unrewind", {})).status == 200
            assert await states(server, session) == failed


async def test_a_turn_that_nobody_runs_and_nobody_ended_is_not_idle() -> None:
    """What a run leaves whose lease lapsed: an open turn, and a call without a result. List and messages agree."""
    async with served() as client:
        engine = client.engine
        session = await client.session()
        scribe = Scribe(engine._store, session, Mint(), SystemClock())
        opened = await scribe.prompt("hello")
        recorder = opened.recorder()
        for chunk in (c.Start(recorder.message.id), *tool_call("read", {})):
            await recorder.send(chunk)
        await recorder.flush()
        recorder.abandon()
        [listed] = (await client.get("/api/sessions")).json()["sessions"]
        status = await client.status(session)
        message = (await client.messages(session))[-1]
        assert message["parts"][-1]["state"] == "input-available"
        assert [one["state"] for one in (listed["status"], status)] == ["error", "error"]
        assert status["problem"]["code"] == "interrupted"
