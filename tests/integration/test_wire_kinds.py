"""Every kind of provider over its own wire, through the front: the same conversation leaves the same transcript.

Real SDKs talk to a server in this process, byte for byte: HTTP for most, Amazon's event stream for Bedrock, gRPC for
xAI. Vertex is called with a key, since the account of a project cannot be played.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import clew
from clew.providers.base import EndpointKind
from clew.providers.catalog import ModelFacts, Prices
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.transcript.usage import Usage
from tests.integration.http_client import AsgiClient, reduced, served
from tests.integration.sent_files import PNG, file_part
from tests.integration.wire_dialects import ENDS, MODELS, End, Short, XaiWire, answer, refusal
from tests.integration.wire_server import WireServer

pytestmark = [pytest.mark.slow, pytest.mark.rule("PV-1", "PV-2")]

KINDS = list(MODELS)
ROOTED: tuple[EndpointKind, ...] = ("anthropic", "google", "google-cloud", "mistral", "groq", "bedrock", "xai")
"""Kinds whose address has no path."""
COUNTED = Usage(input=60, output=18, reasoning=12, cache_read=40)
COUNTS: dict[EndpointKind, Usage] = {
    "mistral": Usage(input=60, output=30, cache_read=40),
    "bedrock": Usage(input=60, output=30, cache_read=40),
}
"""Two wires do not tell what was thought."""
EFFORT: dict[EndpointKind, str] = {
    "anthropic": '"output_config":{"effort":"low"}',
    "openai-responses": '"reasoning":{"effort":"low"',
    "openrouter": '"reasoning":{"effort":"low"',
    "google": '"thinking_level":"LOW"',
    "google-cloud": '"thinking_level":"LOW"',
    "mistral": '"reasoning_effort":"high"',
    "bedrock": '"output_config":{"effort":"low"}',
    "xai": "reasoning_effort:EFFORT_LOW",
}
"""Where it is asked how hard to think; Mistral knows all or nothing."""
CACHED: dict[EndpointKind, str] = {
    "anthropic": '"cache_control"',
    "openrouter": '"cache_control"',
    "bedrock": '"cachePoint"',
}
SEALED: tuple[EndpointKind, ...] = (
    "anthropic",
    "openai-responses",
    "openrouter",
    "bedrock",
    "xai",
    "google",
    "google-cloud",
)
"""Wires whose thoughts are sealed, and go back so."""


class Spoken:
    def __init__(self, kind: EndpointKind, wire: Any, client: AsgiClient) -> None:
        self.kind, self.wire, self.client = kind, wire, client

    def replies(self, *replies: Any) -> None:
        for reply in replies:
            self.wire.reply(*reply)

    def sent(self, index: int) -> str:
        """A request without its white space."""
        return "".join(self.wire.requests[index].body.decode().split())

    async def prompt(self, session_id: str, *parts: dict[str, Any]) -> list[Any]:
        message = {"id": f"u{len(self.wire.requests)}", "role": "user", "parts": list(parts)}
        body = {"id": session_id, "trigger": "submit-message", "messages": [message]}
        async with self.client.open("POST", "/api/chat", body) as reply:
            assert reply.status == 200, await reply.read()
            return [frame async for frame in reply.frames()][:-1]


@contextlib.asynccontextmanager
async def spoken(kind: EndpointKind, gives: Callable[[int], Any] = lambda n: f"noted {n}") -> AsyncIterator[Spoken]:
    @clew.tool
    async def note(n: int) -> Any:
        """Note a number."""
        return gives(n)

    async with XaiWire() if kind == "xai" else WireServer() as wire:
        facts = ModelFacts(window=200_000, max_output=8_000, prices=Prices(input=1, output=10), files=("image/png",))
        config = ProviderConfig(
            kind=kind,
            base_url=wire.url if kind in ROOTED else f"{wire.url}/v1",
            # Amazon's library sends a key over nothing but TLS; it signs with an account instead.
            api_key=None if kind == "bedrock" else "sk-a-key-to-hide",
            models={MODELS[kind]: facts},
        )
        registry = ProviderRegistry({"k": config}, default_model=f"k/{MODELS[kind]}:low", environ={})
        async with served(providers=registry, tools=[note]) as client:
            yield Spoken(kind, wire, client)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try that failed is made again at once; Amazon's library finds an account."""
    monkeypatch.setattr("clew.providers.retry._FIRST_MS", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")


def plain(part: dict[str, Any]) -> dict[str, Any]:
    """A part without what only its provider knows: ids, seals, where a call came from."""
    kept = ("type", "text", "state", "input", "output")
    return {key: part[key] for key in kept if key in part}


def call(n: int) -> dict[str, Any]:
    return {"type": "tool-note", "state": "output-available", "input": {"n": n}, "output": f"noted {n}"}


TRANSCRIPT = [
    {"type": "step-start"},
    {"type": "reasoning", "text": "Let me think.", "state": "done"},
    {"type": "text", "text": "One two.", "state": "done"},
    call(1),
    call(2),
    {"type": "step-start"},
    {"type": "text", "text": "fine", "state": "done"},
]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_provider_leaves_the_same_transcript(kind: EndpointKind) -> None:
    """Refused by a rate limit, then by an overload; then a thought, words and two calls about a picture."""
    async with spoken(kind) as talk:
        talk.replies(
            refusal(kind, 429, "slow down", retry_after="0"),
            refusal(kind, 503, "overloaded"),
            answer(kind, rich=True),
            answer(kind, rich=False),
        )
        session_id = await talk.client.session(title="kinds")
        rules = [{"permission": "note", "pattern": "*", "action": "allow"}]
        await talk.client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": rules})
        frames = await talk.prompt(session_id, {"type": "text", "text": "look"}, file_part(PNG, "image/png"))
        assert talk.wire.refused == []
        (said,) = [m for m in await talk.client.messages(session_id) if m["role"] == "assistant"]
        assert reduced(frames)["parts"] == said["parts"]
        # xAI's seal may come after the words, as a thought with nothing to read.
        parts = [plain(part) for part in said["parts"] if part.get("text") != ""]
        assert parts == TRANSCRIPT
        assert frames[-1] == {"type": "finish", "finishReason": "stop"}
        counted = COUNTS.get(kind, COUNTED) + Usage(input=10, output=5)
        spend = (await talk.client.get("/api/usage?by=session")).json()["total"]
        five = ("input", "output", "reasoning", "cache_read", "cache_write")
        assert {name: spend[name] for name in five} == {name: getattr(counted, name) for name in five}
        # A refusal is an attempt of clew's own, seen and counted: the libraries try nothing again.
        assert len(talk.wire.requests) == 4
        first, second = talk.sent(2), talk.sent(3)
        picture = "image_url" if kind == "xai" else base64.b64encode(PNG).decode()[:40]
        assert picture in first
        assert EFFORT.get(kind, '"reasoning_effort":"low"') in first
        assert CACHED.get(kind, "") in first
        assert ("noted1" in second, "noted2" in second) == (True, True)
        assert ("sealed" in second or base64.b64encode(b"sealed").decode() in second) == (kind in SEALED)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_provider_refuses_is_told_in_its_words_and_not_tried_again(kind: EndpointKind) -> None:
    """A key, and a request larger than the window; the session goes on after each."""
    async with spoken(kind) as talk:
        session_id = await talk.client.session(title="kinds")
        too_long = "maximum context length exceeded: maximum prompt length"
        for status, words, told in (
            (401, "the key is bad", "k answered 401: the key is bad"),
            (400, too_long, "as too large: send less, or choose a model with a larger window"),
        ):
            before = len(talk.wire.requests)
            talk.replies(refusal(kind, status, words))
            frames = await talk.prompt(session_id, {"type": "text", "text": "go"})
            (error,) = [frame for frame in frames if frame["type"] == "error"]
            assert told in error["errorText"], error
            assert (frames[-1]["finishReason"], len(talk.wire.requests)) == ("error", before + 1)
        talk.replies(answer(kind, rich=False))
        frames = await talk.prompt(session_id, {"type": "text", "text": "go on"})
        assert frames[-1] == {"type": "finish", "finishReason": "stop"}
        assert "sk-a-key-to-hide" not in str(await talk.client.messages(session_id))


CUT: dict[EndpointKind, int] = {"google": 4, "mistral": 4, "groq": 4, "bedrock": 7, "xai": 3}
"""So many pieces of the rich answer have come with its first word; the other wires are in ``test_wire_cases``."""


@pytest.mark.parametrize("kind", list(CUT))
@pytest.mark.rule("RN-9")
async def test_an_answer_that_is_cut_keeps_its_words_and_the_session_goes_on(kind: EndpointKind) -> None:
    """The stream just ends; what is sent next is what the provider takes."""
    async with spoken(kind) as talk:
        rich = answer(kind, rich=True)
        talk.replies(list(rich)[: CUT[kind]], answer(kind, rich=False))
        session_id = await talk.client.session(title="kinds")
        frames = await talk.prompt(session_id, {"type": "text", "text": "go"})
        (error,) = [frame for frame in frames if frame["type"] == "error"]
        assert (error["errorText"], frames[-1]["finishReason"]) == (
            "k ended its stream before the answer was complete",
            "error",
        )
        (said,) = [m for m in await talk.client.messages(session_id) if m["role"] == "assistant"]
        assert [part.get("text") for part in said["parts"]] == [None, "Let me think.", "One "]
        frames = await talk.prompt(session_id, {"type": "text", "text": "and on"})
        assert (frames[-1], talk.wire.refused) == ({"type": "finish", "finishReason": "stop"}, [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.rule("RN-9")
async def test_why_an_answer_ended_is_told_alike_on_every_wire(kind: EndpointKind) -> None:
    """No more tokens, and a filter where the wire has a word for it: what was said is kept, and the session goes on."""
    async with spoken(kind) as talk:
        session_id = await talk.client.session(title="kinds")
        ends: list[tuple[End, str]] = [("length", "length"), ("filter", "content-filter")]
        for end, told in ends:
            if end not in ENDS[kind]:
                continue
            talk.replies(answer(kind, short=Short("One two.", end)))
            frames = await talk.prompt(session_id, {"type": "text", "text": "go"})
            assert frames[-1] == {"type": "finish", "finishReason": told}
            said = (await talk.client.messages(session_id))[-1]
            assert [plain(part) for part in said["parts"]] == [
                {"type": "step-start"},
                {"type": "text", "text": "One two.", "state": "done"},
            ]
        talk.replies(answer(kind, rich=False))
        frames = await talk.prompt(session_id, {"type": "text", "text": "go on"})
        assert (frames[-1], talk.wire.refused) == ({"type": "finish", "finishReason": "stop"}, [])


FORM = {"type": "object", "properties": {"stars": {"type": "integer"}}, "required": ["stars"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.rule("EM-6")
async def test_every_kind_of_provider_gives_the_form_that_was_asked_for(kind: EndpointKind) -> None:
    """By a call, whichever way the wire was asked: one that does not fit is told, one that fits is the value."""
    async with spoken(kind) as talk:
        for value in ("four", 4):
            talk.replies(answer(kind, short=Short("", "call", ("final_answer", json.dumps({"stars": value})))))
        session_id = await talk.client.session(title="kinds")
        body = {"text": "How is it?", "output": FORM}
        assert (await talk.client.post(f"/api/sessions/{session_id}/prompt", body)).status == 202
        await talk.client.idle(session_id)
        said = (await talk.client.messages(session_id))[-1]
        assert [part["data"] for part in said["parts"] if part["type"] == "data-output"] == [{"stars": 4}]
        assert ("stars" in talk.sent(0), len(talk.wire.requests), talk.wire.refused) == (True, 2, [])
