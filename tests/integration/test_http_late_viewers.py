"""Streams of what a post has started, when its run is over before the client is attached: nothing is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import clew
from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.session.api import Engine
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from tests.integration.http_client import AsgiClient, bare, chat_body, reduced, texts, types

OWNER = {"x-user": "ada"}
ASK = {"question": "Which?"}


@clew.tool
def pay(n: int) -> str:
    """Pay that much."""
    return f"paid {n}"


class OwnersClient(AsgiClient):
    """A client that calls as one owner."""

    async def read(self, body: dict[str, Any]) -> list[Any]:
        """Post to the chat and return its chunks."""
        async with self.open("POST", "/api/chat", body, headers=OWNER) as reply:
            assert reply.status == 200, await reply.read()
            *chunks, done = [frame async for frame in reply.frames()]
        assert done == "[DONE]"
        return chunks


@pytest.fixture
async def owned(script: list[Any], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[OwnersClient, Engine]]:
    """A server where each lookup of an owner's session, made while that session runs, takes until the run is over."""
    providers = FakeProviders(ScriptedModel(script))
    async with clew.open("memory:", config=clew.Config(), providers=providers, tools=[pay]) as engine:
        find_named: Callable[..., Any] = engine.store.find_named

        async def find_late(name: str, owner: str | None) -> str | None:
            found: str | None = await find_named(name, owner)
            if found is not None and not engine.is_idle(found):
                async for status in engine.watch_status(found):
                    if status.state != "busy":
                        break
            return found

        monkeypatch.setattr(engine.store, "find_named", find_late)
        streams = Streams()
        app = make_app(engine, authenticate=lambda request: request.headers.get("x-user"), streams=streams)
        yield OwnersClient(app, engine, streams), engine.scoped("ada")


def with_answer(message: dict[str, Any], *, question: bool) -> dict[str, Any]:
    """Return the client's copy of a message, its last call answered."""
    part = message["parts"][-1]
    if question:
        part = {**part, "state": "output-available", "output": "this one"}
    else:
        part = {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": True}}
    return {**message, "parts": [*message["parts"][:-1], part]}


@pytest.mark.parametrize(
    ("script", "question"),
    [
        pytest.param([[say("I can. "), call("pay", {"n": 1})], say("Done.")], False, id="approval"),
        pytest.param([[say("I ask. "), call("question", ASK)], say("Done.")], True, id="question"),
    ],
)
async def test_an_answer_gets_all_of_the_run_that_it_starts(owned: tuple[OwnersClient, Engine], question: bool) -> None:
    client, engine = owned
    session = await engine.create_session()
    held = reduced(await client.read(chat_body(session.id, "go")))
    body = {**chat_body(session.id, ""), "messages": [with_answer(held, question=question)], "messageId": held["id"]}
    more = await client.read(body)
    assert types(more)[:2] == ["start", "tool-output-available"]
    assert more[-1] == {"type": "finish", "finishReason": "stop"}
    [_, stored] = await engine.messages(session.id)
    whole = reduced(more, parts=held["parts"] if question else body["messages"][0]["parts"])
    assert (whole["id"], texts(whole)) == (stored.id, texts({"parts": stored.parts}))
    assert texts(whole).endswith("Done.")


@pytest.mark.parametrize("script", [[say("one"), say("two"), say("three")]])
async def test_prompts_edits_and_regenerations_get_all_of_the_run_that_they_start(
    owned: tuple[OwnersClient, Engine],
) -> None:
    client, engine = owned
    session = await engine.create_session()
    again = {**chat_body(session.id, ""), "messages": [], "trigger": "regenerate-message"}
    edited = chat_body(session.id, "hello there", "u2", messageId="u1")
    for body, said in ((chat_body(session.id, "hello"), "one"), (again, "two"), (edited, "three")):
        chunks = await client.read(body)
        assert (texts(reduced(chunks)), chunks[-1]["type"]) == (said, "finish")
        assert reduced(chunks)["id"] == (await engine.messages(session.id))[-1].id
    # The same prompt again starts nothing: what became of it is replayed.
    repeated = await client.read({**edited, "messageId": None})
    assert texts(reduced(repeated)) == "three"


@pytest.mark.parametrize("script", [[[say("I can. "), call("pay", {"n": 1}), call("pay", {"n": 2})], say("Done.")]])
async def test_an_answer_that_another_client_completes_gets_the_message_of_that_run(
    owned: tuple[OwnersClient, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls wait: this client answers one, another client the other, just before this one does too."""
    client, engine = owned
    session = await engine.create_session()
    held = reduced(await client.read(chat_body(session.id, "go")))
    requests = [part for part in held["parts"] if part["type"] == "tool-pay"]
    approved = {"state": "approval-responded"}
    answered = [{**one, **approved, "approval": {**one["approval"], "approved": True}} for one in requests]
    parts = [part for part in held["parts"] if part["type"] != "tool-pay"] + answered
    body = {**chat_body(session.id, ""), "messages": [{**held, "parts": parts}], "messageId": held["id"]}
    plain = clew.Engine.answer_stream

    async def answer_stream(self: Engine, session_id: str, approval_id: str, *args: Any) -> Any:
        mine = await plain(self, session_id, approval_id, *args)
        if mine[0] == 1:
            await engine.answer(session_id, requests[1]["approval"]["id"], "once")
        return mine

    monkeypatch.setattr(clew.Engine, "answer_stream", answer_stream)
    more = await client.read(body)
    [_, stored] = await engine.messages(session.id)
    assert reduced(more) == bare(clew_message(stored))
    assert texts(reduced(more)) == "I can. Done."
    assert more[-1] == {"type": "finish", "finishReason": "stop"}


def clew_message(stored: Any) -> dict[str, Any]:
    """Return a stored message as a client sees it."""
    return {"id": stored.id, "role": stored.role, "parts": stored.parts}
