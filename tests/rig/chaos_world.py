"""The cluster of the chaos campaign: replicas on one store, their proxies, and the faults."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Literal

import clew
from clew.store.sql.postgres.opening import SCHEMA_VERSION
from tests.integration.http_client import SocketClient
from tests.services.postgres import Postgres
from tests.services.proxy import Proxy
from tests.services.replica import CLEW, Replica, own_environment
from tests.services.valkey import Valkey

__all__ = ["Fault", "Shape", "Struck", "Truth", "World"]

Fault = Literal[
    "kill", "zombie", "cut", "stall", "valkey killed", "valkey wiped", "postgres restarted", "ended", "upgraded"
]

ROOT: Final = Path(__file__).parents[2]
_NEXT: Final = SCHEMA_VERSION + 1
_NEXT_MIGRATION: Final = """
CREATE TABLE next_version (id BIGINT PRIMARY KEY);
DO $$ DECLARE name TEXT; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_versions' LOOP
        EXECUTE format('ALTER TABLE %I ADD COLUMN of_the_next_version TEXT NOT NULL DEFAULT %L', name, 'new');
    END LOOP;
END $$;
"""
"""The migration of a simulated next version: a table, and a column in every existing table."""
_RUNS: Final = "status IN ('running', 'retrying', 'compacting')"


@dataclass(frozen=True)
class Shape:
    """The size of a cluster. Without Valkey, PostgreSQL also carries the live layer."""

    sessions: int = 50
    replicas: int = 3
    valkey: bool = True
    lease_s: float = 4.0
    words: int = 30
    think_s: float = 3.0
    calm_s: float = 2.0
    """Average time in which the users act before each fault."""
    outlasts: float = 3.0
    """Duration of long faults, in leases; short ones end before the lease does."""
    fencing: bool = True


class Truth:
    """The state of the store, read directly."""

    def __init__(self, server: Postgres, database: str) -> None:
        self._server = server
        self._database = database

    def running(self) -> list[tuple[str, str]]:
        """Return (session, turn) of each running turn."""
        statement = f"SELECT session_id, id FROM chat_turns WHERE {_RUNS}"
        return [(str(session), str(turn)) for session, turn in self._server.ask_in(self._database, statement)]

    def versions(self) -> list[int]:
        """Return the recorded versions of the schema."""
        statement = "SELECT number FROM schema_versions ORDER BY number"
        return [int(number) for (number,) in self._server.ask_in(self._database, statement)]

    def run_by(self, url: str) -> set[str]:
        """Return the running turns whose runner is the replica at this URL."""
        statement = (
            "SELECT t.id FROM chat_turns t JOIN session_state s ON s.open_turn_id = t.id "
            f"JOIN replicas r ON r.id = s.runner WHERE r.url = %s AND t.{_RUNS}"
        )
        return {str(turn) for (turn,) in self._server.ask_in(self._database, statement, url)}


@dataclass(frozen=True)
class Struck:
    """A fault: its replica, and the turns running there."""

    fault: Fault
    victim: int | None
    orphans: frozenset[str]


class World:
    """A cluster. ``opened`` starts and stops everything."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.folder: Path
        self.truth: Truth
        self.replicas: list[Replica] = []
        self.clients: list[SocketClient] = []
        self._postgres: Postgres | None = None
        self._valkey: Valkey | None = None
        self._proxies: list[Proxy] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, shape: Shape) -> AsyncIterator[World]:
        world = cls(shape)
        with contextlib.ExitStack() as cleanup:
            await asyncio.to_thread(world._open, cleanup)
            try:
                yield world
            finally:
                await asyncio.to_thread(cleanup.close)

    def _open(self, cleanup: contextlib.ExitStack) -> None:
        self.folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="clew-chaos-")))
        token = secrets.token_urlsafe(16)
        stores = list(self._stores(cleanup))
        live: dict[str, str] = {}
        if self.shape.valkey:
            self._valkey = Valkey()
            cleanup.callback(self._valkey.close)
            live = {"CLEW_LIVE": self._valkey.url()}
        command = [CLEW] if self.shape.fencing else [sys.executable, "-m", "tests.rig.unfenced"]
        for number, store in enumerate(stores):
            lease = {"CLEW_LEASE_S": str(self.shape.lease_s), "PYTHONPATH": _path()}
            env = own_environment(self.folder / f"home{number}", CLEW_STORE=store, CLEW_TOKEN=token, **live, **lease)
            replica = Replica(env, command=command)
            cleanup.callback(replica.close)
            self.replicas.append(replica)
            self.clients.append(SocketClient(replica.port, token))
            replica.begin()
        for replica in self.replicas:
            replica.until_up()

    def _stores(self, cleanup: contextlib.ExitStack) -> Iterator[str]:
        """Yield the URL of the store for each replica, through its own proxy."""
        self._postgres = Postgres()
        cleanup.callback(self._postgres.close)
        database = self._postgres.create()
        self.truth = Truth(self._postgres, database)
        for _ in range(self.shape.replicas):
            proxy = Proxy(self._postgres.socket)
            cleanup.callback(proxy.close)
            self._proxies.append(proxy)
            yield self._postgres.url(database, proxy.address)

    # ---------------------------------------------------------------- faults

    def faults(self) -> tuple[Fault, ...]:
        alive: tuple[Fault, ...] = ("valkey killed", "valkey wiped") if self._valkey is not None else ()
        return ("kill", "zombie", "cut", "stall", *alive, "postgres restarted", "ended", "upgraded")

    async def aim(self, fault: Fault, random: Random) -> Struck:
        """Choose the replica that a fault hits, and return its running turns."""
        hits_replica = fault in ("kill", "zombie", "cut", "stall", "ended", "upgraded")
        victim = random.randrange(len(self.replicas)) if hits_replica else None
        orphans: set[str] = set()
        # A replica that stops gracefully finishes its runs; no other replica has to take them over.
        if victim is not None and fault not in ("ended", "upgraded"):
            orphans = await asyncio.to_thread(self.truth.run_by, self.replicas[victim].url)
        return Struck(fault, victim, frozenset(orphans))

    async def strike(self, struck: Struck, random: Random) -> None:
        """Cause the fault, wait, and end it; half of the faults end before the lease does."""
        duration = self.shape.lease_s * random.choice((0.4, self.shape.outlasts))
        await asyncio.to_thread(self._begin, struck.fault, struck.victim)
        if struck.fault == "upgraded":
            # One replica is downgraded, so that users act on two versions.
            await asyncio.to_thread(self._restore, struck.fault, struck.victim)
            await asyncio.sleep(self.shape.calm_s)
            return
        await asyncio.sleep(duration)
        await asyncio.to_thread(self._restore, struck.fault, struck.victim)

    def _begin(self, fault: Fault, victim: int | None) -> None:
        match fault, victim:
            case "kill", int(at):
                self.replicas[at].kill()
            case "ended", int(at):
                self.replicas[at].end()
            case "zombie", int(at):
                self.replicas[at].pause()
            case "cut", int(at):
                self._proxies[at].cut()
            case "stall", int(at):
                self._proxies[at].stall()
            case "valkey killed", _ if self._valkey is not None:
                self._valkey.stop()
            case "valkey wiped", _ if self._valkey is not None:
                self._valkey.wipe()
            case "postgres restarted", _ if self._postgres is not None:
                self._postgres.restart()
            case "upgraded", _:
                newer = self._next_version()
                for replica in self.replicas:
                    replica.end()
                    replica.start(PYTHONPATH=_path(newer))
                assert self.truth.versions()[-1] == _NEXT, self.truth.versions()

    def _restore(self, fault: Fault, victim: int | None) -> None:
        match fault, victim:
            case (("kill" | "ended"), int(at)):
                self.replicas[at].start()
            case "upgraded", int(at):
                # Downgrade it: from now on two versions run concurrently.
                self.replicas[at].end()
                self.replicas[at].start(PYTHONPATH=_path())
            case "zombie", int(at):
                self.replicas[at].resume()
            case (("cut" | "stall"), int(at)):
                self._proxies[at].restore()
            case "valkey killed", _ if self._valkey is not None:
                self._valkey.start()

    def _next_version(self) -> Path:
        """Create a folder with this clew and one more migration."""
        folder = self.folder / "next"
        if not folder.exists():
            package = Path(clew.__file__).parent
            shutil.copytree(package, folder / "clew", ignore=shutil.ignore_patterns("__pycache__"))
            migrations = folder / "clew/store/sql/postgres/migrations"
            (migrations / f"{_NEXT:04}_of_the_next_version.sql").write_text(_NEXT_MIGRATION)
        return folder

    def logs(self) -> str:
        """Return the last log lines of the replicas above INFO."""
        reported = []
        for number, replica in enumerate(self.replicas):
            lines = (replica.folder / "log").read_text(errors="replace").splitlines()
            reported += [f"replica {number}: {line}" for line in lines if " INFO " not in line][-40:]
        return "\n".join(reported)


def _path(*first: Path) -> str:
    return ":".join([*map(str, first), *filter(None, (os.environ.get("PYTHONPATH"), str(ROOT)))])
