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
from typing import Any

PR_SET_PDEATHSIG = 1
PATIENCE = 5.0

signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a run may hold signals back; a server must not
folder = Path(sys.argv[1])
uid, gid, quit_signal = (int(word) for word in sys.argv[2:])
parent = os.getppid()
libc = ctypes.CDLL(None)
child: subprocess.Popen[bytes] | None = None


def begin(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    def become_the_servers_user() -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        # After the change of user, which would undo it.
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
            preexec_fn=become_the_servers_user,
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


def obey(order: dict[str, Any]) -> dict[str, object]:
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
