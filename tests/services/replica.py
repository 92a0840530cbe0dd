"""``clew serve`` as a process of a cluster, on a fixed port, which ends with the process that started it."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.program import Program

__all__ = ["CLEW", "Replica", "own_environment"]

CLEW = str(Path(sys.executable).with_name("clew"))
PATIENCE = 60.0
_LINE = re.compile(rb"^clew (http://\S+?)/#token=\S+$", re.MULTILINE)


class Replica:
    """A replica that can be started, paused, killed and restarted at the same address."""

    def __init__(self, env: Mapping[str, str], port: int = 0, command: Sequence[str] = (CLEW,)) -> None:
        self._command = command
        self._program = Program("replica", signal.SIGKILL, {**env, "PYTHONUNBUFFERED": "1"})
        self.port = port or _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        return self._program.pid

    @property
    def folder(self) -> Path:
        return self._program.folder

    def begin(self, **env: str) -> None:
        """Start it without waiting; ``env`` also applies to later starts."""
        self._program.change(**env)
        self._log_start = self._program.log_size()
        self._program.start(*self._command, "serve", "--port", str(self.port))

    def until_up(self) -> None:
        give_up = time.monotonic() + PATIENCE
        while not self.is_up():
            self._program.check()
            if time.monotonic() > give_up:
                raise RuntimeError(f"clew serve did not come up\n{self.log()}")
            time.sleep(0.01)

    def is_up(self) -> bool:
        """Return whether it has printed its address since it was started."""
        with open(self.folder / "log", "rb") as log:
            log.seek(self._log_start)
            return _LINE.search(log.read()) is not None

    def start(self, **env: str) -> None:
        self.begin(**env)
        self.until_up()

    def pause(self) -> None:
        """Freeze the process."""
        self._program.send(signal.SIGSTOP)

    def resume(self) -> None:
        self._program.send(signal.SIGCONT)

    def kill(self) -> None:
        self._program.stop(signal.SIGKILL)

    def end(self, patience: float = PATIENCE) -> int | None:
        """Stop it gracefully, as a rolling restart does, and return the exit code."""
        return self._program.stop(signal.SIGTERM, patience)

    def log(self) -> str:
        return self._program.log()

    def close(self) -> None:
        self._program.close()


def _free_port() -> int:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def own_environment(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment with its own home and without API keys."""
    names = ("PATH", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "LANG")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    homes = {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_DATA_HOME": f"{folder}/data", "HOME": str(folder)}
    return {**inherited, **homes, **more}
