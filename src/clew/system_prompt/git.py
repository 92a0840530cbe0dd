"""The state of a working copy, queried from git without trusting the repository.

A repository can contain settings that make git run programs: hooks, a file watcher, filters, ways to fetch missing
objects. All of these are disabled; if that is not possible (filters of the repository), git is not asked for changes.
The program is located before anything in the project is read, every call has a time limit, and its output is bounded.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clew.platform import WINDOWS
from clew.platform.processes import SIGKILL, signal_group
from clew.system_prompt.inputs import GitState

__all__ = ["find_git_state"]

_TIMEOUT_MS: Final = 2_000
_MAX_OUTPUT: Final = 1024 * 1024
_SETTINGS: Final = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "safe.bareRepository=explicit")
_ENVIRONMENT: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # A partial clone would fetch missing objects, with programs from its own settings.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "LC_ALL": "C",
}


def find_git_state(
    workspace: Path, *, environ: Mapping[str, str] = os.environ, timeout_ms: int = _TIMEOUT_MS
) -> GitState | None:
    """Return the state of the working copy that contains ``workspace``; None if there is none, or no git. Blocking."""
    # Windows has no groups of processes to end, and cannot wait for a pipe until a deadline.
    program = None if WINDOWS else shutil.which("git", path=environ.get("PATH"))
    # A relative entry in PATH could lead into the project.
    if program is None or not os.path.isabs(program):
        return None
    real = Path(os.path.realpath(workspace))
    if not any(os.path.lexists(folder / ".git") for folder in (real, *real.parents)):
        # git would find nothing, so do not start it.
        return None
    git = _Git(program, workspace, environ, timeout_ms)
    code, filters = git.run("config", "--show-scope", "--name-only", "-z", "--get-regexp", r"^filter\.")
    if code is None:
        return None
    # 1 means that there are none. Filters from the user's own settings are allowed, as with any call of git.
    has_filters = code not in (0, 1) or any(scope in (b"local", b"worktree") for scope in filters.split(b"\0")[::2])
    return (None if has_filters else _query_status(git)) or _query_branch(git)


def _query_branch(git: _Git) -> GitState | None:
    """Return the state without changes, if they could not be determined."""
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
    """Runs git in one folder with everything disabled that the repository could use."""

    def __init__(self, program: str, workspace: Path, environ: Mapping[str, str], timeout_ms: int) -> None:
        settings = [piece for setting in _SETTINGS for piece in ("-c", setting)]
        self._command = [program, "--no-pager", "-C", str(workspace), *settings]
        self._environ = {name: value for name, value in environ.items() if not name.startswith("GIT_")} | _ENVIRONMENT
        self._timeout = timeout_ms / 1000.0

    def run(self, *arguments: str) -> tuple[int | None, bytes]:
        """Return the exit code, None if git did not finish, and its output."""
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
            output = self._read_output(process)
            if output is None:
                # It may have children. The group is its own and still exists, because it was not waited for yet.
                with contextlib.suppress(OSError):
                    signal_group(process.pid, SIGKILL)
        return (None, b"") if output is None else (process.returncode, output)

    def _read_output(self, process: subprocess.Popen[bytes]) -> bytes | None:
        """Return the output of a process; None if it takes too long or prints too much."""
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
    """Wait for a process that has closed its output. Uses a pidfd if available: Python only polls."""
    if sys.platform == "linux":
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


def _query_status(git: _Git) -> GitState | None:
    """Return the full state in one call: the branch or commit, and the number of changed files, untracked ones
    included."""
    flags = ("--porcelain=v2", "--branch", "--no-ahead-behind", "-z", "--no-renames")
    code, output = git.run("status", *flags, "--untracked-files=normal", "--ignore-submodules=all")
    lines = output.split(b"\0")[:-1]
    headers = dict(line.removeprefix(b"# ").split(b" ", 1) for line in lines if line.startswith(b"# branch."))
    if code != 0 or b"branch.head" not in headers:
        return None
    changes = sum(not line.startswith(b"# ") for line in lines)
    if headers[b"branch.head"] != b"(detached)":
        return GitState(headers[b"branch.head"].decode("utf-8", "replace"), None, changes)
    return GitState(None, headers[b"branch.oid"][:12].decode("ascii", "replace"), changes)
