"""P1: turns appended one after another, two synced commits each."""

from __future__ import annotations

import itertools
import time
from typing import Any, Generic, TypeVar

from bench import talk
from bench.fill import add_sessions, answer, check, fill_turns
from bench.measure import Bench, Goal, Line, median, ratios, settle
from bench.raw import RawStore, RawWriter
from clew.ids import Mint
from clew.session.acquire.acquire import plan_open
from clew.session.acquire.loaded_session import LoadedSession
from clew.store.base import Store
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.unit import Unit
from clew.testing.scribe import user_row
from clew.transcript.session import SessionState

__all__ = ["Appender", "measure", "turns_of"]

S = TypeVar("S", bound=Store)

_BLOCK = 25
_EARLY = 100
_FRAME = 24 + 4096


async def measure(bench: Bench) -> list[Line]:
    return [*await _speed(bench), await _pages(bench), await _growth(bench)]


class Appender(Generic[S]):
    """Appends turns to one session of a store, as a run does: one unit opens the turn, one writes the rest."""

    def __init__(self, store: S, mint: Mint, session_id: str, head: str | None = None) -> None:
        self.store = store
        self._mint = mint
        self._session_id = session_id
        self._state = SessionState(head_turn_id=head)

    @staticmethod
    async def make(
        bench: Bench, name: str, turns: int = 0, options: SqliteOptions | None = None
    ) -> Appender[SqliteStore]:
        """Create an appender on a session with this many turns."""
        store, mint = await open_sqlite(bench.path(name), options), Mint()
        session_id = await add_sessions(store, mint, 1, lambda _: {})
        head = await fill_turns(store, mint, session_id, range(turns))
        return Appender(store, mint, session_id, head)

    async def turn(self, text: str, parts: list[dict[str, Any]], now: int) -> None:
        mint, session_id = self._mint, self._session_id
        turn_id = mint.turn()
        check(
            await self.store.commit(
                plan_open(LoadedSession(session_id, self._state), turn_id, user_row(mint, session_id, text, now))
            )
        )
        writes = answer(mint, session_id, turn_id, parts, now)
        check(await self.store.commit(Unit(session_id, writes, sync="power")))
        self._state = SessionState(turn_id, None, self._state.epoch + 1)

    async def close(self) -> None:
        await self.store.close()


def turns_of(turns: range) -> list[tuple[str, list[dict[str, Any]], int]]:
    return [(talk.prompt(n), talk.assistant_parts(n), talk.START_MS + n) for n in turns]


async def _speed(bench: Bench) -> list[Line]:
    """Measure against a floor behind a thread, as a server needs it, and against one that blocks the event loop."""
    turns = bench.size(1_000, 200)
    turn_texts = turns_of(range(turns))
    inline: list[float] = []
    raw: list[float] = []
    clew: list[float] = []
    for _ in range(bench.rounds):
        floor, behind = RawStore(bench.path("p1-raw"), "FULL"), RawStore(bench.path("p1-behind"), "FULL")
        session_id, threaded_id = (one.add_sessions(1, lambda _: {}) for one in (floor, behind))
        thread, ours = RawWriter(behind), await Appender.make(bench, "p1-clew")
        took = [0.0, 0.0, 0.0]
        settle()
        for at in range(0, turns, _BLOCK):
            block = turn_texts[at : at + _BLOCK]
            marks = [time.perf_counter()]
            for one in block:
                floor.append_turn(session_id, *one)
            marks.append(time.perf_counter())
            for one in block:
                await thread.append_turn(threaded_id, *one)
            marks.append(time.perf_counter())
            for one in block:
                await ours.turn(*one)
            marks.append(time.perf_counter())
            took = [sum(pair) for pair in zip(took, (b - a for a, b in itertools.pairwise(marks)), strict=True)]
        floor.close()
        thread.close()
        await ours.close()
        for rates, seconds in zip((inline, raw, clew), took, strict=True):
            rates.append(turns / seconds)
    what = f"append {turns:,} turns, 2 synced commits each"
    behind_thread = Line("P1", f"{what}, both behind a thread", "turns/s", raw, clew, ratios(clew, raw), Goal("≥", 0.7))
    return [behind_thread, Line("P1", f"{what}, floor inline", "turns/s", inline, clew, ratios(clew, inline))]


async def _pages(bench: Bench) -> Line:
    """Count the WAL pages that a turn writes. Without checkpoints the log only grows, by whole pages per commit."""
    turns = bench.size(400, 100)
    floor = RawStore(bench.path("p1-pages-raw"))
    floor.connection.execute("PRAGMA wal_autocheckpoint = 0")
    session_id = floor.add_sessions(1, lambda _: {})
    ours = await Appender.make(bench, "p1-pages", options=SqliteOptions(checkpoints=False))
    logs = [path.with_name(f"{path.name}-wal") for path in (floor.path, ours.store.path)]
    before = [log.stat().st_size for log in logs]
    for one in turns_of(range(turns)):
        floor.append_turn(session_id, *one)
        await ours.turn(*one)
    raw, clew = ((log.stat().st_size - size) / _FRAME / turns for log, size in zip(logs, before, strict=True))
    floor.close()
    await ours.close()
    return Line("P1", "WAL pages per turn", "pages", [raw], [clew], [clew / raw])


async def _growth(bench: Bench) -> Line:
    """Grow a short and a long session in alternation, so that both see the same machine load."""
    late, width = bench.size(2_000, 1_000), bench.size(100, 50)
    first, last = range(_EARLY - width // 2, _EARLY + width // 2), range(late - width // 2, late + width // 2)
    turn_texts = list(zip(turns_of(first), turns_of(last), strict=True))
    growth: list[float] = []
    raw_growth: list[float] = []
    for _ in range(bench.rounds):
        short = await Appender.make(bench, "p1-short", first[0])
        long = await Appender.make(bench, "p1-long", last[0])
        raw_short, raw_long = RawStore(bench.path("p1-raw-short"), "FULL"), RawStore(bench.path("p1-raw-long"), "FULL")
        raw_sessions = [floor.add_sessions(1, lambda _: {}) for floor in (raw_short, raw_long)]
        raw_short.fill(raw_sessions[0], range(first[0]))
        raw_long.fill(raw_sessions[1], range(last[0]))
        took: list[list[float]] = [[], [], [], []]
        settle()
        for early, later in turn_texts:
            marks = [time.perf_counter()]
            raw_short.append_turn(raw_sessions[0], *early)
            marks.append(time.perf_counter())
            raw_long.append_turn(raw_sessions[1], *later)
            marks.append(time.perf_counter())
            await short.turn(*early)
            marks.append(time.perf_counter())
            await long.turn(*later)
            marks.append(time.perf_counter())
            for side, (begin, end) in zip(took, itertools.pairwise(marks), strict=True):
                side.append(end - begin)
        raw_growth.append(median(took[1]) / median(took[0]))
        growth.append(median(took[3]) / median(took[2]))
        for floor in (raw_short, raw_long):
            floor.close()
        await short.close()
        await long.close()
    return Line("P1", f"cost of turn {late:,} ÷ turn {_EARLY}", "×", raw_growth, growth, growth, Goal("≤", 1.2))
