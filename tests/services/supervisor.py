"""Supervises one server for a test run: ``python supervisor.py FOLDER UID GID QUIT``, with orders as lines of JSON on
stdin.

When the run ends, in any way, its pipe closes: the server is stopped and its folder removed. When the supervisor itself
is killed, the kernel sends QUIT to the server. It has its own session, so that neither a key pressed in the terminal
nor a kill of the run's process group reaches it.
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
from typing import Any

PR_SET_PDEATHSIG = 1
PATIENCE = 5.0

signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a run may block signals; a server must not
folder = Path(sys.argv[1])
uid, gid, quit_signal = (int(argument) for argument in sys.argv[2:])
parent = os.getppid()
libc = ctypes.CDLL(None)
child: subprocess.Popen[bytes] | None = None


def begin(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    def drop_privileges() -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        # After changing the user, which resets it.
        if hasattr(libc, "prctl"):
            libc.prctl(PR_SET_PDEATHSIG, quit_signal)

    env = order["env"] or {"PATH": os.defpath, "LC_ALL": "C", "HOME": str(folder)}
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            order["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=env,
            preexec_fn=drop_privileges,
        )


def stop(number: int, patience: float = PATIENCE) -> int | None:
    global child
    if child is None:
        return None
    child.send_signal(number)
    if number != signal.SIGKILL:
        child.send_signal(signal.SIGCONT)
    try:
        code = child.wait(patience)
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    child = None
    return code


def execute(order: dict[str, Any]) -> dict[str, object]:
    global child
    match order["do"]:
        case "run":
            return {"code": begin(order).wait()}
        case "start" if child is None:
            child = begin(order)
            return {"pid": child.pid}
        case "send" if child is not None:
            child.send_signal(order["signal"])
            return {}
        case "stop":
            return {"code": stop(order["signal"], order["patience"])}
        case "look":
            return {"code": None if child is None else child.poll()}
        case other:
            return {"error": f"{other} cannot be done now"}


def serve() -> None:
    rest = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], 1.0)[0]:
            continue
        read = os.read(0, 65536)
        if not read:
            return
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            os.write(1, json.dumps(execute(json.loads(line))).encode() + b"\n")


try:
    serve()
finally:
    stop(quit_signal)
    shutil.rmtree(folder, ignore_errors=True)
