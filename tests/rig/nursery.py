"""Children with everything loaded from their first moment on: one process reads clew, each child is forked from it.

Most of a short life is the reading of modules. ``Forked("tests.rig.streamer", orders)`` is ``python -m`` without that.
The process that forks has no threads, as whoever tests has; it ends with whoever started it.
"""

from __future__ import annotations

import atexit
import contextlib
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
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from clew.failpoints import arm

__all__ = ["Forked", "run_forked"]

_CHECKOUT: Final = Path(__file__).parents[2]
_LOADED: Final = (
    *("tests.rig.streamer", "tests.rig.history_child", "tests.rig.run_child"),
    *("clew.compose", "clew.providers.demo", "clew.store.files", "clew.store.sql.sqlite.opening", "clew.tools.builtin"),
)


class _Order(msgspec.Struct):
    module: str
    words: list[str]
    env: dict[str, str]
    folder: str


class Forked:
    """As much of :class:`subprocess.Popen` as children are used by; in a session of its own."""

    def __init__(self, module: str, *words: str, env: Mapping[str, str], errors: IO[bytes]) -> None:
        child_in, stdin = os.pipe()
        stdout, child_out = os.pipe()
        self._end, child_end = os.pipe()
        order = msgspec.json.encode(_Order(module, list(words), dict(env), str(Path.cwd())))
        try:
            self.pid = _ask(order, [child_in, child_out, errors.fileno(), child_end])
        finally:
            for descriptor in (child_in, child_out, child_end):
                os.close(descriptor)
        self.stdin = os.fdopen(stdin, "wb", 0)
        self.stdout = os.fdopen(stdout, "rb", 0)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        return self.wait() if self.returncode is not None or select.select([self._end], [], [], 0)[0] else None

    def wait(self) -> int:
        if self.returncode is None:
            with os.fdopen(self._end, "rb") as end:
                self.returncode = int(end.read() or b"70")  # without a word: who forks is gone
        return self.returncode


def run_forked(module: str, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Have a child do it, to its end."""
    with tempfile.TemporaryFile() as errors:
        child = Forked(module, *words, env=os.environ if env is None else env, errors=errors)
        child.stdin.close()
        with child.stdout as pipe:
            said = pipe.read()
        code = child.wait()
        errors.seek(0)
        return subprocess.CompletedProcess([module, *words], code, said, errors.read())


@functools.cache
def _nursery() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": str(_CHECKOUT), "CLEW_FAILPOINTS": ""}
    with theirs:
        nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.rig.nursery", str(theirs.fileno())],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(nursery.wait)
    atexit.register(ours.close)
    return ours


def _ask(order: bytes, descriptors: list[int]) -> int:
    nursery = _nursery()
    socket.send_fds(nursery, [order], descriptors)
    return int(nursery.recv(16))


# In the nursery


def main() -> None:
    asked = socket.socket(fileno=int(sys.argv[1]))
    for name in _LOADED:
        importlib.import_module(name)
    gc.freeze()
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    ends: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asked, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _bury(ends)
        if asked in ready:
            data, descriptors, _, _ = socket.recv_fds(asked, 1 << 20, 4)
            if not data:
                return
            pid = os.fork()
            if pid == 0:
                _become(msgspec.json.decode(data, type=_Order), descriptors)
            *theirs, ends[pid] = descriptors
            for descriptor in theirs:
                os.close(descriptor)
            asked.send(str(pid).encode())


def _bury(ends: dict[int, int]) -> None:
    """Tell of each child that has ended how it did."""
    for pid, descriptor in [*ends.items()]:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            # Whoever asked for it may be gone too.
            with contextlib.suppress(BrokenPipeError):
                os.write(descriptor, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(ends.pop(pid))


def _become(order: _Order, descriptors: list[int]) -> None:
    """In the child: what was ordered, and never anything of what called this."""
    code: Any = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for theirs, ours in enumerate(descriptors[:3]):
            os.dup2(ours, theirs)
        os.closerange(3, 256)
        os.chdir(order.folder)
        os.environ.clear()
        os.environ.update(order.env)
        arm(order.env.get("CLEW_FAILPOINTS", ""))
        sys.argv[:] = [order.module, *order.words]
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
