"""Where a working copy stands, asked of git without letting the repository have a say.

A repository can bring settings that make git run programs: hooks, a file watcher, filters, ways to fetch what is
missing. All of these are turned off; where that cannot be done (filters of the repository's own), git is not asked
for changes. The program is found before anything of the project is looked at, every call has a time limit, and
what it prints is bounded.
"""

from __future__ import annotations

import contextlib
import os
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
    git = _Git(program, workspace, environ, timeout_ms)
    code, inside = git.run("rev-parse", "--is-inside-work-tree")
    if code != 0 or inside.strip() != b"true":
        return None
    code, output = git.run("symbolic-ref", "--quiet", "--short", "HEAD")
    branch = output.decode("utf-8", "replace").strip() if code == 0 else None
    commit = None
    if branch is None:
        code, output = git.run("rev-parse", "--short=12", "HEAD")
        commit = output.decode("ascii", "replace").strip() if code == 0 else None
    return GitState(branch or None, commit or None, _count_changes(git))


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
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(max(end - time.monotonic(), 0))
                        return output
                    break
                output += piece
        return None


def _count_changes(git: _Git) -> int | None:
    """Files that differ from the last commit, new ones included; None when git could not be asked safely."""
    code, filters = git.run("config", "--show-scope", "--name-only", "-z", "--get-regexp", r"^filter\.")
    # 1 means that there are none. A filter of the user's own is the user's choice, as with any call of git.
    if code not in (0, 1) or any(scope in (b"local", b"worktree") for scope in filters.split(b"\0")[::2]):
        return None
    flags = ("--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all")
    code, output = git.run("status", *flags)
    return output.count(b"\0") if code == 0 else None
