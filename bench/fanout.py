"""P10: one message to 50 viewers over sockets, against bare Starlette streams of the same bytes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from asyncio.subprocess import PIPE
from dataclasses import dataclass

import orjson

from bench.http_client import TOKEN
from bench.measure import Bench, Goal, Line, ratios

__all__ = ["measure"]

VIEWERS = 50
_PACE_MS = 2.0


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of a server: frames per second at the viewers, and CPU time per frame."""

    rate: float
    cpu_us: float


async def measure(bench: Bench) -> list[Line]:
    frames, alone = bench.size(10_000, 5_000), bench.size(300, 200)
    bare: list[_Cost] = []
    joined: list[_Cost] = []
    ours: list[_Cost] = []
    bare_paced: list[_Cost] = []
    ours_paced: list[_Cost] = []
    for _ in range(bench.rounds):
        bare.append(await _run("bare", frames))
        joined.append(await _run("joined", frames))
        ours.append(await _run("clew", frames))
        bare_paced.append(await _run("joined", alone, _PACE_MS))
        ours_paced.append(await _run("clew", alone, _PACE_MS))
    measured = [cost.rate for cost in ours]
    what = f"SSE to {VIEWERS} viewers"
    lines: list[Line] = []
    for floor, costs in (("one frame per send", bare), ("queued frames joined, encoded once", joined)):
        raw = [cost.rate for cost in costs]
        lines.append(
            Line(
                "P10",
                f"{what} (raw: Starlette, {floor})",
                "events/s",
                raw,
                measured,
                ratios(measured, raw),
                Goal("≥", 0.7),
            )
        )
    raw, measured = [cost.cpu_us for cost in bare_paced], [cost.cpu_us for cost in ours_paced]
    what = f"{what}, a word every {_PACE_MS:g} ms, each sent separately, CPU per event"
    lines.append(Line("P10", what, "µs", raw, measured, ratios(measured, raw)))
    return lines


async def _run(server: str, frames: int, pace_ms: float = 0.0) -> _Cost:
    command = (sys.executable, "-m", "bench.fanout_server", server, str(VIEWERS), str(frames), str(pace_ms))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        assert process.stdout is not None
        address = orjson.loads(await process.stdout.readline())
        loop = asyncio.get_running_loop()
        port, path = address["port"], address["path"]
        viewers = [
            (await loop.create_connection(lambda: _Viewer(port, path), "127.0.0.1", port))[1] for _ in range(VIEWERS)
        ]
        await asyncio.gather(*(viewer.ended for viewer in viewers))
        cpu = orjson.loads(await process.stdout.readline())["cpu"]
    finally:
        # The server exits when all viewers have left; after an error here they may never have connected.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    counts = {viewer.frames for viewer in viewers}
    if counts != {frames}:
        raise RuntimeError(f"the viewers of {server} received {sorted(counts)} frames, not {frames}")
    took = max(viewer.last for viewer in viewers) - min(viewer.first for viewer in viewers)
    return _Cost(frames * VIEWERS / took, cpu / (frames * VIEWERS) * 1e6)


class _Viewer(asyncio.Protocol):
    """Requests the stream and counts the words it receives."""

    def __init__(self, port: int, path: str) -> None:
        self._request = (
            f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {TOKEN}\r\n"
            "connection: close\r\n\r\n"
        ).encode()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.frames = 0
        self.first = self.last = 0.0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        # A mark may be split between two reads; the tail is too short to contain a whole one.
        data = self._tail + data
        found = data.count(_MARK)
        self._tail = data[-len(_MARK) + 1 :]
        if found:
            self.last = time.perf_counter()
            self.first = self.first or self.last
            self.frames += found

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


_MARK = b'"text-delta"'
