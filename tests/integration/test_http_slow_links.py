"""Honest clients on slow links: what comes or goes slowly, and steadily, arrives whole."""

from __future__ import annotations

import asyncio
import json
import socket

from clew.fronts.web import Page, PageFile
from clew.testing.scribe import Scribe
from tests.integration.test_http_peers import AUTH, hosting


async def read_slowly(port: int, path: str, *, seconds: float, known: bool = True) -> int:
    """How many bytes of an answer arrive at one who takes a little of it again and again, and then the rest."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{AUTH if known else ''}\r\n"
        await loop.sock_sendall(client, head.encode())
        size, slow_until = 0, loop.time() + seconds
        while piece := await loop.sock_recv(client, 4096 if loop.time() < slow_until else 1 << 20):
            size += len(piece)
            if loop.time() < slow_until:
                await asyncio.sleep(0.02)
        return size


async def test_an_answer_on_its_way_is_not_cut_off_as_if_the_connection_were_idle() -> None:
    """All of it was said, and the client takes it as fast as it can: only then it is the client's turn."""
    async with hosting(idle_s=0.2) as host:
        scribe = await Scribe.create(host.engine.store)
        await scribe.prompt("x" * 12_000_000)
        assert await read_slowly(host.port, f"/api/sessions/{scribe.session_id}/messages", seconds=0.6) > 12_000_000


async def test_a_stranger_that_takes_a_file_of_the_page_slowly_gets_all_of_it() -> None:
    """Slow is not deaf, whatever the system has put aside for it."""
    big = PageFile(b"x" * 12_000_000, "text/plain", {"etag": "x"})
    async with hosting(Page(big, {}), head_s=0.2, idle_s=0.2) as host:
        assert await read_slowly(host.port, "/", seconds=0.6, known=False) > 12_000_000


async def test_a_body_that_keeps_its_pace_is_taken_however_long_it_takes() -> None:
    """A large attachment over a slow link, by somebody who has the token: the end moves on as it comes."""
    body = json.dumps({"metadata": {"note": "x" * 20_000}})
    async with hosting(body_s=0.2, body_rate=20_000) as host:
        peer = await host.peer(f"POST /api/sessions HTTP/1.1\r\nHOST\r\n{AUTH}content-length: {len(body)}\r\n\r\n")
        for at in range(0, len(body), 2_000):
            peer.say(body[at : at + 2_000])
            await asyncio.sleep(0.04)
        assert (await peer.answer())[0] == 201
