"""GROW: the same calls on one session of 200, 2,000 and 20,000 turns, and requests to a server about the longest."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import orjson

from bench.child import run_child
from bench.grow_side import fill_session, users_of
from bench.http_client import Connection, ask_chat, connect
from bench.measure import Bench, Goal, Line, median, ratios
from bench.process import peak_mb
from bench.serving import Served, serving

__all__ = ["measure"]

_WHOLE: Final = ("nothing compacted", "compact,", "branch in the middle", "all of it")
"""Calls that read or copy the whole session or half of it, and so may grow with it."""
_FIRST_PAGE: Final = 40
_OLDER_PAGE: Final = 200
_ENOUGH_S: Final = 30.0
"""Time after which paging stops."""
_LONG_MS: Final = 4_000
"""Total time after which no more prompts are sent."""
_LONG_READS: Final = ("export?format=json", "messages?view=model")


async def measure(bench: Bench) -> list[Line]:
    sizes = (200, 2_000, 20_000) if not bench.quick else (60, 120, 240)
    times = bench.size(7, 2)
    small, middle, large = sizes
    # The largest is filled once, for its calls and for the page: filling takes as long as all calls.
    walk = bench.path("walk")
    session_id = await fill_session(walk, large)
    found = {turns: await run_child("bench.grow_side", turns, bench.folder, times) for turns in (small, middle)}
    found[large] = await run_child("bench.grow_side", large, bench.folder, times, walk, session_id)
    lines: list[Line] = []
    for name in found[large]["ms"]:
        of = [report["ms"].get(name) for report in found.values()]
        # The small session has no rewind by 1,000 turns.
        base, raw = (small, of[0]) if of[0] is not None else (middle, of[1])
        between = f"; of {middle:,} {of[1]:.3g}" if base == small else ""
        flat = not any(prefix in name for prefix in _WHOLE)
        cpu = f"; CPU {found[large]['cpu'][name]:.3g}" if name in found[large]["cpu"] else ""
        what = f"{name}, {large:,} turns (raw: of {base:,}{between}{cpu})"
        lines.append(Line("GROW", what, "ms", [raw], [of[2]], [of[2] / raw], Goal("≤", 2) if flat else None))
    for name, key in (("memory after reads, rewinds, branches", "after reads"), ("memory at the end", "rss")):
        of = [report[key] for report in found.values()]
        what = f"{name}, {large:,} turns (raw: of {small}; of {middle:,} {of[1]:.3g})"
        lines.append(Line("GROW", what, "MB", [of[0]], [of[2]], [of[2] / of[0]]))
    return [*lines, *await _walked(bench, large, walk, session_id)]


# On the page


async def _walked(bench: Bench, turns: int, path: Path, session_id: str) -> list[Line]:
    """Send the page's requests: open, page to the start, read, search, rewind, branch. Then prompt during reads."""
    users = users_of(path, session_id)
    async with serving("clew", "there", path) as served:
        walk = _Walk(await connect(served.port), f"/api/sessions/{session_id}")
        await walk.open()
        await walk.to_the_start()
        await walk.around(users)
        memory = peak_mb(served.pid)
    alone: list[float] = []
    concurrent: list[float] = []
    async with serving("clew", "there", path) as served:
        other = await _other(served)
        for _ in range(bench.rounds):
            alone.append(await _prompted(served, other, bench.size(15, 3)))
            async with _long_reads(served, session_id):
                concurrent.append(await _prompted(served, other, bench.size(15, 3)))
    what = f"on the page, {turns:,} turns"
    slowest = max(walk.waits, key=lambda name: walk.waits[name])
    longest = [walk.waits[slowest]]
    named = f"a prompt during two long reads of {turns:,} turns (raw: alone)"
    return [
        Line("GROW", f"{what}: longest wait ({slowest})", "ms", (), longest, longest, Goal("≤", 200, " ms")),
        Line("GROW", f"{what}: memory of the server", "MB", (), [memory], [memory], Goal("≤", 250, " MB")),
        Line("GROW", named, "ms", alone, concurrent, ratios(concurrent, alone), Goal("≤", 3)),
    ]


class _Walk:
    """The requests of the page for one session, and the longest wait for each kind."""

    def __init__(self, connection: Connection, base: str) -> None:
        self._connection = connection
        self._base = base
        self.waits: dict[str, float] = {}

    async def ask(self, name: str, method: str, path: str, body: object = None) -> Any:
        answer = await self._connection.ask(method, path, body)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} returned {answer.status}: {answer.body[:300]!r}")
        self.waits[name] = max(self.waits.get(name, 0.0), answer.whole_ms)
        return orjson.loads(answer.body)

    async def open(self) -> None:
        await self.ask("list", "GET", "/api/sessions?limit=100")
        for name in ("", "/status", "/context", "/files?limit=100", "/queue"):
            await self.ask(name.partition("?")[0] or "session", "GET", f"{self._base}{name}")

    async def to_the_start(self) -> None:
        found = await self.ask("last page", "GET", f"{self._base}/messages?limit={_FIRST_PAGE}")
        messages, end = found["messages"], time.perf_counter() + _ENOUGH_S
        while len(messages) >= _FIRST_PAGE and time.perf_counter() < end:
            query = f"limit={_OLDER_PAGE}&before={messages[0]['id']}"
            messages = (await self.ask("older page", "GET", f"{self._base}/messages?{query}"))["messages"]

    async def around(self, users: list[str]) -> None:
        session_id = self._base.rpartition("/")[2]
        await self.ask("tree", "GET", f"{self._base}/tree?limit=100")
        await self.ask("reflog", "GET", f"{self._base}/reflog?limit=100")
        for n in range(3):
            await self.ask("first search" if not n else "search", "GET", f"/api/search?q=session&session={session_id}")
        for back in (10, len(users) // 2):
            await self.ask("rewind", "POST", f"{self._base}/rewind", {"message_id": users[-back], "mode": "edit"})
            await self.ask("unrewind", "POST", f"{self._base}/unrewind", {})
        await self.ask("branch", "POST", f"{self._base}/branch", {"from_message_id": users[min(50, len(users) - 1)]})


async def _other(served: Served) -> str:
    """Create another session in the store."""
    connection = await connect(served.port)
    created = await connection.ask("POST", "/api/sessions", {"title": "elsewhere"})
    connection.close()
    return str(orjson.loads(created.body)["id"])


async def _prompted(served: Served, session_id: str, times: int) -> float:
    connection = await connect(served.port)
    firsts: list[float] = []
    while len(firsts) < times and sum(firsts) < _LONG_MS:
        answer = await connection.ask("POST", "/api/chat", ask_chat(session_id, time.time_ns(), "go on"))
        firsts.append(answer.first_ms)
    connection.close()
    return median(firsts)


@contextlib.asynccontextmanager
async def _long_reads(served: Served, session_id: str) -> AsyncIterator[None]:
    async def repeat(path: str) -> None:
        connection = await connect(served.port)
        try:
            while True:
                await connection.ask("GET", path)
        finally:
            connection.close()

    loop = asyncio.get_running_loop()
    reading = [loop.create_task(repeat(f"/api/sessions/{session_id}/{what}")) for what in _LONG_READS]
    await asyncio.sleep(0.2)
    try:
        yield
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
