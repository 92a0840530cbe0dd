"""``clew serve`` on the file stores: it answers, it is killed, and it goes on where it was."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from clew.transcript.metadata import local_place
from tests.integration.command_line import Run, run
from tests.integration.http_client import chat_body, reduced, texts
from tests.integration.processes import SLOW, SSE, command, serving, text_of, words_of

__all__ = ["run"]

pytestmark = [pytest.mark.service, pytest.mark.kill, pytest.mark.rule("FS-4")]


@pytest.mark.parametrize("kind", ["jsonl", "json"])
async def test_it_answers_is_killed_and_goes_on(tmp_path: Path, run: Run, kind: str) -> None:
    """What a viewer saw of the stream is there after kill -9, or, where the store says so, the steps that had ended."""
    store = f"{kind}:{tmp_path / 'store'}"
    async with serving(tmp_path, "--store", store) as server:
        client = server.client
        health = (await client.get("/api/health")).json()
        assert health["store"] == kind
        session = await client.session(title="files", metadata=local_place(None))
        async with client.open(
            "POST", "/api/chat", chat_body(session, "!echo hi", "u-!echo hi", model="demo/echo"), headers=SSE
        ) as reply:
            chunks = [chunk async for chunk in reply.frames()]
        assert chunks[-1] == "[DONE]"
        [_, answer] = (await client.get(f"/api/sessions/{session}/messages")).json()["messages"]
        assert texts(reduced(chunks[:-1])) == texts(answer)
        again = await command(tmp_path, "serve", "--port", "0", "--store", store)
        assert (again[0], f"http://127.0.0.1:{client.port}" in again[2]) == (4, True)
        listed = await asyncio.to_thread(run, "ls", "--store", store)
        assert (listed[0], session in listed[1]) == (0, True)
        async with client.open(
            "POST", "/api/chat", chat_body(session, "long", "u-long", model=SLOW), headers=SSE
        ) as reply:
            seen = await words_of(reply.frames(), 10)
            server.process.kill()
            _, err = await server.process.communicate()
        assert ("is saved after each step" in err.decode()) == (kind == "json")
    code, out, _ = await asyncio.to_thread(run, "check", "--store", store)
    assert (code, out) in ((0, "1 sessions, 0 problems\n"), (7, out))
    async with serving(tmp_path, "--store", store) as server:
        client = server.client
        messages = (await client.get(f"/api/sessions/{session}/messages")).json()["messages"]
        assert [message["role"] for message in messages][:3] == ["user", "assistant", "user"]
        stored = texts(messages[-1]) if len(messages) == 4 else ""
        assert stored.startswith(text_of(seen)) or kind == "json"
        assert (await client.get(f"/api/sessions/{session}/status")).json()["state"] == "idle"
        async with client.open(
            "POST", "/api/chat", chat_body(session, "again", "u-again", model="demo/echo"), headers=SSE
        ) as reply:
            assert [chunk async for chunk in reply.frames()][-1] == "[DONE]"
        assert (await server.end(signal.SIGTERM))[0] == 0
    code, out, _ = await asyncio.to_thread(run, "check", "--store", store)
    assert (code, out) == (0, "1 sessions, 0 problems\n")
    # What it announced is taken back; no file is for anybody else.
    assert (tmp_path / "store" / "clew" / "store.owner").read_bytes() == b""
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert modes == {0o600}
    code, out, _ = await asyncio.to_thread(run, "show", session, "--store", store, "--json")
    assert json.loads(out)["messages"][-1]["role"] == "assistant"
