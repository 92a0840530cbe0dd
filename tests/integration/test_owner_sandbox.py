"""The sandbox around an owner's commands, with each means that this machine has for it."""

from __future__ import annotations

import asyncio
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from clew.errors import ToolFailed
from clew.tools.builtin import bash as bash_module
from clew.tools.builtin.bash import make_bash
from clew.tools.process import owner_sandbox
from clew.tools.process.owner_sandbox import OwnerSandbox, find_owner_sandbox
from tests.integration.owner_attacks import CANARY, SUCCESSES, Machine, programs
from tests.unit.test_tools_support import context_of

pytestmark = pytest.mark.rule("OW-1", "PM-9")

LANDLOCK, BUBBLEWRAP = OwnerSandbox("landlock"), OwnerSandbox("bubblewrap", shutil.which("bwrap") or "bwrap")


@pytest.fixture(params=[LANDLOCK, BUBBLEWRAP], ids=lambda one: one.by)
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OwnerSandbox:
    """One that works here; the kernel or a package decides which do."""
    found: OwnerSandbox = request.param
    if problem := owner_sandbox._problem(found):
        pytest.skip(f"this machine cannot provide it: {problem}")
    monkeypatch.setattr(bash_module, "find_owner_sandbox", lambda: found)
    return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    token = tmp_path / "config" / "clew" / "token"
    token.parent.mkdir(parents=True)
    token.write_text(f"token-{CANARY}")
    yield made
    made.close()


@pytest.fixture
async def server(machine: Machine) -> AsyncIterator[int]:
    """Another process of the same user, with a secret in its environment."""
    made = await asyncio.create_subprocess_exec("sleep", "60", env={"SECRET_KEY": CANARY, "PATH": "/usr/bin:/bin"})
    yield made.pid
    assert made.returncode is None
    made.kill()
    await made.wait()


_RUNS_AS_ITS_OWNER = """
import ctypes, os, stat
call = ctypes.CDLL(None, use_errno=True).syscall
def attempt(of):
    try:
        of()
    except OSError:
        pass
open("plain", "w").close()
for mode in (0o4755, 0o2755, 0o6755):
    attempt(lambda: os.chmod("plain", mode))
    attempt(lambda: os.fchmod(os.open("plain", os.O_RDONLY), mode))
    attempt(lambda: os.chmod("plain", mode, dir_fd=os.open(".", os.O_RDONLY)))
    attempt(lambda: os.mknod(f"node{mode}", stat.S_IFREG | mode))
    attempt(lambda: os.open(f"open{mode}", os.O_CREAT | os.O_WRONLY, mode))
    attempt(lambda: os.link(f"/proc/self/fd/{os.open('.', os.O_TMPFILE | os.O_WRONLY, mode)}", f"tmp{mode}"))
    call(452, -100, b"plain", mode, 0)
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, mode, 0)
    call(437, -100, b"how%d" % mode, how, 24)
    if os.uname().machine == "x86_64":
        call(2, b"old%d" % mode, os.O_CREAT | os.O_WRONLY, mode)
        call(85, b"creat%d" % mode, mode)
        call(133, b"mknod%d" % mode, stat.S_IFREG | mode, 0)
os.chmod("plain", 0o755)
os.open("made", os.O_CREAT | os.O_WRONLY, 0o640)
# What is only opened has no mode, whatever stands there.
os.close(os.open("plain", os.O_RDONLY, 0o6755))
print("done")
"""


async def run(machine: Machine, command: str, closed: tuple[str, ...] = ()) -> str:
    """What the command says in ada's session, with no sandbox in the settings; with what is put aside of it."""
    context = msgspec.structs.replace(context_of(machine.home / "data", workspace=machine.work), owner="ada")
    output = await make_bash(None, lambda: closed).execute({"command": command, "timeout_ms": 20_000}, context)
    aside = sorted((machine.home / "data" / "spill").glob("*"))
    return "".join((str(output.value["text"]), *(one.read_text(errors="replace") for one in aside)))


async def test_no_command_of_an_owner_reaches_out_of_the_sandbox(
    sandbox: OwnerSandbox, machine: Machine, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read, written, changed, connected to, traced or signalled; nothing of the environment is there."""
    monkeypatch.setenv("LC_CANARY_TOKEN", CANARY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    before = machine.outside()
    for command in programs(machine, server):
        told = await run(machine, command)
        assert [one for one in (*machine.canaries(), *SUCCESSES) if one in told] == [], command
    assert machine.outside() == before
    assert not machine.was_reached


async def test_no_command_makes_a_program_that_runs_as_the_servers_user(
    sandbox: OwnerSandbox, machine: Machine
) -> None:
    """By no system call; other modes can be set, and files made, as usual."""
    told = await run(machine, f"umask 0; python3 - <<'E'\n{_RUNS_AS_ITS_OWNER}E")
    assert told == "done\n[exit code 0]"
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in machine.work.rglob("*")}
    assert {name: mode for name, mode in modes.items() if mode & 0o6000} == {}
    assert {name: modes[name] for name in ("plain", "made")} == {"plain": 0o755, "made": 0o640}


async def test_programs_work_in_an_owners_sandbox(sandbox: OwnerSandbox, machine: Machine) -> None:
    """They write in the workspace and in places of their own, run scripts they made, and use git, pipes and locks."""
    lines = """
    printf 'echo made\n' > run.sh && chmod +x run.sh && ./run.sh
    python3 -c 'import multiprocessing; multiprocessing.Lock(); print(6 * 7)' | tee out.txt
    git init -q . && git config user.email a@b && git config user.name a && git add run.sh && git commit -qm x
    git status --short run.sh; git log --format=%s; cat <(echo sub) 2> /dev/null
    touch ~/x "$TMPDIR/y" && ls ~ && echo "$HOME $TMPDIR"
    """
    told = await run(machine, lines)
    assert told == "made\n42\nx\nsub\nx\n/tmp/home /tmp\n[exit code 0]"
    assert (machine.work / "out.txt").read_text() == "42\n"
    assert await run(machine, "ls ~ $TMPDIR | grep -c '^[xy]$'") == "0\n[exit code 1]"


async def test_a_workspace_that_leads_elsewhere_is_given_to_no_command(sandbox: OwnerSandbox, machine: Machine) -> None:
    """Also where somebody puts a link in its place, and where it would hold what is clew's."""
    refused = "belongs to clew and overlaps a folder that this command would get"
    with pytest.raises(ToolFailed, match=refused):
        await run(machine, "ls", (str(machine.work / "store.db"),))
    with pytest.raises(ToolFailed, match=refused):
        await run(machine, "ls", (str(machine.home),))
    machine.work.rename(machine.home / "gone")
    machine.work.symlink_to(machine.bob)
    with pytest.raises(ToolFailed, match="leads elsewhere now; nothing was run"):
        await run(machine, "cat secret.txt")


async def test_without_a_sandbox_no_command_of_an_owner_is_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is said what was tried."""
    monkeypatch.setattr(owner_sandbox, "landlock_abi", lambda: 3)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    find_owner_sandbox.cache_clear()
    try:
        with pytest.raises(ToolFailed) as refused:
            await run(machine, "touch was-run")
        assert find_owner_sandbox() == OwnerSandbox(
            None, why="the kernel's Landlock is of version 3, and 6 is needed; bubblewrap is not installed"
        )
    finally:
        find_owner_sandbox.cache_clear()
    assert str(refused.value) == (
        "The commands of an owner's session run in a sandbox of their own, and this machine cannot provide it: the "
        "kernel's Landlock is of version 3, and 6 is needed; bubblewrap is not installed. Nothing was run; use the "
        "other tools."
    )
    assert not (machine.work / "was-run").exists()


@pytest.mark.parametrize("works", [True, False])
async def test_bubblewrap_is_used_where_landlock_cannot_be(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A means that is there and does not work is none."""
    monkeypatch.setattr(owner_sandbox, "landlock_abi", lambda: 7)
    monkeypatch.setattr(owner_sandbox, "can_filter_sockets", lambda: True)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/bwrap")
    monkeypatch.setattr(
        owner_sandbox, "_problem", lambda one: None if works and one.by == "bubblewrap" else f"no {one.by} here"
    )
    find_owner_sandbox.cache_clear()
    try:
        found = await asyncio.to_thread(find_owner_sandbox)
    finally:
        find_owner_sandbox.cache_clear()
    if works:
        assert found == OwnerSandbox("bubblewrap", "/usr/bin/bwrap")
    else:
        assert found == OwnerSandbox(None, why="no landlock here; bubblewrap does not work: no bubblewrap here")
