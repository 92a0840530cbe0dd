"""SERVER: requests to a server over sockets, and the streams that it can carry, against plain Starlette."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import re
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from bench.http_client import Answer, Connection, ask_chat, connect
from bench.measure import Bench, Goal, Line, percentile, ratios
from bench.process import cpu_seconds, peak_mb, raise_file_limit
from bench.server_side import PACE_S, SECONDS

__all__ = ["Served", "measure", "serving"]

_CONCURRENCIES: Final = (1, 10, 50)
_GOALS_MS: Final = {1: 2.0, 10: 10.0, 50: 40.0}
_WORD: Final = re.compile(rb"\d{7}\.\d{6} ")
_GRACE_S: Final = 12.0
_SERVERS: Final = ("clew", "bare", "durable")


@dataclass(frozen=True, slots=True)
class Served:
    """A running server."""

    pid: int
    port: int
    session: str


@contextlib.asynccontextmanager
async def serving(server: str, task: str, path: Path) -> AsyncIterator[Served]:
    command = (sys.executable, "-m", "bench.server_side", server, task, str(path))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        assert process.stdout is not None
        address = orjson.loads(await process.stdout.readline())
        yield Served(process.pid, address["port"], address.get("session", ""))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def measure(bench: Bench) -> list[Line]:
    raise_file_limit()
    return [*await _asked(bench), *await _saturated(bench)]


# One request after another


@dataclass(slots=True)
class _Rates:
    """Results of one server, per round: requests per second, and milliseconds to the first byte of a reply."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)


async def _asked(bench: Bench) -> list[Line]:
    sides = {server: _Rates() for server in _SERVERS}
    for _ in range(bench.size(2, 1)):
        for server, side in sides.items():
            path = bench.path(f"server-{server}")
            async with serving(server, "reply", path) as served:
                await _ask(bench, served, side, save=server == "clew")
    ours, bare, durable = (sides[server] for server in _SERVERS)
    lines = []
    for name, measured in ours.rates.items():
        raw = bare.rates[name]
        lines.append(
            Line("SERVER", f"{name} (raw: Starlette, from memory)", "req/s", raw, measured, ratios(measured, raw))
        )
    for name, measured in ours.first.items():
        raw, at_once = durable.first[name], int(name.partition(" at once")[0].rpartition(" ")[2])
        goal = Goal("≤", _GOALS_MS[at_once], " ms") if name.endswith("p50") else None
        lines.append(Line("SERVER", f"{name} (raw: Starlette, synced first)", "ms", raw, measured, measured, goal))
    return lines


async def _ask(bench: Bench, served: Served, side: _Rates, *, save: bool) -> None:
    session = served.session or "ses_0"
    gets = {"GET list, 50 sessions": "/api/sessions?limit=50"}
    gets["GET last page, 40 messages"] = f"/api/sessions/{session}/messages?limit=40"
    for name, path in gets.items():
        answer: Answer | None = None
        for kind in ("uncached", "unchanged"):
            for at_once in (1, 16):
                seconds = bench.size(500, 200) / 1000
                rate, answer = await _get(served.port, path, at_once, seconds, uncached=kind == "uncached")
                side.rates.setdefault(f"{name}, {kind}, {at_once} at once", []).append(rate)
        if save and answer is not None:
            file = "list.json" if "list" in name else "page.json"
            (bench.folder / file).write_bytes(answer.body)
    for at_once in _CONCURRENCIES:
        firsts = await _post(served, at_once, bench.size({1: 60, 10: 12, 50: 6}[at_once], 2), fresh=save)
        for share, name in ((0.5, "p50"), (0.99, "p99")):
            what = f"POST → first byte, {at_once} at once, {name}"
            side.first.setdefault(what, []).append(percentile(firsts, share))


async def _get(port: int, path: str, at_once: int, seconds: float, *, uncached: bool) -> tuple[float, Answer]:
    """Return the requests per second. ``uncached``: an ignored parameter keeps each response out of the cache."""
    connections = [await connect(port) for _ in range(at_once)]
    last = await connections[0].ask("GET", path)
    if last.status != 200:
        raise RuntimeError(f"{path} returned {last.status}")
    end = time.perf_counter() + seconds
    counts = [0] * at_once
    numbers = itertools.count(1)

    async def repeat(number: int) -> None:
        while time.perf_counter() < end:
            await connections[number].ask("GET", f"{path}&n={next(numbers)}" if uncached else path)
            counts[number] += 1

    begin = time.perf_counter()
    await asyncio.gather(*map(repeat, range(at_once)))
    rate = sum(counts) / (time.perf_counter() - begin)
    for connection in connections:
        connection.close()
    return rate, last


async def _sessions(connection: Connection, count: int) -> list[str]:
    created = [await connection.ask("POST", "/api/sessions", {"title": f"chat {n}"}) for n in range(count)]
    return [orjson.loads(answer.body)["id"] for answer in created]


async def _post(served: Served, at_once: int, times: int, *, fresh: bool) -> list[float]:
    connections = [await connect(served.port) for _ in range(at_once)]
    sessions = await _sessions(connections[0], at_once) if fresh else [f"ses_{n}" for n in range(at_once)]
    firsts: list[float] = []

    async def repeat(number: int) -> None:
        for n in range(times + 1):
            answer = await connections[number].ask("POST", "/api/chat", ask_chat(sessions[number], n, "go on"))
            if answer.status != 200:
                raise RuntimeError(f"a prompt returned {answer.status}: {answer.body[:300]!r}")
            if n:
                firsts.append(answer.first_ms)

    await asyncio.gather(*map(repeat, range(at_once)))
    for connection in connections:
        connection.close()
    return firsts


# Many streams


@dataclass(frozen=True, slots=True)
class _Carried:
    """Words per second from the first due time to the last arrival, their delay, and the CPU and memory used."""

    rate: float
    p50: float
    p99: float
    cpu: float
    rss: float


async def _saturated(bench: Bench) -> list[Line]:
    lines: list[Line] = []
    for streams in (100, *(() if bench.quick else (1_000,))):
        carried = {server: await _carry(bench, server, streams) for server in _SERVERS}
        ours, floor = carried["clew"], carried["durable"]
        what = f"{streams:,} streams × {1 / PACE_S:.0f} words/s"
        goal = Goal("≥", 0.7) if streams == 1_000 else None
        for name, unit, of, judged in (
            ("delivered", "words/s", "rate", goal),
            ("lag p50", "ms", "p50", None),
            ("lag p99", "ms", "p99", None),
            ("CPU", "%", "cpu", None),
            ("memory", "MB", "rss", None),
        ):
            raw, measured = [getattr(floor, of)], [getattr(ours, of)]
            named = (
                f"{what}, {name} (raw: Starlette, committed first; Starlette alone {getattr(carried['bare'], of):,.3g})"
            )
            lines.append(Line("SERVER", named, unit, raw, measured, ratios(measured, raw), judged))
    return lines


async def _carry(bench: Bench, server: str, streams: int) -> _Carried:
    async with serving(server, str(streams), bench.path(f"streams-{server}")) as served:
        maker = await connect(served.port)
        sessions = await _sessions(maker, streams) if server == "clew" else [f"ses_{n}" for n in range(streams)]
        connections = [await connect(served.port) for _ in range(streams)]
        received = _Received()
        loop = asyncio.get_running_loop()
        asking = [
            loop.create_task(
                connection.ask("POST", "/api/chat", ask_chat(session, 0, "go on"), on_data=received.listener())
            )
            for connection, session in zip(connections, sessions, strict=True)
        ]
        await received.begun.wait()
        cpu, begin = cpu_seconds(served.pid), time.perf_counter()
        await asyncio.sleep(SECONDS - 0.3)
        cpu_share = (cpu_seconds(served.pid) - cpu) / (time.perf_counter() - begin)
        await asyncio.wait(asking, timeout=_GRACE_S)
        rss = peak_mb(served.pid)
        for task in asking:
            task.cancel()
        for connection in (maker, *connections):
            connection.close()
        await asyncio.gather(*asking, return_exceptions=True)
    rate = len(received.lags) / (received.last - received.due)
    return _Carried(
        rate, percentile(received.lags, 0.5) * 1000, percentile(received.lags, 0.99) * 1000, cpu_share * 100, rss
    )


class _Received:
    """The words of all streams, with the earliest due time and the last arrival."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.due = math.inf
        self.last = 0.0
        self.begun = asyncio.Event()

    def listener(self) -> Callable[[bytes], None]:
        tail = b""

        def receive(data: bytes) -> None:
            nonlocal tail
            data = tail + data
            now, end = time.perf_counter(), 0
            for found in _WORD.finditer(data):
                due = float(found.group())
                self.lags.append(now - due)
                self.due = min(self.due, due)
                end = found.end()
            if end:
                self.last = now
                self.begun.set()
            # A word may be split between two reads.
            tail = data[max(end, len(data) - 14) :]

        return receive
