"""clew as an agent of the Agent Client Protocol, over a pair of pipes: every message it sends is held against the
protocol's own schema, where that is installed."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.providers.base import ModelInfo
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, think, wait
from clew.transcript.session import Model
from tests.integration.acp_client import Refusal, connected

PNG = base64.b64encode(
    bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de")
    + bytes.fromhex("0000000c49444154789c63606060000000040001f61738550000000049454e44ae426082")
).decode()


def opened(script: Any, *, files: tuple[str, ...] = (), **more: Any) -> Any:
    name = Model("test", "model")
    info = ModelInfo(model=name, window=200_000, max_output=4_000, summariser=name, variants=("high",), files=files)
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    return clew.open("memory:", config=clew.Config(), providers=FakeProviders(model, infos=[info]), **more)


def choose(option: str) -> Any:
    return lambda _: {"outcome": {"outcome": "selected", "optionId": option}}


@pytest.mark.rule("AC-1", "AC-3")
async def test_a_prompt_with_thought_tools_and_permission_is_told_in_order(tmp_path: Path) -> None:
    """The id is clew's; the file changes after the editor's yes, and the diff was shown before."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    edit = {"path": "a.txt", "old": "two", "new": "three"}
    script = [
        [think("hm"), say("I look."), call("read", {"path": "a.txt"}, id="r")],
        call("edit", edit, id="e"),
        say("done"),
    ]
    async with opened(script) as engine, connected(engine) as client:
        made = await client.initialize()
        assert (made["protocolVersion"], made["agentCapabilities"]["loadSession"]) == (1, True)
        session_id = await client.new(tmp_path)
        assert (await engine.get_session(session_id)).workspace_root == str(tmp_path)
        seen: list[str] = []

        def allow(asked: dict[str, Any]) -> Any:
            seen.append((tmp_path / "a.txt").read_text())
            assert asked["toolCall"]["content"][0] == {
                "type": "diff",
                "path": f"{tmp_path}/a.txt",
                "oldText": "one\ntwo",
                "newText": "one\nthree",
            }
            kinds = [(one["optionId"], one["kind"]) for one in asked["options"]]
            assert (kinds[0], kinds[-1]) == (("once", "allow_once"), ("deny", "reject_once"))
            return choose("once")(asked)

        client.answers["session/request_permission"] = allow
        assert await client.prompt(session_id, "make it three") == {"stopReason": "end_turn"}
        assert seen == ["one\ntwo\n"]
        assert (tmp_path / "a.txt").read_text() == "one\nthree\n"
        told = client.of("tool_call") + client.of("tool_call_update")
        statuses = {
            id_: [one["status"] for one in told if one["toolCallId"] == id_ and "status" in one] for id_ in "re"
        }
        # Who joins late is not told each of them; what was asked about was told as pending first.
        assert statuses["r"][-1] == statuses["e"][-1] == "completed"
        assert "pending" in statuses["e"]
        assert (client.said("agent_thought_chunk"), client.said()) == ("hm", "I look.done")
        assert client.of("user_message_chunk") == []  # its own words an editor shows itself
        assert client.of("usage_update")[-1]["size"] == 200_000
        assert client.of("session_info_update") == [{"sessionUpdate": "session_info_update", "title": "make it three"}]


@pytest.mark.rule("AC-2")
async def test_a_session_that_is_loaded_is_told_whole_before_the_answer(tmp_path: Path) -> None:
    """A long one: every message in order, and then the answer."""
    todo = call("todo", {"items": [{"text": "x", "status": "pending"}]})
    script = [[say("a"), todo], say("b"), *(say(f"answer {n}") for n in range(1, 61))]
    async with opened(script) as engine:
        session = await engine.create_session(workspace_root=tmp_path)
        for n in range(60):
            await (await engine.submit(session.id, f"prompt {n}")).wait()
        async with connected(engine) as client:
            await client.initialize()
            opening = {"sessionId": session.id, "cwd": str(tmp_path), "mcpServers": []}
            loaded = await client.ask("session/load", opening)
            answered = next(at for at, one in enumerate(client.messages) if one.get("result") == loaded)
            told = [one["params"]["update"] for one in client.messages[:answered] if "method" in one]
            user, agent = "user_message_chunk", "agent_message_chunk"
            said = [one for one in told if one["sessionUpdate"] in (user, agent)]
            assert [(one["sessionUpdate"], one["content"]["text"]) for one in said] == [
                *((user, "prompt 0"), (agent, "a"), (agent, "b")),
                *(one for n in range(1, 60) for one in ((user, f"prompt {n}"), (agent, f"answer {n}"))),
            ]
            entry = {"content": "x", "priority": "medium", "status": "pending"}
            assert [one for one in told if one["sessionUpdate"] == "plan"] == [
                {"sessionUpdate": "plan", "entries": [entry]}
            ]
            assert await client.prompt(session.id, "one more") == {"stopReason": "end_turn"}
            assert client.said().endswith("answer 59answer 60")
            with pytest.raises(Refusal) as gone:
                await client.ask("session/load", {**opening, "sessionId": "ses_000000000000aaaaaaaaaaaaaa"})
            assert (gone.value.code, (gone.value.data or {})["code"]) == (-32002, "session_not_found")


@pytest.mark.rule("AC-2")
async def test_a_session_that_is_resumed_repeats_nothing_and_goes_on_with_what_runs(tmp_path: Path) -> None:
    gate = Gate()
    async with opened([say("before"), [say("half "), wait(gate), say("whole")]]) as engine:
        session = await engine.create_session(workspace_root=tmp_path)
        await (await engine.submit(session.id, "one")).wait()
        running = await engine.submit(session.id, "two")
        async with connected(engine) as client:
            await client.initialize()
            async for chunk in engine.attach(session.id):
                if chunk["type"] == "text-end":  # what is shown is stored
                    break
            await client.ask("session/resume", {"sessionId": session.id, "cwd": str(tmp_path)})
            await client.until(lambda: client.of("usage_update"))
            assert (client.said(), client.of("user_message_chunk")) == ("", [])
            gate.set()
            await running.wait()
            await client.until(lambda: client.said() == "whole")
            # What somebody else says there is told as it is said.
            await (await engine.submit(session.id, "three")).wait()
            await client.until(lambda: client.said("user_message_chunk") == "three")


@pytest.mark.rule("AC-3")
async def test_a_turn_that_is_cancelled_says_so_and_keeps_what_was_said(tmp_path: Path) -> None:
    """Running, waiting for permission, and waiting in the queue: each ends as cancelled."""
    gate = Gate()
    script = [
        [say("half"), wait(asyncio.Event())],
        call("write", {"path": "b", "content": "x"}),
        [wait(gate), say("at last")],
        [wait(asyncio.Event())],
    ]
    async with opened(script) as engine, connected(engine) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        first = client.prompt(session_id, "go")
        await client.until(lambda: client.said() == "half")
        queued = client.prompt(session_id, "and this")
        client.tell("session/cancel", {"sessionId": session_id})
        assert [await first, await queued] == [{"stopReason": "cancelled"}] * 2
        assert [part["text"] for part in (await engine.messages(session_id))[-1].parts if "text" in part] == ["half"]

        asking = client.prompt(session_id, "write it")
        asked = await client.until(lambda: client.asked)
        client.tell("session/cancel", {"sessionId": session_id})
        client.write({"id": asked[-1]["id"], "result": {"outcome": {"outcome": "cancelled"}}})
        assert await asking == {"stopReason": "cancelled"}
        assert not (tmp_path / "b").exists()
        assert (await engine.get_status(session_id)).waiting == ()

        # What was stopped is gone on with, and loading it again loses no prompt that has no end yet.
        going_on = client.prompt(session_id, "/retry")
        await gate.reached.wait()
        await client.ask("session/load", {"sessionId": session_id, "cwd": str(tmp_path), "mcpServers": []})
        gate.set()
        assert await going_on == {"stopReason": "end_turn"}
        assert client.said().endswith("at last")

        third = client.prompt(session_id, "x")
        client.tell("$/cancel_request", {"requestId": 8})
        with pytest.raises(Refusal) as refused:
            await third
        assert refused.value.code == -32800


@pytest.mark.rule("AC-3")
async def test_a_closed_editor_leaves_the_request_waiting_and_the_page_answers_it(tmp_path: Path) -> None:
    """Opened again it is asked again, and taken back once somebody has answered elsewhere."""
    script = [
        call("write", {"path": "b", "content": "x"}),
        say("written"),
        call("write", {"path": "c", "content": "y"}),
        say("no"),
    ]
    async with opened(script) as engine:
        async with connected(engine) as client:
            await client.initialize()
            session_id = await client.new(tmp_path)
            client.prompt(session_id, "write it").add_done_callback(lambda one: one.exception())
            await client.until(lambda: client.asked)
        waiting = (await engine.get_status(session_id)).waiting
        assert [one.tool for one in waiting] == ["write"]
        # A session that is closed in it leaves it, too; its prompt has ended.
        async with connected(engine) as client:
            await client.initialize()
            await client.ask("session/resume", {"sessionId": session_id, "cwd": str(tmp_path)})
            queued = client.prompt(session_id, "and then")
            await client.until(lambda: client.asked)
            assert await client.ask("session/close", {"sessionId": session_id}) == {}
            assert await queued == {"stopReason": "cancelled"}
        assert await engine.queue(session_id) == []
        assert (await engine.get_status(session_id)).waiting == waiting
        async with connected(engine) as client:
            await client.initialize()
            await client.ask("session/resume", {"sessionId": session_id, "cwd": str(tmp_path)})
            asked = (await client.until(lambda: client.asked))[0]
            assert asked["params"]["toolCall"]["rawInput"] == {"path": "b", "content": "x"}
            await engine.answer(session_id, str(waiting[0].approval_id), "once")
            await client.until(lambda: client.withdrawn == [asked["id"]])
            await client.until(lambda: client.said() == "written")
            assert (tmp_path / "b").read_text() == "x"
            client.answers["session/request_permission"] = choose("deny")
            assert await client.prompt(session_id, "again") == {"stopReason": "end_turn"}
            assert client.of("tool_call_update")[-1]["status"] == "failed"
            assert not (tmp_path / "c").exists()
