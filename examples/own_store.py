"""A store of your own: sessions in memory, and a trail of every write on disk before its caller is answered.

It is clew's memory store with one more step in each commit. If the trail cannot be written, the commit is rolled back.
A store from the ground up implements ``clew.store.base.Store``; ``clew.testing.store_suite`` verifies either kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import clew
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.unit import Committed, Outcome, Unit


class TrailStore(MemoryStore):
    """A memory store with a trail, one line for each unit: its time, session and kinds of writes."""

    def __init__(self, trail: Path) -> None:
        super().__init__(before_commit=self._write_trail)
        self._trail = os.open(trail, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @property
    def url(self) -> str:
        return "trail:"

    def _write_trail(self, units: Sequence[Unit], outcomes: Sequence[Outcome]) -> None:
        """Write the units that were applied. Called inside their transaction; an error rolls it back."""
        at = round(time.time() * 1000)
        committed = [unit for unit, outcome in zip(units, outcomes, strict=True) if isinstance(outcome, Committed)]
        lines = [
            json.dumps(
                {"at": at, "session": unit.session_id, "writes": [type(write).__name__ for write in unit.writes]}
            )
            for unit in committed
        ]
        os.write(self._trail, "".join(f"{line}\n" for line in lines).encode())
        if any(unit.sync == "power" for unit in committed):
            os.fsync(self._trail)

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
