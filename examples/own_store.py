"""A store of your own: sessions in memory, and a trail of every write on disk before anybody is told of it.

It is clew's memory store with one method changed. A store from the ground up does what ``clew.store.base.Store`` says;
in either case ``clew.testing.store_suite`` tells whether it keeps every promise.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import clew
from clew.store.memory.store import MemoryStore
from clew.store.unit import Committed, Outcome, Unit


class TrailStore(MemoryStore):
    """What was written, one line for each unit: when, to which session, which kinds of writes."""

    def __init__(self, trail: Path) -> None:
        super().__init__()
        self._trail = os.open(trail, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @property
    def url(self) -> str:
        return "trail:"

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        """In memory a unit is carried out at once; whoever waits for it hears of it when this has returned."""
        told = super().submit(unit)
        if told.exception() is None and isinstance(told.result(), Committed):
            kinds = [type(write).__name__ for write in unit.writes]
            line = json.dumps({"at": round(time.time() * 1000), "session": unit.session_id, "writes": kinds})
            os.write(self._trail, line.encode() + b"\n")
            if unit.sync == "power":
                os.fsync(self._trail)
        return told

    async def close(self) -> None:
        await super().close()
        if self._trail >= 0:
            os.close(self._trail)
            self._trail = -1


async def main() -> None:
    trail = Path("trail.jsonl")
    async with clew.open(TrailStore(trail)) as engine:
        session = await engine.create_session(model="demo/echo")
        await (await engine.submit(session.id, "Walk softly.")).wait()
        print((await engine.messages(session.id))[-1].texts)


if __name__ == "__main__":
    asyncio.run(main())
    print(Path("trail.jsonl").read_text(encoding="utf-8"))
