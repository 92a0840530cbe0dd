"""Metadata of megabytes: refused by every route that takes some, while others are answered."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from clew.transcript.metadata import MAX_METADATA_BYTES
from tests.integration.http_client import SocketClient, chat_body
from tests.integration.processes import serving

pytestmark = [pytest.mark.rule("ST-4"), pytest.mark.slow]
SIZE = 8 * 1024 * 1024
SHAPES: dict[str, Any] = {
    "one text": {"note": "x" * SIZE},
    "many keys": {f"k{n}": n for n in range(SIZE // 12)},
    "one list": {"list": [0] * (SIZE // 8)},
    "deep": {"list": [[[{"a": 1}]] for _ in range(SIZE // 56)]},
    "at its end": {"list": [0] * (SIZE // 8), "z": 2**63},
}


def requests(session_id: str, message_id: str, metadata: Any) -> list[tuple[str, str, Any]]:
    """Every route that takes metadata."""
    path = f"/api/sessions/{session_id}"
    message = {"metadata": metadata}
    chat = chat_body(session_id, "hello", "u-large")
    chat["messages"][0]["metadata"] = metadata
    return [
        ("POST", "/api/sessions", message),
        ("PATCH", path, message),
        ("POST", f"{path}/prompt", {"text": "hello", **message}),
        ("POST", f"{path}/rewind", {"message_id": message_id, "mode": "edit", "text": "again", **message}),
        ("POST", f"{path}/branch", {"from_message_id": message_id, **message}),
        ("POST", "/api/chat", chat),
    ]


@pytest.mark.parametrize("shape", SHAPES)
async def test_metadata_of_megabytes_is_refused_while_health_is_answered(shape: str, tmp_path: Path) -> None:
    """Two clients at once, through every route: each is told why, and health is answered meanwhile."""
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await client.session(model="demo/echo")
        await client.prompt(session_id, "hello")
        await client.idle(session_id)
        [user, *_] = await client.messages(session_id)
        taken: list[float] = []
        done = asyncio.Event()

        async def watch() -> None:
            while not done.is_set():
                begun = time.monotonic()
                assert (await SocketClient(client.port, client.token).get("/api/health")).status == 200
                taken.append(time.monotonic() - begun)

        # Encoded before: only what the server does holds up what is measured.
        sent = [
            (method, path, json.dumps(body, separators=(",", ":")).encode())
            for method, path, body in requests(session_id, user["id"], SHAPES[shape])
        ]
        watching = asyncio.create_task(watch())
        for method, path, data in sent:
            answers = await asyncio.gather(*(client.request(method, path, data) for _ in range(2)))
            assert {one.status for one in answers} == {422}, (path, answers)
            assert {one.code for one in answers} == {"unsupported_value"}, (path, answers)
        done.set()
        await watching
        # Decoding them took 3.5 to 13.7 s; a second is the promise, and the rest is for a loaded machine.
        assert max(taken) < 2.5, (len(taken), max(taken))
        # What fits is taken.
        fits = {"note": "x" * (MAX_METADATA_BYTES - 100)}
        assert (await client.request("PATCH", f"/api/sessions/{session_id}", {"metadata": fits})).status == 200
