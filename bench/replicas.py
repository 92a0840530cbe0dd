"""REPLICAS: three replicas against one on the same machine, and the delay of a chunk at a viewer of another replica."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bench.measure import Bench, Line, percentile, ratios
from tests.integration.http_client import SocketClient
from tests.services.postgres import Postgres
from tests.services.program import NoService
from tests.services.replica import Replica, own_environment
from tests.services.valkey import Valkey

__all__ = ["measure"]

_FAST = {"provider_id": "demo", "model_id": "long"}
_SLOW = {**_FAST, "variant": "slow"}


async def measure(bench: Bench) -> list[Line]:
    """Measure; if no server can be started, print the reason to stderr and return nothing."""
    try:
        postgres = await asyncio.to_thread(Postgres)
    except NoService as missing:
        print(f"REPLICAS is skipped: {missing}", file=sys.stderr)
        return []
    try:
        valkey = await asyncio.to_thread(Valkey)
        try:
            lives = {"Valkey": valkey.url(), "PostgreSQL alone": "postgres"}
            return [*await _speed(bench, postgres, valkey.url()), *await _elsewhere(bench, postgres, lives)]
        finally:
            valkey.close()
    finally:
        await asyncio.to_thread(postgres.close)


@contextlib.asynccontextmanager
async def _serving(folder: Path, store: str, live: str, count: int) -> AsyncIterator[list[SocketClient]]:
    token = secrets.token_urlsafe(16)
    env = own_environment(folder, CLEW_STORE=store, CLEW_LIVE=live, CLEW_TOKEN=token)

    def started() -> Iterator[Replica]:
        for _ in range(count):
            replica = Replica(env)
            cleanup.callback(replica.close)
            replica.start()
            yield replica

    with contextlib.ExitStack() as cleanup:
        replicas = await asyncio.to_thread(lambda: list(started()))
        yield [SocketClient(replica.port, token) for replica in replicas]


async def _speed(bench: Bench, postgres: Postgres, live: str) -> list[Line]:
    """Stream all sessions at once, as fast as possible, each to the client that sent its prompt."""
    sessions, words = bench.size(60, 12), bench.size(200, 60)
    rates: dict[int, list[float]] = {1: [], 3: []}
    waits: dict[int, list[float]] = {1: [], 3: []}
    for _ in range(bench.size(2, 1)):
        for count in rates:
            async with _serving(bench.folder, postgres.url(postgres.create()), live, count) as clients:
                ids = [await clients[n % count].session() for n in range(sessions)]
                sent_at = time.perf_counter()
                first = await asyncio.gather(
                    *(_talk(clients[n % count], id_, words) for n, id_ in enumerate(ids)),
                )
                rates[count].append(sessions * words / (time.perf_counter() - sent_at))
                waits[count].append(percentile([at - sent_at for at in first], 0.5) * 1000)
    what = f"{sessions} sessions of {words} words at once, three replicas (raw: one)"
    return [
        Line("REPLICAS", what, "chunks/s", rates[1], rates[3], ratios(rates[3], rates[1])),
        Line("REPLICAS", f"{what}, first chunk, p50", "ms", waits[1], waits[3], ratios(waits[3], waits[1])),
    ]


async def _talk(client: SocketClient, session_id: str, words: int) -> float:
    """Return when the first chunk of the answer arrived."""
    body = {
        "id": session_id,
        "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": f"{words} words"}]}],
        "model": _FAST,
    }
    first = 0.0
    async with client.open("POST", "/api/chat", body) as reply:
        async for frame in reply.frames():
            if not first and frame != "[DONE]" and frame["type"] == "reasoning-delta":
                first = time.perf_counter()
    return first


async def _elsewhere(bench: Bench, postgres: Postgres, lives: dict[str, str]) -> list[Line]:
    """Measure how far a viewer at another replica is behind one at the replica that runs the stream."""
    words = bench.size(300, 60)
    lines = []
    for name, live in lives.items():
        medians: list[float] = []
        tails: list[float] = []
        for _ in range(bench.size(2, 1)):
            store = postgres.url(postgres.create())
            async with _serving(bench.folder, store, live, 2) as (here, there):
                id_ = await here.session()
                answer = await here.prompt(id_, f"{words} words", model=_SLOW)
                assert answer.status == 202, answer
                ours, theirs = await asyncio.gather(_watch(here, id_), _watch(there, id_))
                late = [1000 * (theirs[size] - ours[size]) for size in sorted(ours.keys() & theirs.keys())]
                medians.append(percentile(late, 0.5))
                tails.append(percentile(late, 0.99))
        what = f"a chunk at a viewer of another replica, after one of its own, {name}"
        lines += [
            Line("REPLICAS", f"{what}, p50", "ms", (), medians),
            Line("REPLICAS", f"{what}, p99", "ms", (), tails),
        ]
    return lines


async def _watch(client: SocketClient, session_id: str) -> dict[int, float]:
    """Return when each number of characters had arrived."""
    seen: dict[int, float] = {}
    size = 0
    async with client.open("GET", f"/api/chat/{session_id}/stream") as reply:
        async for frame in reply.frames():
            if frame != "[DONE]" and frame["type"] in ("text-delta", "reasoning-delta"):
                size += len(frame["delta"])
                seen[size] = time.perf_counter()
    return seen
