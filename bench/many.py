"""MANY: a store of 100,000 sessions with a turn in each. Lists, filters by title, and searches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import clew
from bench import talk
from bench.fill import answer, check
from bench.http_client import connect
from bench.measure import Bench, Line, median, settle
from bench.process import peak_mb
from bench.serving import serving
from clew.ids import Mint
from clew.store.base import Store
from clew.store.unit import InsertMessage, InsertSession, LinkMessage, OpenTurn, Outcome, SealMessage, Unit
from clew.testing.scribe import MODEL, user_row
from clew.transcript.session import Session
from clew.transcript.turn import Turn

__all__ = ["ask_many", "measure"]

_BODIES: Final = 64
_MAX_PENDING: Final = 5_000


async def measure(bench: Bench) -> list[Line]:
    few, many = bench.size(1_000, 100), bench.size(100_000, 1_000)
    found = {}
    for count in (few, many):
        path = bench.path(f"many-{count}")
        found[count] = {**await ask_many(bench, path, count), **await _over_http(bench, path)}
    lines = []
    for name, (unit, took) in found[many].items():
        lines.append(Line("MANY", f"{name}, {many:,} sessions (raw: {few:,})", unit, found[few][name][1], took))
    return lines


async def _fill(store: Store, mint: Mint, count: int) -> None:
    """Add sessions of one turn each, one per unit; the replies repeat 64 texts."""
    bodies = [[{"type": "text", "text": talk.text(n, 800), "state": "done"}] for n in range(_BODIES)]
    pending: list[Awaitable[Outcome]] = []
    for n in range(count):
        session_id, turn_id, now = mint.session(store.capabilities.session_ids), mint.turn(), talk.START_MS + n
        session = Session(
            id=session_id,
            agent="assistant",
            workspace_root="/work",
            model=MODEL,
            created_at=now,
            updated_at=now,
            metadata={"title": f"A session about the thing number {n}"},
        )
        # One session in a thousand contains a rare word, and one session a unique word.
        rare = "walrus " * (n % 1_000 == 7) + "axolotl " * (n == count // 2)
        user = user_row(mint, session_id, rare + talk.prompt(n % _BODIES), now)
        turn = Turn(id=turn_id, session_id=session_id, parent_turn_id=None, created_at=now)
        writes = (OpenTurn(turn), InsertMessage(user), SealMessage(user.id, user.seal), LinkMessage(turn_id, user.id))
        reply = answer(mint, session_id, turn_id, bodies[n % _BODIES], now)
        pending.append(store.submit(Unit(session_id, (InsertSession(session), *writes, *reply))))
        if len(pending) == _MAX_PENDING or n == count - 1:
            for outcome in await asyncio.gather(*pending):
                check(outcome)
            pending.clear()


async def ask_many(bench: Bench, path: Path, count: int) -> dict[str, tuple[str, list[float]]]:
    async with clew.open(f"sqlite:///{path}", config=clew.Config()) as engine:
        await _fill(engine.store, engine.mint, count)
    took: dict[str, tuple[str, list[float]]] = {}
    async with clew.open(f"sqlite:///{path}", config=clew.Config()) as engine:

        async def time_(name: str, call: Callable[[], Awaitable[Any]], times: int) -> None:
            settle()
            all_ = []
            for _ in range(times):
                begin = time.perf_counter()
                await call()
                all_.append((time.perf_counter() - begin) * 1000)
            took[name] = ("ms", [all_[0]] if times == 1 else [median(all_[1:])])

        times = bench.size(15, 3)
        await time_("list, newest 50", engine.list_sessions, times)
        await time_("list by a common title", lambda: engine.list_sessions(q="thing"), times)
        await time_("list by a title that does not exist", lambda: engine.list_sessions(q="xylophone"), times)
        begin = time.perf_counter()
        await time_("first search, without an index", lambda: engine.search("axolotl"), 1)
        # The index is built in the background; wait for it before measuring the rest.
        await _indexed(engine)
        took["until everything is indexed"] = ("ms", [(time.perf_counter() - begin) * 1000])
        await time_("search, one hit", lambda: engine.search("axolotl"), times)
        await time_("search, one in a thousand", lambda: engine.search("walrus"), times)
        await time_("search, a word in every session", lambda: engine.search("session"), min(times, 6))
        await time_("search, two such words", lambda: engine.search("session people"), min(times, 6))
    return took


async def _indexed(engine: Any) -> None:
    deadline = time.perf_counter() + 120
    while not (await engine.search("axolotl")).complete:
        if time.perf_counter() > deadline:
            raise RuntimeError("the search index was not built in two minutes")
        await asyncio.sleep(0.1)


async def _over_http(bench: Bench, path: Path) -> dict[str, tuple[str, list[float]]]:
    async with serving("clew", "there", path) as served:
        connection = await connect(served.port)
        # The extra parameter is ignored by the server, but no response comes from its cache.
        took = [await connection.ask("GET", f"/api/sessions?limit=50&n={n}") for n in range(bench.size(60, 5))]
        connection.close()
        return {
            "GET list over HTTP": ("ms", [median([answer.whole_ms for answer in took[1:]])]),
            "memory of the server after it": ("MB", [peak_mb(served.pid)]),
        }
