"""A person's own rules over HTTP: listed with ids, added, revoked; what an approval offers; all at once; modes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

import clew
from clew.permissions.evaluate import evaluate
from clew.testing.scripted import FakeProviders, Piece, ScriptedModel, Turnout, call, say, then
from clew.transcript.rule import Rule, Target
from tests.integration.http_client import AsgiClient, served

EDIT = {"path": "src/app.py", "old": "a", "new": "b"}


def tool_states(message: dict[str, Any]) -> list[str]:
    return [part["state"] for part in message["parts"] if part["type"].startswith("tool-")]


async def rules_of(client: AsgiClient, **query: str) -> list[tuple[str, str, str, str]]:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    answer = await client.get(f"/api/rules?{asked}")
    assert answer.status == 200, answer.body
    return [(one["scope"], one["permission"], one["pattern"], one["action"]) for one in answer.json()["rules"]]


async def ask(client: AsgiClient, folder: Path, prompt: str = "go", **given: Any) -> tuple[str, list[dict[str, Any]]]:
    """A session in this folder with a turn that has come to its end or to a request, and what waits in it."""
    session_id = await client.session(workspace_root=str(folder), **given)
    await client.prompt(session_id, prompt)
    return session_id, (await client.idle(session_id)).get("waiting", [])


def edits(*words: str) -> list[Turnout]:
    return [then(call("edit", {"path": "src/app.py", "old": a, "new": b})) for a, b in itertools.pairwise(words)]


def workspace(folder: Path) -> Path:
    (folder / "src").mkdir()
    (folder / "src/app.py").write_text("a")
    return folder


@pytest.mark.rule("PM-7")
async def test_a_rule_given_by_mistake_is_found_explained_and_revoked(tmp_path: Path) -> None:
    """An "always" lasts until it is taken back, and then the same call is asked about again."""
    folder = workspace(tmp_path)
    async with served(*edits("a", "b"), say("one"), *edits("b", "c"), say("two"), *edits("c", "d")) as client:
        session_id, [wait] = await ask(client, folder)
        await client.post(f"/api/sessions/{session_id}/approvals/{wait['approval_id']}", {"decision": "project"})
        await client.idle(session_id)
        await client.prompt(session_id, "again")
        assert await client.idle(session_id) == {"state": "idle"}
        assert (folder / "src/app.py").read_text() == "c"
        [kept] = (await client.get(f"/api/rules?scope=project&session={session_id}")).json()["rules"]
        assert {**kept, "id": "", "added_at": 0} == {
            "id": "",
            "scope": "project",
            "of": str(folder),
            "permission": "edit",
            "pattern": f"{folder}/src/app.py",
            "action": "allow",
            "added_at": 0,
            "pinned": False,
        }
        why = (await client.get(f"/api/sessions/{session_id}/permissions/explain?tool=edit&target=src/app.py")).json()
        assert (why["action"], why["scope"]) == ("allow", "project")
        assert (await client.request("DELETE", f"/api/rules?id={kept['id']}")).status == 204
        assert (await client.request("DELETE", f"/api/rules?id={kept['id']}")).code == "rule_not_found"
        assert await rules_of(client, scope="project", workspace=str(folder)) == []
        await client.prompt(session_id, "once more")
        assert len((await client.idle(session_id))["waiting"]) == 1


@pytest.mark.rule("PM-7")
async def test_rules_are_added_for_a_session_or_a_project_and_an_agents_are_only_shown(tmp_path: Path) -> None:
    """What is in force for a session is listed nearest first; what waits is judged again by a rule that comes."""
    folder = workspace(tmp_path)
    rule = {"permission": "edit", "pattern": "src/**", "action": "allow"}
    async with served(*edits("a", "b"), say("done")) as client:
        session_id, [_] = await ask(client, folder)
        deny = {**rule, "pattern": "src/secret/**", "action": "deny", "scope": "session", "session": session_id}
        added = await client.post("/api/rules", deny)
        assert (added.status, added.json()["of"]) == (201, session_id)
        assert len((await client.status(session_id))["waiting"]) == 1
        await client.post("/api/rules", {**rule, "scope": "project", "workspace": str(folder)})
        assert await client.idle(session_id) == {"state": "idle"}
        assert (folder / "src/app.py").read_text() == "b"
        listed = await rules_of(client, session=session_id)
        assert listed[:2] == [
            ("session", "edit", "src/secret/**", "deny"),
            ("project", "edit", "src/**", "allow"),
        ]
        assert {scope for scope, *_ in listed[2:]} == {"agent"}
        assert await rules_of(client) == [("project", "edit", "src/**", "allow")]
        assert await rules_of(client, scope="agent", agent="assistant") == listed[2:]
        of_agent = (await client.get(f"/api/rules?scope=agent&session={session_id}")).json()["rules"][0]["id"]
        refused = await client.request("DELETE", f"/api/rules?id={of_agent}&session={session_id}")
        assert (refused.status, "manifest" in refused.json()["detail"]) == (422, True)
        # The same again is moved to the end, not doubled.
        await client.post("/api/rules", deny)
        assert (await rules_of(client, session=session_id))[:2] == listed[:2]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"scope": "agent", "permission": "edit", "pattern": "*", "action": "allow"}, 422),
        ({"scope": "session", "permission": "edit", "pattern": "*", "action": "allow"}, 422),
        ({"scope": "project", "permission": "edit", "pattern": "*", "action": "allow"}, 422),
        ({"scope": "project", "permission": "edit", "pattern": "*", "action": "allow", "workspace": "/no/such"}, 422),
        ({"scope": "session", "permission": "e d", "pattern": "*", "action": "allow", "session": "HERE"}, 422),
        ({"scope": "session", "permission": "edit", "pattern": " ", "action": "allow", "session": "HERE"}, 422),
        ({"scope": "session", "permission": "edit", "pattern": "*", "action": "maybe", "session": "HERE"}, 422),
        (
            {"scope": "session", "permission": "edit", "pattern": "*", "action": "deny", "session": "ses_" + "0" * 26},
            404,
        ),
    ],
)
async def test_a_rule_that_is_none_or_nobodys_is_refused(body: dict[str, str], status: int) -> None:
    """With a word on what is missing, and nothing is stored."""
    async with served() as client:
        session_id = await client.session()
        answer = await client.post(
            "/api/rules", {**body, **({"session": session_id} if body.get("session") == "HERE" else {})}
        )
        assert answer.status == status, answer.body
        assert await rules_of(client, scope="session", session=session_id) == []
        assert (await client.get("/api/rules?scope=session")).status == 422
        assert (await client.get("/api/rules?scope=all")).status == 422


@pytest.mark.rule("PM-7")
async def test_an_approval_offers_the_call_its_folder_and_the_workspace(tmp_path: Path) -> None:
    """In words; what is picked is stored, and what was not offered is refused."""
    folder = workspace(tmp_path)
    async with served(*edits("a", "b", "c"), say("done")) as client:
        session_id, [wait] = await ask(client, folder)
        [_, message] = await client.messages(session_id)
        [tool] = [part for part in message["parts"] if part["type"] == "tool-edit"]
        file = f"{folder}/src/app.py"
        assert tool["approval"]["descriptor"]["offers"] == [
            {"pattern": f"edit {file}", "words": "edit src/app.py, and nothing else"},
            {"pattern": "edit ./src/**", "words": "edit anything in src/"},
            {"pattern": "edit ./**", "words": "edit anything in this workspace"},
        ]
        path = f"/api/sessions/{session_id}/approvals/{wait['approval_id']}"
        for given in ({"decision": "session", "pattern": "edit /**"}, {"decision": "once", "pattern": "edit ./**"}):
            assert (await client.post(path, given)).status == 422, given
        await client.post(path, {"decision": "session", "pattern": "edit ./src/**"})
        assert await client.idle(session_id) == {"state": "idle"}
        assert (folder / "src/app.py").read_text() == "c"
        assert await rules_of(client, scope="session", session=session_id) == [("session", "edit", "./src/**", "allow")]


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("git status -s", ["bash git status -s", "bash git status *"]),
        ("npm run build && ls -la", ["bash npm run build, bash ls -la", "bash npm run *, bash ls *"]),
        ("python a.py --x > out", ["bash python a.py --x, write ./out", "bash python a.py *, write ./out"]),
        ("docker run x", ["bash docker run x"]),
        ("cat $HOME", []),
    ],
)
async def test_a_command_offers_its_family_only_where_its_arguments_do_not_decide(
    tmp_path: Path, command: str, offered: list[str]
) -> None:
    """From the exact line to every call of the subcommand; an interpreter's family is its script's."""
    async with served(then(call("bash", {"command": command}))) as client:
        session_id, [_] = await ask(client, tmp_path)
        [_, message] = await client.messages(session_id)
        [tool] = [part for part in message["parts"] if part["type"] == "tool-bash"]
        assert [one["pattern"] for one in tool["approval"]["descriptor"]["offers"]] == offered


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize(("decision", "state"), [("once", "output-available"), ("deny", "output-denied")])
async def test_all_that_waits_is_answered_at_once(tmp_path: Path, decision: str, state: str) -> None:
    """One answer, one unit; a second one finds nothing."""
    calls = [call("bash", {"command": f"echo {number}"}) for number in range(3)]
    async with served(then(*calls), say("done")) as client:
        session_id, waits = await ask(client, tmp_path)
        assert len(waits) == 3
        answer = await client.post(f"/api/sessions/{session_id}/approvals", {"decision": decision})
        assert (answer.status, answer.json()) == (200, {"remaining": 0})
        assert await client.idle(session_id) == {"state": "idle"}
        [_, message] = await client.messages(session_id)
        assert tool_states(message) == [state] * 3
        again = await client.post(f"/api/sessions/{session_id}/approvals", {"decision": decision})
        assert (again.status, again.code) == (404, "approval_not_found")
        assert (await client.post(f"/api/sessions/{session_id}/approvals", {"decision": "maybe"})).status == 422


async def end_of(client: AsgiClient, session_id: str) -> list[str]:
    return tool_states((await client.messages(session_id))[-1])


def one_of_each() -> Sequence[Turnout | Piece]:
    return [
        then(
            call("read", {"path": "src/app.py"}),
            call("edit", EDIT),
            call("write", {"path": ".git/hooks/post-commit", "content": "x"}),
            call("bash", {"command": "echo hi"}),
        ),
        say("done"),
    ]


@pytest.mark.rule("PM-7")
async def test_accepting_edits_allows_them_in_the_workspace_and_nothing_else(tmp_path: Path) -> None:
    """A file that others run is still asked about, and so is a command; the mode stands in the session."""
    folder = workspace(tmp_path)
    async with served(*one_of_each()) as client:
        session_id, waits = await ask(client, folder, mode="accept_edits")
        assert (await client.get(f"/api/sessions/{session_id}")).json()["mode"] == "accept_edits"
        assert [wait["tool"] for wait in waits] == ["write", "bash"]
        assert (folder / "src/app.py").read_text() == "b"
        why = (await client.get(f"/api/sessions/{session_id}/permissions/explain?tool=edit&target=src/app.py")).json()
        assert (why["action"], why["scope"], why["rule"]["pattern"]) == ("allow", "mode", "./**")
        for elsewhere in (
            "/etc/hosts",
            ".GIT/hooks/pre-commit",
            "src/.Git",
            ".CLEW/agents/a.md",
            ".claude/a.md",
            "opencode.json",
        ):
            asked = await client.get(f"/api/sessions/{session_id}/permissions/explain?tool=edit&target={elsewhere}")
            assert (elsewhere, asked.json()["action"]) == (elsewhere, "ask")


@pytest.mark.rule("PM-7")
async def test_a_persons_rule_beats_the_mode(tmp_path: Path) -> None:
    """Session and project rank above it."""
    folder = workspace(tmp_path)
    async with served() as client:
        session_id = await client.session(workspace_root=str(folder), mode="accept_edits")
        rule = {
            "scope": "project",
            "permission": "edit",
            "pattern": "src/**",
            "action": "deny",
            "workspace": str(folder),
        }
        await client.post("/api/rules", rule)
        path = f"/api/sessions/{session_id}/permissions/explain"
        assert (await client.get(f"{path}?tool=edit&target=src/app.py")).json()["action"] == "deny"
        assert (await client.get(f"{path}?tool=write&target=src/app.py")).json()["action"] == "allow"


@pytest.mark.rule("PM-7")
async def test_a_session_that_only_reads_reads_whatever_its_rules_allow(tmp_path: Path) -> None:
    """Nothing is asked either: all but reading is denied."""
    folder = workspace(tmp_path)
    async with served(*one_of_each()) as client:
        session_id = await client.session(workspace_root=str(folder), mode="read_only")
        everything = {"permission": "*", "pattern": "*", "action": "allow"}
        await client.post("/api/rules", {**everything, "scope": "session", "session": session_id})
        await client.prompt(session_id, "go")
        assert await client.idle(session_id) == {"state": "idle"}
        assert await end_of(client, session_id) == ["output-available", *["output-error"] * 3]
        assert (folder / "src/app.py").read_text() == "a"


@pytest.mark.rule("PM-7")
async def test_a_mode_that_changes_counts_for_what_waits(tmp_path: Path) -> None:
    """Edits that wait are accepted with the mode, and denied with the other; one that nobody knows is refused."""
    folder = workspace(tmp_path)
    async with served(*edits("a", "b"), say("one"), *edits("b", "c"), say("two")) as client:
        session_id, [_] = await ask(client, folder)
        assert (await client.request("PATCH", f"/api/sessions/{session_id}", {"mode": "yolo"})).status == 422
        unknown = {"metadata": {"permission_mode": "yolo"}}
        assert (await client.request("PATCH", f"/api/sessions/{session_id}", unknown)).status == 422
        changed = await client.request("PATCH", f"/api/sessions/{session_id}", {"mode": "accept_edits"})
        assert (changed.status, changed.json()["mode"]) == (200, "accept_edits")
        assert await client.idle(session_id) == {"state": "idle"}
        await client.request("PATCH", f"/api/sessions/{session_id}", {"mode": "ask"})
        await client.prompt(session_id, "again")
        assert len((await client.idle(session_id))["waiting"]) == 1
        await client.request("PATCH", f"/api/sessions/{session_id}", {"mode": "read_only"})
        assert await client.idle(session_id) == {"state": "idle"}
        assert await end_of(client, session_id) == ["output-denied"]
        assert (folder / "src/app.py").read_text() == "b"


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize("mode", ["accept_edits", "read_only"])
async def test_a_branch_only_reads_where_its_source_did_and_accepts_nothing_by_itself(
    tmp_path: Path, mode: str
) -> None:
    """What a person has accepted was accepted there."""
    async with served(say("hello")) as client:
        session_id, _ = await ask(client, tmp_path, mode=mode)
        last = (await client.messages(session_id))[-1]["id"]
        path = f"/api/sessions/{session_id}/branch"
        unknown = {"from_message_id": last, "metadata": {"permission_mode": "yolo"}}
        assert (await client.post(path, unknown)).status == 422
        branch = (await client.post(path, {"from_message_id": last})).json()
        assert branch["mode"] == ("read_only" if mode == "read_only" else "ask")
        exported = (await client.get(f"/api/sessions/{session_id}/export")).body
        taken_in = (await client.request("POST", "/api/import", exported)).json()
        assert taken_in["mode"] == ("read_only" if mode == "read_only" else "ask")


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize(("mode", "text"), [("accept_edits", "b"), ("ask", "a"), ("read_only", "a")])
async def test_a_subagent_works_in_the_mode_of_the_turn_that_started_it(tmp_path: Path, mode: str, text: str) -> None:
    """A person is there for the turn, and the subagent is of the turn."""
    folder = workspace(tmp_path)
    script = [then(call("task", {"prompt": "edit it"})), *edits("a", "b"), say("edited"), say("done")]
    async with served(*script) as client:
        session_id = await client.session(workspace_root=str(folder), mode=mode)
        rule = {"permission": "task", "pattern": "*", "action": "allow", "scope": "session", "session": session_id}
        await client.post("/api/rules", rule)
        await client.prompt(session_id, "go")
        assert await client.idle(session_id) == {"state": "idle"}
        assert (folder / "src/app.py").read_text() == text


@pytest.mark.rule("PM-7")
async def test_a_run_that_nobody_attends_accepts_no_edits(tmp_path: Path) -> None:
    """The mode is for the turns of a person who looks on."""
    folder = workspace(tmp_path)
    providers = FakeProviders(ScriptedModel([*edits("a", "b"), say("done")]))
    async with clew.open("memory:", providers=providers) as engine:
        session = await engine.create_session(workspace_root=folder, mode="accept_edits")
        await (await engine.submit(session.id, "go", attended=False)).wait()
        assert (folder / "src/app.py").read_text() == "a"
        [_, message] = await engine.messages(session.id)
        assert [part["state"] for part in message.parts if part["type"] == "tool-edit"] == ["output-error"]


@pytest.mark.rule("PM-7")
@pytest.mark.parametrize("action", ["deny", "ask"])
def test_what_an_agent_pins_beats_the_mode(action: Literal["deny", "ask"]) -> None:
    """Only what it does not pin gives way."""
    edit = Target("edit", "path", "/w/a.py", inside=True)
    pinned, plain = Rule("edit", "*", action, "manifest", pinned=True), Rule("edit", "*", action, "manifest")
    decided = [evaluate([edit], manifest=[rule], mode="accept_edits", workspace="/w") for rule in (pinned, plain)]
    assert [one.action for one in decided] == [action, "allow"]
