"""Positions in a chat stream over HTTP: the id of an event, and what follows it on the next connection."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait
from tests.integration.http_client import TOKEN, AsgiClient, Client, Reply, bare, chat_body, held, reduced, served

pytestmark = [pytest.mark.rule("SR-2"), pytest.mark.rule("EM-5")]

Pair = tuple[str | None, Any]


@clew.tool
def pay(n: int) -> str:
    """Pay that much."""
    return f"paid {n}"


async def pairs(reply: Reply, at_most: int = 10_000) -> list[Pair]:
    """Each frame with the id of its event, as far as it is read."""
    found: list[Pair] = []
    async for frame in reply.frames():
        found.append((reply.last_id, frame))
        reply.last_id = None
        if len(found) == at_most:
            break
    return found


async def after(client: Client, session_id: str, cursor: str | None, **query: str) -> list[Pair]:
    """What a connection gives that continues after a position."""
    words = "&".join(f"{name}={value}" for name, value in query.items())
    headers = {} if cursor is None else {"last-event-id": cursor}
    async with client.open("GET", f"/api/chat/{session_id}/stream?{words}", headers=headers) as reply:
        assert reply.status == 200, await reply.read()
        return await pairs(reply)


@contextlib.asynccontextmanager
async def asking(store: str, *script: Any) -> AsyncIterator[tuple[AsgiClient, clew.Engine]]:
    providers, streams = FakeProviders(ScriptedModel(script)), Streams()
    async with clew.open(store, config=clew.Config(), providers=providers, tools=[pay]) as engine:
        yield AsgiClient(make_app(engine, token=TOKEN, streams=streams), engine, streams), engine


async def test_a_client_continues_after_the_last_event_it_has() -> None:
    """By header or by address, with exactly what follows; the header is newer than the address it came with."""
    gate = Gate()
    async with served([say("one two"), wait(gate), say("three four")]) as client:
        session_id = await client.session()
        async with client.open("POST", "/api/chat", chat_body(session_id, "count")) as reply:
            first = await pairs(reply, 4)
            await gate.reached.wait()
        cursor = first[-1][0]
        assert cursor is not None
        async with client.open("GET", f"/api/chat/{session_id}/stream?after={cursor}") as reply:
            gate.set()
            rest = await pairs(reply)
        [message] = (await client.messages(session_id))[1:]
        ids = [id_ for id_, _ in (*first, *rest[:-1])]
        assert ids == [f"{message['id']}:{n}" for n in range(1, len(ids) + 1)]
        assert reduced([frame for _, frame in (*first, *rest[:-1])]) == bare(message)
        # After its end, for a while, the same rest; after its last event nothing is left.
        assert await after(client, session_id, cursor) == rest
        assert await after(client, session_id, ids[-1]) == [(None, "[DONE]")]
        assert (await after(client, session_id, ids[-1], after=cursor)) == [(None, "[DONE]")]


@pytest.mark.parametrize("kind", ["memory:", "sqlite:///{}/clew.db", "jsonl:{}/files"])
async def test_numbers_continue_over_an_answer_and_a_restart(kind: str, tmp_path: Path) -> None:
    """The second run on a message counts on from the first, also in another process; what waits gives nothing twice."""
    store, gate = kind.format(tmp_path), Gate()
    first_half, second_half = [say("May I? "), call("pay", {"n": 1})], [wait(gate), say("Done.")]
    async with contextlib.AsyncExitStack() as stack:
        client, engine = await stack.enter_async_context(asking(store, first_half, second_half))
        session_id = await client.session()
        async with client.open("POST", "/api/chat", chat_body(session_id, "go")) as reply:
            first = await pairs(reply)
        cursor = first[-2][0]
        assert await after(client, session_id, cursor) == [(None, "[DONE]")]
        if kind != "memory:":
            await stack.aclose()
            client, engine = await stack.enter_async_context(asking(store, second_half))
            assert await after(client, session_id, cursor) == [(None, "[DONE]")]
        [waiting] = (await engine.get_status(session_id)).waiting
        assert waiting.approval_id is not None
        await engine.answer(session_id, waiting.approval_id, "once")
        await gate.reached.wait()
        async with client.open("GET", f"/api/chat/{session_id}/stream", headers={"last-event-id": cursor}) as reply:
            gate.set()
            rest = await pairs(reply)
        ids = [id_ for id_, _ in (*first[:-1], *rest[:-1])]
        message = (await client.messages(session_id))[-1]
        # The second `start` is left out; its number is not used again.
        assert [int(str(id_).rpartition(":")[2]) for id_ in ids] == [
            n for n in range(1, len(ids) + 2) if n != len(first)
        ]
        assert [frame["type"] for _, frame in rest[:-1]][:2] == ["tool-output-available", "start-step"]
        assert reduced([frame for _, frame in (*first[:-1], *rest[:-1])]) == bare(message)
        assert await after(client, session_id, ids[-1]) == [(None, "[DONE]")]
        if kind != "memory:":
            # Another process knows only how many there were.
            await stack.aclose()
            client, engine = await stack.enter_async_context(asking(store))
            assert await after(client, session_id, ids[-1]) == [(None, "[DONE]")]
            whole = await after(client, session_id, cursor)
            assert whole[0] == (None, {"type": "data-reset", "data": {"messageId": message["id"]}, "transient": True})
            assert whole[-2][0] == ids[-1]
            assert reduced(held([*(frame for _, frame in first[:-1]), *(frame for _, frame in whole[:-1])])) == bare(
                message
            )


async def test_a_call_that_ended_elsewhere_is_shown_to_a_client_that_comes_back() -> None:
    """An abort closes what waits without a chunk of its own: its message is reset."""
    async with asking("memory:", [say("May I? "), call("pay", {"n": 1})]) as (client, engine):
        session_id = await client.session()
        async with client.open("POST", "/api/chat", chat_body(session_id, "go")) as reply:
            first = await pairs(reply)
        assert await engine.abort(session_id)
        rest = await after(client, session_id, first[-2][0])
        shown = held([frame for _, frame in (*first[:-1], *rest[:-1])])
        assert rest[0][1]["type"] == "data-reset"
        assert shown[-1]["type"] == "abort"
        assert reduced(shown) == bare((await client.messages(session_id))[-1])


@pytest.mark.parametrize("cursor", ["nonsense", "msg_1:", ":4", "msg_1:-4", "msg_1:4:x", "5"])
async def test_a_position_of_another_form_is_refused_by_a_code(cursor: str) -> None:
    """As is one in a message that is not there; with the turn's message it is reset instead."""
    async with served([say("one")]) as client:
        session_id = await client.session()
        await client.chat(session_id, "count")
        answer = await client.get(f"/api/chat/{session_id}/stream?after={cursor}")
        assert (answer.status, answer.code) == (422, "invalid_cursor")
        answer = await client.get(f"/api/chat/{session_id}/stream", headers={"last-event-id": cursor})
        assert (answer.status, answer.code) == (422, "invalid_cursor")
        gone = "msg_0a9900000000000000000000000000:7"
        answer = await client.get(f"/api/chat/{session_id}/stream?after={gone}")
        assert (answer.status, answer.code) == (404, "message_not_found")
        whole = await after(client, session_id, gone, message_id="u1")
        assert [frame["type"] for _, frame in whole[:2]] == ["data-reset", "start"]


async def test_a_client_without_a_position_gets_each_message_from_its_first_part() -> None:
    """As `useChat` does, which knows no resets: the same chunks as ever, and never a reset."""
    async with served([say("one two three")]) as client:
        session_id = await client.session()
        chunks = await client.chat(session_id, "count")
        again = await after(client, session_id, None, message_id="u1")
        assert reduced([frame for _, frame in again[:-1]]) == reduced(chunks)
        assert "data-reset" not in {chunk["type"] for chunk in chunks} | {frame["type"] for _, frame in again[:-1]}
