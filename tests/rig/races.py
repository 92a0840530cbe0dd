"""Races: many replicas acquire one session at once, and exactly one must succeed.

``python -m tests.rig.races ROUNDS [WHERE]`` runs this many races, in memory, on the PostgreSQL at a URL, or with
``postgresql`` on one from the wheel. On PostgreSQL each replica has its own connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

from clew.session.acquire.acquire import plan_open
from clew.session.acquire.loaded_session import load_session_state
from clew.store.base import Store
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.unit import STORE_WIDE, Committed, JoinReplica, MoveHead, SetTurn, Unit
from clew.testing.scribe import Scribe, user_row

REPLICAS = 6
LEASE_MS = 3_600_000


async def race(stores: list[Store], rounds: int) -> list[int]:
    """Return the number of replicas that acquired the session, per round. All read it before any writes."""
    scribe = await Scribe.create(stores[0])
    names = [f"r{n}" for n in range(REPLICAS)]
    joins = tuple(JoinReplica(name, None, "1", LEASE_MS) for name in names)
    await stores[0].commit(Unit(STORE_WIDE, joins))
    winners = []
    for n in range(rounds):
        if n % 100 == 99:
            # A long session takes longer to read, which is not tested here.
            scribe = await Scribe.create(stores[0])
        attempts = [(stores[i % len(stores)], name, scribe.mint.turn()) for i, name in enumerate(names)]
        states = await asyncio.gather(*(load_session_state(store, scribe.session_id) for store, _, _ in attempts))
        units = [
            plan_open(state, turn, user_row(scribe.mint, scribe.session_id, f"{n}", n), runner=name)
            for state, (_, name, turn) in zip(states, attempts, strict=True)
        ]
        outcomes = await asyncio.gather(
            *(store.commit(unit) for unit, (store, _, _) in zip(units, attempts, strict=True))
        )
        acquired = [
            turn for outcome, (_, _, turn) in zip(outcomes, attempts, strict=True) if isinstance(outcome, Committed)
        ]
        winners.append(len(acquired))
        for turn in acquired:
            await scribe.commit(SetTurn(turn, "completed", settled_at=n), MoveHead(turn, n, "turn"))
    return winners


async def main(rounds: int, where: str) -> int:
    stores: list[Store] = [MemoryStore()]
    with contextlib.ExitStack() as running:
        if where != "memory":
            # The drivers are imported only for a server.
            from clew.store.sql.postgres.opening import open_postgres
            from tests.services.postgres import Postgres

            if where == "postgresql":
                server = Postgres(fsync=False)
                running.callback(server.close)
                where = server.url(server.create())
            stores = [await open_postgres(where) for _ in range(REPLICAS)]
        begun = time.monotonic()
        try:
            winners = await race(stores, rounds)
        finally:
            for store in stores:
                await store.close()
    wrong = [n for n, count in enumerate(winners) if count != 1]
    took = f"{time.monotonic() - begun:.0f} s"
    print(f"{rounds} races of {REPLICAS} replicas, {len(wrong)} without exactly one winner, {took}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "memory")))
