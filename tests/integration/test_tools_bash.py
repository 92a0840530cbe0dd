"""bash: one fresh shell a call, with an end that is certain."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clew.errors import ToolFailed
from clew.tools.base import Signal
from clew.tools.builtin.bash import bash
from clew.tools.process.environment import environment
from clew.tools.process.program import Program, run_program
from clew.tools.thread import run_in_thread
from tests.unit.test_tools_support import call, context_of


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "work" / "gate")
    return tmp_path / "work"


async def run(command: str, workspace: Path, **options: Any) -> str:
    timeout_ms = options.pop("timeout_ms", 60_000)
    told = await call(bash, {"command": command, "timeout_ms": timeout_ms}, workspace, **options)
    return str(told["text"])


async def through_the_gate(workspace: Path) -> str:
    """What the command writes to the gate; waits for it without asking again and again."""
    return await run_in_thread(lambda: (workspace / "gate").read_text().strip())


def lives(pid: int) -> bool:
    """A dead process that nobody has taken note of is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo hello", "hello\n[exit code 0]"),
        ("printf 'no end'", "no end\n[exit code 0]"),
        ("true", "[exit code 0]"),
        ("exit 7", "[exit code 7]"),
        ("echo out; echo err >&2; echo out again", "out\nerr\nout again\n[exit code 0]"),
        ("kill -9 $$", "[ended by SIGKILL]"),
        ("cat; echo end of input", "end of input\n[exit code 0]"),
        ("read line; echo $?", "1\n[exit code 0]"),
        ("no-such-program", "/bin/bash: line 1: no-such-program: command not found\n[exit code 127]"),
        ("if", "/bin/bash: -c: line 2: syntax error: unexpected end of file\n[exit code 2]"),
        ("-x", "/bin/bash: line 1: -x: command not found\n[exit code 127]"),
        ("echo 'ünïcode 漢字'", "ünïcode 漢字\n[exit code 0]"),
        ("printf 'caf\\xe9\\n'", "caf\ufffd\n[exit code 0]"),
        ("diff <(echo a) <(echo a) && echo same", "same\n[exit code 0]"),
        ("yes | head -2", "y\ny\n[exit code 0]"),
        ("tty || [ ! -t 0 ] && echo no terminal", "not a tty\nno terminal\n[exit code 0]"),
    ],
)
async def test_a_command_tells_its_output_and_its_exit_code(command: str, told: str, workspace: Path) -> None:
    """Both streams in the order they were written; no input; no terminal."""
    assert await run(command, workspace) == told


@pytest.mark.parametrize(
    ("command", "code"), [("true", 0), ("exit 7", 7), ("nothing-like-it", 127), ("kill -9 $$", -9)]
)
async def test_the_exit_code_is_a_field_of_its_own(command: str, code: int, workspace: Path) -> None:
    """A signal as a negative number; the text says the same in words."""
    told = await call(bash, {"command": command, "timeout_ms": 60_000}, workspace)
    assert (told.keys(), told["exit_code"]) == ({"text", "exit_code"}, code)


async def test_a_command_runs_in_the_workspace(workspace: Path) -> None:
    """Whatever the host's own folder is."""
    assert await run("pwd; touch made", workspace) == f"{workspace}\n[exit code 0]"
    assert (workspace / "made").exists()


async def test_nothing_of_a_shell_lasts_to_the_next_call(workspace: Path) -> None:
    """Variables, functions, aliases, options, traps and directories begin anew."""
    await run(
        "export A=1; b() { :; }; alias c=ls; cd /; umask 000; set -f; PATH=/nowhere; trap 'echo x' EXIT", workspace
    )
    told = await run('echo "A=$A"; type b; type c; pwd; umask; echo $-; command -v ls', workspace)
    lines = told.splitlines()
    assert lines[0] == "A="
    assert lines[1].endswith("b: not found")
    assert lines[2].endswith("c: not found")
    assert lines[3] == str(workspace)
    assert "f" not in lines[5]
    assert lines[6].endswith("/ls")


async def test_the_environment_is_a_short_list_without_secrets(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not even under a name that would be let through, and no file is run before the command."""
    trap = tmp_path / "trap.sh"
    trap.write_text("echo caught")
    for name in (
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "LC_SECRET",
        "DB_PASSWORD",
        "SSH_AUTH_SOCK",
    ):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("BASH_ENV", str(trap))
    monkeypatch.setenv("ENV", str(trap))
    monkeypatch.setenv("BASH_FUNC_ls%%", "() { echo caught; }")
    monkeypatch.setenv("SHELLOPTS", "xtrace")
    monkeypatch.setenv("LD_PRELOAD_NOT", "x")
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")
    told = await run("env; ls / >/dev/null; cat /proc/$$/environ | tr '\\0' '\\n'", workspace)
    assert "hunter2" not in told
    assert "caught" not in told
    names = set(re.findall(r"^(\w+)=", told, re.MULTILINE))
    assert names <= {
        "PATH",
        "HOME",
        "LANG",
        "LC_CTYPE",
        "LC_ALL",
        "TERM",
        "TMPDIR",
        "USER",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_KEY_0",
        "GIT_CONFIG_VALUE_0",
        "GIT_CONFIG_KEY_1",
        "GIT_CONFIG_VALUE_1",
    }
    assert "TERM=dumb\n" in told
    assert "LC_CTYPE=C.UTF-8\n" in told


def test_the_environment_always_has_a_path() -> None:
    """A host without one still finds programs."""
    settings = {"safe.bareRepository": "explicit", "core.fsmonitor": "false"}
    git = {"GIT_CONFIG_COUNT": "2"}
    for at, (key, value) in enumerate(settings.items()):
        git |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    assert environment({}) == {"PATH": os.defpath, "TERM": "dumb", **git}
    assert environment({"PATH": "/x", "TERM": "xterm", "LC_TOKEN": "x"}) == {"PATH": "/x", "TERM": "dumb", **git}


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize("begin", ["", ".:", ":", "./node_modules/.bin:", "node_modules/.bin:", "/nowhere::"])
async def test_no_program_is_found_in_the_workspace_by_a_relative_path(
    begin: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule for `ls` is no rule for the file `ls` of a workspace."""
    for folder in (workspace, workspace / "node_modules/.bin"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ls").write_text("#!/bin/sh\necho evil\n")
        (folder / "ls").chmod(0o755)
    monkeypatch.setenv("PATH", f"{begin}/usr/bin:/bin:.")
    assert "evil" not in await run("ls; env ls; sh -c ls", workspace)
    assert environment({"PATH": "a:.:"})["PATH"] == os.defpath


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
async def test_git_takes_no_folder_for_a_repository_because_of_its_files(workspace: Path) -> None:
    """A bare repository that an edit could have made would name programs for git to run."""
    await run("git init -q --bare sub", workspace)
    config = f"[core]\n\tbare = false\n\tworktree = {workspace}\n\tfsmonitor = touch {workspace}/ran\n"
    (workspace / "sub/config").write_text(config)
    for line in ("git status", "cd objects && git log", "bash -c 'git status'"):
        assert "cannot use bare repository" in await run(f"cd sub && {line}", workspace)
    assert "explicit" in await run("git config --get safe.bareRepository", workspace)
    assert not (workspace / "ran").exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
async def test_git_status_starts_no_monitor_that_an_unpacked_repository_names(workspace: Path) -> None:
    """Looking at a working copy runs nothing that its config names."""
    await run(f"git init -q . && git config core.fsmonitor 'touch {workspace}/ran; true'", workspace)
    assert "No commits yet" in await run("git status", workspace)
    assert not (workspace / "ran").exists()


async def test_a_command_that_takes_too_long_is_ended_and_its_output_told(workspace: Path) -> None:
    """With what it had said by then."""
    told = await run("echo before; sleep 300; echo after", workspace, timeout_ms=1_500)
    assert told == "before\n[timed out after 1.5 s; ended by SIGTERM]"


@pytest.mark.slow
async def test_a_command_that_ignores_the_signal_is_killed(workspace: Path) -> None:
    """Two seconds later, with everything in its group."""
    command = (
        "trap '' TERM; (trap '' TERM; echo $BASHPID >child; while :; do sleep 1; done) & while :; do sleep 1; done"
    )
    told = await run(command, workspace, timeout_ms=1_500)
    assert told == "[timed out after 1.5 s; ended by SIGKILL]"
    assert not lives(int((workspace / "child").read_text()))


async def test_an_abort_ends_the_command_and_its_group(workspace: Path) -> None:
    """In the middle of it."""
    signal = Signal()
    running = asyncio.create_task(run("sleep 300 & echo $! $$ > gate; wait", workspace, signal=signal))
    child, shell = map(int, (await through_the_gate(workspace)).split())
    signal.abort("the user stopped the run")
    with pytest.raises(ToolFailed, match=r"aborted \(the user stopped the run\); ended by SIGTERM"):
        await running
    assert not lives(child)
    assert not lives(shell)


async def test_an_abort_before_the_start_ends_it_too(workspace: Path) -> None:
    """The signal may have come first."""
    signal = Signal()
    signal.abort("early")
    with pytest.raises(ToolFailed, match="aborted"):
        await run("sleep 300", workspace, signal=signal)


@pytest.mark.slow
async def test_a_cancelled_call_leaves_no_process(workspace: Path) -> None:
    """As when the watchdog takes the call away: the group is dead before the caller goes on."""
    running = asyncio.create_task(run("echo $$ > gate; trap '' TERM; while :; do sleep 1; done", workspace))
    shell = int(await through_the_gate(workspace))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not lives(shell)


async def test_what_is_left_in_the_background_ends_with_the_command(workspace: Path) -> None:
    """It would go on unseen, and write to what the next call reads."""
    told = await run("sleep 300 & echo $!", workspace)
    assert told.endswith("[exit code 0; processes left in the background were ended]")
    assert not lives(int(told.splitlines()[0]))
    quiet = await run("sleep 300 >/dev/null 2>&1 & echo $!", workspace)
    assert not lives(int(quiet.splitlines()[0]))
    apart = await run("set -m; sleep 300 >/dev/null 2>&1 & nohup sleep 300 >/dev/null 2>&1 & jobs -p; exit", workspace)
    assert [lives(int(number)) for number in apart.splitlines()[:2]] == [False, False]


@pytest.mark.slow
async def test_what_is_left_and_ignores_the_signal_is_killed(workspace: Path) -> None:
    """The call ends a little later, and nothing is left."""
    told = await run("(trap '' TERM; echo $BASHPID >gate2; exec sleep 300) & until [ -s gate2 ]; do :; done", workspace)
    assert told == "[exit code 0; processes left in the background were ended]"
    assert not lives(int((workspace / "gate2").read_text()))


async def test_a_reader_that_fails_does_not_leave_the_program_running(workspace: Path) -> None:
    """Whatever goes wrong on our side of the pipe."""
    seen: list[bytes] = []

    def sink(piece: bytes) -> None:
        seen.append(piece)
        raise RuntimeError("no room")

    program = Program(
        argv=["bash", "-c", "echo $$; sleep 300"], cwd=workspace, env=environment(os.environ), timeout_ms=60_000
    )
    with pytest.raises(RuntimeError, match="no room"):
        await run_program(program, sink, Signal())
    assert not lives(int(seen[0]))


@pytest.mark.rule("PM-9")
async def test_a_daemon_ends_with_the_call_that_started_it(workspace: Path) -> None:
    """Forked twice, in a session of its own: it is below the warden all the same, and mentioned."""
    command = "(setsid bash -c 'echo $$ > gate; sleep 300' &); while ! [ -s done ]; do sleep 0.01; done"
    running = asyncio.create_task(run(command, workspace))
    daemon = int(await through_the_gate(workspace))
    (workspace / "done").write_text("now")
    assert await running == "[exit code 0; processes left in the background were ended]"
    assert not lives(daemon)


async def test_a_daemon_that_floods_the_output_does_not_hold_the_call(workspace: Path) -> None:
    """It is listened to until it is ended, however loud it is."""
    command = "setsid bash -c 'echo $$ > daemon; exec yes' & while ! [ -s daemon ]; do sleep 0.01; done"
    told = await run(command, workspace)
    assert told.endswith("[exit code 0; processes left in the background were ended]")
    assert not lives(int((workspace / "daemon").read_text()))


async def test_a_command_that_ends_its_warden_ends_itself(workspace: Path) -> None:
    """Nobody is left to say what else it started, and that is said."""
    told = await run("echo $$ > shell; sleep 0.2; kill -9 $PPID; sleep 300", workspace)
    assert re.fullmatch(
        r"\[ended by SIGKILL; could not be ended, and may still run: whatever it started \(session \d+\)\]", told
    )
    assert not lives(int((workspace / "shell").read_text()))


async def test_a_shell_that_closes_its_output_is_still_waited_for(workspace: Path) -> None:
    """The end of the output is not the end of the command."""
    assert await run("exec >&- 2>&-; sleep 0.3; exit 5", workspace) == "[exit code 5]"


async def test_output_that_is_not_text_is_described(workspace: Path) -> None:
    """And kept beside."""
    told = await run("head -c 5000 /dev/urandom", workspace)
    assert re.fullmatch(
        r"\[binary output: .*, 5,000 bytes, sha256 [0-9a-f]{64}; its content is not text and is not shown; "
        r"all of it is in (.*)\]\n\[exit code 0\]",
        told,
    )


async def test_long_output_keeps_its_ends_the_exit_code_and_a_file(workspace: Path) -> None:
    """The middle is in the file, outside the workspace."""
    told = await run("seq 1 20000; exit 3", workspace)
    assert told.startswith("1\n2\n3\n")
    assert told.endswith("\n20000\n[exit code 3]")
    (file,) = (workspace.parent / "spill").iterdir()
    assert f"; all of it is in {file} …]" in told
    assert file.read_text() == "".join(f"{number}\n" for number in range(1, 20_001))
    assert len(told) <= 30_100


FLOOD = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from clew.tools.builtin.bash import bash
from tests.unit.test_tools_support import call

def peak():  # Not ru_maxrss: that one is inherited from the process that started this one.
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])

async def main():
    await call(bash, {{"command": "true"}}, Path({workspace!r}))
    before = peak()
    told = await call(bash, {{"command": {command!r}}}, Path({workspace!r}))
    after = peak()
    control = b"x" * 50_000_000
    print(after - before, peak() - after, len(told))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "bytes_", "kept"),
    [
        ("head -c 50000000 /dev/zero | tr '\\0' x", "50,000,000", 50_000_000),
        pytest.param("yes clew | head -c 1000000000", "1,000,000,000", 100 * 1024 * 1024, marks=pytest.mark.slow),
    ],
    ids=["50 MB", "1 GB"],
)
async def test_a_flood_of_output_costs_no_memory(
    command: str, bytes_: str, kept: int, workspace: Path, record_property: Callable[[str, object], None]
) -> None:
    """In an interpreter of its own, measured by the kernel; the file beside it has a cap."""
    code = FLOOD.format(root=str(Path(__file__).parents[2]), workspace=str(workspace), command=command)
    done = await run_in_thread(
        lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    )
    grown, control, length = map(int, done.stdout.split())
    assert grown < 8 * 1024  # kilobytes
    assert control > 40 * 1024  # The measure would have seen it.
    assert length <= 30_100
    assert [file.stat().st_size for file in (workspace.parent / "spill").iterdir()] == [kept]
    record_property("figure", f"bash, {bytes_} bytes of output: memory grew by {grown:,} kB")
    for file in (workspace.parent / "spill").iterdir():
        file.unlink()


async def test_endless_output_ends_with_the_time(workspace: Path) -> None:
    """The reader is as fast as the writer, and still looks at the clock."""
    told = await run("yes", workspace, timeout_ms=300)
    assert "[timed out after 0.3 s; ended by SIGTERM]" in told
    for file in (workspace.parent / "spill").iterdir():
        assert file.stat().st_size <= 100 * 1024 * 1024
        file.unlink()


async def test_a_command_that_cannot_be_started_is_a_sentence(workspace: Path, tmp_path: Path) -> None:
    """No workspace, a workspace that is gone, a character no command can hold."""
    with pytest.raises(ToolFailed, match="no workspace"):
        await bash.execute({"command": "true"}, context_of(tmp_path))
    with pytest.raises(ToolFailed, match="could not be started"):
        await bash.execute({"command": "true"}, context_of(tmp_path, workspace=tmp_path / "gone"))
    with pytest.raises(ToolFailed, match="NUL"):
        await run("echo \0", workspace)
    with pytest.raises(ToolFailed, match="could not be started"):
        await run("echo \ud800", workspace)


@pytest.mark.slow
async def test_many_commands_run_beside_one_another(workspace: Path) -> None:
    """Each in a thread and a group of its own; no handle is left."""
    before = set(os.listdir("/proc/self/fd"))
    told = await asyncio.gather(*(run(f"sleep 0.2; echo {number}", workspace) for number in range(40)))
    assert told == [f"{number}\n[exit code 0]" for number in range(40)]
    # What another test left open may be closed meanwhile.
    assert set(os.listdir("/proc/self/fd")) <= before
