"""Files of an owner's workspace that are others' as well (hard links), and workspaces that became links."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clew.tools.files.hard_links import files_named_outside
from clew.tools.thread import run_in_thread
from tests.integration.owner_attacks import MANIFEST, Machine, lines
from tests.integration.test_owner_attacks import EVERYTHING, as_ada

pytestmark = [pytest.mark.rule("OW-1", "PM-9"), pytest.mark.slow, pytest.mark.timeout(300)]

SHARED = ("hard.txt", "docs/notes.md", "CLAUDE.md", ".clew/agents/far.md", ".clew/skills/far/SKILL.md", ".gitignore")
REFUSED = (
    "An owner's commands run only where no file of the workspace has another name (hard link) outside of it: {} may "
    "have one. Nothing was run. Replace these by copies (`git clone --no-hardlinks` makes none), or use the other "
    "tools."
)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


async def test_a_file_with_a_name_outside_is_read_by_no_tool_no_prompt_and_no_route(
    machine: Machine, tmp_path: Path
) -> None:
    """Neither as itself nor as instructions, a skill or an agent, also where a link of the owner's leads to it."""
    machine.share(*SHARED)
    (machine.work / "AGENTS.md").symlink_to("docs/notes.md")
    asked: list[tuple[str, dict[str, Any]]] = [("skill", {"name": "far"}), ("task", {"prompt": "x", "agent": "far"})]
    for name in (*SHARED, "AGENTS.md"):
        asked += [("read", {"path": name}), ("grep", {"path": name, "pattern": "."})]
        asked += [("edit", {"path": name, "old": "far", "new": "x"}), ("write", {"path": name, "content": "x"})]
    asked += [("grep", {"pattern": "."}), ("bash", {"command": f"cat {' '.join(SHARED)}; echo x >> hard.txt"})]
    async with as_ada(machine, tmp_path) as ada:
        session_id = await ada.session(*EVERYTHING)
        await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": lines(asked)})
        await ada.settle(session_id)
        for name in SHARED:
            part = {"type": "file", "mediaType": "text/plain", "url": f"workspace:{name}"}
            answer = await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"parts": [part]})
            assert answer.status == 422
        for turn in (await ada.client.get(f"/api/sessions/{session_id}/tree")).json()["turns"]:
            assert (await ada.ask("GET", f"/api/turns/{turn['id']}/request")).status == 200
        await ada.ask("GET", f"/api/agents?workspace={machine.work}")
        await ada.ask("GET", f"/api/rules?scope=agent&agent=far&workspace={machine.work}")
        found = await ada.outputs()
        assert len(found) == len(asked)
        assert [one["errorText"] for one in found if one["type"] == "tool-bash"] == [
            REFUSED.format(".clew/agents/far.md, .clew/skills/far/SKILL.md, .gitignore and 3 more")
        ]
        await ada.got_nothing()


async def test_what_the_administrator_reads_of_such_a_file_is_not_told_to_an_owner(
    machine: Machine, tmp_path: Path
) -> None:
    """What was made of a file is kept; not for a reader who may not read it."""
    machine.share(*SHARED)
    os.utime(machine.work / "CLAUDE.md", (1, 1))
    async with as_ada(machine, tmp_path) as ada:
        everyone = ada.server.client
        asked = {"model": "demo/echo", "workspace_root": str(machine.work)}
        for _ in range(2):
            own = str((await everyone.post("/api/sessions", asked)).json()["id"])
            await everyone.prompt(own, "hello")
            await everyone.idle(own)
            listed = (await everyone.get(f"/api/agents?workspace={machine.work}")).json()
            assert "far" in [one["name"] for one in listed["agents"]]
        await ada.ask("GET", f"/api/agents?workspace={machine.work}")
        session_id = await ada.session()
        await ada.ask("POST", f"/api/sessions/{session_id}/prompt", {"text": "hello"})
        await ada.settle(session_id)
        [turn] = (await ada.client.get(f"/api/sessions/{session_id}/tree")).json()["turns"]
        await ada.ask("GET", f"/api/turns/{turn['id']}/request")
        await ada.got_nothing()


async def test_no_command_moves_such_a_file_to_another_session(machine: Machine, tmp_path: Path) -> None:
    """A command that runs in a folder below, where there is none yet, would see it as soon as it is there."""
    machine.share("docs/notes.md")
    below = machine.work / "below"
    below.mkdir()
    os.mkfifo(below / "gate")
    waiting = (
        "echo > gate; until [ -e docs ] || [ -e end ]; do sleep 0.02; done; cd docs; cat notes.md; echo x >> notes.md"
    )
    async with as_ada(machine, tmp_path) as ada:
        first, second = await ada.session(*EVERYTHING), await ada.session(*EVERYTHING, workspace_root=str(below))
        await ada.ask("POST", f"/api/sessions/{second}/prompt", {"text": lines([("bash", {"command": waiting})])})
        settled = asyncio.create_task(ada.settle(second))
        await run_in_thread((below / "gate").read_text)
        moving = [("bash", {"command": "mv docs below/docs"})]
        await ada.ask("POST", f"/api/sessions/{first}/prompt", {"text": lines(moving)})
        await ada.settle(first)
        (below / "end").touch()
        await settled
        assert (machine.work / "docs" / "notes.md").read_text() == MANIFEST
        assert REFUSED.format("docs/notes.md") in [one.get("errorText") for one in await ada.outputs()]
        await ada.got_nothing()


def test_a_folder_that_cannot_be_looked_into_counts_if_a_command_could_open_it(tmp_path: Path) -> None:
    """Its owner is the server's user: `chmod` is enough. Root without its capabilities is such a user, too."""
    closed = tmp_path / "work" / "closed"
    closed.mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    os.link(tmp_path / "secret", closed / "hard.txt")
    closed.chmod(0)
    program = "import sys, clew.tools.files.hard_links as h; print(h.files_named_outside(sys.argv[1]))"
    argv = [sys.executable, "-c", program, str(tmp_path / "work")]
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root reads every folder, and setpriv is not here to take that from it")
        argv = [setpriv, "--bounding-set=-all", "--inh-caps=-all", *argv]
    try:
        assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == f"{[str(closed)]}\n"
    finally:
        closed.chmod(0o700)
    assert files_named_outside(tmp_path / "work") == [str(closed / "hard.txt")]


async def test_a_workspace_that_became_a_link_is_looked_into_by_no_route(machine: Machine, tmp_path: Path) -> None:
    """The session stays as it was created: what is asked about it reads nothing where the link leads."""
    inner = machine.work / "inner"
    inner.mkdir()
    (machine.bob / ".clew" / "agents").mkdir(parents=True)
    (machine.bob / ".clew" / "agents" / "far.md").write_text(MANIFEST)
    async with as_ada(machine, tmp_path) as ada:
        session_id = await ada.session(workspace_root=str(inner))
        inner.rename(machine.work / "aside")
        inner.symlink_to(machine.bob)
        path = f"/api/sessions/{session_id}"
        rule = {"permission": "read", "pattern": "*", "action": "allow"}
        for method, where, body in (
            ("GET", f"/api/rules?session={session_id}&scope=agent&agent=far", None),
            ("GET", f"/api/rules?session={session_id}", None),
            ("GET", f"{path}/permissions/explain?tool=bash&target=ls", None),
            ("GET", f"/api/files?session={session_id}&q=secret", None),
            ("GET", f"/api/agents?workspace={inner}", None),
            ("GET", f"{path}/context", None),
            ("PUT", f"{path}/permissions", {"rules": [rule]}),
            ("PATCH", path, {"mode": "accept_edits"}),
            ("POST", "/api/rules", {"scope": "session", "session_id": session_id, **rule}),
            ("POST", f"{path}/prompt", {"text": "hello", "agent": "far"}),
        ):
            assert (await ada.ask(method, where, body)).status < 500, where
        exported = (await ada.client.get(f"{path}/export?format=json")).body
        found = json.loads(exported)
        found["session"]["agent"] = "far"
        await ada.ask("POST", "/api/import", json.dumps(found).encode())
        await ada.got_nothing()
