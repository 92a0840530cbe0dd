"""The world of the chaos campaign: replicas on one store, what lies between them, and everything that goes wrong."""

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
from clew.store.sql.postgres.migrate import SCHEMA_VERSION
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
_ADDS: Final = """
CREATE TABLE next_version (id BIGINT PRIMARY KEY);
DO $$ DECLARE name TEXT; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_versions' LOOP
        EXECUTE format('ALTER TABLE %I ADD COLUMN of_the_next_version TEXT NOT NULL DEFAULT %L', name, 'new');
    END LOOP;
END $$;
"""
"""What the next version of clew adds: a table, and a column to every table there is."""
_RUNS: Final = "status IN ('running', 'retrying', 'compacting')"


@dataclass(frozen=True)
class Shape:
    """How large a world is. Without Valkey, PostgreSQL carries the live layer too."""

    sessions: int = 50
    replicas: int = 3
    valkey: bool = True
    lease_s: float = 4.0
    words: int = 30
    think_s: float = 3.0
    calm_s: float = 2.0
    """About how long everybody acts before each fault."""
    outlasts: float = 3.0
    """How many leases a fault lasts that is to outlast one; the others are over before it is."""
    fencing: bool = True


class Truth:
    """What the store says, asked past every replica."""

    def __init__(self, server: Postgres, database: str) -> None:
        self._server = server
        self._database = database

    def running(self) -> list[tuple[str, str]]:
        """(session, turn) of each turn that a run is said to be at work on."""
        statement = f"SELECT session_id, id FROM chat_turns WHERE {_RUNS}"
        return [(str(session), str(turn)) for session, turn in self._server.ask_in(self._database, statement)]

    def versions(self) -> list[int]:
        """Each version of the format that was noted."""
        statement = "SELECT number FROM schema_versions ORDER BY number"
        return [int(number) for (number,) in self._server.ask_in(self._database, statement)]

    def run_by(self, url: str) -> set[str]:
        """The turns at work whose runner is the replica at this address."""
        statement = (
            "SELECT t.id FROM chat_turns t JOIN session_state s ON s.open_turn_id = t.id "
            f"JOIN replicas r ON r.id = s.runner WHERE r.url = %s AND t.{_RUNS}"
        )
        return {str(turn) for (turn,) in self._server.ask_in(self._database, statement, url)}


@dataclass(frozen=True)
class Struck:
    """What goes wrong: at which replica, and which turns it is at work on."""

    fault: Fault
    victim: int | None
    orphans: frozenset[str]


class World:
    """Everything is started by ``opened`` and gone after it."""

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
        with contextlib.ExitStack() as leaving:
            await asyncio.to_thread(world._open, leaving)
            try:
                yield world
            finally:
                await asyncio.to_thread(leaving.close)

    def _open(self, leaving: contextlib.ExitStack) -> None:
        self.folder = Path(leaving.enter_context(tempfile.TemporaryDirectory(prefix="clew-chaos-")))
        token = secrets.token_urlsafe(16)
        stores = list(self._stores(leaving))
        live: dict[str, str] = {}
        if self.shape.valkey:
            self._valkey = Valkey()
            leaving.callback(self._valkey.close)
            live = {"CLEW_LIVE": self._valkey.url()}
        command = [CLEW] if self.shape.fencing else [sys.executable, "-m", "tests.rig.unfenced"]
        for number, store in enumerate(stores):
            lease = {"CLEW_LEASE_S": str(self.shape.lease_s), "PYTHONPATH": _path()}
            env = own_environment(self.folder / f"home{number}", CLEW_STORE=store, CLEW_TOKEN=token, **live, **lease)
            replica = Replica(env, command=command)
            leaving.callback(replica.close)
            self.replicas.append(replica)
            self.clients.append(SocketClient(replica.port, token))
            replica.begin()
        for replica in self.replicas:
            replica.until_up()

    def _stores(self, leaving: contextlib.ExitStack) -> Iterator[str]:
        """The address of the store for each replica, through a proxy of its own."""
        self._postgres = Postgres()
        leaving.callback(self._postgres.close)
        database = self._postgres.create()
        self.truth = Truth(self._postgres, database)
        for _ in range(self.shape.replicas):
            proxy = Proxy(self._postgres.socket)
            leaving.callback(proxy.close)
            self._proxies.append(proxy)
            yield self._postgres.url(database, proxy.address)

    # ---------------------------------------------------------------- what goes wrong

    def faults(self) -> tuple[Fault, ...]:
        alive: tuple[Fault, ...] = ("valkey killed", "valkey wiped") if self._valkey is not None else ()
        return ("kill", "zombie", "cut", "stall", *alive, "postgres restarted", "ended", "upgraded")

    async def aim(self, fault: Fault, random: Random) -> Struck:
        """What it will hit: a replica, and the turns that are at work there."""
        hurts = fault in ("kill", "zombie", "cut", "stall", "ended", "upgraded")
        victim = random.randrange(len(self.replicas)) if hurts else None
        orphans: set[str] = set()
        # One that is ended in order lets its runs go on for a while: nobody has to take them over.
        if victim is not None and fault not in ("ended", "upgraded"):
            orphans = await asyncio.to_thread(self.truth.run_by, self.replicas[victim].url)
        return Struck(fault, victim, frozenset(orphans))

    async def strike(self, struck: Struck, random: Random) -> None:
        """Do it, keep it up for a while, and mend it; half of the time it is over before the lease is."""
        lasts = self.shape.lease_s * random.choice((0.4, self.shape.outlasts))
        await asyncio.to_thread(self._begin, struck.fault, struck.victim)
        if struck.fault == "upgraded":
            # One is taken back, and it is two versions side by side that people act on.
            await asyncio.to_thread(self._mend, struck.fault, struck.victim)
            await asyncio.sleep(self.shape.calm_s)
            return
        await asyncio.sleep(lasts)
        await asyncio.to_thread(self._mend, struck.fault, struck.victim)

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

    def _mend(self, fault: Fault, victim: int | None) -> None:
        match fault, victim:
            case (("kill" | "ended"), int(at)):
                self.replicas[at].start()
            case "upgraded", int(at):
                # Somebody takes it back: from now on two versions run side by side.
                self.replicas[at].end()
                self.replicas[at].start(PYTHONPATH=_path())
            case "zombie", int(at):
                self.replicas[at].resume()
            case (("cut" | "stall"), int(at)):
                self._proxies[at].mend()
            case "valkey killed", _ if self._valkey is not None:
                self._valkey.start()

    def _next_version(self) -> Path:
        """A folder with this clew and one more migration."""
        folder = self.folder / "next"
        if not folder.exists():
            package = Path(clew.__file__).parent
            shutil.copytree(package, folder / "clew", ignore=shutil.ignore_patterns("__pycache__"))
            migrations = folder / "clew/store/sql/postgres/migrations"
            (migrations / f"{_NEXT:04}_of_the_next_version.sql").write_text(_ADDS)
        return folder

    def logs(self) -> str:
        """What the replicas have to say that is more than news."""
        told = []
        for number, replica in enumerate(self.replicas):
            lines = (replica.folder / "log").read_text(errors="replace").splitlines()
            told += [f"replica {number}: {line}" for line in lines if " INFO " not in line][-40:]
        return "\n".join(told)


def _path(*first: Path) -> str:
    return ":".join([*map(str, first), *filter(None, (os.environ.get("PYTHONPATH"), str(ROOT)))])
