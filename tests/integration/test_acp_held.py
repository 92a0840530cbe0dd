"""What an editor is told of a session, and what it says in it, is just what the session holds."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.testing.scripted import Gate, call, say, wait
from tests.integration.acp_client import PATIENCE_S, Refusal, connected
from tests.integration.test_acp import choose, opened


def opening(session_id: str, folder: Path) -> dict[str, Any]:
    return {"sessionId": session_id, "cwd": str(folder), "mcpServers": []}


@pytest.mark.rule("AC-2")
async def test_a_loaded_session_tells_of_every_call_and_how_it_ended(tmp_path: Path) -> None:
    """One that worked, one that failed and one that was denied."""
    (tmp_path / "a.txt").write_text("one\n")
    script = [
        [call("read", {"path": "a.txt"}, id="good"), call("read", {"path": "none.txt"}, id="failed")],
        call("write", {"path": "b", "content": "x"}, id="denied"),
        say("done"),
    ]
    async with opened(script) as engine:
        session = await engine.create_session(workspace_root=tmp_path)
        submission = await engine.submit(session.id, "go")
        async for _ in engine.attach(session.id):
            pass
        [waiting] = (await engine.get_status(session.id)).waiting
        await engine.answer(session.id, str(waiting.approval_id), "deny")
        await submission.wait()
        async with connected(engine) as client:
            await client.initialize()
            await client.ask("session/load", opening(session.id, tmp_path))
            told = client.of("tool_call") + client.of("tool_call_update")
            assert [(one["sessionUpdate"], one["toolCallId"], one["status"]) for one in told] == [
                ("tool_call", "good", "completed"),
                ("tool_call", "failed", "failed"),
                ("tool_call", "denied", "failed"),
            ]
            assert client.said() == "done"


@pytest.mark.rule("AC-2")
async def test_a_call_that_runs_while_its_session_is_resumed_is_told_to_its_end(tmp_path: Path) -> None:
    """Nobody at this editor saw it begin; what came of it is news all the same."""
    gate = Gate()

    @clew.tool
    async def slow() -> str:
        """Wait."""
        await gate.wait()
        return "there"

    script = [[say("I wait. "), call("slow", {}, id="s")], say("done")]
    async with opened(script, tools=[slow], rules=[clew.Rule("slow", "*", "allow")]) as engine:
        session = await engine.create_session(workspace_root=tmp_path)
        running = await engine.submit(session.id, "go")
        await gate.reached.wait()
        async with connected(engine) as client:
            await client.initialize()
            await client.ask("session/resume", opening(session.id, tmp_path))
            await client.until(lambda: client.of("usage_update"))
            gate.set()
            await running.wait()
            await client.until(lambda: client.said() == "done")
            told = client.of("tool_call") + client.of("tool_call_update")
            assert [(one["toolCallId"], one["status"]) for one in told][-1] == ("s", "completed")


@pytest.mark.rule("AC-3")
async def test_an_editor_that_cannot_ask_has_allowed_nothing(tmp_path: Path) -> None:
    def refuse(_: Any) -> Any:
        raise Refusal({"code": -32601, "message": "no such method"})

    write = call("write", {"path": "b", "content": "x"}, id="w")
    async with opened([write, say("no")]) as engine, connected(engine) as client:
        await client.initialize()
        client.answers["session/request_permission"] = refuse
        session_id = await client.new(tmp_path)
        assert await client.prompt(session_id, "go") == {"stopReason": "end_turn"}
        assert (client.of("tool_call_update")[-1]["status"], client.said()) == ("failed", "no")
        assert not (tmp_path / "b").exists()


@pytest.mark.rule("AC-3")
async def test_what_is_allowed_from_now_on_is_just_what_was_picked(tmp_path: Path) -> None:
    """The narrowest for the session, the widest for its project."""
    script = [step for n in range(2) for step in (call("edit", edit_of(n)), say("done"))]
    async with opened(script) as engine, connected(engine) as client:
        await client.initialize()
        offered: list[list[tuple[str, str]]] = []

        def pick(option: str) -> Any:
            def answer(asked: dict[str, Any]) -> Any:
                offered.append([(one["optionId"], one["name"]) for one in asked["options"]])
                return choose(option)(asked)

            return answer

        session_id = await client.new(tmp_path)
        for n, option in enumerate(("session-1", "project-2")):
            (tmp_path / f"{n}.txt").write_text("a\n")
            client.answers["session/request_permission"] = pick(option)
            await client.prompt(session_id, "go")
            assert (tmp_path / f"{n}.txt").read_text() == "b\n"
        assert [[id_ for id_, _ in row] for row in offered] == [
            ["once", "session-1", "project-1", "session-2", "project-2", "deny"]
        ] * 2
        kept = await engine.rules(scope="session", session_id=session_id)
        assert [(rule.permission, rule.pattern, rule.action) for rule in kept] == [
            ("edit", f"{tmp_path}/0.txt", "allow")
        ]
        kept = await engine.rules(scope="project", workspace=tmp_path)
        assert [(rule.permission, rule.pattern, rule.action) for rule in kept] == [("edit", "./**", "allow")]


def edit_of(n: int) -> dict[str, Any]:
    return {"path": f"{n}.txt", "old": "a", "new": "b"}


@pytest.mark.rule("AC-3")
async def test_where_there_is_no_folder_no_project_is_offered(tmp_path: Path) -> None:
    @clew.tool
    async def send(text: str) -> str:
        """Send it."""
        return "sent"

    async with opened([call("send", {"text": "x"}), say("done")], tools=[send]) as engine:
        session = await engine.create_session()
        async with connected(engine) as client:
            await client.initialize()
            client.answers["session/request_permission"] = choose("once")
            await client.ask("session/load", opening(session.id, tmp_path))
            await client.prompt(session.id, "go")
            kinds = [one["optionId"].partition("-")[0] for one in client.asked[0]["params"]["options"]]
            assert sorted(set(kinds)) == ["deny", "once", "session"]


@pytest.mark.rule("AC-3")
async def test_what_a_turn_used_is_told_when_it_has_ended(tmp_path: Path) -> None:
    """As the session's report has it, each time."""
    async with opened([say("one " * 50), say("two " * 400)]) as engine, connected(engine) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        for n in (1, 2):
            before = len(client.of("usage_update"))
            await client.prompt(session_id, f"prompt {n}")
            report = await engine.context(session_id)
            spent = (await engine.get_session(session_id)).spend.cost_usd
            assert client.of("usage_update")[before:][-1] == {
                "sessionUpdate": "usage_update",
                "used": report.used,
                "size": report.limit,
                "cost": {"amount": spent, "currency": "USD"},
            }


@pytest.mark.rule("AC-3")
async def test_a_form_that_is_declined_is_no_answer(tmp_path: Path) -> None:
    """Whatever stands in its field."""
    ask = call("question", {"question": "delete all?", "options": ["yes", "no"]}, id="q")
    declined = ({"action": "decline", "content": {"answer": "yes"}}, {"action": "cancel", "content": {"answer": "yes"}})
    script = [step for _ in declined for step in (ask, say("then not"))]
    async with opened(script) as engine, connected(engine) as client:
        await client.initialize(elicitation={"form": {}})
        session_id = await client.new(tmp_path)
        for answer in declined:
            client.answers["elicitation/create"] = partial(lambda said, _: said, answer)
            assert await client.prompt(session_id, "go") == {"stopReason": "end_turn"}
            said = (await engine.messages(session_id))[-1].parts
            [output] = [part["output"] for part in said if part["type"] == "tool-question"]
            assert "yes" not in str(output)


@pytest.mark.rule("AC-1", "AC-3")
async def test_a_session_that_is_closed_is_stopped_if_this_editor_began_it(tmp_path: Path) -> None:
    """What others began goes on."""
    gate = Gate()
    script = [[say("half"), wait(asyncio.Event())], [wait(gate), say("whole")]]
    async with opened(script) as engine, connected(engine) as client:
        await client.initialize()
        session_id = await client.new(tmp_path)
        own = client.prompt(session_id, "go")
        await client.until(lambda: client.said() == "half")
        await client.ask("session/close", {"sessionId": session_id})
        assert await own == {"stopReason": "cancelled"}
        async with asyncio.timeout(PATIENCE_S):
            async for _ in engine.attach(session_id):
                pass
        assert (await engine.get_status(session_id)).state == "idle"

        others = await engine.submit(session_id, "on the page")
        await gate.reached.wait()
        await client.ask("session/resume", opening(session_id, tmp_path))
        await client.ask("session/close", {"sessionId": session_id})
        gate.set()
        assert (await others.wait()).status == "completed"


@pytest.mark.rule("AC-1")
async def test_sessions_are_listed_page_after_page(tmp_path: Path) -> None:
    async with opened([]) as engine, connected(engine) as client:
        made = [(await engine.create_session(workspace_root=tmp_path)).id for _ in range(51)]
        await client.initialize()
        first = await client.ask("session/list", {})
        second = await client.ask("session/list", {"cursor": first["nextCursor"]})
        pages = [[one["sessionId"] for one in page["sessions"]] for page in (first, second)]
        assert (len(pages[0]), sorted(pages[0] + pages[1]), second.get("nextCursor")) == (50, sorted(made), None)
