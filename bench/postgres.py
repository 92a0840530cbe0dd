"""PG: the store on PostgreSQL against raw psycopg on the same server: append, load, list, chunks, branch, rewind."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import clew
from bench import talk
from bench.append import Appender, turns_of
from bench.fill import add_sessions, fill_turns
from bench.measure import Bench, Line, alternate, median, ratios, settle
from bench.raw_postgres import RawPostgres
from bench.streams import acknowledged_on
from clew.ids import Mint
from clew.session.api import Engine
from clew.store.sql.postgres.opening import open_postgres
from tests.services.postgres import Postgres
from tests.services.program import NoService

__all__ = ["measure"]

_BLOCK = 20
_PAGE = 50
_TAIL = 40


def _title(n: int) -> dict[str, Any]:
    return {"title": f"A session about the thing number {n}"}


async def measure(bench: Bench) -> list[Line]:
    """Measure; if no server can be started, print the reason to stderr and return nothing."""
    try:
        server = await asyncio.to_thread(Postgres)
    except NoService as missing:
        print(f"PG is skipped: {missing}", file=sys.stderr)
        return []
    try:
        return [
            await _append(bench, server),
            *await _read_and_move(bench, server),
            await _list(bench, server),
            *[await _chunks(bench, server, streams) for streams in (1, 100)],
        ]
    finally:
        await asyncio.to_thread(server.close)


async def _append(bench: Bench, server: Postgres) -> Line:
    turns = bench.size(400, 100)
    raw: list[float] = []
    ours: list[float] = []
    for _ in range(bench.rounds):
        floor = RawPostgres(server.url(server.create()))
        raw_session = floor.add_sessions(1, lambda _: {})
        store, mint = await open_postgres(server.url(server.create())), Mint()
        appender = Appender(store, mint, await add_sessions(store, mint, 1, lambda _: {}))
        took = [0.0, 0.0]
        settle()
        turn_texts = turns_of(range(turns))
        for at in range(0, turns, _BLOCK):
            marks = [time.perf_counter()]
            for one in turn_texts[at : at + _BLOCK]:
                floor.append_turn(raw_session, *one)
            marks.append(time.perf_counter())
            for one in turn_texts[at : at + _BLOCK]:
                await appender.turn(*one)
            marks.append(time.perf_counter())
            took = [took[0] + marks[1] - marks[0], took[1] + marks[2] - marks[1]]
        floor.close()
        await store.close()
        raw.append(turns / took[0])
        ours.append(turns / took[1])
    return Line("PG", f"append {turns:,} turns, 2 commits each", "turns/s", raw, ours, ratios(ours, raw))


async def _read_and_move(bench: Bench, server: Postgres) -> list[Line]:
    """Read, branch and rewind one long session on both sides."""
    turns, times = bench.size(1_000, 200), bench.size(7, 3)
    floor = RawPostgres(server.url(server.create()))
    raw_session = floor.add_sessions(1, lambda _: {})
    floor.fill(raw_session, range(turns))
    name = server.create()
    took: dict[str, list[tuple[float, float]]] = {}
    async with clew.open(server.url(name), config=clew.Config()) as engine:
        mint = Mint()
        session_id = await add_sessions(engine.store, mint, 1, lambda _: {})
        await fill_turns(engine.store, mint, session_id, range(turns))
        server.ask_in(name, "ANALYZE")
        messages = await engine.messages(session_id)
        middle, since = turns // 2, talk.START_MS + turns // 2
        calls: dict[str, tuple[Callable[[], object], Callable[[], Any], int]] = {
            f"model view of {turns:,} turns": (
                lambda: floor.load(raw_session),
                lambda: engine.messages(session_id, view="model"),
                times,
            ),
            f"last 20 of {turns:,} turns": (
                lambda: floor.load_last(raw_session, _TAIL),
                lambda: engine.messages(session_id, limit=_TAIL),
                times * 5,
            ),
            f"branch in the middle of {turns:,} turns": (
                lambda: floor.branch(raw_session, since - 1),
                lambda: engine.branch(session_id, messages[middle * 2 - 1].id),
                times,
            ),
        }
        for _ in range(bench.rounds):
            for what, (raw, ours, count) in calls.items():
                took.setdefault(what, []).append(await alternate(raw, ours, count))
            there, back = await _there_and_back(engine, floor, session_id, raw_session, middle, times)
            took.setdefault(f"rewind by {middle:,} turns", []).append(there)
            took.setdefault(f"head set back, {middle:,} turns on", []).append(back)
    floor.close()
    return [_line(what, both) for what, both in took.items()]


async def _there_and_back(
    engine: Engine, floor: RawPostgres, session_id: str, raw_session: str, middle: int, times: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    users = [message.id for message in await engine.messages(session_id) if message.role == "user"]
    head = (await engine.store.load_state(session_id)).head_turn_id
    took: list[list[float]] = [[], [], [], []]
    settle()
    for _ in range(times):
        marks = [time.perf_counter()]
        hidden = floor.hide(raw_session, talk.START_MS + middle)
        marks.append(time.perf_counter())
        rewound = await engine.rewind(session_id, users[middle], mode="edit")
        marks.append(time.perf_counter())
        floor.show(raw_session, talk.START_MS + middle)
        marks.append(time.perf_counter())
        await engine.set_head(session_id, head)
        marks.append(time.perf_counter())
        if hidden != len(rewound.hidden):
            raise RuntimeError(f"the two sides hid different amounts: {hidden}, {len(rewound.hidden)}")
        for one, begin, end in zip(took, marks, marks[1:], strict=False):
            one.append(end - begin)
    there, ours_there, back, ours_back = (median(one) * 1000 for one in took)
    return (there, ours_there), (back, ours_back)


async def _list(bench: Bench, server: Postgres) -> Line:
    count = bench.size(10_000, 1_000)
    floor = RawPostgres(server.url(server.create()))
    floor.add_sessions(count, _title)
    name = server.create()
    async with clew.open(server.url(name), config=clew.Config()) as engine:
        await add_sessions(engine.store, Mint(), count, _title)
        server.ask_in(name, "ANALYZE")
        times = bench.size(100, 30)
        took = [
            await alternate(lambda: floor.newest(_PAGE), lambda: engine.list_sessions(limit=_PAGE), times)
            for _ in range(bench.rounds)
        ]
    floor.close()
    return _line(f"newest {_PAGE} of {count:,} sessions", took)


async def _chunks(bench: Bench, server: Postgres, streams: int) -> Line:
    """Send each chunk when the one before it is durable; the floor commits one chunk of every stream together."""
    chunks = bench.size(2_000, 300) if streams == 1 else bench.size(20_000, 2_000)
    raw: list[float] = []
    ours: list[float] = []
    for _ in range(bench.rounds):
        floor = RawPostgres(server.url(server.create()))
        settle()
        begin = time.perf_counter()
        for at in range(0, chunks, streams):
            floor.append_chunks([(at + n, f"msg_{n}", talk.DELTA) for n in range(streams)])
        raw.append(chunks / (time.perf_counter() - begin))
        floor.close()
        store = await open_postgres(server.url(server.create()))
        ours.append(await acknowledged_on(store, streams, chunks))
        await store.close()
    what = f"{streams} stream{'s' * (streams > 1)}, each chunk durable before the next"
    return Line("PG", what, "chunks/s", raw, ours, ratios(ours, raw))


def _line(what: str, took: list[tuple[float, float]]) -> Line:
    raw, ours = [both[0] for both in took], [both[1] for both in took]
    return Line("PG", what, "ms", raw, ours, ratios(ours, raw))
