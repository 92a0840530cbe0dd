"""Stands between a test run and one server: ``python warden.py FOLDER UID GID QUIT``, told by lines of JSON on stdin.

When the run is gone, however it ended, its pipe closes: the server is ended and its folder removed. When the warden
itself is killed, the kernel sends QUIT to the server. It is a process and a session of its own, so that neither a key
pressed in the terminal nor a kill of the run's process group reaches it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
PATIENCE = 5.0

folder = Path(sys.argv[1])
uid, gid, quit_signal = (int(word) for word in sys.argv[2:])
parent = os.getppid()
libc = ctypes.CDLL(None)
child: subprocess.Popen[bytes] | None = None


def begin(argv: list[str]) -> subprocess.Popen[bytes]:
    def become_the_servers_user() -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        # After the change of user, which would undo it.
        if hasattr(libc, "prctl"):
            libc.prctl(PR_SET_PDEATHSIG, quit_signal)

    env = {"PATH": os.defpath, "LC_ALL": "C", "HOME": str(folder)}
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=env,
            preexec_fn=become_the_servers_user,
        )


def stop(number: int) -> int | None:
    global child
    if child is None:
        return None
    child.send_signal(number)
    if number != signal.SIGKILL:
        child.send_signal(signal.SIGCONT)
    try:
        code = child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    child = None
    return code


def obey(order: dict[str, object]) -> dict[str, object]:
    global child
    argv, number = order.get("argv"), order.get("signal")
    match order["do"]:
        case "run":
            assert isinstance(argv, list)
            return {"code": begin(argv).wait()}
        case "start":
            assert isinstance(argv, list)
            assert child is None
            child = begin(argv)
            return {"pid": child.pid}
        case "send":
            assert child is not None
            assert isinstance(number, int)
            child.send_signal(number)
            return {}
        case "stop":
            assert isinstance(number, int)
            return {"code": stop(number)}
        case "look":
            return {"code": None if child is None else child.poll()}
        case other:
            return {"error": f"no such order: {other}"}


def serve() -> None:
    told = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], 1.0)[0]:
            continue
        read = os.read(0, 65536)
        if not read:
            return
        *lines, told = (told + read).split(b"\n")
        for line in lines:
            os.write(1, json.dumps(obey(json.loads(line))).encode() + b"\n")


try:
    serve()
finally:
    stop(quit_signal)
    shutil.rmtree(folder, ignore_errors=True)
