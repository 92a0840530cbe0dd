"""A stream file whose removal never reached the disk: it is back after a loss of power, without its newest lines."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

import clew
from clew.session.history.check import check
from clew.store import unit as u
from clew.testing.chunks import text
from clew.testing.scribe import MODEL, Scribe
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import PartRow
from clew.transcript.model_call import ModelCall
from clew.transcript.usage import Usage


@pytest.mark.rule("FS-2")
async def test_a_stream_file_that_is_back_says_nothing_of_a_message_that_settled(tmp_path: Path) -> None:
    """Its chunks are in the parts already: the message is as it was settled, and nothing is wrong."""
    url = f"jsonl:{tmp_path}/store"
    async with clew.open(url, config=clew.Config()) as engine:
        scribe = await Scribe.create(engine.store)
        opened = await scribe.prompt("tell me")
        recorder = opened.recorder()
        said = text("the thread leads out of the labyrinth, and back")
        await recorder.send(c.Start(message_id=recorder.message.id))
        await recorder.send(c.StartStep())
        for chunk in said[:-1]:
            await recorder.send(chunk)
            await recorder.flush()
        stream = tmp_path / "store" / "sessions" / scribe.session_id / "stream.jsonl"
        left = stream.read_bytes()
        assert b'"recordType":"chunks"' in left
        await recorder.send(said[-1])
        await recorder.flush()  # folds: the line that says so goes to the stream file alone
        await recorder.send(c.FinishStep())
        await recorder.end_step(u.RecordStep(opened.step(recorder.message.id, Usage(3, 2))))
        await recorder.close(*opened.settling())
        settled = await engine.messages(scribe.session_id, view="all")
    assert not stream.exists()
    stream.write_bytes(left)
    async with clew.open(url, config=clew.Config()) as engine:
        assert await engine.messages(scribe.session_id, view="all") == settled
        assert await check(engine.store) == []
    assert not stream.exists()


@pytest.mark.rule("FS-2", "FS-5")
@pytest.mark.parametrize("lost", ["chunks", "part"])
async def test_a_stream_file_that_is_back_in_part_takes_nothing_of_a_step_that_ended(tmp_path: Path, lost: str) -> None:
    """The log has the parts as they were folded last and the chunks since then. A line of the stream file that does not
    read may have said more, so the message is marked; what the log says of it is there."""
    url = f"jsonl:{tmp_path}/store"
    async with clew.open(url, config=clew.Config()) as engine:
        scribe = await Scribe.create(engine.store)
        opened = await scribe.prompt("tell me")
        recorder = opened.recorder()
        await recorder.send(c.Start(message_id=recorder.message.id))
        await recorder.flush()
        said = [c.StartStep(), *text("the thread leads out"), c.FinishStep()]
        parts = [0, *(1 for _ in said[1:-1]), None]
        rows = [u.JournalEntry(n, part, chunk) for n, (part, chunk) in enumerate(zip(parts, said, strict=True), 2)]
        await scribe.commit(u.AppendChunks(recorder.message.id, tuple(rows[:2])))
        session = tmp_path / "store" / "sessions" / scribe.session_id
        stream, log = session / "stream.jsonl", session / "session.jsonl"
        left = stream.read_bytes()
        booked = u.RecordStep(opened.step(recorder.message.id, Usage(3, 2)))
        await scribe.commit(u.AppendChunks(recorder.message.id, tuple(rows[2:])), booked, sync="power")
        assert log.read_bytes().count(b'"recordType":"chunks"') == 1
        if lost == "part":
            # Folded once more, as a step is when its tools have run; nobody has synced that.
            fold, message_id = Fold(recorder.message.id), recorder.message.id
            for chunk in said:
                fold.apply(chunk)
            held = [PartRow(f"prt_{n}", n, data, 1, 1) for n, data in enumerate(fold.parts)]
            await scribe.commit(u.PutParts(message_id, tuple(held)), u.MarkFolded(message_id, rows[-1].n))
            left = stream.read_bytes()
        cut = await asyncio.to_thread(shutil.copytree, tmp_path / "store", tmp_path / "cut")
        recorder.abandon()
    back = cut / stream.relative_to(tmp_path / "store")
    back.write_bytes(left.replace(b'{"recordType":"%b"' % lost.encode(), b'\0"recordType":"%b"' % lost.encode(), 1))
    assert back.read_bytes() != left
    async with clew.open(f"jsonl:{cut}", config=clew.Config()) as engine:
        [_, answer] = await engine.messages(scribe.session_id, view="all")
        assert (answer.texts, "damaged" in answer.metadata) == (["the thread leads out"], True)


@pytest.mark.rule("FS-2", "FS-5")
async def test_a_stream_file_that_lost_how_a_message_began_keeps_no_store_from_opening(tmp_path: Path) -> None:
    """What comes later of a message that nothing else tells of says nothing; the session goes on without it."""
    url = f"jsonl:{tmp_path}/store"
    async with clew.open(url, config=clew.Config()) as engine:
        scribe = await Scribe.create(engine.store)
        recorder = (await scribe.prompt("tell me")).recorder()
        for chunk in (c.Start(message_id=recorder.message.id), *text("the thread leads out")):
            await recorder.send(chunk)
            await recorder.flush()
        stream = tmp_path / "store" / "sessions" / scribe.session_id / "stream.jsonl"
        first, rest = stream.read_bytes().split(b"\n{", 1)
        assert b'"recordType":"part"' in rest
        cut = await asyncio.to_thread(shutil.copytree, tmp_path / "store", tmp_path / "cut")
        recorder.abandon()
    unit = [line for line in rest.split(b"\n") if b'"recordType":"part"' in line or b'"gone"' in line]
    (cut / stream.relative_to(tmp_path / "store")).write_bytes(bytes(len(first)) + b"\n".join([b"", *unit, b""]))
    async with clew.open(f"jsonl:{cut}", config=clew.Config()) as engine:
        assert [row.role for row in await engine.messages(scribe.session_id)] == ["user"]
        assert len(await engine.losses()) > 0


@pytest.mark.rule("US-5", "FS-2")
async def test_a_model_call_that_came_with_chunks_is_there_after_a_kill_and_after_the_end(tmp_path: Path) -> None:
    """While a message grows it stands in the stream file; the log has it when that goes. A stream file that is back
    after a loss of power does not open it again."""
    url = f"jsonl:{tmp_path}/store"
    async with clew.open(url, config=clew.Config()) as engine:
        scribe = await Scribe.create(engine.store)
        opened = await scribe.prompt("tell me")
        call = ModelCall(id="cal_1", purpose="answer", model=MODEL, asked_at=5, session_id=scribe.session_id)
        recorder = opened.recorder()
        await recorder.send(c.Start(message_id=recorder.message.id))
        await recorder.flush()
        started = c.TextStart(id="t")
        chunks = u.AppendChunks(recorder.message.id, (u.JournalEntry(2, None, started),))
        await scribe.commit(chunks, u.PutCall(replace(call, first_chunk_at=6)))
        session = tmp_path / "store" / "sessions" / scribe.session_id
        stream, log = session / "stream.jsonl", session / "session.jsonl"
        left = stream.read_bytes()
        assert (left.count(b'"recordType":"call"'), log.read_bytes().count(b'"recordType":"call"')) == (1, 0)
        killed = await asyncio.to_thread(shutil.copytree, tmp_path / "store", tmp_path / "killed")
        closed = replace(call, first_chunk_at=6, ended="completed", ended_at=9, usage=Usage(3))
        ending = (u.RecordStep(opened.step(recorder.message.id, Usage(3))), u.PutCall(closed))
        parts = u.PutParts(recorder.message.id, (PartRow("prt_1", 0, {"type": "text", "text": ""}, 1, 1),))
        await scribe.commit(parts, u.MarkFolded(recorder.message.id, 2), *ending, sync="power")
        assert not stream.exists()
    async with clew.open(f"jsonl:{killed}", read_only=True) as engine:
        assert await engine.store.load_calls(scribe.session_id) == (replace(call, first_chunk_at=6),)
    for again in (b"", left):
        if again:
            stream.write_bytes(again)
        async with clew.open(url, read_only=True) as engine:
            assert await engine.store.load_calls(scribe.session_id) == (closed,)


@pytest.mark.rule("US-5", "ST-11")
@pytest.mark.parametrize("kind", ["jsonl", "json"])
async def test_a_deletion_that_was_killed_half_way_counts_nothing_twice(kind: str, tmp_path: Path) -> None:
    """What was to outlive the session is written before its files go."""
    url = f"{kind}:{tmp_path}/store"
    async with clew.open(url, config=clew.Config()) as engine:
        scribe = await Scribe.create(engine.store)
        call = ModelCall(id="cal_1", purpose="answer", model=MODEL, asked_at=5, session_id=scribe.session_id)
        await scribe.commit(u.PutCall(replace(call, usage=Usage(3), ended="completed")), sync="power")
        before = await engine.usage("day")
    sessions = tmp_path / "store" / "sessions"
    await asyncio.to_thread(shutil.copytree, sessions, tmp_path / "kept")
    for _ in range(2):
        async with clew.open(url, config=clew.Config()) as engine:
            await engine.delete_session(scribe.session_id)
            assert await engine.usage("day") == before
        await asyncio.to_thread(shutil.copytree, tmp_path / "kept", sessions, dirs_exist_ok=True)
        async with clew.open(url, config=clew.Config()) as engine:
            assert await engine.usage("day") == before
