"""Where a working copy stands, asked of git without letting the repository have a say.

A repository can bring settings that make git run programs: hooks, a file watcher, filters, ways to fetch what is
missing. All of these are turned off; where that cannot be done (filters of the repository's own), git is not asked
for changes. The program is found before anything of the project is looked at, every call has a time limit, and
what it prints is bounded.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clew.system_prompt.inputs import GitState

__all__ = ["find_git_state"]

_TIMEOUT_MS: Final = 2_000
_MAX_OUTPUT: Final = 1024 * 1024
_SETTINGS: Final = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "safe.bareRepository=explicit")
_ENVIRONMENT: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # A partial clone would fetch what it lacks, with programs that its own settings name.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "LC_ALL": "C",
}


def find_git_state(
    workspace: Path, *, environ: Mapping[str, str] = os.environ, timeout_ms: int = _TIMEOUT_MS
) -> GitState | None:
    """The state of the working copy ``workspace`` lies in; None without one, or without git. Blocking."""
    program = shutil.which("git", path=environ.get("PATH"))
    # A relative entry in PATH could lead into the project.
    if program is None or not os.path.isabs(program):
        return None
    real = Path(os.path.realpath(workspace))
    if not any(os.path.lexists(folder / ".git") for folder in (real, *real.parents)):
        # Where git would find nothing it need not be started.
        return None
    git = _Git(program, workspace, environ, timeout_ms)
    code, filters = git.run("config", "--show-scope", "--name-only", "-z", "--get-regexp", r"^filter\.")
    if code is None:
        return None
    # 1 means that there are none. A filter of the user's own is the user's choice, as with any call of git.
    own = code not in (0, 1) or any(scope in (b"local", b"worktree") for scope in filters.split(b"\0")[::2])
    return (None if own else _ask_status(git)) or _ask_branch(git)


def _ask_branch(git: _Git) -> GitState | None:
    """The state without the changes, where it could not be had with them."""
    code, inside = git.run("rev-parse", "--is-inside-work-tree")
    if code != 0 or inside.strip() != b"true":
        return None
    code, output = git.run("symbolic-ref", "--quiet", "--short", "HEAD")
    branch = output.decode("utf-8", "replace").strip() if code == 0 else None
    commit = None
    if branch is None:
        code, output = git.run("rev-parse", "--short=12", "HEAD")
        commit = output.decode("ascii", "replace").strip() if code == 0 else None
    return GitState(branch or None, commit or None, None)


class _Git:
    """Calls git in one folder, each time with everything turned off that the repository could use."""

    def __init__(self, program: str, workspace: Path, environ: Mapping[str, str], timeout_ms: int) -> None:
        settings = [piece for setting in _SETTINGS for piece in ("-c", setting)]
        self._command = [program, "--no-pager", "-C", str(workspace), *settings]
        self._environ = {name: value for name, value in environ.items() if not name.startswith("GIT_")} | _ENVIRONMENT
        self._timeout = timeout_ms / 1000.0

    def run(self, *arguments: str) -> tuple[int | None, bytes]:
        """The exit code, None when git did not come to an end, and what it printed."""
        try:
            process = subprocess.Popen(
                [*self._command, *arguments],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError):
            return None, b""
        with process:
            output = self._output_of(process)
            if output is None:
                # It may have started others. The group is ours alone, and still there: nobody waited for it yet.
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
        return (None, b"") if output is None else (process.returncode, output)

    def _output_of(self, process: subprocess.Popen[bytes]) -> bytes | None:
        """What a process prints until it ends; None when it takes too long or prints too much."""
        assert process.stdout is not None
        end = time.monotonic() + self._timeout
        output = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while len(output) <= _MAX_OUTPUT and selector.select(max(end - time.monotonic(), 0)):
                piece = os.read(process.stdout.fileno(), 64 * 1024)
                if not piece:
                    return output if _has_ended(process, end) else None
                output += piece
        return None


def _has_ended(process: subprocess.Popen[bytes], end: float) -> bool:
    """Wait for a process that prints no more. Told by the system where that can: Python looks now and then."""
    with contextlib.suppress(OSError, AttributeError):
        ended = os.pidfd_open(process.pid)
        try:
            select.select([ended], [], [], max(end - time.monotonic(), 0))
        finally:
            os.close(ended)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(end - time.monotonic(), 0))
        return True
    return False


def _ask_status(git: _Git) -> GitState | None:
    """All of it in one call: the branch or the commit, and how many files differ from that, new ones included."""
    flags = ("--porcelain=v2", "--branch", "--no-ahead-behind", "-z", "--no-renames")
    code, output = git.run("status", *flags, "--untracked-files=normal", "--ignore-submodules=all")
    lines = output.split(b"\0")[:-1]
    told = dict(line.removeprefix(b"# ").split(b" ", 1) for line in lines if line.startswith(b"# branch."))
    if code != 0 or b"branch.head" not in told:
        return None
    changes = sum(not line.startswith(b"# ") for line in lines)
    if told[b"branch.head"] != b"(detached)":
        return GitState(told[b"branch.head"].decode("utf-8", "replace"), None, changes)
    return GitState(None, told[b"branch.oid"][:12].decode("ascii", "replace"), changes)
