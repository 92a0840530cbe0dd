"""A fork server: one process imports clew, and children are forked from it with all modules loaded.

Imports take most of the time of a short process. ``Forked("tests.rig.streamer", orders)`` is ``python -m`` without
them. The server has no threads, unlike a test process; it ends with the process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from clew.failpoints import arm

__all__ = ["Child", "Forked", "fork", "run_forked"]

_CHECKOUT: Final = Path(__file__).parents[2]
_LOADED: Final = (
    *("tests.rig.streamer", "tests.rig.history_child", "tests.rig.run_child"),
    *("clew.compose", "clew.providers.demo", "clew.store.files", "clew.store.sql.sqlite.opening", "clew.tools.builtin"),
    *("clew.fronts.cli.app", "clew.fronts.cli.chat", "clew.fronts.http.serve"),
    *("clew.providers.pydantic_ai.provider", "pydantic_ai.models.openai", "pydantic_ai.providers.openai"),
)


class _Order(msgspec.Struct):
    module: str
    arguments: list[str]
    env: dict[str, str]
    folder: str


class Child:
    """A child by its pid and the descriptor at which its exit code arrives, as :func:`fork` returns them."""

    def __init__(self, pid: int, end: int) -> None:
        self.pid, self._end = pid, end
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self.wait() if self.returncode is not None or select.select([self._end], [], [], 0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise TimeoutError(f"process {self.pid} still runs")
            with os.fdopen(self._end, "rb") as end:
                self.returncode = int(end.read() or b"70")  # no exit code: the fork server is gone
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forked(Child):
    """A child with pipes, in a session of its own; ``python -m`` without the imports."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        env: Mapping[str, str],
        errors: IO[bytes],
        folder: Path | None = None,
    ) -> None:
        child_in, stdin = os.pipe()
        stdout, child_out = os.pipe()
        try:
            files = (child_in, child_out, errors.fileno())
            super().__init__(*fork(module, *arguments, env=env, folder=folder or Path.cwd(), files=files))
        finally:
            for descriptor in (child_in, child_out):
                os.close(descriptor)
        self.stdin = os.fdopen(stdin, "wb", 0)
        self.stdout = os.fdopen(stdout, "rb", 0)


def fork(
    module: str, *arguments: str, env: Mapping[str, str], folder: Path, files: tuple[int, int, int]
) -> tuple[int, int]:
    """Start a child with these standard files, in a session of its own; return its pid and the descriptor at which its
    exit code arrives. A terminal as standard input becomes its controlling one.
    """
    end, child_end = os.pipe()
    order = msgspec.json.encode(_Order(module, list(arguments), dict(env), str(folder)))
    try:
        return _ask(order, [*files, child_end]), end
    except BaseException:
        os.close(end)
        raise
    finally:
        os.close(child_end)


def run_forked(
    module: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    typed: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Run a child to its end, with this as its standard input."""
    with tempfile.TemporaryFile() as errors:
        child = Forked(module, *arguments, env=os.environ if env is None else env, errors=errors, folder=folder)
        with child.stdin, contextlib.suppress(BrokenPipeError):
            child.stdin.write(typed)
        with child.stdout as pipe:
            output = pipe.read()
        code = child.wait()
        errors.seek(0)
        return subprocess.CompletedProcess([module, *arguments], code, output, errors.read())


@functools.cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": str(_CHECKOUT), "CLEW_FAILPOINTS": ""}
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.rig.fork_server", str(theirs.fileno())],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


def _ask(order: bytes, descriptors: list[int]) -> int:
    server = _server()
    socket.send_fds(server, [order], descriptors)
    return int(server.recv(16))


# In the fork server


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    for name in _LOADED:
        importlib.import_module(name)
    gc.freeze()
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    ends: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([orders, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _reap(ends)
        if orders in ready:
            data, descriptors, _, _ = socket.recv_fds(orders, 1 << 20, 4)
            if not data:
                return
            pid = os.fork()
            if pid == 0:
                _become(msgspec.json.decode(data, type=_Order), descriptors)
            *theirs, ends[pid] = descriptors
            for descriptor in theirs:
                os.close(descriptor)
            orders.send(str(pid).encode())


def _reap(ends: dict[int, int]) -> None:
    """Report the exit code of each child that has ended."""
    for pid, descriptor in [*ends.items()]:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            # The test process may have ended too.
            with contextlib.suppress(BrokenPipeError):
                os.write(descriptor, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(ends.pop(pid))


def _become(order: _Order, descriptors: list[int]) -> None:
    """Run the order in the child; never return to the server's code."""
    code: Any = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for theirs, ours in enumerate(descriptors[:3]):
            os.dup2(ours, theirs)
        os.closerange(3, 256)
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # What they know of their files is no longer true.
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(order.folder)
        os.environ.clear()
        os.environ.update(order.env)
        arm(order.env.get("CLEW_FAILPOINTS", ""))
        sys.argv[:] = [order.module, *order.arguments]
        code = importlib.import_module(order.module).main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    main()
