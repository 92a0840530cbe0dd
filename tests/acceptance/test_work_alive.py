"""Work that is alive: what of a call is told while it runs and when it has ended, to people and never to the model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.live.base import RunningCall
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, then, wait
from clew.transcript.part import is_call
from tests.integration.http_client import served

ANYTHING = [{"permission": "*", "pattern": "*", "action": "allow"}]


async def calls_of(engine: clew.Engine, session_id: str) -> list[dict[str, Any]]:
    return [part for message in await engine.messages(session_id) for part in message.parts if is_call(part)]


async def test_a_call_that_takes_long_is_told_in_the_status_with_its_beginning_and_then_with_its_time() -> None:
    """Since when, as long as it runs; how long, for good. One that is quick has neither."""
    begun, end = asyncio.Event(), asyncio.Event()

    @clew.tool
    async def stay() -> str:
        """Stay."""
        begun.set()
        await end.wait()
        return "waited"

    @clew.tool
    async def glance() -> str:
        """Look."""
        return "seen"

    clock = FakeClock()
    models = FakeProviders(ScriptedModel([then(call("stay", {}), call("glance", {})), say("done")]))
    async with clew.open("memory:", providers=models, tools=[stay, glance], clock=clock) as engine:
        session = await engine.create_session()
        await engine.set_permissions(session.id, ANYTHING)
        sent = await engine.submit(session.id, "go")
        await begun.wait()
        async for chunk in engine.attach(session.id):
            if chunk["type"] == "tool-output-available":
                break
        since = clock.now_ms()
        assert (await engine.get_status(session.id)).running == ()
        clock.advance(1_500)
        [waiting, _] = await calls_of(engine, session.id)
        status = await engine.get_status(session.id)
        assert (status.state, status.running) == ("busy", (RunningCall(waiting["toolCallId"], "stay", since),))
        end.set()
        assert (await sent.wait()).status == "completed"
        assert (await engine.get_status(session.id)).running == ()
        told = [part.get("resultProviderMetadata") for part in await calls_of(engine, session.id)]
        assert told == [{"clew": {"took_ms": 1_500}}, None]


@pytest.mark.rule("PM-4")
async def test_what_a_call_would_change_is_in_its_request_and_what_it_changed_with_its_result(tmp_path: Path) -> None:
    """Whole lines with those around them, once for every front; the model is sent nothing of it."""
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    edit = call("edit", {"path": "a.txt", "old": "wo", "new": "WO"})
    script = [edit, call("write", {"path": "a.txt", "content": "1\n"})]
    async with served(*script, say("done")) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        await client.prompt(session_id, "go")
        await client.idle(session_id)
        [asked] = await _calls(client, session_id)
        change = {"diff": "@@ -1,3 +1,3 @@\n one\n-two\n+tWO\n three", "added": 1, "removed": 1}
        assert asked["approval"]["descriptor"]["change"] == change
        rules = [{"permission": name, "pattern": "*", "action": "allow"} for name in ("edit", "write", "read")]
        await client.engine.set_permissions(session_id, rules)
        await client.post(f"/api/sessions/{session_id}/approvals/{asked['approval']['id']}", {"decision": "once"})
        await client.idle(session_id)
        [edited, written] = await _calls(client, session_id)
        assert edited["resultProviderMetadata"] == {"clew": {"change": change}}
        after = {"diff": "@@ -1,3 +1 @@\n-one\n-tWO\n-three\n+1", "added": 1, "removed": 3}
        assert written["resultProviderMetadata"] == {"clew": {"change": after}}


async def test_nothing_of_a_file_that_may_not_be_read_is_kept_with_a_call_that_writes_it(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("secret\n")
    async with served(call("write", {"path": "key.txt", "content": "x\n"}), say("done")) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        rules = [{"permission": "read", "pattern": "*", "action": "deny"}]
        await client.engine.set_permissions(session_id, rules)
        await client.prompt(session_id, "go")
        await client.idle(session_id)
        [asked] = await _calls(client, session_id)
        await client.post(f"/api/sessions/{session_id}/approvals/{asked['approval']['id']}", {"decision": "once"})
        await client.idle(session_id)
        assert (tmp_path / "key.txt").read_text() == "x\n"
        assert "secret" not in str(await _calls(client, session_id))


async def _calls(client: Any, session_id: str) -> list[dict[str, Any]]:
    return [part for message in await client.messages(session_id) for part in message["parts"] if is_call(part)]


async def test_a_subagent_tells_what_it_does_while_it_works_and_what_it_took() -> None:
    """In the call that started it: its session, steps, newest tool and words; when it is done, steps and tokens."""

    @clew.tool
    async def dig(where: str) -> str:
        """Dig."""
        return "found"

    gate = Gate()
    child: list[Any] = [then(say("I dig here."), call("dig", {"where": "sand"})), [wait(gate), say("gold")]]
    models = FakeProviders(ScriptedModel([call("task", {"prompt": "look"}), *child, say("done")]))
    async with clew.open("memory:", providers=models, tools=[dig]) as engine:
        session = await engine.create_session()
        await engine.set_permissions(session.id, ANYTHING)
        sent = await engine.submit(session.id, "go")
        seen: dict[str, Any] = {}
        async for chunk in engine.attach(session.id):
            seen = chunk["output"] if chunk["type"] == "tool-output-available" else {}
            if seen.get("steps") == 2:
                break
        assert {key: seen[key] for key in ("tool", "doing", "text")} == {
            "tool": "dig",
            "doing": "sand",
            "text": "I dig here.",
        }
        gate.set()
        assert (await sent.wait()).status == "completed"
        [done] = await calls_of(engine, session.id)
        assert done["output"] == {"session_id": seen["session_id"], "status": "completed", "text": "gold"}
        about = done["resultProviderMetadata"]["clew"]
        assert (about["steps"], about["tokens"] > 0) == (2, True)
