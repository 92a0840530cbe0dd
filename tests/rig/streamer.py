"""The program to kill: it records streams to a real store and reports what it has shown, until it dies.

Started by :mod:`tests.rig.child` as ``python -m tests.rig.streamer ORDERS``. Each event is written to standard output
immediately, as a JSON line; a chunk is reported only from the recorder's ``on_shown``. With ``ack_early`` a chunk is
reported when it is written, before it is durable: that is the control, which the judge must detect.

The script of a stream follows from its seed and message id, so that the stored data can be compared with it. Imports
are minimal: hundreds of these processes are started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from random import Random
from typing import Any, Final, Literal

import msgspec

import clew
from clew.clock import Clock, SystemClock
from clew.config import Config
from clew.errors import ClewError
from clew.ids import Mint
from clew.session.acquire.acquire import settle_session
from clew.session.acquire.loaded_session import load_session_state
from clew.session.api import Engine
from clew.session.prompt.admission import assistant_row
from clew.session.turn.recorder import Recorder
from clew.store.unit import RecordStep
from clew.testing import chunks as build
from clew.testing.clock import FakeClock
from clew.testing.scribe import OpenedTurn, Scribe
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk, wire
from clew.transcript.usage import Usage
from tests.rig.streams import random_stream

__all__ = ["KINDS", "Orders", "StreamOf", "script", "settle_left_open"]

Stage = Literal["stream", "hold", "shared-row", "shared-row-delete"]

KINDS: Final = ("text", "reasoning", "tool-input", "tool-output", "file", "random")
_WORDS: Final = ("thread", "of", "née", "😀", "the", '"quoted"', "labyrinth", "back\\slash", "a", "Ariadne,", "0.5")
_MODEL_ECHO: Final = Usage(3, 2, 1)


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The orders of a child.

    ``stream``: record ``streams`` streams at once, ``turns`` turns each (0: until killed). ``hold``: record half of
    each, with nothing more folded, and wait. ``shared-row``: write two streams to one journal row, fold one of them,
    and wait; ``shared-row-delete``: also delete that one's session. ``wait``: wait for a signal before opening the
    store.
    """

    store: str
    seed: int = 0
    stage: Stage = "stream"
    streams: int = len(KINDS)
    turns: int = 0
    size: int = 200
    ack_early: bool = False
    wait: bool = False
    durability: Literal["process", "power"] = "process"
    event_log: bool = False


class StreamOf(msgspec.Struct, frozen=True):
    """A stream: its message and its script."""

    session_id: str
    message_id: str
    turn_id: str
    user_id: str
    kind: str
    seed: int
    size: int

    def script(self) -> list[Chunk]:
        return script(self.kind, self.seed, self.size, self.message_id)


# Scripts


def script(kind: str, seed: int, size: int, message_id: str) -> list[Chunk]:
    """Return about ``size`` chunks of a stream, the same for the same arguments."""
    random = Random(f"{kind}/{seed}")
    if kind == "random":
        return random_stream(seed, message_id=message_id, size=size)
    steps = _SCRIPTS[kind](random, size)
    return build.reply(*steps, id=message_id)


def _prose(random: Random, words: int) -> str:
    return " ".join(random.choices(_WORDS, k=max(words, 1)))


def _text(random: Random, size: int) -> list[list[Chunk]]:
    return [build.step(build.text(_prose(random, size)))]


def _reasoning(random: Random, size: int) -> list[list[Chunk]]:
    thought = build.reasoning(_prose(random, size * 2 // 3))
    return [build.step(thought, build.text(_prose(random, size // 3)))]


def _tool_input(random: Random, size: int) -> list[list[Chunk]]:
    # Eight characters a delta, five or so a word: two calls whose arguments fill the stream.
    halves = [
        build.tool_call("search", {"query": _prose(random, size * 2 // 3), "n": random.random()}, id=f"c{number}")
        for number in range(2)
    ]
    return [build.step(*halves, build.tool_error("no such place", call="c0"))]


def _tool_output(random: Random, size: int) -> list[list[Chunk]]:
    pieces: list[list[Chunk]] = []
    for number in range(max(size // 5, 1)):
        call = f"c{number}"
        pieces.append(build.tool_call("read", {"path": f"/{number}"}, id=call, streamed=False))
        pieces.append(build.tool_output(_prose(random, 4), call=call, preliminary=True))
        pieces.append(build.tool_output(_prose(random, 8), call=call, preliminary=True))
        pieces.append(build.tool_output({"text": _prose(random, 8), "lines": number}, call=call))
        pieces.append(build.data("progress", {"done": number}, id="p", transient=number % 3 == 0))
    middle = len(pieces) // 2
    return [build.step(*pieces[:middle]), build.step(*pieces[middle:])]


def _file(random: Random, size: int) -> list[list[Chunk]]:
    pieces: list[list[Chunk]] = []
    for number in range(max(size // 6, 1)):
        pieces.append(build.file(f"https://example.invalid/{number}.png"))
        pieces.append(build.text(_prose(random, 3), id=f"t{number}"))
    return [build.step(*pieces)]


_SCRIPTS: Final = {
    "text": _text,
    "reasoning": _reasoning,
    "tool-input": _tool_input,
    "tool-output": _tool_output,
    "file": _file,
}


# Reporting


def _report(*line: Any) -> None:
    """Write a line immediately. A kill may cut it short; the reader drops incomplete lines."""
    data = msgspec.json.encode(line) + b"\n"
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        # The process that started this one has died, and it must not outlive it.
        os._exit(4)


def _report_shown(message_id: str, chunks: Iterable[Chunk]) -> None:
    _report("shown", message_id, [wire(chunk) for chunk in chunks])


# Recording


async def settle_left_open(scribe: Scribe) -> None:
    """Settle a turn that a killed process left open, as the start of a run does."""
    state = await load_session_state(scribe.store, scribe.session_id)
    await settle_session(scribe.store, state, scribe.clock.now_ms())


class _Stream:
    """A turn in progress, whose recorder reports what it shows."""

    def __init__(self, opened: OpenedTurn, kind: str, seed: int, size: int, ack_early: bool) -> None:
        scribe = opened.scribe
        row = assistant_row(scribe.session_id, scribe.mint.message(), scribe.clock.now_ms(), {})
        self.of = StreamOf(scribe.session_id, row.id, opened.id, opened.user.id, kind, seed, size)
        self.opened = opened
        self._ack_early = ack_early
        _report("stream", self.of)
        self.recorder = Recorder(
            scribe.store,
            row,
            turn_id=opened.id,
            epoch=opened.epoch,
            mint=scribe.mint,
            clock=scribe.clock,
            on_shown=None if ack_early else lambda chunks: _report_shown(row.id, chunks),
        )

    async def send(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            if self._ack_early:
                _report_shown(self.of.message_id, [chunk])
            await self.recorder.send(chunk)
            if isinstance(chunk, c.FinishStep):
                self.recorder.add_to_next_sync(RecordStep(self.opened.step(self.of.message_id, _MODEL_ECHO)))
                await self.recorder.flush_synced()
                _report("step", self.of.message_id)
                await self.recorder.end_step()

    async def close(self) -> None:
        if self._ack_early:
            _report("settled", self.of.message_id)
        await self.recorder.close(*self.opened.settling())
        if not self._ack_early:
            _report("settled", self.of.message_id)


async def _record(scribe: Scribe, orders: Orders, index: int) -> None:
    """Record turns in one session, a few chunks at a time, as a model sends them."""
    await settle_left_open(scribe)
    turn = 0
    while not orders.turns or turn < orders.turns:
        seed = (orders.seed * 1_000 + turn) * 100 + index
        random = Random(seed)
        opened = await scribe.prompt(f"turn {seed}")
        size = random.randint(orders.size // 4, orders.size)
        stream = _Stream(opened, KINDS[(index + turn) % len(KINDS)], seed, size, orders.ack_early)
        chunks = stream.of.script()
        while chunks:
            burst = min(random.choice((1, 1, 1, 2, 3, 8)), len(chunks))
            await stream.send(chunks[:burst])
            del chunks[:burst]
            await asyncio.sleep(0)
        await stream.close()
        turn += 1


async def _sessions(engine: Engine, orders: Orders, clock: Clock) -> list[Scribe]:
    """Return the existing sessions, and new ones up to the required number."""
    store, mint = engine.store, Mint(clock)
    scribes = [Scribe(store, id_, mint, clock) for id_ in (await store.session_ids())[: orders.streams]]
    while len(scribes) < orders.streams:
        scribes.append(await Scribe.create(store, mint=mint, clock=clock, metadata={"title": f"stream {len(scribes)}"}))
    return scribes


async def _record_all(orders: Orders) -> None:
    async with _opened(orders, None) as engine:
        scribes = await _sessions(engine, orders, SystemClock())
        await asyncio.gather(*(_record(scribe, orders, index) for index, scribe in enumerate(scribes)))


@contextlib.asynccontextmanager
async def _opened(orders: Orders, clock: Clock | None, window_ms: float = 0.0) -> AsyncIterator[Engine]:
    config = Config(durability=orders.durability, group_window_ms=window_ms, event_log=orders.event_log)
    async with clew.open(orders.store, config=config, clock=clock) as engine:
        _report("ready")
        yield engine


# Stages: states that are created on purpose. Their clock is fixed, so that nothing folds automatically.


def _wait() -> None:
    """Wait for a signal from the process that started this one, or its end."""
    os.read(0, 1)


async def _hold(orders: Orders) -> None:
    clock = FakeClock()
    async with _opened(orders, clock) as engine:
        streams = []
        for index, scribe in enumerate(await _sessions(engine, orders, clock)):
            stream = _Stream(await scribe.prompt("hold"), "text", orders.seed + index, orders.size, orders.ack_early)
            streams.append(stream)
            chunks = stream.of.script()
            for chunk in chunks[: len(chunks) // 2]:
                await stream.send([chunk])
                await stream.recorder.flush()
        _report("staged")
        await asyncio.to_thread(_wait)
        for stream in streams:
            stream.recorder.abandon()


async def _share_row(orders: Orders) -> None:
    clock = FakeClock()
    # The writer waits a moment before each commit, so what two streams send at once shares it.
    async with _opened(orders, clock, window_ms=20.0) as engine:
        scribes = await _sessions(engine, msgspec.structs.replace(orders, streams=2), clock)
        streams = [
            _Stream(await scribe.prompt("share"), "text", orders.seed + index, orders.size, orders.ack_early)
            for index, scribe in enumerate(scribes)
        ]
        scripts = [stream.of.script() for stream in streams]
        text = [next(index for index, chunk in enumerate(chunks) if isinstance(chunk, c.TextEnd)) for chunks in scripts]
        # Everything before the text first, one stream after the other: it is folded immediately, one fold at a time.
        for stream, chunks in zip(streams, scripts, strict=True):
            await stream.send(chunks[:2])
            await stream.recorder.flush()
        # Then the text of both, which only extends a part.
        for stream, chunks in zip(streams, scripts, strict=True):
            await stream.send(chunks[2:12])
        await asyncio.gather(*(stream.recorder.flush() for stream in streams))
        await streams[0].send(scripts[0][12 : text[0] + 1])
        await streams[0].recorder.flush()
        if orders.stage == "shared-row-delete":
            await engine.delete_session(scribes[0].session_id)
        _report("staged")
        await asyncio.to_thread(_wait)
        for stream in streams:
            stream.recorder.abandon()


def main() -> int:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    if orders.wait:
        _report("up")
        _wait()
    run = {"stream": _record_all, "hold": _hold}.get(orders.stage, _share_row)
    try:
        asyncio.run(run(orders))
    except ClewError as error:
        _report("refused", error.code, str(error), {key: str(value) for key, value in error.ids.items()})
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
