"""Runs a server as a process that ends with the process that started it, in a temporary folder."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

__all__ = ["NoService", "Program", "installed"]

SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
# The path of a socket has at most 107 bytes, and PostgreSQL's file name takes 15 of them.
MAX_PATH_CHARS = 80
ACCOUNTS = ("nobody", "postgres", "daemon")


class NoService(Exception):
    """A server cannot be started on this machine; the message says why."""


def _account() -> tuple[int, int]:
    """Return the user and group to run as: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise NoService(f"as root a server needs another user to run as: none of {', '.join(ACCOUNTS)} exists")


def _reachable(path: Path) -> bool:
    """Return whether the server's user can reach the path. As root, permissions of closed folders stay as they are."""
    return os.getuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def _make_folder(name: str) -> Path:
    for parent in (tempfile.gettempdir(), "/dev/shm", "/tmp"):
        if (
            os.access(parent, os.W_OK | os.X_OK)
            and len(parent) < MAX_PATH_CHARS - 20
            and _reachable(Path(parent).resolve())
        ):
            return Path(tempfile.mkdtemp(prefix=f"clew-{name}-", dir=parent))
    raise NoService("no temporary folder that another user can reach, with a path short enough for a socket")


class Program:
    """A server that can be started, signalled, stopped and restarted in the same ``folder``.

    As root it runs as an unprivileged user with a minimal environment; with ``env`` it runs as the current user.
    """

    def __init__(self, name: str, quit_signal: signal.Signals, env: Mapping[str, str] | None = None) -> None:
        uid, gid = _account() if env is None else (os.getuid(), os.getgid())
        self._env = None if env is None else dict(env)
        self.folder = _make_folder(name)
        if os.getuid() == 0:
            os.chown(self.folder, uid, gid)
        self.pid: int | None = None
        self._lock = threading.Lock()
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", SUPERVISOR, str(self.folder), str(uid), str(gid), str(int(quit_signal))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.supervisor = self._supervisor.pid

    def _order(self, **order: Any) -> dict[str, Any]:
        with self._lock:
            assert self._supervisor.stdin is not None
            assert self._supervisor.stdout is not None
            self._supervisor.stdin.write(json.dumps(order).encode() + b"\n")
            self._supervisor.stdin.flush()
            answer: dict[str, Any] = json.loads(
                self._supervisor.stdout.readline() or b'{"error": "the supervisor is gone"}'
            )
        if "error" in answer:
            raise RuntimeError(f"{answer['error']}\n{self.log()}")
        return answer

    def run(self, *argv: str) -> None:
        """Run a program of the server to its end."""
        if code := self._order(do="run", argv=argv, env=self._env)["code"]:
            raise RuntimeError(f"{argv[0]} ended with {code}\n{self.log()}")

    def change(self, **env: str) -> None:
        """Change the environment of the next start."""
        self._env = {**(self._env or {}), **env} if env else self._env

    def start(self, *argv: str) -> None:
        self.pid = self._order(do="start", argv=argv, env=self._env)["pid"]

    def send(self, number: signal.Signals) -> None:
        self._order(do="send", signal=int(number))

    def stop(self, number: signal.Signals, patience: float = 5.0) -> int | None:
        """Send the signal, SIGKILL it if it does not exit in time, and return the exit code."""
        code: int | None = self._order(do="stop", signal=int(number), patience=patience)["code"]
        self.pid = None
        return code

    def check(self) -> None:
        """Raise an error with the log if the server has exited."""
        if (code := self._order(do="look")["code"]) is not None:
            raise RuntimeError(f"the server ended with {code}\n{self.log()}")

    def log(self) -> str:
        try:
            return (self.folder / "log").read_text(errors="replace")[-4000:]
        except FileNotFoundError:
            return ""

    def log_size(self) -> int:
        return (self.folder / "log").stat().st_size if (self.folder / "log").exists() else 0

    def close(self) -> None:
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._supervisor.stdin.close()
        self._supervisor.wait()
        self._supervisor.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def installed(program: Program, path: Path) -> Path:
    """Return the folder of programs if the server's user can reach it, else a copy next to the server's data."""
    if _reachable(path.resolve()):
        return path.resolve()
    copy = program.folder / "installed"
    if not copy.exists():
        shutil.copytree(path, copy, symlinks=True)
    return copy
