"""What a client follows is followed to its end and told once, whatever becomes of its connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import clew
from clew.client import AsyncClient
from clew.testing.scripted import Gate, call, cut_after, say, wait
from tests.integration.between import between
from tests.integration.test_client import said, scripted
from tests.integration.test_operations import TOKEN

pytestmark = pytest.mark.rule("EM-5")


async def test_who_saw_the_first_message_of_a_turn_end_is_shown_the_second() -> None:
    """The turn goes on by itself, after a reminder; nobody was cut off."""
    first, second = Gate(), Gate()
    script = [[say("I think of a town."), wait(first)], [wait(second), call("final_answer", {"name": "Graz"})]]
    async with scripted(*script) as (engine, port), AsyncClient(f"http://127.0.0.1:{port}", token=TOKEN) as client:
        session = await client.create_session()
        turn = await client.start(session.id, "where?", output={"type": "object", "properties": {"name": {}}})
        seen: list[dict[str, Any]] = []
        async for chunk in turn:
            seen.append(chunk)
            if chunk["type"] == "text-delta":
                first.set()
            elif chunk["type"] == "finish":
                # Nobody asks before the whole turn is over.
                second.set()
                await turn.wait()
        messages = [message for message in await engine.messages(session.id, view="all") if message.role == "assistant"]
        assert [one["messageId"] for one in seen if one["type"] == "start"] == [one.id for one in messages]
        assert (len(messages), said(seen)) == (2, "I think of a town.")
        assert [one["data"] for one in seen if one["type"] == "data-output"] == [{"name": "Graz"}]


async def test_an_unattended_turn_that_goes_on_after_a_cut_is_followed_to_its_end() -> None:
    """Its provider breaks off, nobody is there to say that it goes on, and it does, in a message of its own."""
    gate = Gate()
    script = [[say("half of it"), wait(gate), cut_after(0)], say("whole")]
    async with scripted(*script) as (_, port), AsyncClient(f"http://127.0.0.1:{port}", token=TOKEN) as client:
        session = await client.create_session()
        turn = await client.start(session.id, "go", attended=False)
        seen: list[dict[str, Any]] = []
        async for chunk in turn:
            seen.append(chunk)
            gate.set()
        outcome = await turn.wait()
        started = [chunk["messageId"] for chunk in seen if chunk["type"] == "start"]
        assert (said(seen), len(started), started[-1]) == ("half of itwhole", 2, outcome.message_id)
        assert (seen[-1]["finishReason"], outcome.status) == ("stop", "completed")


@pytest.mark.parametrize("attended", [True, False])
async def test_a_message_that_was_cut_ends_once_for_whoever_joins_again(attended: bool) -> None:
    """It said that it broke off, and its step did not end: what its turn went on with is all that is new."""
    cut, over = Gate(), Gate()
    script = [[say("half of it"), wait(cut), cut_after(0)], [wait(over), say("whole")]]
    async with scripted(*script) as (engine, port), AsyncClient(f"http://127.0.0.1:{port}", token=TOKEN) as client:
        session = await client.create_session()
        turn = await client.start(session.id, "go", attended=attended)
        first, seen = list[str](), list[str]()
        async for chunk in turn:
            cut.set()
            seen.append(_kind(chunk))
            if chunk["type"] == "finish" and not first:
                first = [kind for kind in seen if "delta" not in kind]
                over.set()
                if not attended:
                    # It is joined again where the whole turn is over.
                    await turn.wait()
        failure = ["error"] if attended else []
        assert first == ["start", "start-step", "text-start", "text-end", *failure, "finish error"]
        if attended:
            await (await engine.continue_turn(session.id)).wait()
            seen += [_kind(chunk) async for chunk in turn]
        second = ["start", "start-step", "text-start", "text-end", "finish-step", "finish stop"]
        told = ("message-metadata", "text-delta")
        assert [kind for kind in seen if kind not in told] == [*first, *second]
        # Somebody who has seen nothing of it is told the same, but for why it failed, which it went on from.
        whole = [_kind(chunk) async for chunk in engine.attach(session.id, message_id=turn.message_id)]
        assert [kind for kind in whole if kind not in told] == [kind for kind in (*first, *second) if kind != "error"]


def _kind(chunk: dict[str, Any]) -> str:
    return " ".join(filter(None, (chunk["type"], chunk.get("finishReason"))))


async def test_a_status_is_told_once_however_often_its_connection_is_cut() -> None:
    gate = Gate()
    async with (
        scripted([wait(gate), say("done")]) as (_, port),
        between(port) as way,
        AsyncClient(way.url, token=TOKEN) as client,
    ):
        session = await client.create_session()
        statuses = client.watch_status(session.id)
        told = [(await anext(statuses)).state]
        for _ in range(2):
            following = asyncio.ensure_future(anext(statuses))
            await way.cut(b"/status")
            if told == ["idle"]:
                await client.submit(session.id, "go")
            else:
                gate.set()
            told.append((await following).state)
        assert told == ["idle", "busy", "idle"]


async def test_a_prompt_that_waits_behind_a_run_is_not_started() -> None:
    """Its turn may be long in coming: whoever started it is told, and it goes on waiting."""
    gate = Gate()
    script = [[wait(gate), say("one")], say("two")]
    async with scripted(*script) as (engine, port), AsyncClient(f"http://127.0.0.1:{port}", token=TOKEN) as client:
        session = await client.create_session()
        running = await client.start(session.id, "first")
        await client.submit(session.id, "second", message_id="mine", on_busy="queue")
        with pytest.raises(clew.errors.SessionBusy, match="is queued behind"):
            await client.start(session.id, "second", message_id="mine")
        assert len(await engine.queue(session.id)) == 1
        gate.set()
        assert (await running.wait()).status == "completed"
