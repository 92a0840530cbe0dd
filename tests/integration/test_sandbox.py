"""The sandbox around ``bash``: what a command may do by itself, on the kernel that runs these tests."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from clew.config import Config, ToolsConfig
from clew.errors import ToolFailed
from clew.testing.scripted import FakeProviders, ScriptedModel, call, then
from clew.testing.scripted import say as speak
from clew.tools.builtin.bash import make_bash
from clew.tools.process.landlock import LEAST_ABI, landlock_abi
from clew.tools.process.sandbox import Sandbox, find_sandbox
from tests.integration.http_client import served
from tests.integration.test_cli_history import Say, say
from tests.unit.test_tools_support import call as call_tool

__all__ = ["say"]

needs_landlock = pytest.mark.skipif(
    landlock_abi() < LEAST_ABI, reason=f"this kernel has Landlock {landlock_abi()}, and the sandbox needs {LEAST_ABI}"
)


class Fenced:
    """A shell in a sandbox, with a place beside its workspace that is clew's own."""

    def __init__(self, folder: Path, sandbox: Sandbox) -> None:
        self.workspace = folder / "work"
        self.own = folder / "home" / "clew"
        self.store = folder / "home" / "store.db"
        self.beside = folder / "home" / "notes.txt"
        self.workspace.mkdir()
        self.own.mkdir(parents=True)
        for file in (self.own / "token", self.store, Path(f"{self.store}-wal"), self.beside):
            file.write_text("kept apart")
        self._tool = make_bash(sandbox, lambda: (str(self.own), str(self.store)))
        self.described = self._tool.description

    async def run(self, command: str) -> str:
        told = await call_tool(self._tool, {"command": command, "timeout_ms": 30_000}, self.workspace)
        return str(told["text"])


@pytest.fixture
def fenced(tmp_path: Path) -> Fenced:
    return Fenced(tmp_path, find_sandbox("workspace"))


@needs_landlock
@pytest.mark.rule("PM-9")
async def test_a_command_in_the_sandbox_writes_in_the_workspace_and_its_scratch_folder_only(fenced: Fenced) -> None:
    """Not by an append, a rename, a link or a truncation either; the scratch folder is gone after the call."""
    assert await fenced.run("mkdir a && echo x > a/b && mv a/b c && ln c d && cat d") == "x\n[exit code 0]"
    told = await fenced.run('echo y > "$TMPDIR/s" && cat "$TMPDIR/s" && echo "$TMPDIR"')
    lines = told.splitlines()
    assert (lines[0], lines[2]) == ("y", "[exit code 0]")
    assert os.path.basename(lines[1]) not in os.listdir(os.path.dirname(lines[1]))
    attempts = (
        f"echo z >> {fenced.beside}",
        f"rm {fenced.beside}",
        f"mv {fenced.beside} stolen",
        f"ln {fenced.beside} stolen",
        f"mv c {fenced.beside.parent}/c",
        f"mkdir {fenced.beside.parent}/new",
        f"truncate -s 0 {fenced.beside}",
        "touch /tmp/clew-outside",
    )
    told = await fenced.run("\n".join(f"( {attempt} ) 2> /dev/null && echo {attempt!r}" for attempt in attempts))
    assert told == "[exit code 1]"
    assert fenced.beside.read_text() == "kept apart"
    assert sorted(os.listdir(fenced.beside.parent)) == ["clew", "notes.txt", "store.db", "store.db-wal"]


@needs_landlock
@pytest.mark.rule("PM-9")
async def test_no_program_in_the_sandbox_reads_what_is_clews_own(
    fenced: Fenced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it goes about it; all else can be read, and programs run."""
    monkeypatch.setenv("CLEW_TOKEN", "kept apart")
    token = fenced.own / "token"
    attempts = (
        f"cat {token}",
        f"cat {fenced.store}",
        f"cat {fenced.store}-wal",
        f"ln -s {fenced.own} way; cat way/token",
        f"grep -r apart {fenced.own}",
        f"cd {fenced.own} && cat token",
        f"cat /proc/self/root{token}",
        f"python3 -c \"print(open('{token}').read())\"",
        f"bash -c 'exec 9< {token}; cat <&9'",
        f"cat /proc/{os.getpid()}/environ",
        f"cat /proc/{os.getpid()}/root{token}",
    )
    assert "kept apart" not in await fenced.run("\n".join(attempts))
    assert await fenced.run(f"cat {fenced.beside}; ls {fenced.own.parent} | wc -l; true > /dev/null") == (
        "kept apart4\n[exit code 0]"
    )


TRIES = """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    try:
        with socket.socket(socket.AF_INET, kind) as one:
            one.connect(("127.0.0.1", {port}))
        print("through")
    except OSError as error:
        print(type(error).__name__)
a, b = socket.socketpair()
print("among ourselves")
"""


@needs_landlock
async def test_a_command_in_the_sandbox_has_no_network_unless_the_setting_leaves_it_one(tmp_path: Path) -> None:
    """Neither TCP nor UDP; local pairs of sockets work."""
    closed, left = (tmp_path / name for name in ("closed", "left"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = TRIES.format(port=server.getsockname()[1])
        for folder, mode, through in (
            (closed, find_sandbox("workspace"), "PermissionError"),
            (left, find_sandbox("files"), "through"),
        ):
            folder.mkdir()
            fenced = Fenced(folder, mode)
            (fenced.workspace / "tries.py").write_text(program)
            told = await fenced.run("python3 tries.py")
            assert told == f"{through}\n{through}\namong ourselves\n[exit code 0]"


@needs_landlock
async def test_a_command_in_the_sandbox_cannot_end_what_is_outside(fenced: Fenced) -> None:
    """Its own children it can; its warden and this process it cannot."""
    if landlock_abi() < 6:
        pytest.skip(f"this kernel has Landlock {landlock_abi()}, which leaves signals alone")
    told = await fenced.run(f"sleep 60 & kill $! && echo own; kill -9 $PPID || kill -0 {os.getpid()} || echo no other")
    assert [line for line in told.splitlines() if "kill" not in line] == ["own", "no other", "[exit code 0]"]


async def test_a_sandbox_that_the_machine_cannot_build_runs_nothing(tmp_path: Path) -> None:
    """Rather than run without one."""
    fenced = Fenced(tmp_path, Sandbox("workspace", None))
    with pytest.raises(ToolFailed, match=r"neither a Linux kernel with Landlock .* nor bubblewrap: no command is run"):
        await fenced.run("touch ran")
    assert os.listdir(fenced.workspace) == []


async def test_a_workspace_that_holds_clews_own_files_is_refused(tmp_path: Path) -> None:
    """The fence could only keep out both or neither."""
    fenced = Fenced(tmp_path, Sandbox("workspace", "landlock", 7))
    fenced.workspace = tmp_path / "home"
    with pytest.raises(ToolFailed, match="lie in one another, and the sandbox can not keep them apart"):
        await fenced.run("touch ran")


def test_bubblewrap_is_told_the_same_fence(tmp_path: Path) -> None:
    """Where there is no Landlock: everything to read, two folders to write, own places empty, no network."""
    from clew.tools.process.program import Program

    fenced = Fenced(tmp_path, Sandbox("workspace", None))
    # The folder, then the store and what lies beside it.
    program = Program(argv=["bash"], cwd=fenced.workspace, env={"A": "b"}, timeout_ms=1)
    wrapped = Sandbox("workspace", "bubblewrap", program="/usr/bin/bwrap").around(
        program, tmp_path / "scratch", (str(fenced.own), str(fenced.store))
    )
    work, scratch = str(fenced.workspace), str(tmp_path / "scratch")
    assert list(wrapped.argv) == [
        *("/usr/bin/bwrap", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *("--unshare-net", "--bind", work, work, "--bind", scratch, scratch),
        *("--tmpfs", str(fenced.own), "--ro-bind", "/dev/null", str(fenced.store)),
        *("--ro-bind", "/dev/null", f"{fenced.store}-wal"),
        *("--chdir", work, "--", "bash"),
    ]
    assert wrapped.env == {"A": "b", "TMPDIR": scratch}


@needs_landlock
@pytest.mark.rule("PM-9")
async def test_a_server_with_the_setting_runs_commands_in_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is told what it may do; a rule that allows the command does not let it out."""
    for name in ("config", "data", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "config" / "clew").mkdir()
    (tmp_path / "config" / "clew" / "token").write_text("kept apart")
    (tmp_path / "work" / "look.sh").write_text("cat ../config/clew/token; echo x > ../x; echo y > y\n")
    model = ScriptedModel([then(call("bash", {"command": "bash look.sh"})), then(speak("done"))])
    options: dict[str, Any] = {"store": "memory:", "config": Config(tools=ToolsConfig(sandbox="workspace"))}
    async with served(providers=FakeProviders(model), **options) as client:
        session_id = await client.session(workspace_root=str(tmp_path / "work"))
        allow = {"permission": "bash", "pattern": "bash look.sh", "action": "allow"}
        await client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": [allow]})
        await client.chat(session_id, "go")
        (part,) = [part for part in (await client.messages(session_id))[-1]["parts"] if part["type"] == "tool-bash"]
        described = client.engine.host.tools["bash"].description
    assert part["output"]["text"].splitlines() == [
        "cat: ../config/clew/token: Permission denied",
        "look.sh: line 1: ../x: Permission denied",
        "[exit code 0]",
    ]
    assert (tmp_path / "work" / "y").read_text() == "y\n"
    assert described.endswith(find_sandbox("workspace").described)


def test_clew_config_says_what_holds_around_bash_on_this_machine(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting, and what the kernel makes of it."""

    def shown() -> dict[str, tuple[str, str]]:
        settings = json.loads(say("config", "--json")[1])["settings"]
        return {row["name"]: (row["value"], row["source"]) for row in settings if "sandbox" in row["name"]}

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    by = find_sandbox("workspace").by
    able = f"off; {by} is available" if by else "off; no sandbox is available"
    assert shown() == {"sandbox": (able, "default"), "tools.sandbox": ("off", "default")}
    (tmp_path / "clew").mkdir()
    (tmp_path / "clew" / "config.toml").write_text('[tools]\nsandbox = "files"\n')
    assert shown() == {"sandbox": (find_sandbox("files").described, "file"), "tools.sandbox": ("files", "file")}
    (tmp_path / "clew" / "config.toml").write_text('[tools]\nsandbox = "on"\n')
    assert say("config")[0] == 2
