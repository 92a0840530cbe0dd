"""A flood of connections without a token against a real server: authenticated requests are answered."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.processes import serving_logging_to

CONNECTIONS = 2_000
REQUESTS = 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["silent", "half head", "half body", "events"])
async def test_authenticated_requests_are_answered_beside_2000_connections_without_a_token(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Each request comes on a connection of its own, as that of a client that has just started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} descriptors, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    held: list[socket.socket] = []
    loop = asyncio.get_running_loop()
    try:
        async with serving_logging_to(asyncio.subprocess.DEVNULL, tmp_path) as server:
            client = server.client
            host = f"host: 127.0.0.1:{client.port}\r\n"
            first = {
                "silent": "",
                "half head": f"GET /api/health HTTP/1.1\r\n{host}x-half: ",
                "half body": f"POST /api/hooks/door HTTP/1.1\r\n{host}content-length: 1000\r\n\r\nx",
                "events": f"GET /api/events HTTP/1.1\r\n{host}accept: text/event-stream\r\n\r\n",
            }[kind].encode()
            for _ in range(CONNECTIONS):
                held.append(socket.socket())
                held[-1].setblocking(False)
                await loop.sock_connect(held[-1], ("127.0.0.1", client.port))
                await loop.sock_sendall(held[-1], first)
            statuses: list[int] = []
            seconds: list[float] = []
            for _ in range(REQUESTS):
                began = time.monotonic()
                async with asyncio.timeout(30):
                    statuses.append((await client.get("/api/sessions")).status)
                seconds.append(time.monotonic() - began)
            assert statuses == [200] * REQUESTS
            seconds.sort()
            figure = f"{kind}: p50 {seconds[REQUESTS // 2] * 1000:.0f} ms, p99 {seconds[-2] * 1000:.0f} ms"
            record_property("figure", figure)
    finally:
        for one in held:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
