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
from tests.integration.processes import Server, serving

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
