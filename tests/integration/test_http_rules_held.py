"""What a rule, an offer or a mode may not let through, as a person meets it over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.store.unit import PatchSession, Unit
from clew.testing.scripted import call, say, then
from clew.transcript.rule import Target
from tests.integration.http_client import AsgiClient, served


async def begun(client: AsgiClient, folder: Path, **given: Any) -> tuple[str, list[dict[str, Any]]]:
    session_id = await client.session(workspace_root=str(folder), **given)
    await client.prompt(session_id, "go")
    return session_id, (await client.idle(session_id)).get("waiting", [])


async def states(client: AsgiClient, session_id: str) -> list[str]:
    [*_, message] = await client.messages(session_id)
    return [part["state"] for part in message["parts"] if part["type"].startswith("tool-")]


async def rules_of(client: AsgiClient, session_id: str) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = (await client.get(f"/api/rules?scope=session&session={session_id}")).json()["rules"]
    return rules


@pytest.mark.rule("PM-3")
@pytest.mark.rule("PM-7")
@pytest.mark.parametrize("offer", [0, 1])
async def test_a_name_that_reads_like_every_other_one_allows_itself_alone(tmp_path: Path, offer: int) -> None:
    """A folder may be called `!(x)`; in a pattern that would be all but `x`."""
    writes = [then(call("write", {"path": path, "content": "x"})) for path in ("!(x)/!(y)", "src/app.py")]
    async with served(*writes, say("done")) as client:
        session_id, [wait] = await begun(client, tmp_path)
        [_, message] = await client.messages(session_id)
        [tool] = [part for part in message["parts"] if part["type"] == "tool-write"]
        picked = tool["approval"]["descriptor"]["offers"][offer]["pattern"]
        given = {"decision": "session", "pattern": picked}
        await client.post(f"/api/sessions/{session_id}/approvals/{wait['approval_id']}", given)
        [other] = (await client.idle(session_id))["waiting"]
        assert (other["tool"], (tmp_path / "src/app.py").exists()) == ("write", False)
        why = await client.get(f"/api/sessions/{session_id}/permissions/explain?tool=write&target=!(x)/!(y)")
        assert (why.json()["action"], (tmp_path / "!(x)" / "!(y)").read_text()) == ("allow", "x")


@pytest.mark.rule("PM-7")
async def test_a_family_is_offered_only_where_its_words_name_all_of_it(tmp_path: Path) -> None:
    """Behind many harmless commands one more would be out of sight."""
    line = " && ".join([*(f"echo {'a' * 30}{letter}" for letter in "abcdefghijklmnopqrst"), "rm -rf build"])
    async with served(then(call("bash", {"command": line}))) as client:
        session_id, [_] = await begun(client, tmp_path)
        [_, message] = await client.messages(session_id)
        [tool] = [part for part in message["parts"] if part["type"] == "tool-bash"]
        assert [one["pattern"].count("bash ") for one in tool["approval"]["descriptor"]["offers"]] == [21]


@pytest.mark.rule("PM-7")
async def test_what_a_tool_says_it_touches_does_not_make_it_one_that_reads(tmp_path: Path) -> None:
    """Where only reading is allowed a tool is denied that names a file to read, and one that names nothing."""
    ran: list[str] = []

    def of_a_file(args: Any, workspace: Path | None) -> list[Target]:
        return [Target("read", "path", f"{workspace}/a.txt", inside=True)]

    @clew.tool(targets=of_a_file)
    async def upload() -> str:
        """Send a file away."""
        ran.append("upload")
        return "sent"

    @clew.tool(targets=lambda args, workspace: [])
    async def deploy() -> str:
        """Put it there."""
        ran.append("deploy")
        return "there"

    script = [then(call("upload", {}), call("deploy", {}), call("ls", {"path": "."})), say("done")]
    async with served(*script, tools=[upload, deploy]) as client:
        session_id, waits = await begun(client, tmp_path, mode="read_only")
        assert (waits, ran) == ([], [])
        assert await states(client, session_id) == ["output-error", "output-error", "output-available"]


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize("how", ["mode", "rule"])
async def test_a_word_that_was_given_is_not_above_what_is_denied_before_it_runs(tmp_path: Path, how: str) -> None:
    """The step waits for another answer meanwhile, and nothing of it has run."""
    calls = [call("bash", {"command": f"touch {name}"}) for name in ("a", "b")]
    async with served(then(*calls), say("done")) as client:
        session_id, [first, _] = await begun(client, tmp_path)
        await client.post(f"/api/sessions/{session_id}/approvals/{first['approval_id']}", {"decision": "once"})
        if how == "mode":
            await client.request("PATCH", f"/api/sessions/{session_id}", {"mode": "read_only"})
        else:
            rule = {"permission": "bash", "pattern": "touch *", "action": "deny"}
            await client.post("/api/rules", {**rule, "scope": "session", "session": session_id})
        assert await client.idle(session_id) == {"state": "idle"}
        assert await states(client, session_id) == ["output-error", "output-denied"]
        assert [(tmp_path / name).exists() for name in ("a", "b")] == [False, False]


@pytest.mark.rule("PM-6")
@pytest.mark.rule("PM-7")
async def test_a_word_on_all_that_was_seen_is_no_word_on_what_comes_after(tmp_path: Path) -> None:
    """Sent twice, as by a second click or after a lost connection, it finds the next step waiting, and leaves it."""
    steps = [then(*[call("bash", {"command": f"touch {name}"}) for name in names]) for names in (("a", "b"), ("c",))]
    async with served(*steps, say("done")) as client:
        session_id, waits = await begun(client, tmp_path)
        path, seen = f"/api/sessions/{session_id}/approvals", [wait["approval_id"] for wait in waits]
        given = {"decision": "once", "approval_ids": [*seen, "apr_unknown"]}
        assert (await client.post(path, given)).json() == {"remaining": 0}
        [after] = (await client.idle(session_id))["waiting"]
        again = await client.post(path, given)
        assert (again.status, again.code) == (404, "approval_not_found")
        assert (await client.post(path, {**given, "approval_ids": []})).status == 404
        assert [(tmp_path / name).exists() for name in ("a", "b", "c")] == [True, True, False]
        given = {"decision": "deny", "approval_ids": [after["approval_id"]]}
        assert (await client.post(path, given)).json() == {"remaining": 0}
        assert await client.idle(session_id) == {"state": "idle"}


@pytest.mark.rule("PM-7")
async def test_the_same_answer_twice_is_one_rule(tmp_path: Path) -> None:
    """What is listed once is revoked by one word."""
    twice = [then(*[call("bash", {"command": "echo hi"})] * 2), say("one")]
    async with served(*twice) as client:
        session_id, waits = await begun(client, tmp_path)
        assert len(waits) == 2
        await client.post(f"/api/sessions/{session_id}/approvals", {"decision": "session"})
        await client.idle(session_id)
        assert [one["pattern"] for one in await rules_of(client, session_id)] == ["echo hi"]


@pytest.mark.rule("PM-7")
async def test_there_is_an_end_to_rules_that_answers_store_and_none_to_revoking(tmp_path: Path) -> None:
    """With as many as are kept an answer stores none, and says what to do; of more than that each can be revoked."""
    held = tuple({"permission": "bash", "pattern": f"echo {n}", "action": "deny"} for n in range(1_002))
    async with served(then(call("bash", {"command": "echo hi"})), say("done")) as client:
        session_id, [wait] = await begun(client, tmp_path)
        path = f"/api/sessions/{session_id}/approvals/{wait['approval_id']}"
        await client.engine.store.commit(Unit(session_id, (PatchSession(permissions=held),)))
        refused = await client.post(path, {"decision": "session"})
        assert (refused.status, "revoke some first" in refused.json()["detail"]) == (422, True)
        newest = (await rules_of(client, session_id))[-1]
        assert (await client.request("DELETE", f"/api/rules?id={newest['id']}&session={session_id}")).status == 204
        assert len(await rules_of(client, session_id)) == 1_001
        assert (await client.post(path, {"decision": "once"})).status == 200
        assert await client.idle(session_id) == {"state": "idle"}


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize("scope", ["session", "project"])
async def test_rules_that_come_at_once_are_all_kept(tmp_path: Path, scope: str) -> None:
    """Each is added to those that are there by then, whoever read them first."""
    async with served(store=f"sqlite:///{tmp_path}/x.db") as client:
        of = {"session": await client.session()} if scope == "session" else {"workspace": str(tmp_path)}
        [(name, value)] = of.items()
        listing = f"/api/rules?scope={scope}&{name}={value}"
        asked = [
            {"scope": scope, **of, "permission": "bash", "pattern": f"echo {n}", "action": "allow"} for n in range(8)
        ]
        answers = await asyncio.gather(*(client.post("/api/rules", one) for one in asked))
        assert [one.status for one in answers] == [201] * 8
        kept = (await client.get(listing)).json()["rules"]
        assert sorted(one["pattern"] for one in kept) == [f"echo {n}" for n in range(8)]
        paths = [f"/api/rules?id={one['id']}&{name}={value}" for one in kept[:4]]
        gone = await asyncio.gather(*(client.request("DELETE", path) for path in paths))
        assert [one.status for one in gone] == [204] * 4
        assert (await client.get(listing)).json()["rules"] == kept[4:]


@pytest.mark.rule("PM-7")
async def test_there_is_an_end_to_rules_that_people_add() -> None:
    """One more than are kept is refused, and says what to do."""
    held = tuple({"permission": "bash", "pattern": f"echo {n}", "action": "deny"} for n in range(1_000))
    async with served() as client:
        session_id = await client.session()
        await client.engine.store.commit(Unit(session_id, (PatchSession(permissions=held),)))
        more = {"scope": "session", "session": session_id, "permission": "bash", "pattern": "ls", "action": "allow"}
        refused = await client.post("/api/rules", more)
        assert (refused.status, "revoke some first" in refused.json()["detail"]) == (422, True)
        # One that is there already is moved, which makes them no more.
        assert (await client.post("/api/rules", {**more, "pattern": "echo 0", "action": "deny"})).status == 201
        assert [one["pattern"] for one in (await rules_of(client, session_id))[-2:]] == ["echo 999", "echo 0"]
