"""Faults the outside world comes up with: a full disk, a held lock, a clock that is set back."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clew import failpoints
from clew.clock import SystemClock
from clew.errors import StorageFull, StoreBusy
from clew.ids import Mint
from clew.session.history.check import check
from clew.store.base import SessionQuery
from clew.store.sql.sqlite import store as store_module
from clew.store.sql.sqlite.connection import BUSY_TIMEOUT_MS, connect
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.unit import Committed, PatchSession, PutBlob, Unit
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from tests.integration.sqlite_files import engine_on, folded, path, raw, retitle, sqlite_store

__all__ = ["path"]


async def stored_parts(store: SqliteStore, session_id: str, message_id: str) -> list[dict[str, Any]]:
    row = await store.find_message(session_id, message_id)
    return [part.data for part in row.parts] if row else []


# A full disk


def with_blob(session_id: str, title: str, size: int) -> Unit:
    data = Random(size).randbytes(size)
    blob = PutBlob(hashlib.sha256(data).hexdigest(), "application/octet-stream", data, 1)
    return Unit(session_id, (PatchSession(metadata={"title": title}), blob))


async def titles(store: SqliteStore, sessions: list[str]) -> list[str | None]:
    found = [await store.find_session(session_id) for session_id in sessions]
    return [session.title if session else None for session in found]


def pages(path: Path) -> int:
    with raw(path) as connection:
        count: int = connection.execute("PRAGMA page_count").fetchone()[0]
        return count


async def test_on_a_full_disk_only_the_unit_that_does_not_fit_fails(path: Path) -> None:
    """In the middle of a group: the others commit, nothing of the failed one is left, and writing goes on."""
    async with sqlite_store(path) as store:
        ids = [(await Scribe.create(store)).session_id for _ in range(3)]
    async with sqlite_store(path, max_pages=pages(path) + 8, window_ms=50) as store:
        before = store.commits
        group = [retitle(ids[0], "first"), with_blob(ids[1], "too much", 200_000), retitle(ids[2], "third")]
        answers = await asyncio.gather(*map(store.submit, group), return_exceptions=True)
        assert [type(answer) for answer in answers] == [Committed, StorageFull, Committed]
        # Two commits for three units: the group was given up, then each unit ran alone.
        assert store.commits - before == 2
        assert await titles(store, ids) == ["first", None, "third"]
        assert await store.find_blob(group[1].writes[1].sha256) is None  # type: ignore[attr-defined]
        assert await store.commit(retitle(ids[1], "small")) == Committed()
        assert await check(store) == []
    async with sqlite_store(path, max_pages=pages(path) + 1000) as store:
        assert await store.commit(group[1]) == Committed()
        assert await titles(store, ids) == ["first", "too much", "third"]
        assert await check(store) == []


async def test_a_stream_that_hits_a_full_disk_ends_and_was_shown_nothing_that_is_not_stored(path: Path) -> None:
    """The recorder says why it ended; what is stored is what was shown; with room, the session goes on."""
    async with sqlite_store(path) as store:
        session_id = (await Scribe.create(store)).session_id
    async with sqlite_store(path, max_pages=pages(path) + 8) as store:
        scribe = Scribe(store, session_id, Mint(), SystemClock())
        opened = await scribe.prompt("write until it is full")
        recorder = opened.recorder()
        message_id = recorder.message.id
        script: list[Chunk] = [c.Start(message_id), c.TextStart("t"), *[c.TextDelta("t", "word " * 400)] * 99]

        async def record() -> None:
            for chunk in script:
                await recorder.send(chunk)
                await recorder.flush()

        with pytest.raises(StorageFull):
            await record()
        with pytest.raises(StorageFull):
            recorder.write(c.TextDelta("t", "more"))
        assert 2 < len(opened.shown) < 101
        assert await stored_parts(store, session_id, message_id) == folded(opened.shown, message_id)
    async with sqlite_store(path) as store:
        assert await store.pending_streams() == ()
        assert await stored_parts(store, session_id, message_id) == folded(opened.shown, message_id)
        scribe = Scribe(store, session_id, Mint(), SystemClock())
        await scribe.commit(*opened.settling("failed"))
        await scribe.turn("and now?", text("there is room"))
        assert await check(store, {message_id: opened.shown}) == []


@pytest.mark.parametrize("point", ["writer.in_transaction", "writer.before_commit"])
async def test_a_group_that_finds_the_disk_full_is_run_again_unit_by_unit(path: Path, point: str) -> None:
    """When each fits alone, nobody sees an error, and nothing is written twice."""
    async with sqlite_store(path, window_ms=50) as store:
        # On this clock no part falls due, which would be written in a commit of its own.
        scribes = [await Scribe.create(store, clock=FakeClock()) for _ in range(3)]
        opened = [await scribe.prompt("hello") for scribe in scribes]
        recorders = [turn.recorder() for turn in opened]
        for recorder in recorders:
            recorder.write(c.Start(recorder.message.id))
            recorder.write(c.TextStart("t"))
        await asyncio.gather(*(recorder.flush() for recorder in recorders))
        failpoints.arm(f"{point}=full")
        try:
            before = store.commits
            for recorder in recorders:
                recorder.write(c.TextDelta("t", "once"))
            await asyncio.gather(*(recorder.flush() for recorder in recorders))
            assert store.commits - before == 3
        finally:
            failpoints.disarm()
        for turn, recorder in zip(opened, recorders, strict=True):
            assert turn.shown[-1:] == [c.TextDelta("t", "once")]
            parts = await stored_parts(store, recorder.message.session_id, recorder.message.id)
            assert parts == [{"type": "text", "text": "once", "state": "streaming"}]
        assert await check(store, {r.message.id: t.shown for t, r in zip(opened, recorders, strict=True)}) == []


@pytest.mark.parametrize("point", ["writer.in_transaction", "writer.before_commit"])
async def test_a_chunk_that_finds_the_disk_full_is_neither_shown_nor_stored(path: Path, point: str) -> None:
    """The error SQLite gives on a full disk, in the middle of a stream."""
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
        opened = await scribe.prompt("hello")
        recorder = opened.recorder()
        recorder.write(c.Start(recorder.message.id))
        recorder.write(c.TextStart("t"))
        recorder.write(c.TextDelta("t", "kept"))
        await recorder.flush()
        failpoints.arm(f"{point}=full")
        try:
            recorder.write(c.TextDelta("t", "lost"))
            with pytest.raises(StorageFull):
                await recorder.flush()
        finally:
            failpoints.disarm()
        assert opened.shown == [c.Start(recorder.message.id), c.TextStart("t"), c.TextDelta("t", "kept")]
        parts = await stored_parts(store, scribe.session_id, recorder.message.id)
        assert parts == [{"type": "text", "text": "kept", "state": "streaming"}]
        assert await check(store, {recorder.message.id: opened.shown}) == []


# A lock held by somebody else

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@contextmanager
def write_lock_held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the write lock until it is told to let go, or the block ends."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "locked\n"
        yield holder
    finally:
        holder.stdin.close()
        holder.wait(60)
        holder.stdout.close()


async def worst_lag(seconds: float) -> float:
    """For how long the event loop kept a sleeper of ten milliseconds waiting, at most."""
    worst, end = 0.0, time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        await asyncio.sleep(0.01)
        worst = max(worst, time.monotonic() - began - 0.01)
    return worst


@pytest.mark.slow
@pytest.mark.rule("ST-3")
async def test_a_lock_held_for_eight_seconds_delays_chunks_and_loses_none(
    path: Path, caplog: pytest.LogCaptureFixture, record_property: Any
) -> None:
    """Longer than the busy timeout: the group waits on, the loop runs free, readers read, and nothing is dropped."""
    caplog.set_level(logging.WARNING, "clew.store")
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
        opened = await scribe.prompt("hello")
        recorder = opened.recorder()
        message_id = recorder.message.id
        await recorder.send(c.Start(message_id))
        await recorder.send(c.TextStart("t"))
        await recorder.flush()
        shown = list(opened.shown)
        with write_lock_held(path) as holder:
            began = time.monotonic()
            for number in range(50):
                recorder.write(c.TextDelta("t", f"{number} "))
            lag = await worst_lag(8.0)
            assert opened.shown == shown
            assert [session.id for session in (await store.list_sessions(SessionQuery())).sessions] == [
                scribe.session_id
            ]
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()
            await recorder.flush()
            waited = time.monotonic() - began
        await recorder.close(*opened.settling())
        assert opened.shown == [*shown, *(c.TextDelta("t", f"{number} ") for number in range(50))]
        assert await stored_parts(store, scribe.session_id, message_id) == folded(opened.shown, message_id)
        assert await check(store, {message_id: opened.shown}) == []
    assert waited >= 8.0
    # A loop that waited for the lock itself would stand for the whole busy timeout, which no slow machine makes it do.
    assert lag < BUSY_TIMEOUT_MS / 1000 / 2
    assert f"another process holds the write lock of {path}; waiting" in caplog.messages
    record_property("figure", f"write lock held 8 s: 50 chunks waited, 0 lost, worst loop lag {lag * 1000:.0f} ms")


@pytest.mark.slow
async def test_a_lock_that_is_never_let_go_ends_in_store_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the time clew is willing to wait the unit fails, nothing of it is written, and later ones work."""
    monkeypatch.setattr(store_module, "connect", partial(connect, busy_timeout_ms=20))
    async with sqlite_store(path, lock_wait_ms=50) as store:
        session_id = (await Scribe.create(store)).session_id
        with write_lock_held(path):
            answers = await asyncio.gather(
                *(store.submit(retitle(session_id, title)) for title in ("one", "two")), return_exceptions=True
            )
            assert [type(answer) for answer in answers] == [StoreBusy, StoreBusy]
        assert await titles(store, [session_id]) == [None]
        assert await store.commit(retitle(session_id, "three")) == Committed()
        assert await titles(store, [session_id]) == ["three"]


# A clock that is set back


@pytest.mark.rule("ID-2")
async def test_a_clock_set_back_changes_neither_ids_nor_the_order_of_the_line(path: Path) -> None:
    """An hour back in the middle, ten years forward, and back again across a restart."""
    clock = FakeClock()
    start = clock.now_ms()
    turns: list[tuple[str, str, str]] = []
    async with sqlite_store(path, clock) as store:
        mint = Mint(clock)
        scribe = await Scribe.create(store, mint=mint, clock=clock)
        for step_ms in (0, -3_600_000, 5, 10 * 365 * 86_400_000, -10 * 365 * 86_400_000, 5):
            clock.set_wall(clock.now_ms() + step_ms)
            turns.append(await scribe.turn(f"{len(turns)}", text("answer")))
    turn_ids = [turn_id for turn_id, _, _ in turns]
    message_ids = [id_ for _, user_id, message_id in turns for id_ in (user_id, message_id)]
    assert turn_ids == sorted(set(turn_ids))
    assert message_ids == sorted(set(message_ids))
    clock.set_wall(start - 86_400_000)
    async with sqlite_store(path, clock) as store:
        scribe = Scribe(store, scribe.session_id, Mint(clock), clock)
        turns.append(await scribe.turn("after a restart", text("answer")))
        line = await store.load_line(scribe.session_id)
        assert [entry.turn.id for entry in line.turns] == [turn_id for turn_id, _, _ in turns]
        assert [row.id for entry in line.turns for row in entry.messages] == [
            id_ for _, user_id, message_id in turns for id_ in (user_id, message_id)
        ]
        assert await check(store) == []
    async with engine_on(path) as engine:
        found = [message.id for message in await engine.messages(scribe.session_id)]
        assert found == [id_ for _, user_id, message_id in turns for id_ in (user_id, message_id)]
