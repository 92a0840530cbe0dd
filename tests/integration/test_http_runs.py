"""Runs over HTTP: prompts, queue, abort, going on, status, answers and events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clew.testing.scripted import Gate, call, fail, say, wait
from tests.integration.http_client import AsgiClient, Client, served, texts

SSE = {"accept": "text/event-stream"}


@contextlib.asynccontextmanager
async def listening(client: Client) -> AsyncIterator[Any]:
    """The event stream, greeted."""
    async with client.open("GET", "/api/events") as reply:
        frames = reply.frames()
        hello = await anext(frames)
        assert hello["type"] == "hello"
        yield frames


async def until(frames: AsyncIterator[Any], kind: str) -> list[Any]:
    """Events up to and including the first of that type."""
    seen = []
    async for event in frames:
        seen.append(event)
        if event["type"] == kind:
            return seen
    raise AssertionError(f"no {kind} came")


async def test_a_prompt_is_taken_and_runs_by_itself() -> None:
    """202 with clew's id of the message; the answer is in the messages afterwards."""
    async with served(say("hello yourself")) as client:
        session_id = await client.session()
        answer = await client.prompt(session_id, "hello")
        assert answer.status == 202
        message_id = answer.json()["message_id"]
        assert answer.json() == {"message_id": message_id, "queued": False}
        assert await client.idle(session_id) == {"state": "idle"}
        messages = await client.messages(session_id)
        assert [(m["role"], texts(m)) for m in messages] == [("user", "hello"), ("assistant", "hello yourself")]
        assert messages[0]["id"] == message_id


async def test_a_prompt_names_text_or_parts_a_model_and_an_agent() -> None:
    """Each is used for this turn; both or neither of text and parts is 422."""
    async with served(say("one"), say("two")) as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}/prompt"
        model = {"provider_id": "test", "model_id": "big", "variant": "slow"}
        parts = [{"type": "text", "text": "as parts"}]
        assert (await client.post(path, {"parts": parts, "model": model, "agent": "explore"})).status == 202
        await client.idle(session_id)
        [user, assistant] = await client.messages(session_id)
        assert (user["metadata"]["model"], user["metadata"]["agent"]) == (model, "explore")
        assert assistant["metadata"]["model"] == model
        refused: list[dict[str, Any]] = [
            {},
            {"text": "a", "parts": parts},
            {"text": ""},
            {"parts": []},
            {"text": "a", "on_busy": "wait"},
            {"text": "a", "model": "nobody/x"},
            {"text": "a", "agent": "nobody"},
        ]
        for body in refused:
            assert (await client.post(path, body)).code == "invalid_input", body


@pytest.mark.rule("SR-6")
async def test_a_busy_session_rejects_queues_or_is_interrupted() -> None:
    """One run at a time; what happens to a second prompt is the client's choice."""
    gate = Gate()
    async with served(wait(gate), say("after the interrupt"), say("after that")) as client:
        session_id = await client.session()
        assert (await client.prompt(session_id, "first")).json()["queued"] is False
        await gate.reached.wait()
        rejected = await client.prompt(session_id, "no", on_busy="reject")
        assert (rejected.status, rejected.code) == (409, "run_in_flight")
        assert (await client.prompt(session_id, "later")).json()["queued"] is True
        async with listening(client) as events:
            assert (await client.prompt(session_id, "now", on_busy="interrupt")).json()["queued"] is True
            for _ in range(3):
                await until(events, "turn_finished")
        told = [texts(m) for m in await client.messages(session_id) if m["role"] == "user"]
        assert told == ["first", "now", "later"]
        assert "no" not in [texts(m) for m in await client.messages(session_id, "all")]


@pytest.mark.rule("SR-7")
async def test_three_in_the_queue_and_one_cancelled() -> None:
    """Fired one per turn in their order; the cancelled one never; a second cancel is 409."""
    gate = Gate()
    script = [[say("one"), wait(gate)], say("two"), say("three"), say("four")]
    async with served(*script) as client:
        session_id = await client.session()
        await client.prompt(session_id, "first")
        await gate.reached.wait()
        queued = [(await client.prompt(session_id, f"queued {n}", message_id=f"q{n}")).json() for n in range(3)]
        assert [one["queued"] for one in queued] == [True, True, True]
        again = (await client.prompt(session_id, "queued 1", message_id="q1")).json()
        assert again == queued[1]
        path = f"/api/sessions/{session_id}/queue"
        waiting = (await client.get(path)).json()["messages"]
        assert [texts(m) for m in waiting] == ["queued 0", "queued 1", "queued 2"]
        assert [texts(m) for m in await client.messages(session_id)] == ["first", "one"]
        assert (await client.request("DELETE", f"{path}/q1")).status == 204
        assert (await client.request("DELETE", f"{path}/{queued[1]['message_id']}")).status == 409
        assert (await client.request("DELETE", f"{path}/nobody")).code == "message_not_found"
        async with listening(client) as events:
            gate.set()
            for _ in range(3):
                await until(events, "turn_finished")
        told = [texts(m) for m in await client.messages(session_id)]
        assert told == ["first", "one", "queued 0", "two", "queued 2", "three"]
        assert (await client.request("DELETE", f"{path}/q0")).status == 409
        assert (await client.get(path)).json() == {"messages": []}


async def test_the_same_prompt_twice_is_one_message() -> None:
    """By the client's own id: the first answer again; other content under it is 409."""
    async with served(say("one")) as client:
        session_id = await client.session()
        first = await client.prompt(session_id, "hello", message_id="mine")
        await client.idle(session_id)
        again = await client.prompt(session_id, "hello", message_id="mine")
        assert (again.status, again.json()) == (202, first.json())
        other = await client.prompt(session_id, "something else", message_id="mine")
        assert (other.status, other.code) == (409, "duplicate_message")
        for bad in ("", "x" * 129, "ä", "a\nb"):
            answer = await client.prompt(session_id, "hello", message_id=bad)
            assert (answer.status, answer.code) == (400, "invalid_id"), bad
        assert len(await client.messages(session_id)) == 2


@pytest.mark.rule("SR-3")
async def test_abort_stops_the_run_and_is_never_an_error() -> None:
    """202 when something ran, 202 when nothing did; what was shown stays."""
    gate = Gate()
    async with served([say("so far"), wait(gate)]) as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}/abort"
        idle = await client.post(path)
        assert (idle.status, idle.json()) == (202, {"aborted": False})
        await client.prompt(session_id, "go")
        await gate.reached.wait()
        stopped = await client.post(path)
        assert (stopped.status, stopped.json()) == (202, {"aborted": True})
        assert await client.idle(session_id) == {"state": "idle"}
        assert [texts(m) for m in await client.messages(session_id)] == ["go", "so far"]
        assert (await client.post(path)).status == 202


@pytest.mark.rule("RN-8")
async def test_continue_goes_on_with_what_failed_and_refuses_when_there_is_nothing() -> None:
    """In the same turn, in a message of its own; a finished one has nothing to go on with, and can be asked again."""
    async with served(fail(400, "no such thing"), say("better"), say("anew")) as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}/continue"
        assert (await client.post(path)).code == "nothing_to_continue"
        await client.prompt(session_id, "go")
        status = await client.idle(session_id)
        assert status["state"] == "error"
        assert "no such thing" in status["message"]
        assert (await client.post(path)).status == 202
        assert await client.idle(session_id) == {"state": "idle"}
        messages = await client.messages(session_id)
        assert [texts(m) for m in messages] == ["go", "", "better"]
        assert len({message["metadata"]["turn_id"] for message in messages}) == 1
        answer = await client.post(path)
        assert (answer.status, answer.code) == (409, "nothing_to_continue")
        assert (await client.post(path, {"mode": "sideways"})).code == "invalid_input"
        assert (await client.post(path, {"mode": "again"})).status == 202
        assert await client.idle(session_id) == {"state": "idle"}
        anew = await client.messages(session_id)
        assert [texts(m) for m in anew] == ["go", "anew"]
        assert anew[0]["id"] == messages[0]["id"]
        assert anew[1]["metadata"]["turn_id"] != messages[1]["metadata"]["turn_id"]


@pytest.mark.rule("SR-5")
async def test_status_is_there_at_once_and_then_each_change() -> None:
    """As JSON when asked for once, as a stream when watched."""
    gate = Gate()
    async with served([say("one"), wait(gate)]) as client:
        session_id = await client.session()
        assert await client.status(session_id) == {"state": "idle"}
        async with client.open("GET", f"/api/sessions/{session_id}/status", headers=SSE) as reply:
            assert reply.headers["content-type"] == "text/event-stream"
            assert "x-vercel-ai-ui-message-stream" not in reply.headers
            frames = reply.frames()
            assert await anext(frames) == {"state": "idle"}
            await client.prompt(session_id, "go")
            busy = await anext(frames)
            assert (busy["state"], busy.keys()) == ("busy", {"state", "started_at"})
            assert await client.status(session_id) == busy
            gate.set()
            assert await anext(frames) == {"state": "idle"}


@pytest.mark.rule("EV-3")
async def test_events_tell_what_happens_on_the_host() -> None:
    """A greeting, then everything from then on, whatever session it is about; nothing from before."""
    async with served(say("one"), say("two")) as client:
        await client.session(title="before")
        async with listening(client) as events:
            session_id = await client.session(title="now")
            assert await until(events, "session_created") == [{"type": "session_created", "session_id": session_id}]
            await client.prompt(session_id, "go")
            seen = await until(events, "turn_finished")
            assert [event["type"] for event in seen if event["type"] != "session_updated"] == [
                "status",
                "turn_started",
                "status",
                "turn_finished",
            ]
            assert {event["session_id"] for event in seen} == {session_id}
            assert seen[-1]["reason"] == "finish"
            await client.request("PATCH", f"/api/sessions/{session_id}", {"title": "later"})
            await until(events, "session_updated")
            await client.request("DELETE", f"/api/sessions/{session_id}")
            assert (await until(events, "session_deleted"))[-1]["session_id"] == session_id


async def test_everybody_who_listens_hears_everything() -> None:
    """Two listeners get the same events in the same order."""
    async with served(say("one")) as client, listening(client) as first, listening(client) as second:
        session_id = await client.session()
        await client.prompt(session_id, "go")
        assert await until(first, "turn_finished") == await until(second, "turn_finished")


@pytest.mark.rule("PM-6")
async def test_an_approval_is_answered_once_and_the_turn_goes_on(tmp_path: Path) -> None:
    """The run ends at the request; the last answer has started it again before it returns; no answer counts twice."""
    script = [[call("bash", {"command": "echo one"}), call("bash", {"command": "echo two"})], say("done")]
    async with served(*script) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        async with listening(client) as events:
            await client.prompt(session_id, "go")
            seen = await until(events, "approval_requested")
            assert [e["reason"] for e in seen if e["type"] == "turn_finished"] == ["waiting"]
            [first, second] = (await client.status(session_id))["waiting"]
            assert (first["tool"], first.keys()) == ("bash", {"approval_id", "tool_call_id", "tool", "since"})
            path = f"/api/sessions/{session_id}/approvals"
            meanwhile = await client.prompt(session_id, "and then?", on_busy="reject")
            assert (meanwhile.status, meanwhile.code) == (409, "waiting_for_human")
            for body in ({"decision": "yes"}, {}, {"decision": None}):
                assert (await client.post(f"{path}/{first['approval_id']}", body)).code == "invalid_input"
            assert (await client.post(f"{path}/apr_nobody", {"decision": "once"})).code == "approval_not_found"
            once = await client.post(f"{path}/{first['approval_id']}", {"decision": "once"})
            assert (once.status, once.json()) == (200, {"remaining": 1})
            twice = await client.post(f"{path}/{first['approval_id']}", {"decision": "deny"})
            assert (twice.status, twice.code) == (409, "already_answered")
            denied = await client.post(f"{path}/{second['approval_id']}", {"decision": "deny", "reason": "not that"})
            assert denied.json() == {"remaining": 0}
            assert (await client.status(session_id))["state"] == "busy"
            assert [e["reason"] for e in await until(events, "turn_finished") if e["type"] == "turn_finished"] == [
                "finish"
            ]
        late = await client.post(f"{path}/{second['approval_id']}", {"decision": "once"})
        assert (late.status, late.code) == (409, "already_answered")
        [_, assistant] = await client.messages(session_id)
        calls = [part for part in assistant["parts"] if part["type"] == "tool-bash"]
        assert [part["state"] for part in calls] == ["output-available", "output-denied"]
        assert calls[1]["approval"]["reason"] == "not that"
        assert texts(assistant) == "done"


async def test_a_question_is_answered_with_a_value() -> None:
    """Any JSON, null included; a body without output is no answer."""
    async with served(call("question", {"question": "which?"}), say("thanks")) as client:
        session_id = await client.session()
        await client.prompt(session_id, "go")
        [wait_] = (await client.idle(session_id))["waiting"]
        assert (wait_["tool"], wait_["approval_id"]) == ("question", None)
        path = f"/api/sessions/{session_id}/answers"
        assert (await client.post(f"{path}/{wait_['tool_call_id']}", {})).code == "invalid_input"
        assert (await client.post(f"{path}/nobody", {"output": 1})).code == "approval_not_found"
        answer = await client.post(f"{path}/{wait_['tool_call_id']}", {"output": {"chosen": None}})
        assert answer.json() == {"remaining": 0}
        await client.idle(session_id)
        [_, assistant] = await client.messages(session_id)
        assert [part["output"] for part in assistant["parts"] if part["type"] == "tool-question"] == [{"chosen": None}]


async def test_a_hundred_posts_of_one_prompt_are_one_run(client_with_one_answer: AsgiClient) -> None:
    """All at once, with the client's own id: one message, one answer, the same reply to each."""
    client = client_with_one_answer
    session_id = await client.session()
    answers = await asyncio.gather(*(client.prompt(session_id, "hello", message_id="mine") for _ in range(100)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json()["message_id"] for answer in answers}) == 1
    await client.idle(session_id)
    assert [texts(m) for m in await client.messages(session_id, "all")] == ["hello", "one"]


@pytest.fixture
async def client_with_one_answer() -> AsyncIterator[AsgiClient]:
    async with served(say("one")) as client:
        yield client
