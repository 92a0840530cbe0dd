"""Each answer to a call that waits is stored with who gave it, when, and through which front."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
import clew.server
from clew.actor import acting, acting_as, local_user
from clew.fronts.cli.app import run_command
from clew.fronts.cli.command import moment
from clew.testing.scripted import Piece, call, say
from clew.transcript.part import ANSWER_KEYS
from tests.integration.acp_client import connected
from tests.integration.command_line import Run, run
from tests.integration.http_client import AsgiClient, served
from tests.integration.test_acp import choose

__all__ = ["run"]

ECHO = {"permission": "bash", "pattern": "echo *", "action": "allow"}
Answering = Callable[[AsgiClient, str, dict[str, Any]], Awaitable[Any]]
KINDS = ["memory:", "sqlite:///{}/store.db", "json:{}/store", "jsonl:{}/store"]


def echo(word: str = "hi") -> Piece:
    return call("bash", {"command": f"echo {word}"}, id=f"call-{word}")


def note_of(part: dict[str, Any]) -> tuple[Any, Any]:
    """Who and how; when is now."""
    held = part.get("approval") or part["resultProviderMetadata"]["clew"]
    assert 0 <= time.time() * 1000 - held["answered_at"] < 60_000
    return held.get("answered_by"), held["via"]


async def waiting(client: AsgiClient, tmp_path: Path, text: str = "go") -> tuple[str, dict[str, Any]]:
    session = await client.session(workspace_root=str(tmp_path))
    await client.prompt(session, text)
    return session, (await client.idle(session))["waiting"][0]


async def answered(client: AsgiClient, session: str) -> dict[str, Any]:
    """The call, once the turn is over."""
    await client.idle(session)
    parts = [part for message in await client.messages(session) for part in message["parts"]]
    return next(part for part in parts if part.get("toolCallId") is not None)


async def once(client: AsgiClient, session: str, wait: dict[str, Any]) -> None:
    path = f"/api/sessions/{session}/approvals/{wait['approval_id']}"
    assert (await client.post(path, {"decision": "once"})).status == 200


async def deny_all(client: AsgiClient, session: str, wait: dict[str, Any]) -> None:
    assert (await client.post(f"/api/sessions/{session}/approvals", {"decision": "deny"})).status == 200


async def in_chat(client: AsgiClient, session: str, wait: dict[str, Any]) -> None:
    message = (await client.messages(session))[-1]
    part = message["parts"][-1]
    part |= {"state": "approval-responded", "approval": {**part["approval"], "approved": True, "answered_by": "me"}}
    body = {"id": session, "messages": [message], "trigger": "submit-message"}
    async with client.open("POST", "/api/chat", body, headers={"accept": "text/event-stream"}) as reply:
        assert [frame async for frame in reply.frames()][-1] == "[DONE]"


async def by_library(client: AsgiClient, session: str, wait: dict[str, Any]) -> None:
    await client.engine.answer(session, wait["approval_id"], "once")


async def by_rule(client: AsgiClient, session: str, wait: dict[str, Any]) -> None:
    body = {"rules": [ECHO]}
    assert (await client.request("PUT", f"/api/sessions/{session}/permissions", body)).status == 200


async def by_abort(client: AsgiClient, session: str, wait: dict[str, Any]) -> None:
    assert (await client.post(f"/api/sessions/{session}/abort")).status < 300


async def by_next_prompt(client: AsgiClient, session: str, wait: dict[str, Any]) -> None:
    assert (await client.prompt(session, "no", on_busy="interrupt")).status == 202


@pytest.mark.rule("PM-6")
@pytest.mark.parametrize(
    ("answering", "who"),
    [
        (once, ("admin", "http")),
        (deny_all, ("admin", "http")),
        (in_chat, ("admin", "chat")),
        (by_library, ("host", "library")),
        (by_rule, ("rule", "rule")),
        (by_abort, ("admin", "http")),
        (by_next_prompt, ("admin", "http")),
    ],
)
async def test_an_answer_says_who_gave_it_when_and_through_what(
    tmp_path: Path, answering: Answering, who: tuple[str, str]
) -> None:
    """A client's own words about it are not believed."""
    async with served(echo(), say("done"), say("ok")) as client:
        session, wait = await waiting(client, tmp_path)
        await answering(client, session, wait)
        assert note_of(await answered(client, session)) == who


async def test_a_mode_that_allows_what_waits_is_what_answered(tmp_path: Path) -> None:
    """The file is written because edits are accepted now."""
    async with served(call("write", {"path": "a.txt", "content": "x"}), say("done")) as client:
        session, _ = await waiting(client, tmp_path)
        changed = await client.request("PATCH", f"/api/sessions/{session}", {"mode": "accept_edits"})
        assert changed.status == 200, changed
        assert note_of(await answered(client, session)) == ("mode", "mode")


async def test_an_owner_answers_under_their_own_name(tmp_path: Path) -> None:
    """In the library as over HTTP, and a chat that a host mounts."""
    async with served(echo(), say("done")) as client:
        ann = client.engine.scoped("ann", roots=[tmp_path])
        session = (await ann.create_session(workspace_root=tmp_path)).id
        await ann.submit(session, "go")
        await client.idle(session)
        message = msgspec.to_builtins((await ann.messages(session))[-1])
        part = message["parts"][-1]
        part |= {"state": "approval-responded", "approval": {**part["approval"], "approved": True}}
        body = msgspec.json.encode({"id": session, "messages": [message]})
        async for _ in await clew.server.chat(ann, body, approvals=True):
            pass
        assert note_of(await answered(client, session)) == ("ann", "chat")


async def test_a_question_and_a_rule_note_it_too(tmp_path: Path) -> None:
    """The rule that "for this session" stores, and the answer that is a call's result."""
    asked = call("question", {"question": "Which?"}, id="call-q")
    async with served([asked, echo()], say("done")) as client:
        session, _ = await waiting(client, tmp_path)
        waits = (await client.status(session))["waiting"]
        question = next(one for one in waits if one["approval_id"] is None)
        approval = next(one for one in waits if one["approval_id"] is not None)
        path = f"/api/sessions/{session}"
        assert (await client.post(f"{path}/answers/{question['tool_call_id']}", {"output": "this"})).status == 200
        body = {"decision": "session"}
        assert (await client.post(f"{path}/approvals/{approval['approval_id']}", body)).status == 200
        assert note_of(await answered(client, session)) == ("admin", "http")
        [rule] = (await client.engine.get_session(session)).permissions
        assert (rule["added_by"], rule["via"]) == ("admin", "http")


async def test_the_front_of_an_editor_and_of_a_terminal_is_named(tmp_path: Path) -> None:
    """Both act for whoever runs the process."""
    async with served(echo(), say("done"), echo("again"), say("done")) as client:
        async with connected(client.engine) as editor:
            await editor.initialize()
            session = await editor.new(tmp_path)
            editor.answers["session/request_permission"] = choose("once")
            assert await editor.prompt(session, "go") == {"stopReason": "end_turn"}
        assert note_of(await answered(client, session)) == (local_user(), "acp")
        with acting_as(local_user(), "cli"):
            session, wait = await waiting(client, tmp_path)
            await client.engine.answer(session, wait["approval_id"], "once")
        assert note_of(await answered(client, session)) == (local_user(), "cli")
        # Whoever calls the command line does not act for it afterwards.
        with redirect_stdout(io.StringIO()):
            assert run_command(["--version"]) == 0
        assert acting() is None


@pytest.mark.parametrize(
    ("decision", "line"), [("once", "(approved by admin, http, {}) → hi"), ("deny", "(denied by admin, http, {}) →")]
)
async def test_the_command_line_shows_who_answered_and_when(tmp_path: Path, run: Run, decision: str, line: str) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with served(echo(), say("done"), store=store) as client:
        session, wait = await waiting(client, tmp_path)
        path = f"/api/sessions/{session}/approvals/{wait['approval_id']}"
        assert (await client.post(path, {"decision": decision})).status == 200
        at = (await answered(client, session))["approval"]["answered_at"]
    code, out, _ = await asyncio.to_thread(run, "show", session, "--store", store)
    assert (code, line.format(moment(at)) in out) == (0, True), out


@pytest.mark.parametrize("kind", KINDS[1:])
async def test_it_survives_the_store_a_branch_and_a_conversion_and_is_a_claim_elsewhere(
    tmp_path: Path, kind: str
) -> None:
    """An export says it; whoever imports that keeps it apart from what was answered here."""
    url = kind.format(tmp_path)
    async with served(echo(), say("done"), store=url) as client:
        session, wait = await waiting(client, tmp_path)
        await once(client, session, wait)
        part = await answered(client, session)
        held = {key: part["approval"][key] for key in ANSWER_KEYS}
        assert (held["answered_by"], held["via"]) == ("admin", "http")
        assert "answered_at" in held
    async with served(store=url) as client:
        assert await answered(client, session) == part
        last = (await client.messages(session))[-1]["id"]
        branch = (await client.post(f"/api/sessions/{session}/branch", {"from_message_id": last})).json()["id"]
        assert (await answered(client, branch))["approval"] == part["approval"]
        exported = await client.engine.export(session)
        imported = await client.engine.import_session(exported, workspace_root=tmp_path)
        approval = (await answered(client, imported.id))["approval"]
        assert approval["claimed"] == held
        assert not approval.keys() & set(ANSWER_KEYS)
