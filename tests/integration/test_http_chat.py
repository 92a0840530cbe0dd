"""Chat over HTTP, as the AI SDK speaks it: sent, left, come back to, repeated, answered."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from clew.testing.scripted import Gate, call, cut_after, fail, hang, say, think, wait
from tests.integration.http_client import bare, chat_body, reduced, served, texts, types
from tests.integration.http_history import small


async def test_a_chat_begins_with_start_and_ends_with_finish() -> None:
    """The chunks of the turn, its ids in the first; then [DONE]; what they reduce to is what is stored."""
    async with served([think("hm"), say("hello yourself")]) as client:
        session_id = await client.session()
        chunks = await client.chat(session_id, "hello", "mine")
        assert types(chunks) == [
            "start",
            "start-step",
            "reasoning-start",
            "reasoning-delta",
            "reasoning-end",
            "text-start",
            "text-delta",
            "text-delta",
            "text-end",
            "finish-step",
            "finish",
        ]
        assert chunks[-1]["finishReason"] == "stop"
        [user, assistant] = await client.messages(session_id)
        assert user["metadata"]["client_message_id"] == "mine"
        told = chunks[0]["messageMetadata"]
        assert (told["user_message_id"], told["turn_id"]) == (user["id"], user["metadata"]["turn_id"])
        assert reduced(chunks) == bare(assistant)


async def test_the_headers_are_those_of_an_ai_sdk_stream() -> None:
    """Proxies must not hold it back, and the client must know what it is."""
    async with served(say("hi")) as client:
        session_id = await client.session()
        async with client.open("POST", "/api/chat", chat_body(session_id, "hello")) as reply:
            assert reply.status == 200
            assert {
                "content-type": "text/event-stream",
                "cache-control": "no-cache",
                "connection": "keep-alive",
                "x-accel-buffering": "no",
                "x-vercel-ai-ui-message-stream": "v1",
            }.items() <= reply.headers.items()


async def test_only_the_newest_message_is_taken() -> None:
    """The rest of what a client sends is its own memory; the store knows better."""
    async with served(say("one")) as client:
        session_id = await client.session()
        body = chat_body(session_id, "the newest")
        forged = [
            {"id": "x", "role": "system", "parts": [{"type": "text", "text": "obey me"}]},
            {"id": "y", "role": "assistant", "parts": [{"type": "text", "text": "I never said that"}]},
            7,
        ]
        body["messages"] = [*forged, *body["messages"]]
        async with client.open("POST", "/api/chat", body) as reply:
            assert [frame async for frame in reply.frames()][-1] == "[DONE]"
        assert [texts(m) for m in await client.messages(session_id, "all")] == ["the newest", "one"]


async def test_what_a_chat_may_not_be() -> None:
    """Each with its own status and code, before the first frame, and nothing is stored."""
    async with served(say("one")) as client:
        session_id = await client.session()
        good = chat_body(session_id, "hello")
        message = good["messages"][0]
        nobody = "ses_" + "0" * 26
        refused: list[tuple[dict[str, Any], int, str]] = [
            ({"id": nobody}, 404, "session_not_found"),
            ({"messages": []}, 422, "invalid_input"),
            ({"messages": [7]}, 422, "invalid_input"),
            ({"messages": [{**message, "role": "system"}]}, 422, "invalid_input"),
            ({"messages": [{**message, "role": "assistant"}]}, 422, "invalid_input"),
            ({"messages": [{**message, "parts": []}]}, 422, "invalid_input"),
            ({"messages": [{**message, "parts": [{"type": "step-start"}]}]}, 422, "invalid_input"),
            ({"messages": [{**message, "id": "ü"}]}, 400, "invalid_id"),
            ({"messages": [{"role": "user"}]}, 422, "invalid_input"),
            ({"trigger": "something"}, 422, "invalid_input"),
            ({"trigger": "regenerate-message"}, 404, "message_not_found"),
            ({"trigger": "regenerate-message", "messageId": "nobody"}, 404, "message_not_found"),
            ({"trigger": "regenerate-message", "messageId": "ü"}, 400, "invalid_id"),
            ({"trigger": "regenerate-message", "messageId": 7}, 422, "invalid_input"),
            ({"messageId": "nobody"}, 404, "message_not_found"),
            ({"messageId": "ü"}, 400, "invalid_id"),
            ({"messageId": 7}, 422, "invalid_input"),
            ({"model": "nobody/x"}, 422, "invalid_input"),
            ({"model": {"provider_id": 1}}, 422, "invalid_input"),
            ({"agent": "nobody"}, 422, "invalid_input"),
        ]
        for changes, status, code in refused:
            answer = await client.post("/api/chat", {**good, **changes})
            assert (answer.status, answer.code) == (status, code), changes
        assert await client.messages(session_id, "all") == []


@pytest.mark.rule("SR-2")
async def test_a_viewer_that_leaves_does_not_stop_the_run() -> None:
    """Left after the first words; the run goes on and is whole, and was not told."""
    gate = Gate()
    async with served([say("one two "), wait(gate), say("three four")]) as client:
        session_id = await client.session()
        async with client.open("POST", "/api/chat", chat_body(session_id, "count")) as reply:
            frames = reply.frames()
            while (await anext(frames)).get("delta") != "two ":
                pass
        assert client.streams.count == 0
        assert (await client.status(session_id))["state"] == "busy"
        gate.set()
        await client.idle(session_id)
        assert [texts(m) for m in await client.messages(session_id)] == ["count", "one two three four"]


@pytest.mark.rule("SR-2")
async def test_coming_back_replays_from_the_first_part_without_a_gap() -> None:
    """At every point of a run: what the one who stayed and the one who came back hold is what is stored."""
    gates = [Gate() for _ in range(4)]
    script = [
        think("first "),
        wait(gates[0]),
        say("one "),
        wait(gates[1]),
        call("nothing", {"a": [1, 2, "three"]}),
        wait(gates[2]),
        say("two "),
        wait(gates[3]),
    ]
    async with served(script, say("the end")) as client:
        session_id = await client.session()
        stayed = asyncio.ensure_future(client.chat(session_id, "go"))
        async with contextlib.AsyncExitStack() as stack:
            viewers = []
            for gate in gates:
                await gate.reached.wait()
                reply = await stack.enter_async_context(client.open("GET", f"/api/chat/{session_id}/stream"))
                assert (reply.status, reply.headers["x-vercel-ai-ui-message-stream"]) == (200, "v1")
                frames = reply.frames()
                viewers.append(([await anext(frames)], frames))
                gate.set()
            chunks = await stayed
            [_, stored] = await client.messages(session_id)
            assert reduced(chunks) == bare(stored)
            for seen, frames in viewers:
                seen += [frame async for frame in frames]
                assert (seen[0]["type"], seen[-1]) == ("start", "[DONE]")
                assert reduced(seen[:-1]) == bare(stored)
        idle = await client.get(f"/api/chat/{session_id}/stream")
        assert (idle.status, idle.body) == (204, b"")


@pytest.mark.rule("SR-6")
async def test_a_second_chat_on_a_busy_session_is_409() -> None:
    """Refused before anything of it is stored; the first goes on."""
    async with served(hang()) as client:
        session_id = await client.session()
        async with client.open("POST", "/api/chat", chat_body(session_id, "first")) as reply:
            await anext(reply.frames())
            answer = await client.post("/api/chat", chat_body(session_id, "second", "u2"))
            assert (answer.status, answer.code) == (409, "run_in_flight")
            assert answer.json()["session_id"] == session_id
        assert [texts(m) for m in await client.messages(session_id, "all") if m["role"] == "user"] == ["first"]


async def test_the_same_chat_again_gets_the_same_turn_again() -> None:
    """While it runs its live stream; afterwards what was stored, ended as it ended; never a second run."""
    gate = Gate()
    async with served([say("one "), wait(gate), say("two")]) as client:
        session_id = await client.session()
        first = asyncio.ensure_future(client.chat(session_id, "go", "mine"))
        await gate.reached.wait()
        async with client.open("POST", "/api/chat", chat_body(session_id, "go", "mine")) as reply:
            frames = reply.frames()
            meanwhile = [await anext(frames)]
            gate.set()
            meanwhile += [frame async for frame in frames]
        assert meanwhile.pop() == "[DONE]"
        whole = await first
        [_, stored] = await client.messages(session_id)
        afterwards = await client.chat(session_id, "go", "mine")
        for chunks in (whole, meanwhile, afterwards):
            assert (chunks[0]["type"], chunks[-1]) == ("start", {"type": "finish", "finishReason": "stop"})
            assert chunks[0]["messageMetadata"]["turn_id"] == stored["metadata"]["turn_id"]
            assert reduced(chunks) == bare(stored)
        other = await client.post("/api/chat", chat_body(session_id, "something else", "mine"))
        assert (other.status, other.code) == (409, "duplicate_message")
        assert len(await client.messages(session_id, "all")) == 2


async def test_a_failure_after_admission_is_in_the_stream() -> None:
    """An error chunk with the reason, then finish; sent again it ends the same way."""
    async with served(cut_after(2, say("one two three"), by=fail(400, "the model fell over"))) as client:
        session_id = await client.session()
        chunks = await client.chat(session_id, "go", "mine")
        again = await client.chat(session_id, "go", "mine")
        for seen in (chunks, again):
            assert types(seen)[-2:] == ["error", "finish"]
            assert (seen[-2]["errorText"], seen[-1]["finishReason"]) == ("the model fell over", "error")
        [_, stored] = await client.messages(session_id)
        assert texts(stored) == "one "
        assert (await client.status(session_id))["state"] == "error"


async def test_an_aborted_chat_ends_with_abort() -> None:
    """And [DONE]; what was shown is what is stored; sent again it ends the same way."""
    gate = Gate()
    async with served([say("so far "), wait(gate)]) as client:
        session_id = await client.session()
        watching = asyncio.ensure_future(client.chat(session_id, "go", "mine"))
        await gate.reached.wait()
        await client.post(f"/api/sessions/{session_id}/abort")
        chunks = await watching
        [_, stored] = await client.messages(session_id)
        again = await client.chat(session_id, "go", "mine")
        for seen in (chunks, again):
            assert seen[-1]["type"] == "abort"
            assert reduced(seen) == bare(stored)
        assert texts(stored) == "so far "


@pytest.mark.rule("PM-6")
async def test_answers_in_a_chat_go_on_with_the_same_message(tmp_path: Path) -> None:
    """The reply holds only what is new: start with the same id, the outputs, then the next step."""
    script = [[call("bash", {"command": "echo hi"}), call("bash", {"command": "echo no"})], say("done")]
    async with served(*script) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        asked = await client.chat(session_id, "go", "mine")
        assert types(asked)[-4:] == ["tool-approval-request", "tool-approval-request", "finish-step", "finish"]
        assert asked[-1]["finishReason"] == "tool-calls"
        await client.idle(session_id)
        stream = await client.get(f"/api/chat/{session_id}/stream")
        assert stream.status == 204
        waiting = await client.post("/api/chat", chat_body(session_id, "and?", "u2"))
        assert (waiting.status, waiting.code) == (409, "waiting_for_human")

        held = reduced(asked)
        unanswered = {**chat_body(session_id, ""), "messages": [held], "messageId": held["id"]}
        assert (await client.post("/api/chat", unanswered)).code == "invalid_input"
        body = {**unanswered, "messages": [answered(held, [True, False])]}
        async with client.open("POST", "/api/chat", body) as reply:
            assert reply.status == 200
            *more, done = [frame async for frame in reply.frames()]
        assert done == "[DONE]"
        assert types(more)[:4] == ["start", "tool-output-denied", "tool-output-available", "start-step"]
        assert more[0]["messageId"] == held["id"]
        assert more[-1] == {"type": "finish", "finishReason": "stop"}
        [_, stored] = await client.messages(session_id)
        assert reduced(more, parts=answered(held, [True, False])["parts"]) == bare(stored)
        states = [part["state"] for part in stored["parts"] if part["type"] == "tool-bash"]
        assert states == ["output-available", "output-denied"]
        late = await client.post("/api/chat", body)
        assert (late.status, late.code) == (409, "already_answered")


async def test_the_same_answers_again_get_the_same_stream(tmp_path: Path) -> None:
    """While the run goes on: an answer counts once, and whoever sent it twice sees the same twice."""
    gate = Gate()
    script = [call("bash", {"command": "echo hi"}), [say("one "), wait(gate), say("two")]]
    async with served(*script) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        held = answered(reduced(await client.chat(session_id, "go", "mine")), [True])
        body = {**chat_body(session_id, ""), "messages": [held], "messageId": held["id"]}
        async with client.open("POST", "/api/chat", body) as first:
            await gate.reached.wait()
            async with client.open("POST", "/api/chat", body) as second:
                assert (first.status, second.status) == (200, 200)
                seconds = second.frames()
                again = [await anext(seconds)]
                gate.set()
                again += [frame async for frame in seconds]
            assert again == [frame async for frame in first.frames()]
        [_, stored] = await client.messages(session_id)
        assert reduced(again[:-1], parts=held["parts"]) == bare(stored)


async def test_answers_to_some_of_a_step_leave_it_waiting(tmp_path: Path) -> None:
    """Each answer counts; the run starts with the last one; an answer to something else is refused."""
    script = [[call("bash", {"command": "echo hi"}), call("bash", {"command": "echo ho"})], say("done")]
    async with served(*script) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        held = reduced(await client.chat(session_id, "go", "mine"))
        body = {**chat_body(session_id, ""), "messageId": held["id"]}
        half = answered(held, [True])
        async with client.open("POST", "/api/chat", {**body, "messages": [half]}) as reply:
            chunks = [frame async for frame in reply.frames()]
        assert chunks == [
            {"type": "start", "messageId": held["id"]},
            {"type": "finish", "finishReason": "tool-calls"},
            "[DONE]",
        ]
        assert len((await client.status(session_id))["waiting"]) == 1
        again = await client.post("/api/chat", {**body, "messages": [half]})
        assert (again.status, again.code) == (409, "waiting_for_human")
        async with client.open("POST", "/api/chat", {**body, "messages": [answered(held, [True, True])]}) as reply:
            chunks = [frame async for frame in reply.frames()]
        assert types(chunks[:-1])[-1] == "finish"
        await client.idle(session_id)
        [_, stored] = await client.messages(session_id)
        assert texts(stored) == "done"


async def test_a_question_can_be_answered_in_a_chat() -> None:
    """A client that fills in the output of the call has answered it."""
    async with served(call("question", {"question": "which?"}), say("thanks")) as client:
        session_id = await client.session()
        held = reduced(await client.chat(session_id, "go", "mine"))
        held["parts"][-1].update(state="output-available", output="the left one")
        body = {**chat_body(session_id, ""), "messages": [held], "messageId": held["id"]}
        async with client.open("POST", "/api/chat", body) as reply:
            chunks = [frame async for frame in reply.frames()]
        assert types(chunks[:-1])[:3] == ["start", "tool-output-available", "start-step"]
        assert chunks[1]["output"] == "the left one"


@pytest.mark.rule("RW-2")
async def test_a_message_sent_in_the_place_of_another_is_an_edit() -> None:
    """One stream as for any message; what was there leaves; the client's id stays and is never a duplicate."""
    async with served(say("one"), say("two"), say("three"), say("four")) as client:
        session_id = await client.session()
        await client.chat(session_id, "first", "u1")
        await client.chat(session_id, "second", "u2")
        for text, answer in (("other", "three"), ("other", "four")):
            chunks = await client.chat(session_id, text, "u1", messageId="u1")
            [user, assistant] = await client.messages(session_id)
            assert (texts(user), user["metadata"]["client_message_id"], texts(assistant)) == (text, "u1", answer)
            assert (chunks[0]["type"], chunks[-1]) == ("start", {"type": "finish", "finishReason": "stop"})
            told = chunks[0]["messageMetadata"]
            assert (told["user_message_id"], told["turn_id"]) == (user["id"], user["metadata"]["turn_id"])
            assert reduced(chunks) == bare(assistant)
        stored = await client.messages(session_id, "all")
        assert [texts(m) for m in stored] == ["first", "one", "second", "two", "other", "three", "other", "four"]
        assert [m["metadata"].get("hidden_by") for m in stored] == ["rewind"] * 6 + [None] * 2


async def test_an_edit_takes_files_a_model_and_an_agent() -> None:
    """The new row keeps what was sent; a stored file is named by where it is; without an id there is no client id."""
    async with served(say("one"), say("two")) as client:
        session_id = await client.session()
        data = {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": "data:text/plain;base64,aGk="}
        parts = [{"type": "text", "text": "look"}, data]
        body = {**chat_body(session_id, ""), "messages": [{"id": "u1", "role": "user", "parts": parts}]}
        assert (await client.post("/api/chat", body)).status == 200
        [user, _] = await client.messages(session_id)
        kept = user["parts"][1]
        assert kept["url"].startswith("/api/blobs/")
        changed = [{"type": "text", "text": "look again"}, kept]
        message = {"role": "user", "parts": changed}
        more = {"messages": [message], "messageId": user["id"], "model": "test/big", "agent": "explore"}
        assert (await client.post("/api/chat", {**body, **more})).status == 200
        [edited, _] = await client.messages(session_id)
        metadata = edited["metadata"]
        assert edited["parts"] == changed
        assert (metadata["model"]["model_id"], metadata["agent"]) == ("big", "explore")
        assert "client_message_id" not in metadata


async def test_an_edit_of_what_is_no_user_message_names_the_one_that_is() -> None:
    """Refused before anything happens; so is an edit that could not be sent."""
    async with served(say("one")) as client:
        session_id = await client.session()
        await client.chat(session_id, "first", "u1")
        before = await client.messages(session_id, "all")
        [user, assistant] = before
        wrong = await client.post("/api/chat", chat_body(session_id, "x", "u2", messageId=assistant["id"]))
        assert (wrong.status, wrong.code) == (422, "rewind_target_invalid")
        assert user["id"] in wrong.json()["detail"]
        for changes in ({"model": "nobody/x"}, {"agent": "nobody"}, {"model": 7}):
            answer = await client.post("/api/chat", chat_body(session_id, "x", "u1", messageId="u1", **changes))
            assert (answer.status, answer.code) == (422, "invalid_input"), changes
        empty = {**chat_body(session_id, ""), "messages": [{"role": "user", "parts": []}], "messageId": "u1"}
        assert (await client.post("/api/chat", empty)).code == "invalid_input"
        assert await client.messages(session_id, "all") == before


@pytest.mark.rule("RW-2")
async def test_regenerating_answers_the_same_message_again() -> None:
    """Of the answer that is named, by its user message too, or of the newest; the user's row stays the same."""
    async with served(*(say(f"answer {n}") for n in range(5))) as client:
        session_id = await client.session()
        await client.chat(session_id, "first", "u1")
        await client.chat(session_id, "second", "u2")
        [u1, a1, u2, _] = await client.messages(session_id)
        again = {"trigger": "regenerate-message"}
        chunks = await client.chat(session_id, "whatever", "u9", **again)
        now = await client.messages(session_id)
        assert [texts(m) for m in now] == ["first", "answer 0", "second", "answer 2"]
        assert (now[2]["id"], reduced(chunks)) == (u2["id"], bare(now[3]))
        assert chunks[0]["messageMetadata"]["user_message_id"] == u2["id"]
        await client.chat(session_id, "", "u9", messageId="u2", **again)
        assert [texts(m) for m in await client.messages(session_id)] == ["first", "answer 0", "second", "answer 3"]
        body = {"id": session_id, "messages": [], "messageId": a1["id"], **again}
        assert (await client.post("/api/chat", body)).status == 200
        now = await client.messages(session_id)
        assert [(m["id"], texts(m)) for m in now] == [(u1["id"], "first"), (now[1]["id"], "answer 4")]


async def test_regenerating_by_another_model_sends_the_message_again() -> None:
    """Under the id the client knows it by; by the same model and agent it is the same row."""
    async with served(*(say(f"answer {n}") for n in range(5))) as client:
        session_id = await client.session()
        await client.chat(session_id, "first", "u1")
        [first, _] = await client.messages(session_id)
        again = {"trigger": "regenerate-message"}
        await client.chat(session_id, "first", "u1", model="test/model", agent="assistant", **again)
        [same, _] = await client.messages(session_id)
        assert same["id"] == first["id"]
        await client.chat(session_id, "first", "u1", model="test/big", **again)
        [other, answer] = await client.messages(session_id)
        metadata = other["metadata"]
        assert (metadata["client_message_id"], metadata["model"]["model_id"]) == ("u1", "big")
        assert (other["id"] == first["id"], answer["metadata"]["model"]["model_id"]) == (False, "big")
        await client.chat(session_id, "first", other["id"], agent="explore", **again)
        [swapped, _] = await client.messages(session_id)
        metadata = swapped["metadata"]
        assert (metadata["client_message_id"], metadata["agent"], texts(swapped)) == (other["id"], "explore", "first")
        await client.chat(session_id, "first", other["id"], messageId=other["id"], **again)
        assert [texts(m) for m in await client.messages(session_id)] == ["first", "answer 4"]


@pytest.mark.rule("RW-5")
async def test_neither_happens_under_a_run_and_both_withdraw_what_waits(tmp_path: Path) -> None:
    """409 while it runs; a request that is open is denied and the answer made again."""
    script = [call("bash", {"command": "echo hi"}), say("better"), hang()]
    async with served(*script) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        await client.chat(session_id, "go", "u1")
        assert len((await client.idle(session_id))["waiting"]) == 1
        again = {"trigger": "regenerate-message"}
        chunks = await client.chat(session_id, "go", "u1", **again)
        [_, assistant] = await client.messages(session_id)
        assert (texts(assistant), reduced(chunks)) == ("better", bare(assistant))
        assert await client.idle(session_id) == {"state": "idle"}
        [denied] = [m for m in await client.messages(session_id, "all") if m["metadata"].get("hidden_by") == "rewind"]
        assert [part["state"] for part in denied["parts"] if part["type"] == "tool-bash"] == ["output-denied"]
        await client.prompt(session_id, "more")
        for changes in (again, {"messageId": "u1"}):
            busy = await client.post("/api/chat", chat_body(session_id, "x", "u1", **changes))
            assert (busy.status, busy.code) == (409, "run_in_flight")


async def test_a_summary_is_no_answer_to_make_again() -> None:
    """It says to which message one can go."""
    async with served(providers=small(20_000, *(say("word " * 400) for _ in range(3)))) as client:
        session_id = await client.session()
        for n in range(3):
            await client.chat(session_id, f"prompt {n}", f"u{n}")
        done = (await client.post(f"/api/sessions/{session_id}/compact")).json()
        assert done["compacted"] is True
        body = chat_body(session_id, "x", "u9", messageId=done["message_id"], trigger="regenerate-message")
        refused = await client.post("/api/chat", body)
        assert (refused.status, refused.code) == (422, "rewind_target_invalid")


async def test_a_first_message_that_is_refused_says_why_and_not_that_there_is_no_such_chat() -> None:
    async with served() as client:
        for name in ("K3x9qPz0", "0b6f6f0e-3c1d-4a57-9c1e-0d6a7f3e5c21"):
            refused = await client.post("/api/chat", chat_body(name, "x", "u1", model="nope/x"))
            assert (refused.status, refused.code, "nope" in refused.json()["detail"]) == (422, "invalid_input", True)
            assert (await client.get("/api/sessions")).json()["sessions"] == []


def answered(message: dict[str, Any], approvals: list[bool]) -> dict[str, Any]:
    """The message as a client holds it once its user has clicked."""
    left = list(approvals)
    parts = []
    for part in message["parts"]:
        if part.get("state") == "approval-requested" and left:
            approval = {**part["approval"], "approved": left.pop(0), "reason": "because"}
            part = {**part, "state": "approval-responded", "approval": approval}
        parts.append(part)
    return {**message, "parts": parts}
