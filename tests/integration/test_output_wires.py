"""Structured output on real wires: by the provider's own way where it has one, by a tool where it has none or fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew.providers.base import EndpointKind
from tests.integration.test_wire_kinds import Spoken, spoken, surroundings
from tests.integration.wire_dialects import Short, answer, refusal

__all__ = ["surroundings"]

pytestmark = [pytest.mark.slow, pytest.mark.rule("EM-6", "PV-1")]

SCHEMA = {
    "type": "object",
    "properties": {"stars": {"type": "integer", "minimum": 1, "maximum": 5}, "why": {"type": "string"}},
    "required": ["stars", "why"],
}
GOOD = {"stars": 4, "why": "It is quick."}
BAD = {"stars": 9, "why": "It is quick."}
OWN: dict[EndpointKind, str] = {
    "anthropic": '"format":{"type":"json_schema"',
    "openai": '"response_format":{"type":"json_schema"',
    "openai-responses": '"text":{"format":{"type":"json_schema"',
    "google": '"responseMimeType":"application/json"',
}
"""How each asks for it."""


def says(kind: EndpointKind, text: str) -> Any:
    return answer(kind, short=Short(text))


def calls(kind: EndpointKind, value: Any) -> Any:
    """The answer by the tool."""
    return answer(kind, short=Short("", "call", ("final_answer", json.dumps(value))))


async def ask(talk: Spoken, session_id: str, *replies: Any) -> list[dict[str, Any]]:
    """The parts of the answer to a prompt that wants a value of the schema."""
    talk.replies(*replies)
    before = len(await talk.client.messages(session_id))
    outcome = await (await talk.client.engine.submit(session_id, "How is it?", output=SCHEMA)).wait()
    assert outcome.status == "completed", outcome
    assert talk.wire.refused == []
    return [part for message in (await talk.client.messages(session_id))[before:] for part in message["parts"]]


def told(parts: list[dict[str, Any]]) -> list[Any]:
    """What was made of the answers, and the value in the end."""
    return [
        part["data"] if part["type"] == "data-output" else part["state"]
        for part in parts
        if part["type"] in ("data-output", "tool-final_answer")
    ]


@pytest.mark.parametrize("kind", [*OWN, "openai-compatible"])
async def test_each_wire_is_asked_for_a_form_in_its_own_way_and_the_transcript_is_the_same(kind: EndpointKind) -> None:
    """After tools; what does not fit is asked for again by the tool, and what it refuses or talks around too."""
    own = OWN.get(kind)
    async with spoken(kind) as talk:
        session_id = await talk.client.session(title="forms")
        rules = [{"permission": "note", "pattern": "*", "action": "allow"}]
        await talk.client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": rules})

        def asked(index: int) -> tuple[bool, bool]:
            """Whether a request asks in the wire's own way, and whether by the tool."""
            sent = talk.sent(index)
            tools = json.dumps(talk.wire.requests[index].json.get("tools"))
            return (own or "response_format") in sent, "final_answer" in tools

        first = says(kind, json.dumps(GOOD)) if own else calls(kind, GOOD)
        parts = await ask(talk, session_id, answer(kind, rich=True), first)
        assert told(parts) == ["output-available", GOOD]
        assert [part["state"] for part in parts if part["type"] == "tool-note"] == ["output-available"] * 2
        assert not any(part["type"] == "text" and "stars" in part["text"] for part in parts)
        usual = (own is not None, own is None)
        assert [asked(0), asked(1)] == [usual, usual]

        wrong = says(kind, json.dumps(BAD)) if own else calls(kind, BAD)
        parts = await ask(talk, session_id, wrong, calls(kind, GOOD))
        assert told(parts) == ["output-error", "output-available", GOOD]
        assert [asked(2), asked(3)] == [usual, (False, True)]
        # What was said in the wire's own way goes back as it was said, also what did not fit.
        assert sum(talk.sent(3).count(f'"{key}":"{{\\"stars') for key in ("text", "content")) == (2 if own else 0)

        parts = await ask(talk, session_id, says(kind, "Four stars."), calls(kind, GOOD))
        assert told(parts) == ["output-available", GOOD]
        assert [asked(4), asked(5)] == [usual, (False, True)]
        if own:
            parts = await ask(talk, session_id, refusal(kind, 400, "no such schema"), calls(kind, GOOD))
            assert told(parts) == ["output-available", GOOD]
            assert [asked(6), asked(7)] == [usual, (False, True)]
