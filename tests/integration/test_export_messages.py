"""Going: a conversation as messages that other programs take."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from clew.testing.scripted import call, say, then, think
from tests.integration.http_client import AsgiClient, served
from tests.integration.test_ai_reducer import ask

pytestmark = pytest.mark.rule("IO-2")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
URL = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"


async def talked(client: AsgiClient, folder: Path) -> str:
    (folder / "door.txt").write_text("green")
    session_id = await client.session(workspace_root=str(folder))
    file = {"type": "file", "url": URL, "mediaType": "image/png", "filename": "dot.png"}
    text = {"type": "text", "text": "which colour?"}
    body = {"id": session_id, "messages": [{"id": "u1", "role": "user", "parts": [text, file]}]}
    async with client.open("POST", "/api/chat", body) as reply:
        assert reply.status == 200
        await reply.read()
    await client.chat(session_id, "sure?", "u2")
    return session_id


SCRIPT: tuple[Any, ...] = (
    then(think("I look"), say("Looking."), call("read", {"path": "door.txt"}, id="call_1")),
    say("Green."),
    then(call("read", {"path": "nowhere.txt"}, id="call_2")),
    say("Yes."),
)


async def test_a_conversation_goes_out_as_messages_of_openais_chat(tmp_path: Path) -> None:
    """Step by step, each call followed by what came of it, and with the picture itself."""
    async with served(*SCRIPT) as client:
        session_id = await talked(client, tmp_path)
        answer = await client.get(f"/api/sessions/{session_id}/export?format=openai")
    messages = answer.json()["messages"]
    results = [message.pop("content") for message in messages if message["role"] == "tool"]
    assert "green" in results[0]
    assert "nowhere.txt" in results[1]

    def function(arguments: str) -> dict[str, str]:
        return {"name": "read", "arguments": arguments}

    assert messages == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "which colour?"}, {"type": "image_url", "image_url": {"url": URL}}],
        },
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function('{"path":"door.txt"}')}],
        },
        {"role": "tool", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "Green."},
        {"role": "user", "content": "sure?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_2", "type": "function", "function": function('{"path":"nowhere.txt"}')}],
        },
        {"role": "tool", "tool_call_id": "call_2"},
        {"role": "assistant", "content": "Yes."},
    ]


@pytest.mark.node
async def test_a_conversation_goes_out_as_messages_that_the_real_ai_sdk_takes(tmp_path: Path) -> None:
    async with served(*SCRIPT) as client:
        session_id = await talked(client, tmp_path)
        told = (await client.get(f"/api/sessions/{session_id}/export?format=ai-sdk")).json()
        shown = await client.messages(session_id)
    assert [(message["id"], message["role"]) for message in told] == [(one["id"], one["role"]) for one in shown]
    assert told[0]["parts"][1]["url"] == URL
    assert [message["parts"] for message in told[1:]] == [message["parts"] for message in shown[1:]]
    assert ask([{"mode": "validate", "messages": told}]) == [{"valid": True}]
