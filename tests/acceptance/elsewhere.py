"""Several engines on one store, as several processes have it: each with a live layer of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import msgspec

import clew
from clew.live.base import Live
from clew.session.api import Engine
from clew.session.host import Host
from clew.testing.scripted import FakeProviders, Gate, Piece, ScriptedModel, chunks, wait
from clew.transcript import chunk as c

__all__ = ["Pace", "Viewer", "cluster", "see"]


class Pace:
    """A model that goes on by as many chunks as it is let: what it says is ``given``, a gate before each."""

    def __init__(self, given: list[c.Chunk]) -> None:
        self._gates = [Gate() for _ in given]
        self.pieces: list[Piece] = [
            piece for gate, chunk in zip(self._gates, given, strict=True) for piece in (wait(gate), chunks(chunk))
        ]
        self._place = 0

    @property
    def left(self) -> int:
        return len(self._gates) - self._place

    async def go(self, count: int = 1) -> None:
        """So many chunks more; the last of them is on its way to the store when this returns."""
        until = min(self._place + count, len(self._gates))
        for gate in self._gates[self._place : until]:
            gate.set()
        self._place = until
        if until < len(self._gates):
            await self._gates[until].reached.wait()


@contextlib.asynccontextmanager
async def cluster(
    url: str, make_live: Callable[[], Live], model: ScriptedModel, count: int = 2
) -> AsyncIterator[tuple[Engine, ...]]:
    """Engines on one store; the first one has it, the others only look."""
    async with contextlib.AsyncExitStack() as leaving:
        first = await leaving.enter_async_context(clew.open(url, live=make_live(), providers=FakeProviders(model)))
        others: list[Engine] = []
        for _ in range(count - 1):
            live = make_live()
            await live.open()
            leaving.push_async_callback(live.close)
            others.append(_view(msgspec.structs.replace(first.host, live=live)))
        yield first, *others


def _view(host: Host) -> Engine:
    """Return an engine with a host of its own on the same store."""
    return Engine(host.store, host.live, host.lease, lambda: host)


async def see(engine: Engine, session_id: str) -> list[dict[str, Any]]:
    """What a viewer is shown from when it comes to the end."""
    return [chunk async for chunk in engine.attach(session_id)]


class Viewer:
    """One who looks at a session: what it was ``shown``, and whether it ``began`` to be shown something."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self.began = asyncio.Event()
        self.shown = asyncio.create_task(self._look(engine, session_id))

    async def _look(self, engine: Engine, session_id: str) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        async for chunk in engine.attach(session_id):
            shown.append(chunk)
            self.began.set()
        return shown


def sentences(chance: Random, count: int) -> list[c.Chunk]:
    """Texts, thoughts and calls of tools nobody has, some of them beside one another."""
    given: list[c.Chunk] = []
    open_texts: list[str] = []
    for n in range(count):
        kind = chance.randrange(10)
        if kind == 0 or not open_texts:
            open_texts.append(f"t{n}")
            given.append(c.TextStart(f"t{n}"))
        elif kind == 1 and len(open_texts) > 1:
            given.append(c.TextEnd(open_texts.pop(chance.randrange(len(open_texts)))))
        elif kind == 2:
            given += [c.ReasoningStart(f"r{n}"), c.ReasoningDelta(f"r{n}", f"why {n}"), c.ReasoningEnd(f"r{n}")]
        elif kind == 3:
            given.append(c.Data("seen", {"n": n}, "d"))
        else:
            given.append(c.TextDelta(chance.choice(open_texts), f"{n} "))
    return [*given, *(c.TextEnd(id_) for id_ in open_texts)]


async def settle(turns: int = 20) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
