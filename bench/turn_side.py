"""TURN: one side, in its own process: ``python -m bench.turn_side SIDE HISTORY TURNS FOLDER``.

``hand`` is a hand-written loop: it reads the history, commits and syncs the prompt, calls the model and its tool, and
commits and syncs the whole answer. ``journal`` also commits each delta as a row before it is shown. ``clew`` is the
public engine. It prints a line of JSON; times are in milliseconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Final

import orjson

import clew
from bench import talk
from bench.fill import fill_turns
from bench.measure import median, settle
from bench.process import peak_mb, written_bytes
from bench.raw import RawStore
from bench.turn_work import TOOL, TurnWork, history, turn_work
from clew.providers.base import ModelInfo, ModelRequest, StepEnd
from clew.session.api import Engine
from clew.testing.scripted import FakeProviders
from clew.tools.decorator import FunctionTool
from clew.transcript import chunk as c
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["main", "measure_side"]

_WARM: Final = 4
"""Warm-up turns, which do not count."""
_CHUNKS: Final = "CREATE TABLE chunks (n INTEGER PRIMARY KEY, message_id TEXT NOT NULL, data TEXT NOT NULL)"


class _Marks:
    """Timestamps of the current turn."""

    def __init__(self) -> None:
        self.begin = self.model = self.first = 0.0

    def start(self) -> None:
        self.begin, self.model, self.first = time.perf_counter(), 0.0, 0.0

    def called(self) -> None:
        self.model = self.model or time.perf_counter()

    def shown(self) -> None:
        self.first = self.first or time.perf_counter()


class _Model:
    """A model that follows the turn's script: the tool call first, then the reply."""

    def __init__(self, marks: _Marks) -> None:
        self._marks = marks
        self.work = turn_work(0)
        self._calls = 0

    async def stream(self, request: ModelRequest | None) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        self._marks.called()
        self._calls += 1
        work = self.work
        if self._calls % 2:
            yield c.ToolInputStart(work.call_id, TOOL)
            for delta in work.arguments:
                yield c.ToolInputDelta(work.call_id, delta)
            yield c.ToolInputAvailable(work.call_id, TOOL, work.call_input)
        else:
            yield c.TextStart("t1")
            for delta in work.deltas:
                yield c.TextDelta("t1", delta)
            yield c.TextEnd("t1")
        yield StepEnd(usage=Usage(*talk.USAGE))

    async def close(self) -> None:
        pass


def _providers(model: _Model) -> FakeProviders:
    """Return providers with a context window that never fills; compaction is measured elsewhere."""
    return FakeProviders(model, infos=[ModelInfo(model=Model("test", "model"), window=100_000_000, max_output=4_000)])


class _Hand:
    """The floor: reads the model's input from the store at each turn, as hand-written loops do."""

    def __init__(self, path: Path, model: _Model, turns: int, *, journal: bool) -> None:
        self._store = RawStore(path, "FULL")
        self._session = self._store.add_sessions(1, lambda _: {})
        for work in history(turns):
            self._store.ask(self._session, work.prompt, talk.START_MS + work.number)
            self._store.answer(self._session, work.parts(), talk.START_MS + work.number)
        self._model = model
        self._journal = journal
        self._connection = self._store.connection
        self._connection.execute(_CHUNKS)

    async def turn(self, work: TurnWork) -> AsyncIterator[str]:
        now = talk.START_MS + work.number
        sent = self._store.load(self._session)
        self._store.ask(self._session, work.prompt, now)
        sent.append({"role": "user", "parts": [{"type": "text", "text": work.prompt}]})
        parts: list[dict[str, Any]] = []
        self._connection.execute("PRAGMA synchronous = NORMAL")
        for _ in range(2):
            texts: list[str] = []
            async for chunk in self._model.stream(None):
                if isinstance(chunk, c.ToolInputDelta):
                    texts.append(self._durable(work, chunk.input_text_delta))
                elif isinstance(chunk, c.TextDelta):
                    texts.append(self._durable(work, chunk.delta))
                    yield chunk.delta
            if not parts:
                arguments = orjson.loads("".join(texts))
                call = {"type": f"tool-{TOOL}", "toolCallId": work.call_id, "state": "output-available"}
                parts += [{"type": "step-start"}, {**call, "input": arguments, "output": work.output}]
                sent.append({"role": "assistant", "parts": [*parts]})
            else:
                parts += [{"type": "step-start"}, {"type": "text", "text": "".join(texts), "state": "done"}]
        self._connection.execute("DELETE FROM chunks")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._store.answer(self._session, parts, now)

    def _durable(self, work: TurnWork, delta: str) -> str:
        if self._journal:
            execute = self._connection.execute
            execute("BEGIN IMMEDIATE")
            execute(
                "INSERT INTO chunks (message_id, data) VALUES (?, ?)",
                (work.call_id, orjson.dumps({"type": "delta", "id": "t1", "delta": delta}).decode()),
            )
            execute("COMMIT")
        return delta


async def look_up(path: str, about: str) -> str:
    """Look up what a module says about a topic."""
    number = int(path.removeprefix("src/module_").removesuffix(".py"))
    return _OUTPUTS[number]


_OUTPUTS: Final[dict[int, str]] = {}


class _Clew:
    """The engine, as a program that embeds it uses it."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self._engine = engine
        self._session_id = session_id

    async def turn(self, work: TurnWork) -> AsyncIterator[str]:
        async for chunk in self._engine.run(self._session_id, work.prompt):
            if chunk["type"] == "text-delta":
                yield chunk["delta"]


async def measure_side(side: str, turns: int, count: int, path: Path) -> dict[str, float]:
    marks = _Marks()
    model = _Model(marks)
    if side != "clew":
        return await _turns(_Hand(path, model, turns, journal=side == "journal"), model, marks, turns, count)
    url, tools = f"sqlite:///{path}", [FunctionTool(look_up)]
    parts = {work.number: work.parts() for work in history(turns)}
    async with clew.open(url, config=clew.Config(), providers=_providers(model), tools=tools) as engine:
        session = await engine.create_session(title="bench")
        rule = {"permission": TOOL, "pattern": "*", "action": "allow"}
        await engine.set_permissions(session.id, [rule])
        await fill_turns(engine.store, engine.mint, session.id, range(turns), parts.__getitem__)
    parts.clear()
    # Opened again: nothing is cached from writing the history.
    async with clew.open(url, config=clew.Config(), providers=_providers(model), tools=tools) as engine:
        return await _turns(_Clew(engine, session.id), model, marks, turns, count)


async def _turns(side: _Hand | _Clew, model: _Model, marks: _Marks, turns: int, count: int) -> dict[str, float]:
    took: list[tuple[float, float, float]] = []
    works = [turn_work(turns + n) for n in range(_WARM + count)]
    _OUTPUTS.update((work.number, work.output) for work in works)
    cpu = written = 0.0
    for number, work in enumerate(works):
        if number == _WARM:
            settle()
            cpu, written = time.process_time(), written_bytes()
        model.work, characters = work, 0
        marks.start()
        async for delta in side.turn(work):
            marks.shown()
            characters += len(delta)
        took.append((time.perf_counter() - marks.begin, marks.model - marks.begin, marks.first - marks.begin))
        if characters != len(work.reply):
            raise RuntimeError(f"{characters} characters were shown, not {len(work.reply)}")
    counted = took[_WARM:]
    whole, model_ms, first = ([one[at] * 1000 for one in counted] for at in range(3))
    return {
        "ms": median(whole),
        "cpu": (time.process_time() - cpu) / count * 1000,
        "model": median(model_ms),
        "first": median(first),
        "written": (written_bytes() - written) / count / 1024,
        "cold": took[0][0] * 1000,
        "rss": peak_mb(),
    }


def main() -> None:
    side, turns, count, folder = sys.argv[1:]
    path = Path(folder) / f"turn-{side}-{turns}-{time.time_ns()}.db"
    print(orjson.dumps(asyncio.run(measure_side(side, int(turns), int(count), path))).decode(), flush=True)


if __name__ == "__main__":
    main()
