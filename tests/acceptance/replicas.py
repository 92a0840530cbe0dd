"""Several engines on one store, as several machines are: each with a live layer, a clock and a heartbeat of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import clew
from clew import compose
from clew.errors import StoreUnavailable
from clew.live.base import Signal
from clew.live.local import LocalLive
from clew.session.api import Engine
from clew.store.base import Capabilities, Store
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.unit import STORE_WIDE, BeatReplica, JoinReplica, Outcome, Unit
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel

LEASE_MS = 15_000
_NEVER_MS = 86_400_000


class OneOfSeveral:
    """A store as one of several processes has it: its own way there may be cut, and closing it leaves the others be.

    What is ``slow`` is answered when its gate is opened. Replicas beat when a test says so and the store goes by the
    machine's clock, so a lease lapses there by :meth:`Cluster.lapse` alone, however slow the machine is.
    """

    def __init__(self, store: Store, slow: dict[str, Gate] | None = None) -> None:
        self._store = store
        self._slow = slow or {}
        self.cut = False
        self.commits = 0

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self._store.capabilities, many_processes=True)

    def watch(self, listener: Callable[[Unit], None]) -> None:
        pass

    async def commit(self, unit: Unit) -> Outcome:
        if self.cut:
            raise StoreUnavailable("the database cannot be reached")
        writes = tuple(
            msgspec.structs.replace(write, lease_ms=_NEVER_MS)
            if isinstance(write, JoinReplica | BeatReplica)
            else write
            for write in unit.writes
        )
        outcome = await self._store.commit(msgspec.structs.replace(unit, writes=writes))
        self.commits += 1
        return outcome

    async def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._store, name)
        if name not in self._slow:
            return asked

        async def late(*given: Any) -> Any:
            await self._slow[name].wait()
            return await asked(*given)

        return late


class Signals:
    """What carries signals between live layers; nothing arrives while ``lost``."""

    def __init__(self) -> None:
        self.lives: list[LocalLive] = []
        self.lost = False


class OneLive(LocalLive):
    """The live layer of one process: of the others it hears signals, and nothing else."""

    def __init__(self, signals: Signals) -> None:
        super().__init__()
        self._signals = signals
        signals.lives.append(self)

    def signal(self, signal: Signal) -> None:
        if not self._signals.lost:
            for live in self._signals.lives:
                LocalLive.signal(live, signal)


class Apart(NamedTuple):
    """A replica, and how it is closed."""

    engine: Engine
    close: Callable[[], Awaitable[None]]


class Cluster:
    """The store, and whoever serves it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.signals = Signals()
        self.stores: list[OneOfSeveral] = []
        self.engines: list[Engine] = []
        self.frozen: list[Engine] = []
        self.stack = contextlib.AsyncExitStack()

    async def join(self, script: Any = (), **options: Any) -> Engine:
        """One more, with a model of its own."""
        model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
        engine = await self.stack.enter_async_context(self.open(model, **options))
        self.engines.append(engine)
        return engine

    @contextlib.asynccontextmanager
    async def open(
        self, model: ScriptedModel, slow: dict[str, Gate] | None = None, **options: Any
    ) -> AsyncIterator[Engine]:
        async def shared(*_: Any) -> Any:
            self.stores.append(OneOfSeveral(self.store, slow))
            return self.stores[-1]

        known, compose._open_store = compose._open_store, shared  # type: ignore[assignment]
        try:
            entered = clew.open(
                "memory:",
                providers=FakeProviders(model),
                live=OneLive(self.signals),
                **{"config": clew.Config(), "clock": FakeClock(), **options},
            )
            engine = await entered.__aenter__()
        finally:
            compose._open_store = known
        try:
            yield engine
        finally:
            await entered.__aexit__(None, None, None)

    async def open_apart(self, script: Any = (), **options: Any) -> Apart:
        """One more, which ends before the others do."""
        leaving = contextlib.AsyncExitStack()
        engine = await leaving.enter_async_context(self.open(ScriptedModel(script), **options))
        return Apart(engine, leaving.aclose)

    async def freeze(self, engine: Engine) -> None:
        """Let the lease of a replica lapse, which does not notice it: as if it were stopped by a signal."""
        assert engine.host.lease.replica_id is not None
        self.frozen.append(engine)
        await self.lapse(engine.host.lease.replica_id)

    async def lapse(self, replica_id: str) -> None:
        await self.store.commit(Unit(STORE_WIDE, (BeatReplica(replica_id, 0),)))

    async def beat(self, *engines: Engine) -> None:
        for engine in engines:
            await engine._runtime.heartbeat.beat()
            await engine._runtime.heartbeat.look()


@contextlib.asynccontextmanager
async def open_cluster(kind: str, folder: Path) -> AsyncIterator[Cluster]:
    store: Store = MemoryStore() if kind == "memory" else await open_sqlite(folder / "store.db")
    cluster = Cluster(store, folder)
    try:
        async with cluster.stack:
            yield cluster
    finally:
        await store.close()
