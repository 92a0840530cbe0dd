"""The same long session on both sides, with every commit synced, for measuring branches and rewinds."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import clew
from bench import talk
from bench.fill import add_sessions, fill_turns
from bench.measure import Bench
from bench.raw import RawStore
from clew.ids import Mint
from clew.session.api import Engine

__all__ = ["Past", "open_past"]


@dataclass(frozen=True, slots=True)
class Past:
    """A session. ``users`` are its user messages, one per turn."""

    turns: int
    floor: RawStore
    raw_session: str
    engine: Engine
    session_id: str
    users: list[str]

    @property
    def middle(self) -> int:
        return self.turns // 2

    @staticmethod
    def moment(turn: int) -> int:
        """Return the time of a turn, the same on both sides."""
        return talk.START_MS + turn


@contextlib.asynccontextmanager
async def open_past(bench: Bench, turns: int) -> AsyncIterator[Past]:
    floor = RawStore(bench.path("past-raw"), "FULL")
    raw_session = floor.add_sessions(1, lambda _: {})
    floor.fill(raw_session, range(turns))
    async with clew.open(f"sqlite:///{bench.path('past-clew')}", config=clew.Config()) as engine:
        mint = Mint()
        session_id = await add_sessions(engine.store, mint, 1, lambda _: {})
        await fill_turns(engine.store, mint, session_id, range(turns))
        users = [message.id for message in await engine.messages(session_id) if message.role == "user"]
        try:
            yield Past(turns, floor, raw_session, engine, session_id, users)
        finally:
            floor.close()
