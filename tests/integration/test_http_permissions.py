"""Permissions over HTTP: a session's own rules, replaced as a whole, and why a call would be let through."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.testing.scripted import call, say, then
from tests.integration.http_client import AsgiClient, served, texts

ALLOW_ECHO = {"permission": "bash", "pattern": "echo *", "action": "allow"}
NOBODY = "ses_" + "0" * 26


def bare_rules(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules as they were sent."""
    return [{key: rule[key] for key in ("permission", "pattern", "action")} for rule in rules]


async def put(client: AsgiClient, session_id: str, *rules: Any) -> Any:
    return await client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": list(rules)})


@pytest.mark.rule("PM-1")
async def test_rules_are_replaced_as_a_whole_and_kept_as_the_sessions() -> None:
    """What is sent is what is there, in its order; whose rules they are is not the client's to say."""
    async with served() as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}/permissions"
        assert (await client.get(path)).json() == {"rules": []}
        answer = await put(client, session_id, {**ALLOW_ECHO, "source": "manifest"}, {**ALLOW_ECHO, "added_at": 7})
        first, second = answer.json()["rules"]
        assert (first["source"], first["pinned"], second["added_at"]) == ("session", False, 7)
        assert first["added_at"] > 1_700_000_000_000
        assert (await client.get(path)).json() == answer.json()
        # What was read can be sent back.
        assert (await client.request("PUT", path, answer.json())).json() == answer.json()
        deny = {"permission": "*", "pattern": "*", "action": "deny"}
        assert bare_rules((await put(client, session_id, deny)).json()["rules"]) == [deny]
        assert (await put(client, session_id)).json() == {"rules": []}


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ({**ALLOW_ECHO, "pinned": True}, "rules[1]"),
        ({"permission": "bash", "pattern": "x"}, "rules[1]"),
        ({**ALLOW_ECHO, "action": "maybe"}, "rules[1].action"),
        ({**ALLOW_ECHO, "permission": "no such name"}, "rules[1].permission"),
        ({**ALLOW_ECHO, "permission": 1}, "rules[1].permission"),
        ({**ALLOW_ECHO, "pattern": " "}, "rules[1].pattern"),
        ({**ALLOW_ECHO, "pattern": "x" * 8193}, "rules[1].pattern"),
        ({**ALLOW_ECHO, "added_at": -1}, "rules[1].added_at"),
        ({**ALLOW_ECHO, "added_at": 2**53}, "rules[1].added_at"),
        ("allow everything", "rules[1]"),
    ],
)
async def test_a_rule_that_is_none_is_422_and_names_its_place(rule: Any, place: str) -> None:
    """Nothing of the request is taken."""
    async with served() as client:
        session_id = await client.session()
        before = (await put(client, session_id, ALLOW_ECHO)).json()
        answer = await put(client, session_id, ALLOW_ECHO, rule)
        assert (answer.status, answer.code) == (422, "invalid_input")
        assert place in answer.json()["detail"]
        assert (await client.get(f"/api/sessions/{session_id}/permissions")).json() == before


async def test_too_many_rules_and_no_rules_at_all_are_refused() -> None:
    """And so are other bodies, and sessions that are not there."""
    async with served() as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}/permissions"
        assert (await put(client, session_id, *[ALLOW_ECHO] * 1001)).status == 422
        for body, status in [({}, 422), ({"rules": None}, 422), ({"rules": {}}, 422), ([], 400), (b"", 400)]:
            assert (await client.request("PUT", path, body)).status == status, body
        for method, where in [("GET", ""), ("PUT", ""), ("GET", "/explain?tool=bash")]:
            missing = await client.request(method, f"/api/sessions/{NOBODY}/permissions{where}", {"rules": []})
            assert (missing.status, missing.code) == (404, "session_not_found")


@pytest.mark.rule("PM-3")
async def test_what_waits_is_judged_again_by_new_rules(tmp_path: Path) -> None:
    """What they allow runs, what they deny does not, and what they say nothing about still waits."""
    calls = [call("bash", {"command": f"{word} hi"}) for word in ("echo", "printf", "true")]
    async with served(then(*calls), say("done")) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        await client.prompt(session_id, "go")
        status = await client.idle(session_id)
        assert len(status["waiting"]) == 3
        await put(client, session_id, ALLOW_ECHO, {"permission": "bash", "pattern": "printf *", "action": "deny"})
        [still] = (await client.status(session_id))["waiting"]
        await put(client, session_id)
        assert (await client.status(session_id))["waiting"] == [still]
        await put(client, session_id, {"permission": "bash", "pattern": "true *", "action": "allow"})
        assert await client.idle(session_id) == {"state": "idle"}
        [_, message] = await client.messages(session_id)
        tools = [part for part in message["parts"] if part["type"] == "tool-bash"]
        assert [part["state"] for part in tools] == ["output-available", "output-denied", "output-available"]
        assert texts(message) == "done"


@pytest.mark.rule("PM-3")
async def test_rules_that_come_while_a_run_is_still_asking_count_for_what_it_asks(tmp_path: Path) -> None:
    """The run judged by the old ones; once it waits, the new ones decide."""
    entered, gate = asyncio.Event(), asyncio.Event()

    @clew.tool
    async def gated() -> str:
        """Wait."""
        entered.set()
        await gate.wait()
        return "open"

    both = then(call("gated", {}), call("bash", {"command": "echo hi"}))
    allow_gated = {"permission": "gated", "pattern": "*", "action": "allow"}
    async with served(both, say("done"), tools=[gated]) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        await put(client, session_id, allow_gated)
        async with client.open("GET", "/api/events") as reply:
            events = reply.frames()
            assert (await anext(events))["type"] == "hello"
            await client.prompt(session_id, "go")
            await entered.wait()
            await put(client, session_id, allow_gated, ALLOW_ECHO)
            assert (await client.status(session_id))["state"] == "busy"
            gate.set()
            reasons: list[str] = []
            while reasons[-1:] != ["finish"]:
                event = await anext(events)
                if event["type"] == "turn_finished":
                    reasons.append(event["reason"])
        assert reasons == ["waiting", "finish"]
        assert texts((await client.messages(session_id))[-1]) == "done"


@pytest.mark.rule("PM-4")
async def test_a_decision_can_be_asked_for_before_a_call_is_made(tmp_path: Path) -> None:
    """Which rule of which scope decides, and what else was looked at; targets as the tools see them."""
    async with served() as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        ask = {"permission": "bash", "pattern": "*", "action": "ask"}
        await put(client, session_id, ask, ALLOW_ECHO)

        async def explained(tool: str, target: str) -> dict[str, Any]:
            path = f"/api/sessions/{session_id}/permissions/explain?tool={tool}&target={target}"
            answer = await client.get(path)
            assert answer.status == 200, answer
            return dict(answer.json())

        echo = await explained("bash", "echo%20hi")
        assert (echo["action"], echo["scope"]) == ("allow", "session")
        assert bare_rules([echo["rule"]]) == [ALLOW_ECHO]
        assert [(bare_rules([one["rule"]]), one["scope"]) for one in echo["considered"]] == [([ask], "session")]
        line = await explained("bash", "echo%20hi%3B%20rm%20-rf%20x")
        assert (line["action"], [one["shown"] for one in line["subjects"]]) == ("ask", ["rm -rf x", "echo hi"])
        inside = await explained("read", "notes.txt")
        assert (inside["action"], inside["scope"]) == ("allow", "manifest")
        assert inside["subjects"][0]["shown"] == f"{tmp_path}/notes.txt"
        assert (await explained("read", "..%2Felsewhere"))["action"] == "ask"
        for host in ("example.com", "https%3A%2F%2Fexample.com%2Fx"):
            assert [one["shown"] for one in (await explained("web_fetch", host))["subjects"]] == ["example.com"]
        assert await explained("no-such-tool", "x") == {
            "action": "ask",
            "rule": None,
            "scope": None,
            "considered": [],
            "reason": "no rule covers it",
            "subjects": [
                {
                    "permission": "no-such-tool",
                    "kind": "plain",
                    "shown": "x",
                    "action": "ask",
                    "rule": None,
                    "scope": None,
                    "reason": "no rule covers it",
                    "considered": [],
                }
            ],
        }


async def test_a_call_that_could_not_be_made_is_not_explained(tmp_path: Path) -> None:
    """No tool, an empty path, a URL that is none, a value nobody can keep."""
    async with served() as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        path = f"/api/sessions/{session_id}/permissions/explain"
        for query in ("", "?target=x", "?tool=read", "?tool=web_fetch&target=ftp%3A%2F%2Fx", "?tool=bash&target=%00"):
            answer = await client.get(f"{path}{query}")
            assert answer.status == 422, (query, answer)


async def test_a_subagent_is_explained_within_its_parent(tmp_path: Path) -> None:
    """What its own rules allow and its parent's do not is denied: nobody is there to ask."""
    async with served(call("task", {"prompt": "look"}), say("seen"), say("done")) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        await put(client, session_id, {"permission": "task", "pattern": "*", "action": "allow"})
        await client.prompt(session_id, "go")
        await client.idle(session_id)
        [child] = (await client.get("/api/sessions?kind=subagent")).json()["sessions"]
        await put(client, child["id"], ALLOW_ECHO)
        answer = await client.get(f"/api/sessions/{child['id']}/permissions/explain?tool=bash&target=echo%20hi")
        assert answer.json()["action"] == "deny"
