"""A model that does not stop: how much of a reply is taken, how its end is told, and what a long one costs."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import Config
from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.unit import RecordStep
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.testing.scripted import FakeProviders, Piece, ScriptedModel, call, chunks, say, then
from clew.transcript import chunk as c
from clew.transcript.usage import Usage
from tests.integration.http_client import HOST, TOKEN, AsgiClient, texts

RAN: list[str] = []


@clew.tool
async def note(text: str) -> str:
    """Keep a note."""
    RAN.append(text)
    return "kept"


@contextlib.asynccontextmanager
async def talking(*script: Any, limit: int) -> AsyncIterator[tuple[AsgiClient, ScriptedModel]]:
    model = ScriptedModel(script)
    config = Config(max_reply_bytes=limit)
    async with clew.open("memory:", config=config, providers=FakeProviders(model), tools=[note]) as engine:
        streams = Streams()
        yield AsgiClient(make_app(engine, token=TOKEN, hosts={HOST}, streams=streams), engine, streams), model


def endless(delta: str) -> Piece:
    def make(ids: Any) -> Iterator[c.Chunk]:
        yield c.TextStart("t")
        for _ in itertools.count():
            yield c.TextDelta("t", delta)

    return Piece(make)


def ending(stream: list[Any]) -> list[Any]:
    return [chunk for chunk in stream if chunk["type"] in ("text-end", "finish")]


async def test_a_reply_without_an_end_is_cut_off_at_its_limit_and_says_so_everywhere() -> None:
    """The stream, the message, the step and a repeated request say `length`; the next prompt is answered."""
    async with talking(endless("word "), say("fine"), limit=1_000) as (client, model):
        session = await client.session()
        stream = await client.chat(session, "talk", "u1")
        assert ending(stream) == [{"type": "text-end", "id": "t"}, {"type": "finish", "finishReason": "length"}]
        message = (await client.messages(session))[-1]
        said = texts(message)
        assert ("word " * 200).startswith(said)
        assert 900 < len(said) <= 1_000
        assert message["metadata"]["turn"] == {"status": "completed", "stopped": "length"}
        assert model.closed_early == 1
        turn = message["metadata"]["turn_id"]
        assert (await client.get(f"/api/turns/{turn}")).json()["steps"][0]["finish_reason"] == "length"
        [step] = await client.engine.store.load_steps(turn)
        assert (step.data["cut"], step.data["usage"]) == (1_000, "not reported")
        again = await client.chat(session, "talk", "u1")
        assert again[-1] == {"type": "finish", "finishReason": "length"}
        assert (await client.chat(session, "and now", "u2"))[-1] == {"type": "finish", "finishReason": "stop"}


async def test_a_reply_of_nothing_without_an_end_is_cut_off_too() -> None:
    """Pieces without a character count as one each."""
    async with talking(endless(""), limit=2_000) as (client, _):
        session = await client.session()
        assert ending(await client.chat(session, "talk"))[-1] == {"type": "finish", "finishReason": "length"}


async def test_a_cut_goes_between_characters() -> None:
    """Bytes are counted, characters are kept whole."""
    async with talking(endless("Θησεύς"), limit=1_000) as (client, _):
        session = await client.session()
        await client.chat(session, "talk")
        said = texts((await client.messages(session))[-1])
        assert ("Θησεύς" * 100).startswith(said)
        assert 900 < len(said.encode()) <= 1_000


async def test_calls_of_a_reply_that_was_cut_off_are_not_run() -> None:
    """One that was whole and one that was being written: both end as errors that say why, and nothing happens."""
    writing = chunks(
        c.ToolInputStart("half", "note"),
        c.ToolInputDelta("half", '{"text": "'),
        *(c.ToolInputDelta("half", "x" * 100) for _ in range(100)),
    )
    async with talking(then(call("note", {"text": "whole"}, id="whole"), writing), limit=1_000) as (client, _):
        session = await client.session()
        stream = await client.chat(session, "talk")
        why = "the reply was cut off at its limit, so this call was not run"
        assert [chunk for chunk in stream if chunk["type"] == "tool-output-error"] == [
            {"type": "tool-output-error", "toolCallId": "whole", "errorText": why},
            {"type": "tool-output-error", "toolCallId": "half", "errorText": why},
        ]
        assert stream[-1] == {"type": "finish", "finishReason": "length"}
        assert (RAN, (await client.status(session))["state"]) == ([], "idle")


async def test_a_model_that_used_up_its_own_tokens_is_told_as_such() -> None:
    """Its own word, not only clew's: `length` in the stream and on the message."""
    async with talking(then(say("and so on"), finish="length"), limit=1_000) as (client, _):
        session = await client.session()
        assert (await client.chat(session, "talk"))[-1] == {"type": "finish", "finishReason": "length"}
        message = (await client.messages(session))[-1]
        assert message["metadata"]["turn"] == {"status": "completed", "stopped": "length"}


async def test_a_step_that_nobody_counted_does_not_make_the_context_look_empty() -> None:
    """The gauge estimates where the provider told nothing."""
    async with talking(endless("word "), limit=100_000) as (client, _):
        session = await client.session()
        await client.chat(session, "talk")
        gauge = (await client.get(f"/api/sessions/{session}/context")).json()
        assert (gauge["measured"], gauge["used"] > 20_000) == (False, True)


# What a long reply costs

PIECE = 20_000
Pieces = Callable[[int], Iterator[c.Chunk]]


def a_text(size: int) -> Iterator[c.Chunk]:
    yield c.TextStart("t")
    for _ in range(size // PIECE):
        yield c.TextDelta("t", "word" * (PIECE // 4))
    yield c.TextEnd("t")


def some_arguments(size: int) -> Iterator[c.Chunk]:
    yield c.ToolInputStart("t", "note")
    yield c.ToolInputDelta("t", '{"rows": [')
    for _ in range(size // PIECE):
        yield c.ToolInputDelta("t", '["a", 1], ' * (PIECE // 10))
    yield c.ToolInputError("t", "note", "", "not whole")


async def cost(path: Path, pieces: Iterator[c.Chunk], pace_ms: float) -> tuple[float, float]:
    """Megabytes written to the WAL and seconds of CPU for a reply that comes at a pace, one piece a commit."""
    clock = FakeClock()
    store = await open_sqlite(path, SqliteOptions(checkpoints=False))
    try:
        opened = await (await Scribe.create(store, clock=clock)).prompt("go")
        recorder = opened.recorder()
        wal = path.with_name(path.name + "-wal")
        before, began = wal.stat().st_size, time.process_time()
        for chunk in pieces:
            recorder.write(chunk)
            await recorder.flush()
            clock.advance(pace_ms)
        await recorder.end_step(RecordStep(opened.step(recorder.message.id, Usage(1, 1))))
        await recorder.close(*opened.settling())
        return (wal.stat().st_size - before) / 1e6, time.process_time() - began
    finally:
        await store.close()


@pytest.mark.slow
@pytest.mark.rule("SV-4")
@pytest.mark.parametrize(("kind", "pace_ms"), [(a_text, 5_000.0), (some_arguments, 0.0)])
async def test_recording_a_reply_stays_linear_up_to_its_limit(
    kind: Pieces, pace_ms: float, tmp_path: Path, record_property: Any
) -> None:
    """At once or over half an hour, text or arguments: a megabyte of many costs what a single one costs."""
    sizes = (1, 2, 4, 8) if kind is a_text else (1, 4)
    costs = {size: await cost(tmp_path / f"{size}.db", kind(size * 1_000_000), pace_ms) for size in sizes}
    shown = ", ".join(f"{size} MB {wrote / size:.1f} × and {cpu:.2f} s" for size, (wrote, cpu) in costs.items())
    record_property("figure", f"written and CPU for a reply ({kind.__name__}, {pace_ms:.0f} ms a piece): {shown}")
    assert costs[sizes[-1]][0] / sizes[-1] <= 1.25 * costs[1][0]
