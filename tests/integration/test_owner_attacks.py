"""An owner tries to leave their workspace: every tool, mode, sandbox setting and route of a real ``clew serve``."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clew.fronts.operations.table import OPERATIONS
from clew.tools.builtin import NAMES
from clew.tools.process.owner_sandbox import find_owner_sandbox
from clew.transcript.rule import MODES
from tests.integration.http_client import Answer, SocketClient, chat_body
from tests.integration.owner_attacks import ATTACKS, CANARY, SUCCESSES, Machine, all_attacks, lines
from tests.integration.processes import Server, command, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOOLS = {"provider_id": "demo", "model_id": "tools"}
EVERYTHING = [{"permission": "*", "pattern": pattern, "action": "allow"} for pattern in ("*", "./**", "/**")]
FREE = """---
description: An agent that ada wrote for herself.
rules:
  - {permission: "*", pattern: "*", action: allow}
  - {permission: "*", pattern: "/**", action: allow, pinned: true}
mcp_servers:
  - {name: mine, command: /bin/sh, args: ["-c", "cp %s %s/was-started"]}
---
Do what you are told.
"""


class Ada:
    """An owner with a token, against a server of somebody else's."""

    def __init__(self, machine: Machine, server: Server, token: str) -> None:
        self.machine = machine
        self.server = server
        self.client = SocketClient(server.client.port, token)
        self.before = machine.outside()
        self.heard: list[str] = []

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        answer = await self.client.request(method, path, body)
        self.heard.append(answer.body.decode("utf-8", "replace"))
        return answer

    async def session(self, *rules: dict[str, str], **fields: Any) -> str:
        made = await self.ask(
            "POST", "/api/sessions", {"model": TOOLS, "workspace_root": str(self.machine.work), **fields}
        )
        assert made.status == 201, made
        session_id = str(made.json()["id"])
        await self.ask("PUT", f"/api/sessions/{session_id}/permissions", {"rules": list(rules)})
        return session_id

    async def allow_everything(self) -> None:
        """In the project, for every session that works there."""
        for rule in EVERYTHING:
            body = {**rule, "scope": "project", "workspace": str(self.machine.work)}
            assert (await self.ask("POST", "/api/rules", body)).status == 201

    async def attack(self, session_id: str, **fields: Any) -> int:
        """Every attack, as prompts to this session; how many calls were made."""
        made = 0
        for asked in all_attacks(self.machine, self.server.process.pid):
            answer = await self.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": lines(asked), **fields})
            assert answer.status in (200, 202), answer
            await self.settle(session_id)
            made += len(asked)
        return made

    async def settle(self, session_id: str) -> None:
        """Wait until nothing runs; what is asked about is allowed, as widely as can be."""
        path = f"/api/sessions/{session_id}"
        async with self.client.open("GET", f"{path}/status", headers={"accept": "text/event-stream"}) as reply:
            async for status in reply.frames():
                if status.get("waiting"):
                    for decision in ("project", "session", "once"):
                        await self.ask("POST", f"{path}/approvals", {"decision": decision})
                elif status["state"] in ("idle", "error"):
                    return
        raise AssertionError("the status stream ended")

    async def outputs(self) -> list[dict[str, Any]]:
        """Every call of every session that ada can see, with what came of it."""
        listed = (await self.ask("GET", "/api/sessions?limit=200&kind=any")).json()["sessions"]
        found: list[dict[str, Any]] = []
        for session in listed:
            messages = (await self.client.get(f"/api/sessions/{session['id']}/messages?view=all")).json()["messages"]
            found += [part for one in messages for part in one["parts"] if "toolCallId" in part]
        return found

    async def got_nothing(self) -> None:
        """Assert that no canary came in, that nothing outside was changed, and that nobody was reached."""
        told = [json.dumps({**part, "input": None}) for part in await self.outputs()]
        for canary in (*self.machine.canaries(), *SUCCESSES):
            assert [one for one in (*told, *self.heard) if json.dumps(canary)[1:-1] in one] == []
        assert self.machine.outside() == self.before
        assert not self.machine.was_reached
        assert self.server.process.returncode is None
        assert (await self.server.client.get("/api/health")).status == 200


@contextlib.asynccontextmanager
async def as_ada(machine: Machine, home: Path) -> AsyncIterator[Ada]:
    """The server of this home, and ada's token for it."""
    async with serving(home, CLEW_CANARY_KEY=CANARY, DATABASE_URL=CANARY) as server:
        code, token, _ = await command(home, "token", "add", "ada", "--root", str(machine.work.parent))
        assert code in (0, 4), token
        if code == 0:
            (home / "data" / "ada").parent.mkdir(exist_ok=True)
            (home / "data" / "ada").write_text(token)
        yield Ada(machine, server, (home / "data" / "ada").read_text().strip())


@pytest.fixture
def machine(tmp_path: Path) -> Any:
    made = Machine(tmp_path)
    yield made
    made.close()


@pytest.mark.rule("OW-1", "PM-9")
def test_every_tool_and_every_operation_has_its_row() -> None:
    """A new one fails here until it is said how an owner would leave their workspace by it."""
    assert ATTACKS.keys() == set(NAMES)
    assert {one.name for one in OPERATIONS} == ROUTES.keys() | HARMLESS.keys()
    assert ROUTES.keys() & HARMLESS.keys() == set()


@pytest.mark.rule("OW-1", "PM-9", "EM-4")
@pytest.mark.parametrize("sandbox", ["off", "files", "workspace"])
async def test_no_tool_leaves_an_owners_workspace_in_any_mode(sandbox: str, machine: Machine, tmp_path: Path) -> None:
    """Everything is allowed by the session's rules and a project's; else each request is answered by the owner."""
    config = tmp_path / "config" / "clew" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[tools]\nsandbox = "{sandbox}"\n')
    async with as_ada(machine, tmp_path) as ada:
        made = 0
        for mode in MODES:
            made += await ada.attack(await ada.session(*EVERYTHING, mode=mode))
        made += await ada.attack(await ada.session())
        await ada.allow_everything()
        made += await ada.attack(await ada.session())
        assert len(await ada.outputs()) >= made
        await ada.got_nothing()


# ---------------------------------------------------------------- routes


async def by_sessions_elsewhere(ada: Ada) -> None:
    """A session, or an imported one, that works in another folder."""
    exported = (await ada.client.get(f"/api/sessions/{await ada.session()}/export?format=json")).body
    for folder in (str(ada.machine.bob), f"{ada.machine.work}/way", f"{ada.machine.work}/../../bob", "/", "~"):
        made = await ada.ask("POST", "/api/sessions", {"model": TOOLS, "workspace_root": folder})
        assert (made.status, made.code) == (422, "invalid_input")
        for path in ("/api/import?", "/api/import-from?program=pi&"):
            refused = await ada.ask("POST", f"{path}workspace={folder}", exported)
            assert refused.status == 422, refused


async def by_import(ada: Ada) -> None:
    """A session file that says where it works, and what it may do."""
    session_id = await ada.session(*EVERYTHING)
    await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": "hello"})
    await ada.settle(session_id)
    exported = (await ada.client.get(f"/api/sessions/{session_id}/export?format=json&redact=false")).body
    forged = json.loads(exported)
    forged["session"] |= {"workspace_root": str(ada.machine.bob), "owner": None, "permissions": EVERYTHING}
    for body in (exported, json.dumps(forged).encode()):
        for place in ("", f"?workspace={ada.machine.work}"):
            arrived = await ada.ask("POST", f"/api/import{place}", body)
            assert arrived.status == 201, arrived
            found = arrived.json()
            await ada.attack(str(found.get("session", found)["id"]), model=TOOLS)


async def by_branch(ada: Ada) -> None:
    """A branch and a fork of a session whose rules allow everything."""
    session_id = await ada.session(*EVERYTHING)
    await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": "hello"})
    await ada.settle(session_id)
    [asked, *_] = (await ada.client.get(f"/api/sessions/{session_id}/messages")).json()["messages"]
    tree = (await ada.client.get(f"/api/sessions/{session_id}/tree")).json()
    branch = await ada.ask("POST", f"/api/sessions/{session_id}/branch", {"from_message_id": asked["id"]})
    fork = await ada.ask("POST", f"/api/turns/{tree['turns'][0]['id']}/fork", {})
    for made in (branch, fork):
        assert made.status == 201, made
        found = made.json()
        new = str(found.get("session", found)["id"])
        await ada.ask("PUT", f"/api/sessions/{new}/permissions", {"rules": EVERYTHING})
        await ada.attack(new)


async def by_answers(ada: Ada) -> None:
    """Requests that are answered one by one, in each scope, with a pattern that covers everything."""
    session_id = await ada.session()
    asked = [("bash", {"command": f"cat {ada.machine.secret}"})] * 3
    for decision in ("once", "session", "project"):
        await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": lines(asked)})
        for one in (await ada.client.get(f"/api/sessions/{session_id}/status")).json().get("waiting", []):
            path = f"/api/sessions/{session_id}/approvals/{one['approval_id']}"
            await ada.ask("POST", path, {"decision": decision, "pattern": "*"})
        await ada.settle(session_id)


async def by_attachment(ada: Ada) -> None:
    """Files that a prompt names, in a session and in a chat."""
    session_id = await ada.session(*EVERYTHING)
    names = ("way/secret.txt", "link.txt", "hard.txt", "../../bob/secret.txt", "shadow.md", str(ada.machine.secret))
    for url in (*(f"workspace:{name}" for name in names), f"file://{ada.machine.secret}", "blob:0"):
        part = {"type": "file", "mediaType": "text/plain", "url": url}
        refused = await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"parts": [part]})
        assert refused.status == 422, (url, refused)
        body = chat_body(session_id, "x")
        body["messages"][0]["parts"].append(part)
        assert (await ada.ask("POST", "/api/chat", body)).status == 422
    whole = {"type": "file", "mediaType": "text/plain", "url": "workspace:docs/plan.txt"}
    assert (await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"parts": [whole]})).status in (200, 202)
    await ada.settle(session_id)


async def by_project_files(ada: Ada) -> None:
    """Agents, skills, instructions, settings and MCP servers that ada writes into her own folder."""
    work, secret = ada.machine.work, ada.machine.secret
    for folder in (".clew/agents", ".clew/skills/stolen", ".claude/agents"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    (work / ".clew" / "agents" / "free.md").write_text(FREE % (secret, work))
    (work / ".claude" / "agents" / "freer.md").symlink_to(secret)
    (work / ".clew" / "skills" / "stolen" / "SKILL.md").symlink_to(secret)
    (work / ".clew" / "config.toml").write_text('[tools]\nsandbox = "off"\n[mcp_servers.mine]\ncommand = "/bin/sh"\n')
    (work / ".mcp.json").write_text('{"mcpServers": {"mine": {"command": "/bin/sh"}}}')
    (work / "AGENTS.md").symlink_to(secret)
    (work.parent / "AGENTS.md").write_text(f"{CANARY} is above the workspace")
    (work.parent / ".git").mkdir(exist_ok=True)
    ada.before = ada.machine.outside()
    await ada.ask("GET", f"/api/agents?workspace={work}")
    await ada.ask("GET", f"/api/rules?scope=agent&agent=free&workspace={work}")
    session_id = await ada.session(*EVERYTHING, agent="free")
    await ada.attack(session_id)
    turns = (await ada.client.get(f"/api/sessions/{session_id}/tree")).json()["turns"]
    await ada.ask("GET", f"/api/turns/{turns[0]['id']}/request")
    assert not (work / "was-started").exists()


async def by_triggers(ada: Ada) -> None:
    """Events, schedules and webhooks, of a session and of one made for them, where nobody answers."""
    session_id = await ada.session(*EVERYTHING)
    work, bob = str(ada.machine.work), str(ada.machine.bob)
    await ada.allow_everything()
    made = {"model": "demo/tools", "workspace_root": work}
    elsewhere = {"model": "demo/tools", "workspace_root": bob}
    for number, asked in enumerate(all_attacks(ada.machine, ada.server.process.pid)):
        text = lines(asked)
        routes: list[dict[str, Any]] = [{"routing": {"session_id": session_id}}]
        routes.append({"routing": {"label": f"e{number}"}, **made})
        for n, where in enumerate(routes):
            event = {"source": "api", "source_id": f"{number}-{n}", "text": text, **where}
            assert (await ada.ask("POST", "/api/events", event)).status in (200, 201, 202)
        schedule = await ada.ask("POST", "/api/schedules", {"cron": "0 0 1 1 *", "prompt": text, **made})
        assert schedule.status == 201, schedule
        await ada.ask("POST", f"/api/schedules/{schedule.json()['id']}/run", {})
        hook = await ada.ask("POST", "/api/hooks", {"name": f"h{number}", "prompt": text, **made})
        assert hook.status == 201, hook
    for path, body in (
        ("/api/events", {"source": "api", "source_id": "x", "text": "x", "routing": {"label": "bob"}, **elsewhere}),
        ("/api/schedules", {"cron": "0 0 1 1 *", "prompt": "x", **elsewhere}),
        ("/api/hooks", {"name": "bobs", **elsewhere}),
    ):
        assert (await ada.ask("POST", path, body)).status == 422
    for session in (await ada.ask("GET", "/api/sessions?limit=200")).json()["sessions"]:
        await ada.settle(session["id"])


async def by_looking(ada: Ada) -> None:
    """What is listed and explained without a call."""
    session_id = await ada.session(*EVERYTHING)
    for q in ("../../bob/", "way/", "link", "/", "..", f"{ada.machine.bob}/"):
        await ada.ask("GET", f"/api/files?session={session_id}&q={q}")
        await ada.ask("GET", f"/api/files?workspace={ada.machine.work}&q={q}&folders=true")
    for folder in (ada.machine.bob, f"{ada.machine.work}/way", "/"):
        for path in ("/api/files", "/api/agents", "/api/rules"):
            await ada.ask(
                "GET", f"{path}?workspace={folder}&agent=free" if "rules" in path else f"{path}?workspace={folder}"
            )
    for name in ("read", "write", "edit", "ls", "glob", "grep"):
        path = f"/api/sessions/{session_id}/permissions/explain?tool={name}&target={ada.machine.secret}"
        told = (await ada.ask("GET", path)).json()
        assert (told["action"], told["rule"]["pinned"]) == ("deny", True)
        for link in ("way/onward", ada.machine.bob / "onward"):
            await ada.ask("GET", f"/api/sessions/{session_id}/permissions/explain?tool={name}&target={link}")


async def by_the_server(ada: Ada) -> None:
    """What is the administrator's alone."""
    session_id = await ada.session()
    servers = {"servers": {"mine": {"command": "/bin/sh", "args": ["-c", f"cat {ada.machine.secret}"]}}}
    for method, path, body in (
        ("PUT", f"/api/sessions/{session_id}/mcp-servers", servers),
        ("GET", "/api/mcp-servers", None),
        ("POST", "/api/mcp-servers/mine/start", {}),
        ("PATCH", "/api/settings", {"default_model": "demo/echo"}),
        ("GET", "/api/replicas", None),
        ("GET", "/api/disk", None),
        ("GET", "/metrics", None),
    ):
        assert (await ada.ask(method, path, body)).status in (403, 404), path


async def by_the_queue(ada: Ada) -> None:
    """Messages that wait, are changed while they do, and are sent then."""
    session_id = await ada.session(*EVERYTHING)
    text = lines([("bash", {"command": "sleep 2"})])
    await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": text})
    await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": "later", "on_busy": "queue"})
    attack = lines([("read", {"path": str(ada.machine.secret)}), ("bash", {"command": f"cat {ada.machine.secret}"})])
    for one in (await ada.client.get(f"/api/sessions/{session_id}/queue")).json()["messages"]:
        await ada.ask("PATCH", f"/api/sessions/{session_id}/queue/{one['id']}", {"text": attack})
    await ada.settle(session_id)
    await ada.ask("POST", f"/api/sessions/{session_id}/continue", {"mode": "again"})
    await ada.settle(session_id)


ROUTES = {
    **dict.fromkeys(("create_session", "import_from"), by_sessions_elsewhere),
    "import_session": by_import,
    **dict.fromkeys(("branch", "fork"), by_branch),
    **dict.fromkeys(("answer", "answer_all"), by_answers),
    **dict.fromkeys(("submit", "chat"), by_attachment),
    **dict.fromkeys(("agents", "rules", "add_rule", "set_permissions", "request"), by_project_files),
    **dict.fromkeys(("events.receive", "schedules.add", "schedules.run", "webhooks.add"), by_triggers),
    **dict.fromkeys(("find_files", "explain_permission"), by_looking),
    **dict.fromkeys(
        ("mcp_servers", "start_mcp_server", "give_mcp_servers", "change_settings", "replicas", "metrics", "disk_use"),
        by_the_server,
    ),
    **dict.fromkeys(("edit_queued", "send_queued", "continue_turn"), by_the_queue),
}
"""The operations that name a file or a folder, or make something run, and what is tried with each."""

_READS = "tells what is stored for the owner's own sessions"
_OWN_FILES = "names only files that the snapshots of an owner's own session have"
_MOVES = "moves within an owner's own session, and neither names a file nor makes a tool run"
HARMLESS = {
    **dict.fromkeys(("page", "asset", "document", "health", "ready", "models", "server"), "is the same for everybody"),
    **dict.fromkeys(("settings", "usage", "prompts", "list_sessions", "get_session", "messages", "files"), _READS),
    **dict.fromkeys(("get_status", "queue", "permissions", "reflog", "tree", "compaction", "context", "turn"), _READS),
    **dict.fromkeys(("turn_messages", "export", "search", "blob", "attach", "subscribe", "events.list"), _READS),
    **dict.fromkeys(("schedules.list", "schedules.get", "schedules.preview", "webhooks.list", "webhooks.get"), _READS),
    **dict.fromkeys(("save_prompt", "remove_prompt", "examples", "accept_loss", "delete_session"), _MOVES),
    **dict.fromkeys(("accept_message", "abort", "cancel_queued", "move_queued", "pause_queue", "revoke_rule"), _MOVES),
    **dict.fromkeys(("rewind", "unrewind", "set_head", "compact", "prune", "answer_question"), _MOVES),
    **dict.fromkeys(("schedules.watch", "schedules.remove", "webhooks.remove", "webhooks.rotate"), _MOVES),
    **dict.fromkeys(("preview_restore", "changes", "change_diff", "compare_files", "revert_change"), _OWN_FILES),
    "patch_session": "sets a mode, in each of which every tool is tried",
    **dict.fromkeys(("schedules.change", "webhooks.change"), "takes what adding one takes, but for the folder"),
    "webhooks.deliver": "gives text to a session that adding the webhook named",
}


@pytest.mark.rule("OW-1", "PM-9", "EM-4")
@pytest.mark.parametrize("route", dict.fromkeys(ROUTES.values()), ids=lambda one: one.__name__)
async def test_no_route_leads_out_of_an_owners_workspace(route: Any, machine: Machine, tmp_path: Path) -> None:
    async with as_ada(machine, tmp_path) as ada:
        await route(ada)
        await ada.got_nothing()


@pytest.mark.rule("OW-1")
async def test_a_link_does_not_tell_which_files_exist_outside(machine: Machine, tmp_path: Path) -> None:
    """What is said about one that leads to a file of bob's and about one that leads to nothing is the same."""
    (machine.bob / "known").mkdir()
    said: dict[str, str] = {}
    async with as_ada(machine, tmp_path) as ada:
        session_id = await ada.session(*EVERYTHING)
        for name in ("known", "wrong"):
            (machine.work / "made").symlink_to(machine.bob / name)
            paths = ("made", "made/x", f"../../bob/{name}", str(machine.bob / name))
            asked: list[tuple[str, dict[str, Any]]] = [
                ("ls", {}),
                ("glob", {"pattern": "m*"}),
                ("grep", {"pattern": "x"}),
            ]
            for path in paths:
                asked += [("read", {"path": path}), ("ls", {"path": path}), ("grep", {"path": path, "pattern": "x"})]
                asked += [("write", {"path": path, "content": "x"}), ("glob", {"path": path, "pattern": "*"})]
                asked += [("bash", {"command": f"ls -d {path}; stat -L {path}; cat {path}/.; test -e {path}; echo $?"})]
            before = len(await ada.outputs())
            await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": lines(asked)})
            await ada.settle(session_id)
            found = (await ada.outputs())[before:]
            assert len(found) == len(asked)
            told = [json.dumps([part.get("output"), part.get("errorText")]) for part in found]
            for path in paths:
                for tool in ("read", "ls", "glob", "grep", "write"):
                    where = f"/api/sessions/{session_id}/permissions/explain?tool={tool}&target={path}"
                    told.append((await ada.ask("GET", where)).body.decode())
                part = {"type": "file", "mediaType": "text/plain", "url": f"workspace:{path}"}
                answer = await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"parts": [part]})
                assert answer.status == 422
                told.append(answer.json()["detail"])
            looked = [await ada.ask("GET", f"/api/{one}?workspace={machine.work}/made") for one in ("files", "agents")]
            told += [answer.json()["detail"] for answer in looked]
            (machine.work / "made").unlink()
            said[name] = "\n".join(told).replace(name, "NAME")
    assert said["known"] == said["wrong"]


@pytest.mark.rule("OW-1")
async def test_what_waits_at_a_restart_is_confined_afterwards(machine: Machine, tmp_path: Path) -> None:
    """The confinement comes with the session: it is not what a request or a process remembers."""
    asked = [
        ("bash", {"command": f"cat {machine.secret}"}),
        ("edit", {"path": "link.txt", "old": "root", "new": "x"}),
    ]
    async with as_ada(machine, tmp_path) as ada:
        session_id = await ada.session()
        await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": lines(asked)})
        ada.server.process.kill()
    async with as_ada(machine, tmp_path) as ada:
        await ada.settle(session_id)
        await ada.ask("POST", f"/api/sessions/{session_id}/continue", {"mode": "again"})
        await ada.settle(session_id)
        assert len(await ada.outputs()) >= 2
        await ada.got_nothing()


@pytest.mark.rule("OW-1")
async def test_ordinary_work_is_done_in_an_owners_workspace(machine: Machine, tmp_path: Path) -> None:
    """Files, programs, pipes and git, with nothing asked about that is not asked of anybody."""
    made = await asyncio.create_subprocess_exec("git", "init", "-q", "-b", "main", str(machine.work))
    assert await made.wait() == 0
    asked = [
        ("write", {"path": "src/app.py", "content": "print(6 * 7)\n"}),
        ("read", {"path": "docs/plan.txt"}),
        ("edit", {"path": "docs/plan.txt", "old": "two", "new": "2"}),
        ("ls", {"path": "docs"}),
        ("glob", {"pattern": "docs/*.txt"}),
        ("grep", {"pattern": "one", "path": "docs"}),
        ("bash", {"command": "python3 -c 'print(6 * 7)' | tee made.txt && chmod +x made.txt && stat -c %A made.txt"}),
        ("bash", {"command": "git status --short | grep -c . ; git config user.name ada && git config user.name"}),
        ("bash", {"command": "ln docs/plan.txt docs/twin.txt"}),
        ("read", {"path": "docs/twin.txt"}),
        ("bash", {"command": 'echo "$HOME $TMPDIR"; mktemp > /dev/null && cat <(echo read) | tr a-z A-Z'}),
    ]
    async with as_ada(machine, tmp_path) as ada:
        session_id = await ada.session(*EVERYTHING)
        for one in asked:
            await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": lines([one])})
            await ada.settle(session_id)
        parts = await ada.outputs()
        assert [part["state"] for part in parts] == ["output-available"] * len(asked)
        told = [part["output"] for part in parts]
    assert told[1:6] == [
        "one\ntwo\n",
        told[2],
        "docs/plan.txt  6 bytes",
        "docs/plan.txt",
        "docs/plan.txt:1: one",
    ]
    assert told[9] == "one\n2\n"
    assert [one["text"] for one in (told[6], told[7], told[10])] == [
        "42\n-rwxr-xr-x\n[exit code 0]",
        "6\nada\n[exit code 0]",
        "/tmp/home /tmp\nREAD\n[exit code 0]",
    ]
    assert (machine.work / "src" / "app.py").read_text() == "print(6 * 7)\n"
    assert (machine.work / "docs" / "plan.txt").read_text() == "one\n2\n"


@pytest.mark.rule("OW-1")
async def test_clew_token_add_says_what_the_token_can_do(tmp_path: Path) -> None:
    """In sentences, beside the token, which alone is on stdout."""
    code, out, err = await command(tmp_path, "token", "add", "ada", "--root", str(tmp_path))
    assert (code, len(out.split())) == (0, 1)
    assert err.splitlines()[1:] == [
        "clew: ada can create sessions, see and change only their own, and answer their approvals",
        f"clew: these sessions work only in these folders: {tmp_path}; each can use only the files of its own "
        "workspace",
        "clew: their bash commands run only in a sandbox without network, for any value of tools.sandbox; "
        + find_owner_sandbox().here,
        "clew: they use your model keys, can fetch public web pages, and can use MCP servers with a url, or with "
        "a command and owners = true",
    ]
    _, _, err = await command(tmp_path, "token", "add", "bob")
    assert "clew: these sessions work in no folder: no --root was given; " in err
