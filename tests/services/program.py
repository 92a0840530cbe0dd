"""A server out of a wheel as a process that ends with whoever started it, in a folder that goes with it."""

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

WARDEN = str(Path(__file__).with_name("warden.py"))
# A path of a socket has 107 bytes at most, and PostgreSQL's takes 15 of them.
LONGEST = 80


class NoService(Exception):
    """A server cannot be started on this machine; says why."""


def _account() -> tuple[int, int]:
    """PostgreSQL refuses to be root, and no server of a test needs to be."""
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    for name in ("nobody", "postgres", "daemon"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise NoService("as root a server needs another user to run as: none of nobody, postgres, daemon exists")


def _reachable(place: Path) -> bool:
    """Whether the server's user gets there. As root we do not open folders that somebody closed."""
    return os.getuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in (place, *place.parents))


def _room(name: str) -> Path:
    for place in (tempfile.gettempdir(), "/dev/shm", "/tmp"):
        if os.access(place, os.W_OK | os.X_OK) and len(place) < LONGEST - 20 and _reachable(Path(place).resolve()):
            return Path(tempfile.mkdtemp(prefix=f"clew-{name}-", dir=place))
    raise NoService("no temporary folder that another user can reach, with a path short enough for a socket")


class Program:
    """One server: started, signalled, stopped and started again in the same ``folder``.

    It is nobody's where we are root, with an environment of almost nothing; with ``env`` it is ours.
    """

    def __init__(self, name: str, quit_signal: signal.Signals, env: Mapping[str, str] | None = None) -> None:
        uid, gid = _account() if env is None else (os.getuid(), os.getgid())
        self._env = None if env is None else dict(env)
        self.folder = _room(name)
        if os.getuid() == 0:
            os.chown(self.folder, uid, gid)
        self.pid: int | None = None
        self._one_at_a_time = threading.Lock()
        self._warden = subprocess.Popen(
            [sys.executable, "-I", "-S", WARDEN, str(self.folder), str(uid), str(gid), str(int(quit_signal))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.warden = self._warden.pid

    def _order(self, **order: Any) -> dict[str, Any]:
        with self._one_at_a_time:
            assert self._warden.stdin is not None
            assert self._warden.stdout is not None
            self._warden.stdin.write(json.dumps(order).encode() + b"\n")
            self._warden.stdin.flush()
            answer: dict[str, Any] = json.loads(self._warden.stdout.readline() or b'{"error": "the warden is gone"}')
        if "error" in answer:
            raise RuntimeError(f"{answer['error']}\n{self.log()}")
        return answer

    def run(self, *argv: str) -> None:
        """A program of the server's that ends by itself."""
        if code := self._order(do="run", argv=argv, env=self._env)["code"]:
            raise RuntimeError(f"{argv[0]} ended with {code}\n{self.log()}")

    def change(self, **env: str) -> None:
        """What it is started with the next time differs in this."""
        self._env = {**(self._env or {}), **env} if env else self._env

    def start(self, *argv: str) -> None:
        self.pid = self._order(do="start", argv=argv, env=self._env)["pid"]

    def send(self, number: signal.Signals) -> None:
        self._order(do="send", signal=int(number))

    def stop(self, number: signal.Signals, patience: float = 5.0) -> int | None:
        """Send the signal and wait for the end, SIGKILL where it does not come; the exit code."""
        code: int | None = self._order(do="stop", signal=int(number), patience=patience)["code"]
        self.pid = None
        return code

    def check(self) -> None:
        """Raise what the server wrote where it has ended by itself."""
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
        assert self._warden.stdin is not None
        assert self._warden.stdout is not None
        self._warden.stdin.close()
        self._warden.wait()
        self._warden.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def installed(program: Program, place: Path) -> Path:
    """A folder of programs where the server's user can get at it: itself, or a copy beside the server's data."""
    if _reachable(place.resolve()):
        return place.resolve()
    copy = program.folder / "installed"
    if not copy.exists():
        shutil.copytree(place, copy, symlinks=True)
    return copy
