"""GROW: one long session, in its own process: ``python -m bench.grow_side TURNS FOLDER TIMES``.

Prints a line of JSON: the median time and CPU of each call in milliseconds, and the memory of the process. It measures
reads and navigation first, then the next prompt, then the same session after a compaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import orjson

import clew
from bench.fill import add_sessions, fill_turns
from bench.measure import median, settle
from bench.process import peak_mb
from clew.config import CompactionConfig, Config
from clew.providers.base import ModelInfo, ModelRequest, StepEnd
from clew.session.api import Engine
from clew.testing.scripted import FakeProviders
from clew.transcript import chunk as c
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["fill_session", "main", "measure_session", "open_long", "users_of"]

_PAGE: Final = 40
_LONG_PAGE: Final = 100
_LIVE_TURNS: Final = 4
_ENOUGH_S: Final = 1.0
"""Time after which a slow call is not repeated."""
_ANSWERS: Final = Model("test", "model")
_CONFIG: Final = Config(compaction=CompactionConfig(preset="overlay", keep_recent_tokens=6_500))
_SUMMARY: Final = "\n".join(
    line
    for heading in ("Goal", "Constraints & Preferences", "Progress", "Key Decisions", "Next Steps")
    for line in (f"## {heading}", "- A short account of the conversation so far.")
)


class _Brief:
    """A model that answers briefly and records when it was called."""

    def __init__(self) -> None:
        self.called_at = 0.0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        self.called_at = time.perf_counter()
        yield c.TextStart("t1")
        yield c.TextDelta("t1", _SUMMARY)
        yield c.TextEnd("t1")
        yield StepEnd(usage=Usage(10, 5))

    async def close(self) -> None:
        pass


def open_long(path: Path, model: Any) -> Any:
    """Open the engine on a store of long sessions, with a context window that never fills."""
    infos = [ModelInfo(model=_ANSWERS, window=1_000_000_000, max_output=4_000, summariser=_ANSWERS)]
    return clew.open(f"sqlite:///{path}", config=_CONFIG, providers=FakeProviders(model, infos=infos))


async def fill_session(path: Path, turns: int) -> str:
    """Create a store with one session of this many turns and return the session's id.

    The last turns run on the engine: only a real run records its token counts.
    """
    async with open_long(path, _Brief()) as engine:
        session_id = await add_sessions(engine.store, engine.mint, 1, lambda _: {"title": "a long one"})
        await fill_turns(engine.store, engine.mint, session_id, range(turns - _LIVE_TURNS))
        await engine.patch_session(session_id, model=str(_ANSWERS))
        for _ in range(_LIVE_TURNS):
            await (await engine.submit(session_id, "go on")).wait()
    return session_id


def users_of(path: Path, session_id: str) -> list[str]:
    """Return the user messages in order, read without the engine, whose caches must stay empty."""
    connection = sqlite3.connect(path)
    try:
        query = "SELECT id FROM chat_messages WHERE session_id = ? AND role = 'user' ORDER BY created_at, rowid"
        return [row[0] for row in connection.execute(query, (session_id,))]
    finally:
        connection.close()


class _Clock:
    """Measures the time and CPU of calls."""

    def __init__(self, times: int) -> None:
        self.ms: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._times = times

    async def time(self, *steps: tuple[str, Callable[[], Awaitable[Any]]], times: int | None = None) -> None:
        """Run the steps in order, repeatedly; the first round warms the caches and does not count."""
        settle()
        took: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in steps}
        begin = time.perf_counter()
        for number in range(1 + (times or self._times)):
            for name, step in steps:
                wall, cpu = time.perf_counter(), time.process_time()
                found = await step()
                took[name].append((time.perf_counter() - wall, time.process_time() - cpu))
                del found
            if number and time.perf_counter() - begin > _ENOUGH_S * len(steps):
                break
        for name, all_ in took.items():
            counted = all_[1:]
            self.ms[name] = median([one[0] for one in counted]) * 1000
            self.cpu[name] = median([one[1] for one in counted]) * 1000


async def _read(engine: Engine, session_id: str, users: list[str], clock: _Clock) -> None:
    turns = len(users)
    middle, ten_back = users[turns // 2], users[-10]
    await clock.time(("last page", lambda: engine.messages(session_id, limit=_PAGE)))
    await clock.time(("page in the middle", lambda: engine.messages(session_id, limit=_PAGE, before=middle)))
    await clock.time(("page at the start", lambda: engine.messages(session_id, limit=_PAGE, before=users[25])))
    await clock.time(("status", lambda: engine.get_status(session_id)))
    await clock.time(("context report", lambda: engine.context(session_id)))
    await clock.time(("tree, a page", lambda: engine.tree(session_id, limit=_LONG_PAGE)))
    await clock.time(("reflog, a page", lambda: engine.reflog(session_id, limit=_LONG_PAGE)))
    await clock.time(("files, a page", lambda: engine.files(session_id, limit=_LONG_PAGE)))
    await clock.time(("tree, all of it", lambda: engine.tree(session_id)), times=2)
    await clock.time(
        ("rewind by 10", lambda: engine.rewind(session_id, ten_back, mode="edit")),
        ("and back", lambda: engine.unrewind(session_id)),
    )
    if turns > 1_000:
        far = users[-1_000]
        await clock.time(
            ("rewind by 1,000", lambda: engine.rewind(session_id, far, mode="edit")),
            ("1,000 back", lambda: engine.unrewind(session_id)),
        )
    await clock.time(("branch at turn 50", lambda: engine.branch(session_id, users[50])))
    await clock.time(("branch in the middle", lambda: engine.branch(session_id, middle)), times=2)


async def _prompt(engine: Engine, session_id: str, model: _Brief, clock: _Clock, name: str, times: int) -> None:
    """Measure the first prompt after opening, which reads the session, and those after it."""
    first: list[float] = []
    to_model: list[float] = []
    for _ in range(1 + times):
        begin, shown = time.perf_counter(), 0.0
        async for chunk in engine.run(session_id, "go on"):
            if chunk["type"] == "text-delta" and not shown:
                shown = time.perf_counter()
        to_model.append((model.called_at - begin) * 1000)
        first.append((shown - begin) * 1000)
    clock.ms[f"first prompt after opening to the model, {name}"] = to_model[0]
    clock.ms[f"prompt to the model, {name}"] = median(to_model[1:])
    clock.ms[f"prompt to its first chunk, {name}"] = median(first[1:])


@contextlib.asynccontextmanager
async def _blocked_loop(clock: _Clock, during: str) -> AsyncIterator[None]:
    """Measure the longest time for which the event loop was blocked."""
    longest, last = 0.0, time.perf_counter()

    async def beat() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    beating = asyncio.create_task(beat())
    try:
        yield
        await asyncio.sleep(0.005)
    finally:
        beating.cancel()
    clock.ms[f"event loop blocked, {during}"] = longest * 1000


async def measure_session(path: Path, turns: int, times: int, session_id: str | None = None) -> dict[str, Any]:
    """Measure a session of this many turns; ``session_id`` names one that is already in the store."""
    session_id = session_id or await fill_session(path, turns)
    clock, model, users = _Clock(times), _Brief(), users_of(path, session_id)
    async with open_long(path, model) as engine:
        await _read(engine, session_id, users, clock)
    after_reads = peak_mb()
    async with open_long(path, model) as engine:
        await _prompt(engine, session_id, model, clock, "nothing compacted", times)
    settle()
    async with open_long(path, model) as engine:
        async with _blocked_loop(clock, "first prompt, nothing compacted"):
            async for _ in engine.run(session_id, "go on"):
                pass
        begin = time.perf_counter()
        async with _blocked_loop(clock, "compact, with an instant summary"):
            await engine.compact(session_id)
        clock.ms["compact, with an instant summary"] = (time.perf_counter() - begin) * 1000
    await asyncio.sleep(0.5)  # the data of the engine is freed in a thread
    settle()
    async with open_long(path, model) as engine:
        await _prompt(engine, session_id, model, clock, "compacted", times)
        await clock.time(("last page, compacted", lambda: engine.messages(session_id, limit=_PAGE)))
        await clock.time(("context report, compacted", lambda: engine.context(session_id)))
        users = users_of(path, session_id)
        await clock.time(
            ("head back 2 turns, compacted", lambda: engine.rewind(session_id, users[-2], mode="edit")),
            ("and back, compacted", lambda: engine.unrewind(session_id)),
        )
    return {"ms": clock.ms, "cpu": clock.cpu, "after reads": after_reads, "rss": peak_mb()}


def main() -> None:
    turns, folder, times, *filled = sys.argv[1:]
    path = Path(folder) / f"grow-{turns}-{time.time_ns()}.db"
    if filled:
        shutil.copyfile(filled[0], path)
    measured = measure_session(path, int(turns), int(times), filled[1] if filled else None)
    print(orjson.dumps(asyncio.run(measured)).decode(), flush=True)


if __name__ == "__main__":
    main()
