"""Tools end with the host: on a graceful stop and on a kill, however deaf they are, and their daemons with them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import time
from pathlib import Path

import pytest

from clew.tools.thread import run_in_thread
from tests.integration.http_client import SocketClient
from tests.integration.processes import Server, command, serving

pytestmark = pytest.mark.service

DEAF = """
trap '' TERM HUP INT
(setsid bash -c 'trap "" TERM HUP INT; echo $$ > daemon; while :; do sleep 1; done' > /dev/null 2>&1 &)
until [ -s daemon ]; do sleep 0.02; done
echo "$$ $(cat daemon)" > gate
while :; do sleep 1; done
"""


async def deaf_tool(server: Server, folder: Path) -> list[int]:
    """Have a model start a tool that ignores every signal it can, and a daemon that does the same; their handles."""
    os.mkdir(folder)
    (folder / "deaf.sh").write_text(DEAF)
    os.mkfifo(folder / "gate")
    session_id = await server.client.session(model="demo/tools", workspace_root=str(folder))
    allow = {"permission": "bash", "pattern": "bash deaf.sh", "action": "allow"}
    await server.client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": [allow]})
    assert (await server.client.prompt(session_id, "!bash bash deaf.sh")).status == 202
    told = await asyncio.wait_for(run_in_thread(lambda: (folder / "gate").read_text()), 60)
    return [os.pidfd_open(int(pid)) for pid in told.split()]


def living(handles: list[int], seconds: float) -> int:
    """How many of them are alive when the time is over, or as soon as none is."""
    until = time.monotonic() + seconds
    left = list(handles)
    try:
        while left and time.monotonic() < until:
            ended, _, _ = select.select(left, [], [], max(0.0, until - time.monotonic()))
            left = [handle for handle in left if handle not in ended]
        return len(left)
    finally:
        for handle in left:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in handles:
            os.close(handle)


@pytest.mark.rule("PM-9")
async def test_a_tool_that_ignores_the_signal_does_not_outlive_a_graceful_stop(tmp_path: Path) -> None:
    """The server's exit waits for it, for as long as it is given to end by itself, and no more."""
    async with serving(tmp_path) as server:
        handles = await deaf_tool(server, tmp_path / "work")
        code, _, _ = await server.end(signal.SIGTERM)
        assert living(handles, 0.1) == 0
        assert code == 0


@pytest.mark.rule("PM-9")
async def test_no_tool_and_no_daemon_outlives_a_kill_of_the_server(tmp_path: Path) -> None:
    """The server could not say a word to them."""
    async with serving(tmp_path) as server:
        handles = await deaf_tool(server, tmp_path / "work")
        await server.end(signal.SIGKILL)
        assert await run_in_thread(lambda: living(handles, 10)) == 0


TRACED = """
import ctypes, os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(nothing, handle)
        with open("daemon", "w") as file:
            file.write(str(os.getpid()))
        signal.pause()
    os._exit(0)
os.wait()
while not (os.path.exists("daemon") and os.path.getsize("daemon")):
    os.sched_yield()
assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.rule("PM-9")
@pytest.mark.parametrize("owner", [False, True])
async def test_a_program_that_stops_for_a_tracer_leaves_nothing_running(owner: bool, tmp_path: Path) -> None:
    """It has made its parent, which ends what it leaves, its tracer: the stop is reported there."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "traced.py").write_text(TRACED)
    async with serving(tmp_path) as server:
        client = server.client
        if owner:
            code, token, err = await command(tmp_path, "token", "add", "ada", "--root", str(work))
            assert code == 0, err
            client = SocketClient(client.port, token.strip())
        session_id = await client.session(model="demo/tools", workspace_root=str(work))
        await client.prompt(session_id, "!bash exec python3 traced.py")
        await client.idle(session_id)
        await client.post(f"/api/sessions/{session_id}/approvals", {"decision": "once"})
        await client.idle(session_id)
        [part] = [one for one in (await client.messages(session_id))[-1]["parts"] if "toolCallId" in one]
        output = part["output"]["text"]
        # Where each command has processes of its own, the number in the file is none of the machine's.
        left = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if works_in(pid, work)]
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert left == []
    assert output == "[ended by SIGKILL; processes left in the background were ended]"


def works_in(pid: str, folder: Path) -> bool:
    """Whether a process has this current folder, also one with a file system of its own."""
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", folder)
    except OSError:
        return False
