"""Metadata that clew has taken: with what clew notes beside it, the session can still be forked and imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clew.transcript.metadata import MAX_METADATA_BYTES
from tests.integration.http_client import SocketClient
from tests.integration.processes import serving

pytestmark = pytest.mark.rule("IO-1")
FULL = {"k": "x" * (MAX_METADATA_BYTES - len('{"k":""}'))}
FORM: dict[str, Any] = {"type": "object", "properties": {"p": {"type": "string", "description": "x" * 60_000}}}


async def talked(client: SocketClient, session: dict[str, Any], prompt: dict[str, Any]) -> str:
    session_id = await client.session(model="demo/tools", **session)
    answer = await client.request("POST", f"/api/sessions/{session_id}/prompt", {"text": "hello", **prompt})
    assert answer.status == 202, answer
    await client.idle(session_id)
    return session_id


@pytest.mark.parametrize(
    ("session", "prompt"),
    [
        ({"metadata": FULL}, {}),
        ({}, {"metadata": FULL}),
        ({}, {"output": FORM}),
        ({}, {"metadata": FULL, "output": FORM}),
    ],
    ids=["of the session", "of a message", "the form of an answer", "both of a message"],
)
async def test_what_was_taken_is_forked_and_imported(
    session: dict[str, Any], prompt: dict[str, Any], tmp_path: Path
) -> None:
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await talked(client, session, prompt)
        [turn] = (await client.get(f"/api/sessions/{session_id}/tree")).json()["turns"]
        assert (await client.request("POST", f"/api/turns/{turn['id']}/fork", {})).status == 201
        for form in ("json", "jsonl"):
            exported = (await client.get(f"/api/sessions/{session_id}/export?format={form}")).body
            imported = await client.request("POST", "/api/import", exported)
            assert imported.status == 201, (form, imported)
            assert await client.messages(imported.json()["id"]) != []


async def test_the_form_of_an_answer_has_the_bound_of_metadata(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        session_id = await server.client.session(model="demo/tools")
        body = {"text": "hello", "output": {**FORM, "description": "x" * 10_000}}
        answer = await server.client.request("POST", f"/api/sessions/{session_id}/prompt", json.dumps(body).encode())
        assert (answer.status, answer.code) == (422, "unsupported_value")


@pytest.mark.parametrize("key", ["title", "label"])
async def test_a_name_in_metadata_is_short_text_by_every_route(key: str, tmp_path: Path) -> None:
    """A label that was taken as an object, or of 60,000 characters, was refused when it was imported."""
    async with serving(tmp_path) as server:
        client = server.client
        session_id = await talked(client, {}, {})
        [user, *_] = await client.messages(session_id)
        path = f"/api/sessions/{session_id}"
        for value in ({"a": 1}, "x" * 501):
            named = {"metadata": {key: value}}
            for method, route, body in (
                ("POST", "/api/sessions", named),
                ("PATCH", path, named),
                ("POST", f"{path}/branch", {"from_message_id": user["id"], **named}),
            ):
                answer = await client.request(method, route, body)
                assert (answer.status, answer.code) == (422, "invalid_input"), (route, answer)
