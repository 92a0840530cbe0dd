"""The environment of a turn: the date in its zone, git without running anything of the repository, and changes."""

from __future__ import annotations

import contextlib
import os
import platform
import select
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from clew.system_prompt import environment as module
from clew.system_prompt import git as git_module
from clew.system_prompt.environment import collect_environment, date_and_zone, environment_change
from clew.system_prompt.git import find_git_state
from clew.system_prompt.inputs import Environment, GitState
from clew.testing.clock import FakeClock
from clew.transcript.session import Model

LATE_MS = 1_790_983_800_000  # 2026-10-02, half past eleven in the evening in UTC
DAY = "2026-01-01T00:00:00Z"

CHANGED = "[The environment has changed:]\n"

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user without settings of their own."""
    home = tmp_path / "home"
    home.mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_CONFIG_HOME": str(home)}


class Repository:
    """A working copy, with git called as a person would."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self._environ = {**environ, "GIT_AUTHOR_DATE": DAY, "GIT_COMMITTER_DATE": DAY}
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Ann")
        self.git("config", "user.email", "ann@example.org")

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(command, env=self._environ, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, name: str, text: str = "") -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def commit(self, *names: str) -> None:
        for name in names:
            self.write(name, name)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=x")


@pytest.fixture
def repository(tmp_path: Path, environ: dict[str, str]) -> Repository:
    return Repository(tmp_path / "copy", environ)


# Date and zone


@pytest.mark.parametrize(
    ("zone", "date"),
    [("UTC", "2026-10-02"), ("Europe/Berlin", "2026-10-03"), ("America/Los_Angeles", "2026-10-02")],
)
def test_the_date_is_that_of_the_zone(zone: str, date: str) -> None:
    """Half past eleven in Greenwich is tomorrow in Berlin."""
    assert date_and_zone(LATE_MS, zone) == (date, zone)


def test_the_zone_is_the_one_given_then_the_environments_then_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is none is passed over; without any it is UTC."""
    (tmp_path / "zoneinfo" / "Asia").mkdir(parents=True)
    (tmp_path / "zoneinfo" / "Asia" / "Tokyo").write_text("")
    (tmp_path / "localtime").symlink_to("zoneinfo/Asia/Tokyo")
    monkeypatch.setattr(module, "_LOCALTIME", tmp_path / "localtime")
    berlin = {"TZ": ":Europe/Berlin"}
    assert date_and_zone(LATE_MS, "Asia/Kolkata", berlin)[1] == "Asia/Kolkata"
    assert date_and_zone(LATE_MS, None, berlin)[1] == "Europe/Berlin"
    assert date_and_zone(LATE_MS, "Nowhere/Land", {"TZ": "../../etc/passwd"})[1] == "Asia/Tokyo"
    for broken in ("gone", "zoneinfo"):
        monkeypatch.setattr(module, "_LOCALTIME", tmp_path / broken)
        assert date_and_zone(LATE_MS, None, {"TZ": "a\x00b"}) == ("2026-10-02", "UTC")


def test_the_environment_is_collected_whole(tmp_path: Path, environ: dict[str, str]) -> None:
    """Without a working copy there is no state of one."""
    (tmp_path / "plain").mkdir()
    assert collect_environment(
        clock=FakeClock(LATE_MS),
        model=Model("demo", "echo", "slow"),
        workspace=tmp_path / "plain",
        media=True,
        zone="UTC",
        environ=environ,
    ) == Environment(
        platform=f"{platform.system()} {platform.machine()}",
        date="2026-10-02",
        zone="UTC",
        model="demo/echo",
        variant="slow",
        workspace=str(tmp_path / "plain"),
        git=None,
        media=True,
    )


def test_without_a_workspace_git_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder the server was started in is nobody's business."""
    monkeypatch.setattr(module, "find_git_state", lambda *_, **__: pytest.fail("git was asked"))
    found = collect_environment(clock=FakeClock(LATE_MS), model=Model("demo", "echo"), zone="UTC", environ={})
    assert (found.workspace, found.git) == (None, None)


# Git


@needs_git
def test_a_working_copy_tells_its_branch_and_what_changed(repository: Repository, environ: dict[str, str]) -> None:
    """New, changed, staged, removed and moved files; a new folder counts as one; ignored ones do not."""
    assert find_git_state(repository.folder, environ=environ) == GitState("main", None, 0)
    repository.write(".gitignore", "*.log")
    repository.commit("a", "b", "c", "d", "sub/e")
    assert find_git_state(repository.folder, environ=environ) == GitState("main", None, 0)
    repository.write("a", "changed")
    repository.write("b", "staged")
    repository.git("add", "b")
    (repository.folder / "c").unlink()
    repository.git("mv", "d", "moved")
    repository.write("new folder/1")
    repository.write("new folder/2")
    repository.write("x.log")
    repository.git("checkout", "--quiet", "-b", "feature/ünicode")
    expected = GitState("feature/ünicode", None, 6)
    assert find_git_state(repository.folder, environ=environ) == expected
    assert find_git_state(repository.folder / "sub", environ=environ) == expected


@needs_git
def test_a_commit_checked_out_by_itself_is_named(repository: Repository, environ: dict[str, str]) -> None:
    """There is no branch then."""
    repository.commit("a")
    repository.git("checkout", "--quiet", "--detach")
    commit = repository.git("rev-parse", "--short=12", "HEAD")
    assert find_git_state(repository.folder, environ=environ) == GitState(None, commit, 0)


@needs_git
def test_asking_changes_nothing_in_the_repository(repository: Repository, environ: dict[str, str]) -> None:
    """Not even the index, which git would like to refresh."""
    repository.commit("a")
    os.utime(repository.folder / "a", (0, 0))
    before = {path: path.stat().st_mtime_ns for path in (repository.folder / ".git").rglob("*")}
    find_git_state(repository.folder, environ=environ)
    assert {path: path.stat().st_mtime_ns for path in (repository.folder / ".git").rglob("*")} == before


def plant(repository: Repository, trap: str, mark: Path) -> None:
    """Make the repository run a program, which leaves a mark, when somebody asks git for its status."""
    repository.commit("a", "b")
    program = repository.folder.parent / "evil"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    match trap:
        case "watcher":
            repository.git("config", "core.fsmonitor", str(program))
        case "hook":
            (repository.folder / ".git" / "hooks").mkdir(exist_ok=True)
            (repository.folder / ".git" / "hooks" / "post-index-change").symlink_to(program)
            os.utime(repository.folder / "a", (0, 0))
        case "fetch":
            repository.git("config", "extensions.partialClone", "origin")
            repository.git("config", "remote.origin.url", f"ext::{program}")
            repository.git("config", "protocol.ext.allow", "always")
            tree = repository.git("rev-parse", "HEAD^{tree}")
            (repository.folder / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
            (repository.folder / ".git" / "index").unlink()
        case "filter":
            repository.write(".git/info/attributes", "* filter=evil=x")
            repository.git("config", "filter.evil=x.clean", str(program))
            repository.write("a", "c")


@needs_git
@pytest.mark.parametrize("trap", ["watcher", "hook", "fetch", "filter"])
def test_no_program_that_the_repository_names_is_run(
    repository: Repository, environ: dict[str, str], tmp_path: Path, trap: str
) -> None:
    """A plain `git status` falls into each of these traps; clew does not, and still tells the branch."""
    mark = tmp_path / "mark"
    plant(repository, trap, mark)
    state = find_git_state(repository.folder, environ=environ)
    assert state is not None
    assert (state.branch, mark.exists()) == ("main", False)
    subprocess.run(["git", "-C", str(repository.folder), "status"], env=environ, capture_output=True, check=False)
    assert mark.exists(), "the trap does not work, so the test proves nothing"


@needs_git
@pytest.mark.parametrize("where", ["local", "included", "worktree"])
def test_a_repository_with_filters_of_its_own_is_not_asked_for_changes(
    repository: Repository, environ: dict[str, str], tmp_path: Path, where: str
) -> None:
    """Comparing a file would run them, and they cannot be turned off. The branch is still told."""
    mark = tmp_path / "mark"
    repository.write(".gitattributes", "* filter=evil=x")
    repository.commit("a")
    key = "filter.evil=x.clean"
    if where == "local":
        repository.git("config", key, f"touch '{mark}'")
    elif where == "included":
        repository.git("config", "--file", str(repository.folder / "more"), key, f"touch '{mark}'")
        repository.git("config", "include.path", "../more")
    else:
        repository.git("config", "extensions.worktreeConfig", "true")
        repository.git("config", "--worktree", key, f"touch '{mark}'")
    repository.write("a", "changed")
    assert find_git_state(repository.folder, environ=environ) == GitState("main", None, None)
    assert not mark.exists()


@needs_git
def test_filters_of_the_user_are_the_users_choice(repository: Repository, environ: dict[str, str]) -> None:
    """Large file storage is set up that way, for every repository."""
    repository.write(".gitattributes", "* filter=upper")
    repository.git("config", "--global", "filter.upper.clean", "tr a-z A-Z")
    repository.commit("a")
    repository.write("a", "other")
    assert find_git_state(repository.folder, environ=environ) == GitState("main", None, 1)


@needs_git
def test_a_bare_repository_is_no_working_copy(tmp_path: Path, environ: dict[str, str]) -> None:
    """A project can hold one as plain files, with settings of its choice."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "bare")], check=True, env=environ)
    assert find_git_state(tmp_path / "bare", environ=environ) is None


@needs_git
def test_git_is_asked_about_the_workspace_whatever_the_process_was_told(
    repository: Repository, tmp_path: Path, environ: dict[str, str]
) -> None:
    """A server started from a git hook has GIT_DIR set."""
    (tmp_path / "plain").mkdir()
    inherited = {**environ, "GIT_DIR": str(repository.folder / ".git"), "GIT_WORK_TREE": str(repository.folder)}
    assert find_git_state(tmp_path / "plain", environ=inherited) is None


def stand_in(folder: Path, script: str) -> dict[str, str]:
    """A PATH on which git is this script."""
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_without_git_there_is_no_state(tmp_path: Path) -> None:
    """Nor when it is found only beside the project, by a relative entry in PATH, or cannot be started."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "git").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken" / "git").chmod(0o755)
    assert find_git_state(tmp_path, environ={"PATH": str(tmp_path / "none")}) is None
    assert find_git_state(tmp_path, environ={"PATH": str(tmp_path / "broken")}) is None


def test_a_git_in_the_project_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with `.` in it would find it from inside the project."""
    stand_in(tmp_path / "bin", f"touch '{tmp_path}/mark'; echo true")
    monkeypatch.chdir(tmp_path / "bin")
    assert find_git_state(tmp_path, environ={"PATH": "."}) is None
    assert not (tmp_path / "mark").exists()


@needs_git
def test_git_is_started_twice_in_a_working_copy_and_never_outside_of_one(
    repository: Repository, tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every prompt waits for it."""
    started: list[str] = []
    run = git_module._Git.run

    def counted(git: git_module._Git, *arguments: str) -> tuple[int | None, bytes]:
        started.append(arguments[0])
        return run(git, *arguments)

    monkeypatch.setattr(git_module._Git, "run", counted)
    (tmp_path / "plain").mkdir()
    repository.write("a", "a")
    assert find_git_state(tmp_path / "plain", environ=environ) is None
    assert find_git_state(repository.folder, environ=environ) == GitState("main", None, 1)
    assert started == ["config", "status"]


def test_a_git_that_hangs_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    """The pipe of the child would be held open by the grandchild."""
    (tmp_path / ".git").mkdir()
    environ = stand_in(tmp_path / "bin", f"sleep 600 & echo $! > '{tmp_path}/pid'; echo true; wait")
    assert find_git_state(tmp_path, environ=environ, timeout_ms=1_500) is None
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(int((tmp_path / "pid").read_text()))
        ended, _, _ = select.select([handle], [], [], 10)
        os.close(handle)
        assert ended == [handle]


def test_a_git_that_prints_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it printed is not kept; the branch, asked for by itself, is told."""
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(git_module, "_MAX_OUTPUT", 10_000)
    script = """
case "$*" in
  *is-inside*) echo true ;;
  *symbolic-ref*) echo main ;;
  *get-regexp*) exit 1 ;;
  *) exec yes ;;
esac"""
    assert find_git_state(tmp_path, environ=stand_in(tmp_path / "bin", script)) == GitState("main", None, None)


def section(git: str | None = "branch main, nothing changed", date: str = "2026-10-03, UTC") -> str:
    lines = ["# Environment", "", "Platform: Linux", "Workspace: /w: x"]
    return "\n".join([*lines, *([f"Git: {git}"] if git else []), f"Date: {date}", "Model: demo/echo"])


@pytest.mark.rule("SP-1")
@pytest.mark.parametrize(
    ("now", "told", "change"),
    [
        (section(), None, None),
        (section("branch main, 1 file changed"), None, "Git: branch main, 1 file changed"),
        (section("branch b", "2026-10-04, UTC"), None, "Git: branch b\nDate: 2026-10-04, UTC"),
        (section(None), None, "Git: none"),
        # As long as the prompt is not right it is told again, whatever the turn before was told.
        (section("branch b"), f"{CHANGED}Git: branch b", "Git: branch b"),
        # Once it is right again that is told, and then nothing any more.
        (section(), f"{CHANGED}Git: branch b", "Git: branch main, nothing changed"),
        (section(), f"{CHANGED}Git: branch main, nothing changed", None),
        (section(), f"{CHANGED}Media: messages hold images", "Media: none"),
        (section(), f"{CHANGED}Media: none", None),
    ],
)
def test_a_turn_is_told_what_the_prompt_does_not_say(now: str, told: str | None, change: str | None) -> None:
    """Only the lines that differ, in the order of the prompt."""
    assert environment_change(now, section(), told) == (None if change is None else CHANGED + change)
