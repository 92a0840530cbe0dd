"""A limited address space: a clear error at start, or requests that are refused; never a crash."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

import clew
from clew.errors import StoreUnavailable
from tests.integration.http_client import SocketClient, chat_body, served
from tests.integration.processes import CLEW, LINE, SSE, environment

MB = 1 << 20


def used_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


async def start(tmp_path: Path, megabytes: int, *words: str) -> asyncio.subprocess.Process:
    nothing = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *("prlimit", f"--as={megabytes * MB}", CLEW, *words),
        env=environment(tmp_path),
        cwd=tmp_path,
        stdin=nothing,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def use(client: SocketClient, number: int) -> set[int]:
    """A session with a long answer, and what a page asks of it: the statuses of all that."""
    made = await client.post("/api/sessions", {"title": f"{number}"})
    if made.status != 201:
        return {made.status}
    session = made.json()["id"]
    said = set()
    for text in ("hello " * 1_500, "again " * 1_500):
        body = chat_body(session, text, f"u{number}-{text[:5]}", model="demo/echo")
        async with client.open("POST", "/api/chat", body, headers=SSE) as reply:
            said.add(reply.status)
            await reply.read()
    for path in (f"/api/sessions/{session}/messages", "/api/sessions", "/api/search?q=hello", "/"):
        said.add((await client.get(path)).status)
    return said


@pytest.mark.service
@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [300, 400, 600, 800])
async def test_a_server_in_a_limited_address_space_works_or_says_why_not(tmp_path: Path, megabytes: int) -> None:
    """Under load it answers, or refuses with 503; it does not end with a signal."""
    process = await start(tmp_path, megabytes, "serve", "--port", "0")
    assert process.stdout is not None
    line = await process.stdout.readline()
    match = LINE.fullmatch(line)
    if match is None:
        _, err = await process.communicate()
        assert process.returncode == 7
        assert "address space" in err.decode()
        assert megabytes < 600
        return
    try:
        client = SocketClient(int(match[1]), match[2].decode())
        said: set[int] = set()
        for _ in range(2):
            said = said.union(*await asyncio.gather(*(use(client, number) for number in range(16))))
        assert said <= {200, 201, 503}
        assert 200 in said
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()
    assert process.returncode == 0


async def test_a_prompt_and_a_store_are_refused_before_memory_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a library: with the reason, and nothing is written."""
    async with served() as client:
        session = await client.session()
        limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        used = used_bytes()
        monkeypatch.setattr(resource, "getrlimit", lambda _: (used + 100 * MB, limit))
        refused = await client.prompt(session, "hello")
        assert (refused.status, refused.code) == (503, "server_busy")
        assert "address space" in refused.json()["detail"]
        with pytest.raises(StoreUnavailable, match="MB are left of the limit"):
            await client.engine.submit(session, "hello")
        with pytest.raises(StoreUnavailable, match="an engine could run out of memory"):
            async with clew.open("memory:"):
                pass
        monkeypatch.undo()
        assert await client.messages(session) == []
