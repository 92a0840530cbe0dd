"""Files that go back, over HTTP and from the command line: an agent breaks one with ``sed``, a person takes it back."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import clew
from clew.config import config_folder
from clew.errors import InvalidInput
from clew.session.api import Engine
from clew.snapshots.layer import GitSnapshots
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from clew.transcript.rule import Rule
from tests.integration.command_line import Run, run
from tests.integration.http_client import AsgiClient, served
from tests.integration.http_history import refused

__all__ = ["run"]
pytestmark = pytest.mark.rule("WR-2", "WR-4")
T = TypeVar("T")
ALLOWED = [Rule("*", "*", "allow"), Rule("bash", "sed -i *", "allow")]
NAMES = [f"line {n}" for n in range(1, 21)]
BEFORE = "".join(f"{name}\n" for name in NAMES)
AFTER = BEFORE.replace("line 2\n", "LINE 2\n").replace("line 19\n", "LINE 19\n")
BREAK: list[Any] = [
    [call("bash", {"command": "sed -i -e 's/^line 2$/LINE 2/' -e 's/^line 19$/LINE 19/' app.txt"})],
    say("done"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with a file in it."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "app.txt").write_text(BEFORE)
    return folder


def make_repository(folder: Path) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)


async def broken(client: AsgiClient, workspace: Path, **fields: Any) -> tuple[str, str]:
    """A session whose agent has changed the file; its id, and that of the prompt."""
    session_id = await client.session(workspace_root=str(workspace), **fields)
    await client.prompt(session_id, "break it")
    await client.idle(session_id)
    return session_id, (await client.messages(session_id))[0]["id"]


async def test_a_person_sees_rewinds_and_reverts_over_http(workspace: Path) -> None:
    """Preview, rewind, un-rewind, differences, one hunk, the rest; and what others changed is a conflict."""
    async with served(*BREAK, snapshots="on", rules=ALLOWED) as client:
        session_id, prompt = await broken(client, workspace)
        path, file = f"/api/sessions/{session_id}", workspace / "app.txt"
        assert file.read_text() == AFTER
        preview = (await client.get(f"{path}/restore?message_id={prompt}")).json()
        effect = {"path": "app.txt", "kind": "modified", "added": 2, "removed": 2, "conflict": False}
        assert (preview["state"], preview["files"], preview["unsure"]) == ("ready", [effect], [])
        back = await client.post(f"{path}/rewind", {"message_id": prompt, "mode": "edit", "files": "restore"})
        restored = {"restored": ["app.txt"], "conflicts": [], "skipped": {}, "unsure": []}
        assert back.json()["files"] == {"snapshot_id": preview["snapshot_id"], **restored}
        assert (file.read_text(), await client.messages(session_id)) == (BEFORE, [])
        assert (await client.get(f"{path}/changes")).json()["files"] == []
        assert (await client.post(f"{path}/unrewind", {"files": "restore"})).json()["files"]["restored"] == ["app.txt"]
        assert file.read_text() == AFTER
        changed = {"path": "app.txt", "kind": "modified", "added": 2, "removed": 2, "shared": False}
        assert (await client.get(f"{path}/changes")).json() == {"files": [changed], "skipped": {}, "failed": None}
        turn_id = (await client.get(f"{path}/tree")).json()["turns"][0]["id"]
        of_step = (await client.get(f"{path}/changes?turn_id={turn_id}&step=0")).json()
        assert of_step["files"] == [changed]
        assert (await client.get(f"{path}/changes?turn_id={turn_id}&step=7")).json()["files"] == []
        diff = (await client.get(f"{path}/changes/diff?path=app.txt")).json()
        assert (len(diff["hunks"]), "-line 2\n+LINE 2\n" in diff["diff"]) == (2, True)
        hunk = {"path": "app.txt", "hunk": diff["hunks"][0]}
        assert (await client.post(f"{path}/changes/revert", hunk)).status == 200
        assert file.read_text() == AFTER.replace("LINE 2\n", "line 2\n")
        assert refused(await client.post(f"{path}/changes/revert", hunk)) == (409, "conflict")
        file.write_text(file.read_text() + "by hand\n")
        assert refused(await client.post(f"{path}/changes/revert", {"path": "app.txt"})) == (409, "conflict")
        preview = (await client.get(f"{path}/restore?message_id={prompt}")).json()
        assert [one["conflict"] for one in preview["files"]] == [True]
        kept = (await client.post(f"{path}/rewind", {"message_id": prompt, "files": "only"})).json()["files"]
        assert (kept["restored"], kept["conflicts"]) == ([], ["app.txt"])
        await client.post(f"{path}/rewind", {"message_id": prompt, "files": "only", "paths": ["app.txt"]})
        assert file.read_text() == BEFORE
        await client.post(f"{path}/unrewind", {"files": "only"})
        assert file.read_text().endswith("by hand\n")
        assert refused(await client.get(f"{path}/changes/diff?path=no.txt")) == (404, "not_found")
        use = (await client.get("/api/disk")).json()
        assert use["snapshots"] == use["workspaces"][str(workspace)] > 0


async def test_what_others_changed_meanwhile_is_shared_and_never_a_change_of_the_session(workspace: Path) -> None:
    """Between its own calls; a file that only they changed is not listed."""
    script = [*BREAK, call("bash", {"command": "echo more >> app.txt"}), say("again")]
    async with served(*script, snapshots="on", rules=ALLOWED) as client:
        session_id, _ = await broken(client, workspace)
        (workspace / "app.txt").write_text("all new\n")
        (workspace / "theirs.txt").write_text("x")
        await client.prompt(session_id, "again")
        await client.idle(session_id)
        files = (await client.get(f"/api/sessions/{session_id}/changes")).json()["files"]
        assert [(one["path"], one["shared"]) for one in files] == [("app.txt", True)]
        revert = f"/api/sessions/{session_id}/changes/revert"
        assert refused(await client.post(revert, {"path": "app.txt"})) == (409, "conflict")
        assert (workspace / "app.txt").read_text() == "all new\nmore\n"
        assert (await client.post(revert, {"path": "app.txt", "force": True})).status == 200
        assert (workspace / "app.txt").read_text() == BEFORE


@pytest.mark.parametrize("many", [False, True])
async def test_what_the_snapshot_left_out_is_not_deleted(workspace: Path, many: bool) -> None:
    """A file that was ignored when the message was sent, and is not any more; also where it is not named as such."""
    named = {f"{n}.key": "secret" for n in range(250 if many else 2)}
    for name, text in {**named, ".gitignore": "*.key\n"}.items():
        (workspace / name).write_text(text)
    script = [call("bash", {"command": "echo > .gitignore; echo new > new.txt"}), say("done")]
    async with served(*script, snapshots="on", rules=ALLOWED) as client:
        session_id, prompt = await broken(client, workspace)
        path = f"/api/sessions/{session_id}"
        if not many:
            refusal = await client.post(f"{path}/changes/revert", {"path": "0.key"})
            assert refused(refusal) == (409, "conflict")
        asked = {"message_id": prompt, "files": "only", "paths": ["new.txt"]}
        files = (await client.post(f"{path}/rewind", asked)).json()["files"]
        assert (files["restored"], len(files["conflicts"])) == ([".gitignore", "new.txt"], 50 if many else 0)
        assert {name: (workspace / name).read_text() for name in named} == named
        assert not (workspace / "new.txt").exists()


async def test_a_branch_is_compared_by_lines_that_end_at_a_line_feed(workspace: Path, tmp_path: Path) -> None:
    """A form feed and a carriage return are characters of a line, as in git's own differences."""
    (workspace / "app.txt").write_bytes(b"a\x0cb\rc\nline 2\n")
    async with served(*BREAK, snapshots="on", rules=ALLOWED) as client:
        session_id, prompt = await broken(client, workspace)
        body = {"from_message_id": prompt, "worktree": str(tmp_path / "other")}
        made = (await client.post(f"/api/sessions/{session_id}/branch", body)).json()["id"]
        query = f"other_id={made}&path=app.txt"
        diff = (await client.get(f"/api/sessions/{session_id}/changes/compare?{query}")).json()["diff"]
        assert diff == "--- a/app.txt\n+++ b/app.txt\n@@ -1,2 +1,2 @@\n a\x0cb\rc\n-LINE 2\n+line 2\n"


@pytest.mark.rule("WR-5")
@pytest.mark.parametrize("is_repository", [True, False])
async def test_a_branch_has_a_folder_of_its_own(workspace: Path, tmp_path: Path, is_repository: bool) -> None:
    """A git worktree, or a copy; with the files as they were at the message, not as they are."""
    if is_repository:
        make_repository(workspace)
    async with served(*BREAK, snapshots="on", rules=ALLOWED) as client:
        session_id, prompt = await broken(client, workspace)
        answer = (await client.messages(session_id))[-1]["id"]
        await client.engine._runtime.snapshots.wait(session_id)
        path = f"/api/sessions/{session_id}/branch"
        for message, text in ((prompt, BEFORE), (answer, AFTER)):
            folder = tmp_path / f"at-{message}"
            (workspace / "app.txt").write_text("something else\n")
            made = await client.post(path, {"from_message_id": message, "worktree": str(folder)})
            assert (made.status, made.json()["workspace_root"]) == (201, str(folder))
            assert (folder / "app.txt").read_text() == text
            assert (folder / ".git").exists() == is_repository
            compared = f"/api/sessions/{session_id}/changes/compare?other_id={made.json()['id']}"
            files = (await client.get(compared)).json()["files"]
            # The session's own state is that of the end of its turn.
            assert [(one["path"], one["added"], one["removed"]) for one in files] == (
                [] if text == AFTER else [("app.txt", 2, 2)]
            )
            diff = (await client.get(f"{compared}&path=app.txt")).json()["diff"]
            assert diff is None if text == AFTER else "+line 2\n" in diff
        if is_repository:
            (tmp_path / "link").symlink_to(workspace / ".git")
            for inside in (workspace / ".git" / "new", tmp_path / "link" / "new", tmp_path / ".GIT"):
                made = await client.post(path, {"from_message_id": prompt, "worktree": str(inside)})
                assert refused(made) == (422, "invalid_input")
                assert not inside.exists()
        taken = await client.post(path, {"from_message_id": prompt, "worktree": str(workspace)})
        assert refused(taken) == (422, "invalid_input")


@pytest.mark.rule("WR-6")
async def test_saved_states_go_with_their_session(workspace: Path, tmp_path: Path) -> None:
    """Those that another session names stay, and can still be restored."""
    layer = GitSnapshots(tmp_path / "saved", grace_s=0)
    async with served(*BREAK, say("two"), snapshots=layer, rules=ALLOWED) as client:
        (workspace / "large.bin").write_bytes(os.urandom(300_000))
        gone, _ = await broken(client, workspace)
        (workspace / "large.bin").unlink()
        left, prompt = await broken(client, workspace)
        snapshots = client.engine._runtime.snapshots
        await snapshots.wait(left)
        assert await snapshots.collect() < 300_000
        before = (await client.get("/api/disk")).json()["snapshots"]
        assert (await client.request("DELETE", f"/api/sessions/{gone}")).status == 204
        assert await snapshots.collect() > 300_000
        assert (await client.get("/api/disk")).json()["snapshots"] < before - 300_000
        (workspace / "app.txt").write_text("x")
        body = {"message_id": prompt, "files": "only", "force": True}
        assert (await client.post(f"/api/sessions/{left}/rewind", body)).status == 200
        assert (workspace / "app.txt").read_text() == AFTER


@pytest.mark.rule("WR-7")
@pytest.mark.parametrize("kind", ["sqlite:///{}/clew.db", "jsonl:{}/sessions"])
async def test_clews_own_data_in_a_workspace_is_neither_saved_nor_restored(workspace: Path, kind: str) -> None:
    """A store there is left out; a forced restore does not touch it."""
    url = kind.format(workspace)
    async with served(*BREAK, store=url, snapshots="on", rules=ALLOWED) as client:
        fields = {"metadata": {"cwd": str(workspace)}} if url.startswith("jsonl") else {}
        session_id, prompt = await broken(client, workspace, **fields)
        path = f"/api/sessions/{session_id}"
        preview = (await client.get(f"{path}/restore?message_id={prompt}")).json()
        assert [one["path"] for one in preview["files"]] == ["app.txt"]
        assert (
            "has clew's own data" in preview["skipped"].values() or "is clew's own data" in preview["skipped"].values()
        )
        done = await client.post(f"{path}/rewind", {"message_id": prompt, "files": "only", "force": True})
        assert done.json()["files"]["restored"] == ["app.txt"]


@pytest.mark.rule("WR-7")
async def test_tools_cannot_read_the_saved_workspaces_next_to_a_store(workspace: Path, tmp_path: Path) -> None:
    """Other sessions' files are in them."""
    model = ScriptedModel(otherwise=lambda request: say("done") if request.messages[-1].role != "user" else looking)
    looking = say("hello")
    async with served(
        store=f"sqlite:///{tmp_path}/clew.db", providers=FakeProviders(model), snapshots="on", rules=ALLOWED
    ) as client:
        session_id = await client.session(workspace_root=str(workspace))
        await client.prompt(session_id, "hello")
        await client.idle(session_id)
        await client.engine._runtime.snapshots.wait(session_id)
        [saved] = (tmp_path / "snapshots-clew.db").iterdir()
        looking = call("ls", {"path": str(saved)})
        await client.prompt(session_id, "look")
        await client.idle(session_id)
        [part] = [one for one in (await client.messages(session_id))[-1]["parts"] if one["type"] == "tool-ls"]
        assert (part["state"], "denied" in part["errorText"]) == ("output-error", True)


@pytest.mark.rule("WR-5", "OW-1")
async def test_an_owners_branch_gets_no_folder_outside_of_theirs(workspace: Path, tmp_path: Path) -> None:
    """Nor learns what is there."""
    (tmp_path / "bob" / "there").mkdir(parents=True)
    (workspace / "out").symlink_to(tmp_path / "bob")
    model = ScriptedModel(otherwise=lambda request: say("done"))
    async with clew.open("memory:", providers=FakeProviders(model), snapshots="on") as engine:
        ada = engine.scoped("ada", roots=[workspace])
        session = await ada.create_session(workspace_root=workspace)
        sent = await ada.submit(session.id, "go")
        await sent.wait()
        why = set[str]()
        for folder in ("bob/new", "bob/there", "workspace/out/new", "workspace/../new", "new"):
            with pytest.raises(InvalidInput) as refusal:
                await ada.branch(session.id, sent.message_id, worktree=tmp_path / folder)
            why.add(str(refusal.value).partition("' ")[2])
        assert why == {"is in none of the folders that you may work in"}
        assert [path.name for path in (tmp_path / "bob").iterdir()] == ["there"]
        made = await ada.branch(session.id, sent.message_id, worktree=workspace / "aside")
        assert (made.workspace_root, (workspace / "aside" / "app.txt").exists()) == (str(workspace / "aside"), True)


def ask(what: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(what)


async def prepare(workspace: Path) -> tuple[str, str]:
    """Have an agent break the file, with the user's own configuration, in which snapshots are on."""

    async def go(engine: Engine) -> tuple[str, str]:
        session = await engine.create_session(workspace_root=workspace)
        await (await engine.submit(session.id, "break it")).wait()
        return session.id, (await engine.messages(session.id))[0].id

    async with clew.open(config="user", providers=FakeProviders(ScriptedModel(BREAK)), rules=ALLOWED) as engine:
        return await go(engine)


def test_the_same_from_the_command_line(run: Run, workspace: Path) -> None:
    """Changes, differences, a hunk, rewind and un-rewind with files, disk use."""
    session_id, prompt = ask(prepare(workspace))
    file = workspace / "app.txt"
    assert file.read_text() == AFTER
    assert run("changes", session_id) == (0, "M +2 -2  app.txt\n", "")
    code, diff, _ = run("changes", session_id, "--path", "app.txt")
    assert (code, "+LINE 19\n" in diff) == (0, True)
    [first, _] = json.loads(run("changes", session_id, "--path", "app.txt", "--json")[1])["hunks"]
    assert run("changes", session_id, "--revert", "app.txt", "--hunk", first) == (0, "1 file restored\n", "")
    assert file.read_text() == AFTER.replace("LINE 2\n", "line 2\n")
    assert run("changes", session_id, "--hunk", first)[0] == 2
    assert run("changes", session_id) == (0, "M +1 -1  app.txt\n", "")
    file.write_text("by hand\n")
    code, out, _ = run("rewind", session_id, prompt, "--edit", "other", "--files", "restore")
    assert (code, out.splitlines()[-2:]) == (0, ["0 files restored", "left alone, changed by another hand: app.txt"])
    assert file.read_text() == "by hand\n"
    assert run("unrewind", session_id)[0] == 0
    assert run("rewind", session_id, prompt, "--files", "only", "--overwrite", "app.txt")[0] == 0
    assert file.read_text() == BEFORE
    assert run("unrewind", session_id, "--files", "only")[0] == 0
    assert file.read_text() == "by hand\n"
    assert run("goto", session_id, "beginning", "--files", "restore", "--force")[0] == 0
    assert file.read_text() == BEFORE
    code, out, _ = run("du", "--json")
    assert (code, json.loads(out)["snapshots"] > 0) == (0, True)
    assert [line.split()[-1] for line in run("du")[1].splitlines()[:4]] == ["database", "blobs", "snapshots", "outputs"]


@pytest.mark.rule("WR-1")
@pytest.mark.parametrize("text", ['snapshots = "off"', '[snapshots]\nmode = "off"'])
def test_the_users_configuration_switches_snapshots_off(run: Run, workspace: Path, text: str) -> None:
    """Not a file of the project; the message then names no snapshot."""
    config = config_folder() / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(text)
    (workspace / ".clew").mkdir()
    for name in ("config.toml", ".clew/config.toml"):
        (workspace / name).write_text('snapshots = "on"')
    session_id, prompt = ask(prepare(workspace))
    code, _, err = run("changes", session_id)
    assert (code, "takes no snapshots" in err) == (7, True)
    assert "snapshot_id" not in run("show", session_id, "--json")[1]
    assert run("rewind", session_id, prompt, "--files", "restore")[0] == 7
