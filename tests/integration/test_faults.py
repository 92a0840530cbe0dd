"""Faults the outside world comes up with: a full disk, a held lock, a clock set back, damaged files, other processes.

Each test brings the fault about for real where that is possible (a page limit, a second process, bytes changed in
the file) and says what a user then finds.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import hashlib
import logging
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import clew
from clew import failpoints
from clew.clock import Clock, SystemClock
from clew.config import Config
from clew.engine import Engine
from clew.errors import (
    ClewError,
    InvalidInput,
    OwnedByAnotherProcess,
    RowUndecodable,
    SchemaTooNew,
    StorageFull,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from clew.history.check import Problem, check
from clew.ids import Mint
from clew.runtime.recovery import recover
from clew.store import owner
from clew.store.base import SessionQuery
from clew.store.owner import NETWORK_FILE_SYSTEMS, file_system_of, read_owner, refuse_network_file_system
from clew.store.sql.sqlite import reader as reader_module
from clew.store.sql.sqlite import store as store_module
from clew.store.sql.sqlite.connection import QUERIES, connect
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION
from clew.store.sql.sqlite.store import SqliteOptions, SqliteStore, open_sqlite
from clew.store.unit import Committed, PatchSession, PutBlob, Unit
from clew.testing.child import Child, Orders
from clew.testing.chunks import reasoning, text, tool_call, tool_output
from clew.testing.clock import FakeClock
from clew.testing.old_store import make_old_store
from clew.testing.scribe import OpenedTurn, Scribe
from clew.testing.streamer import settle_left_open
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.fold import Fold
from clew.transcript.session import Session

SOURCE = Path(clew.__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@asynccontextmanager
async def sqlite_store(path: Path, clock: Clock | None = None, **options: Any) -> AsyncIterator[SqliteStore]:
    """A store that is recovered when it is opened for writing, as ``clew.open`` does it."""
    store = await open_sqlite(path, SqliteOptions(**options), clock=clock)
    try:
        if not options.get("read_only"):
            await recover(store, Mint(), 1)
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def engine_on(path: Path, **options: Any) -> AsyncIterator[Engine]:
    async with clew.open(f"sqlite:///{path}", config=Config(), **options) as engine:
        yield engine


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file through plain SQLite, each statement its own transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def folded(chunks: list[Chunk], message_id: str) -> list[dict[str, Any]]:
    fold = Fold(message_id)
    for chunk in chunks:
        fold.apply(chunk)
    return fold.parts


async def stored_parts(store: SqliteStore, session_id: str, message_id: str) -> list[dict[str, Any]]:
    row = await store.find_message(session_id, message_id)
    return [part.data for part in row.parts] if row else []


# A full disk


def retitle(session_id: str, title: str) -> Unit:
    return Unit(session_id, (PatchSession(metadata={"title": title}),))


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
        assert await store.find_blob(group[1].writes[1].sha256) is None  # type: ignore[union-attr]
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
        scribes = [await Scribe.create(store) for _ in range(3)]
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
        holder.wait(30)
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
    assert lag < 0.5
    assert f"another process holds the write lock of {path}; waiting" in caplog.messages
    record_property("figure", f"write lock held 8 s: 50 chunks waited, 0 lost, worst loop lag {lag * 1000:.0f} ms")


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


# Damaged rows


class Two:
    """A store with two sessions of one turn each; the first one is about to be damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = self.sound = ""
        self.user_id = self.message_id = ""
        self.parts: list[dict[str, Any]] = []
        self.sound_messages: list[Any] = []

    async def make(self) -> None:
        async with engine_on(self.path) as engine:
            for name in ("damaged", "sound"):
                scribe = await Scribe.create(engine.store, metadata={"title": f"the {name} one"})
                setattr(self, name, scribe.session_id)
                ids = await scribe.turn(f"asked of {name}", [*reasoning("hm"), *text(f"spoken by the {name} session")])
                if name == "damaged":
                    _, self.user_id, self.message_id = ids
            self.parts = (await engine.messages(self.damaged))[1].parts
            self.sound_messages = await engine.messages(self.sound)
        # Without this, older copies of a row may lie in the free space of its page.
        with raw(self.path) as connection:
            connection.execute("VACUUM")

    def flip(self, near: bytes, mask: int, offset: int = 0) -> None:
        """Flip bits of one byte in the file."""
        data = bytearray(self.path.read_bytes())
        assert data.count(near) == 1
        data[data.index(near) + offset] ^= mask
        self.path.write_bytes(data)

    def part_id(self, index: int) -> str:
        with raw(self.path) as connection:
            query = 'SELECT id FROM chat_parts WHERE message_id = ? AND "index" = ?'
            found: str = connection.execute(query, (self.message_id, index)).fetchone()[0]
            return found

    async def others_work(self, engine: Engine) -> None:
        """The other session reads and writes as ever, and the list shows both."""
        listed = {session.id for session in (await engine.list_sessions()).sessions}
        assert listed == {self.damaged, self.sound}
        assert await engine.messages(self.sound) == self.sound_messages
        scribe = Scribe(engine.store, self.sound, Mint(), SystemClock())
        await scribe.turn("still there?", text("yes"))
        assert [message.id for message in (await engine.messages(self.sound))][:2] == [
            message.id for message in self.sound_messages
        ]


@pytest.fixture
async def two(path: Path) -> Two:
    made = Two(path)
    await made.make()
    return made


FLIPS = [pytest.param(0x40, 0, id="no JSON"), pytest.param(0x80, 30, id="no UTF-8")]


@pytest.mark.parametrize(("mask", "offset"), FLIPS)
async def test_a_flipped_byte_in_a_part_costs_that_part(two: Two, mask: int, offset: int) -> None:
    """The message shows a stand-in, a strict read names the part, the judge too, and nothing else is affected."""
    two.flip(b'{"type":"text","text":"spoken by the damaged', mask, offset)
    part_id = two.part_id(2)
    async with engine_on(two.path) as engine:
        shown = (await engine.messages(two.damaged))[1]
        assert shown.parts[:2] == two.parts[:2]
        assert shown.parts[2]["type"] == "data-damaged"
        assert shown.parts[2]["data"]["part_id"] == part_id
        assert len(shown.parts) == len(two.parts)
        for read in (engine.store.load_messages, engine.store.load_line):
            with pytest.raises(RowUndecodable) as caught:
                await read(two.damaged)
            assert caught.value.ids == {"message_id": two.message_id, "part_id": part_id, "index": 2}
        problems = await check(engine.store)
        assert [(problem.session_id, problem.id) for problem in problems] == [
            (two.damaged, part_id),
            (two.damaged, two.message_id),
        ]
        await two.others_work(engine)


async def test_a_flip_that_leaves_the_json_valid_is_caught_by_the_seal(two: Two) -> None:
    """Nobody could tell by looking at the part alone."""
    two.flip(b"spoken by the damaged", 0x01)
    async with engine_on(two.path) as engine:
        shown = (await engine.messages(two.damaged))[1]
        assert shown.parts[2] == {**two.parts[2], "text": "rpoken by the damaged session"}
        assert await check(engine.store) == [
            Problem("it was changed after it had settled: its seal does not match", two.damaged, two.message_id)
        ]
        await two.others_work(engine)


@pytest.mark.parametrize(
    ("mask", "offset"), [pytest.param(0x40, 0, id="no JSON"), pytest.param(0x80, 14, id="no UTF-8")]
)
async def test_a_flipped_byte_in_a_sessions_metadata_leaves_the_list_working(two: Two, mask: int, offset: int) -> None:
    """The damaged session keeps its place and says so; a strict look at it names it."""
    two.flip(b'{"title":"the damaged one"}', mask, offset)
    async with engine_on(two.path) as engine:
        found = {session.id: session.metadata for session in (await engine.list_sessions()).sessions}
        assert found == {two.damaged: {"damaged": True}, two.sound: {"title": "the sound one"}}
        with pytest.raises(RowUndecodable) as caught:
            await engine.get_session(two.damaged)
        assert caught.value.ids == {"session_id": two.damaged}
        assert two.damaged in {problem.session_id for problem in await check(engine.store)}
        await two.others_work(engine)


@pytest.mark.parametrize(
    ("mask", "offset"), [pytest.param(0x40, 0, id="no JSON"), pytest.param(0x80, 5, id="no UTF-8")]
)
async def test_a_flipped_byte_in_a_messages_metadata_costs_that_metadata(two: Two, mask: int, offset: int) -> None:
    """Its parts are still shown."""
    with raw(two.path) as connection:
        query = "SELECT metadata_json FROM chat_messages WHERE id = ?"
        metadata: str = connection.execute(query, (two.message_id,)).fetchone()[0]
        connection.execute("UPDATE chat_messages SET metadata_json = '{}' WHERE id <> ?", (two.message_id,))
        connection.execute("VACUUM")
    two.flip(metadata.encode(), mask, offset)
    async with engine_on(two.path) as engine:
        shown = (await engine.messages(two.damaged))[1]
        assert shown.parts == two.parts
        assert shown.metadata["damaged"] is True
        with pytest.raises(RowUndecodable) as caught:
            await engine.store.load_messages(two.damaged)
        assert caught.value.ids == {"session_id": two.damaged, "message_id": two.message_id}
        assert (two.damaged, two.message_id) in {
            (problem.session_id, problem.id) for problem in await check(engine.store)
        }


@pytest.mark.parametrize("mask", [pytest.param(0x40, id="no JSON"), pytest.param(0x80, id="no UTF-8")])
async def test_a_damaged_journal_row_is_told_in_clear_words_and_the_rest_stays_readable(path: Path, mask: int) -> None:
    """Whatever opening for writing does, it does not crash; the sessions that were not streaming are there."""
    hold = Orders(store=f"sqlite:///{path}", stage="hold", streams=1)
    with Child(hold) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    async with sqlite_store(path) as store:
        # Minted later than the child's, so that the next child goes on with its own session.
        clock = FakeClock(1_900_000_000_000)
        scribe = await Scribe.create(store, clock=clock)
        await scribe.turn("hello", text("unharmed"))
        left = Scribe(store, next(iter(child.streams.values())).session_id, Mint(clock), clock)
        await settle_left_open(left)
    with Child(hold) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    assert {stream.session_id for stream in child.streams.values()} == {left.session_id}
    with raw(path) as connection:
        query = "SELECT n, CAST(data AS BLOB) FROM stream_journal ORDER BY n DESC LIMIT 1"
        n, data = connection.execute(query).fetchone()
        damaged = bytearray(data)
        damaged[0] ^= mask
        connection.execute("UPDATE stream_journal SET data = CAST(? AS TEXT) WHERE n = ?", (bytes(damaged), n))
    with contextlib.suppress(StoreError):
        async with sqlite_store(path) as store:
            assert await check(store) != []
    async with sqlite_store(path, read_only=True) as store:
        listed = await store.list_sessions(SessionQuery())
        assert [session.id for session in listed.sessions] == [scribe.session_id, left.session_id]
        assert [len(row.parts) for row in await store.load_messages(scribe.session_id)] == [1, 2]
        with pytest.raises(StoreError):
            await store.load_messages(left.session_id)
        assert [problem.session_id for problem in await check(store)] == [None, left.session_id]


# Damaged pages


def overwrite_page(path: Path, table: str) -> None:
    """Put garbage over the page a table begins at."""
    with raw(path) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        number = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(Random(number).randbytes(size))


async def test_a_page_of_garbage_is_reported_and_reading_it_is_an_error_not_a_crash(two: Two) -> None:
    """Sessions are still listed; what lies on the page cannot be had; the judge says that the file is damaged."""
    overwrite_page(two.path, "chat_parts")
    async with engine_on(two.path) as engine:
        assert {session.id for session in (await engine.list_sessions()).sessions} == {two.damaged, two.sound}
        for session_id in (two.damaged, two.sound):
            with pytest.raises(StoreUnavailable, match="damaged"):
                await engine.messages(session_id)
        assert list(await engine.store.verify()) != []
        problems = await check(engine.store)
        assert {problem.session_id for problem in problems} == {None, two.damaged, two.sound}
        # Once more: a connection that met the damage is as good as new.
        assert {session.id for session in (await engine.list_sessions()).sessions} == {two.damaged, two.sound}


async def test_writing_into_a_page_of_garbage_stops_writing_and_leaves_reading(two: Two) -> None:
    """From the first sign of damage on nothing more is written, whoever asks."""
    overwrite_page(two.path, "chat_parts")
    async with engine_on(two.path) as engine:
        scribe = Scribe(engine.store, two.sound, Mint(), SystemClock())
        with pytest.raises(StoreUnavailable):
            await scribe.prompt("hello")
        with pytest.raises(StoreUnavailable, match="it can be read, not written"):
            await engine.rename_session(two.damaged, "another title")
        assert {session.title for session in (await engine.list_sessions()).sessions} == {
            "the damaged one",
            "the sound one",
        }


async def test_a_file_whose_first_page_is_garbage_is_refused(two: Two) -> None:
    """It is no database any more: said so, and never replaced by an empty one."""
    two.path.write_bytes(b"\xa5" * 4096 + two.path.read_bytes()[4096:])
    before = two.path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreUnavailable):
            async with engine_on(two.path, read_only=read_only):
                raise AssertionError("it was opened")
    assert two.path.read_bytes() == before


async def look_at_all(two: Two) -> tuple[list[Problem], dict[str, Any]]:
    """What the judge finds and what a user sees; a session that cannot be read counts as a problem."""
    async with engine_on(two.path) as engine:
        problems = await check(engine.store)
        seen: dict[str, Any] = {}
        for session_id in (two.damaged, two.sound):
            try:
                seen |= {message.id: message.parts for message in await engine.messages(session_id)}
            except ClewError as error:
                if not problems:
                    raise AssertionError(f"{error!r}, and the judge is content") from error
        return problems, seen


@pytest.mark.parametrize("seed", range(16), ids=lambda seed: f"seed-{seed}")
async def test_a_bit_flipped_anywhere_is_reported_or_harmless(two: Two, seed: int) -> None:
    """Whatever byte of the file it hits: only clew's own errors, and no settled answer that changed unseen."""
    random = Random(seed)
    pristine = two.path.read_bytes()
    # Most of a small file is empty; the places that hold something are the ones worth hitting.
    places = [place for place, byte in enumerate(pristine) if place >= 100 and byte]
    truth = {two.message_id: two.parts, two.sound_messages[1].id: two.sound_messages[1].parts}
    for _ in range(20):
        place, bit = random.choice(places), random.randrange(8)
        data = bytearray(pristine)
        data[place] ^= 1 << bit
        two.path.write_bytes(data)
        try:
            problems, seen = await look_at_all(two)
        except ClewError:
            continue
        except Exception as error:
            raise AssertionError(f"byte {place}, bit {bit}: {error!r}") from error
        assert problems or {id_: seen.get(id_) for id_ in truth} == truth, f"byte {place}, bit {bit}: changed unseen"


# Files of other versions and other programs


def digest(path: Path, mode: int | None = None) -> str:
    """What the file holds; with ``mode``, give it that mode first."""
    if mode is not None:
        path.chmod(mode)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return digest(path)


@pytest.mark.rule("ST-7")
async def test_a_newer_file_is_refused_and_left_as_it_is(two: Two) -> None:
    """For writing and for reading; not one byte of it changes."""
    with raw(two.path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = digest(two.path)
    for read_only in (False, True):
        with pytest.raises(SchemaTooNew, match=f"format {SCHEMA_VERSION + 1}, this one knows {SCHEMA_VERSION}"):
            async with engine_on(two.path, read_only=read_only):
                raise AssertionError("it was opened")
    assert digest(two.path) == before


@pytest.mark.rule("ST-7")
async def test_a_newer_file_with_a_write_ahead_log_is_left_as_it_is_too(two: Two, tmp_path: Path) -> None:
    """The newer program was killed: what it had not moved into the database yet stays where it is."""
    with raw(two.path) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        connection.execute("CREATE TABLE from_the_future (x)")
        left = tmp_path / "left.db"
        for suffix in ("", "-wal"):
            shutil.copy(two.path.with_name(two.path.name + suffix), left.with_name(left.name + suffix))
    files = [left, left.with_name("left.db-wal")]
    before = [digest(file) for file in files]
    for read_only in (False, True):
        with pytest.raises(SchemaTooNew):
            async with engine_on(left, read_only=read_only):
                raise AssertionError("it was opened")
    assert [digest(file) for file in files] == before


@pytest.mark.rule("ST-7")
@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("version", [0, 1, SCHEMA_VERSION, SCHEMA_VERSION + 1])
async def test_a_database_of_another_program_is_refused_and_left_as_it_is(path: Path, mode: str, version: int) -> None:
    """Whatever version number that program keeps in it."""
    with raw(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE recipes (name TEXT)")
        connection.execute("INSERT INTO recipes VALUES ('soup')")
        connection.execute(f"PRAGMA user_version = {version}")
    before = digest(path, mode=0o644)
    for read_only in (False, True):
        with pytest.raises(StoreError):
            async with engine_on(path, read_only=read_only):
                raise AssertionError("it was opened")
    assert digest(path) == before
    assert modes(path.parent)["store.db"] == 0o644


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    """A text that somebody keeps under this name is worth more than an empty store."""
    before = write(path, b"Dear diary, " * 100)
    for read_only in (False, True):
        with pytest.raises(StoreUnavailable):
            async with engine_on(path, read_only=read_only):
                raise AssertionError("it was opened")
    assert digest(path) == before


@pytest.mark.rule("ST-7")
@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
async def test_an_older_file_is_brought_up_to_date_with_all_that_is_in_it(path: Path, version: int) -> None:
    """Sessions, messages and parts of a version that knew no turn tree are listed and read."""
    make_old_store(path, version)
    mint = Mint()
    sessions = [mint.session() for _ in range(3)]
    rows: list[tuple[str, str, str]] = []
    with raw(path) as connection:
        for number, session_id in enumerate(sessions):
            connection.execute(
                "INSERT INTO chat_sessions (id, agent, model_json, metadata_json, created_at, updated_at)"
                """ VALUES (?, 'assistant', '{"provider_id":"demo","model_id":"echo"}', ?, ?, ?)""",
                (session_id, f'{{"title":"old {number}"}}', number, number),
            )
            for role in ("user", "assistant"):
                message_id, part_id = mint.message(), mint.part()
                rows.append((session_id, message_id, f"{role} {number}"))
                connection.execute(
                    "INSERT INTO chat_messages (id, session_id, role, created_at, updated_at) VALUES (?, ?, ?, ?, ?)",
                    (message_id, session_id, role, number, number),
                )
                connection.execute(
                    "INSERT INTO chat_parts VALUES (?, ?, ?, 0, 'text', ?, NULL, NULL, 1, 1)",
                    (part_id, message_id, session_id, f'{{"type":"text","text":"{role} {number}"}}'),
                )
    async with engine_on(path) as engine:
        listed: list[Session] = list((await engine.list_sessions()).sessions)
        assert [(session.id, session.title) for session in listed] == [
            (session_id, f"old {number}") for number, session_id in reversed(list(enumerate(sessions)))
        ]
        found = [
            (session_id, row.id, row.parts[0].data["text"])
            for session_id in sessions
            for row in await engine.store.load_messages(session_id)
        ]
        assert found == rows
        assert list(await engine.store.verify()) == []
        # New sessions work beside them.
        scribe = await Scribe.create(engine.store)
        await scribe.turn("hello", text("hi"))
        assert [message.role for message in await engine.messages(scribe.session_id)] == ["user", "assistant"]


# Two processes


@pytest.mark.rule("ST-9")
async def test_a_second_writer_is_told_who_has_the_store(path: Path) -> None:
    """By pid, in the sentence and in the error; the first one is not disturbed."""
    with Child(Orders(store=f"sqlite:///{path}", stage="hold", streams=1)) as child:
        child.wait_until(lambda child: child.staged)
        with pytest.raises(OwnedByAnotherProcess) as caught:
            async with engine_on(path):
                raise AssertionError("it was opened twice")
        assert caught.value.ids == {"pid": child.pid}
        assert f"process {child.pid}" in str(caught.value)
        child.go_on()
        assert child.wait() == 0


@pytest.mark.rule("ST-9")
async def test_a_second_writer_is_told_where_the_store_is_served(path: Path) -> None:
    """Once a server runs, it can be talked to."""
    async with sqlite_store(path) as store:
        store.announce("http://127.0.0.1:4242")
        with pytest.raises(OwnedByAnotherProcess) as caught:
            async with engine_on(path):
                raise AssertionError("it was opened twice")
        assert caught.value.ids == {"pid": os.getpid(), "url": "http://127.0.0.1:4242"}
        assert "at http://127.0.0.1:4242" in str(caught.value)
    assert read_owner(path) is None


@pytest.mark.rule("ST-9", "SV-3")
async def test_a_reader_in_another_process_sees_what_was_acknowledged_and_is_not_folded(path: Path) -> None:
    """While the owner streams: exactly the chunks that were shown, though no part holds them yet."""
    with Child(Orders(store=f"sqlite:///{path}", seed=4, stage="hold", streams=3)) as child:
        child.wait_until(lambda child: child.staged)
        async with engine_on(path, read_only=True) as engine:
            pending = await engine.store.pending_streams()
            assert [stream.message.id for stream in pending] == list(child.streams)
            assert all(len(stream.entries) > 20 for stream in pending)
            for stream in child.streams.values():
                shown = child.shown[stream.message_id]
                row = await engine.store.find_message(stream.session_id, stream.message_id)
                assert row is not None
                assert [part.data for part in row.parts] == folded(shown, stream.message_id)
                user, answer = await engine.messages(stream.session_id)
                assert (user.id, answer.id) == (stream.user_id, stream.message_id)
                assert answer.parts == folded(shown, stream.message_id)
            assert await check(engine.store, child.shown) == []


@pytest.mark.rule("ST-9", "SV-3")
async def test_a_reader_beside_a_busy_owner_sees_whole_prefixes_that_only_grow(path: Path) -> None:
    """Twenty looks while streams run and fold: each shows at least what had been acknowledged, never half a chunk."""
    with Child(Orders(store=f"sqlite:///{path}", seed=6, size=400)) as child:
        child.wait_until(lambda child: child.acks > 50)
        async with engine_on(path, read_only=True) as engine:
            for look in range(1, 21):
                child.wait_until(lambda child, look=look: child.acks > 50 + 30 * look)  # type: ignore[misc]
                acknowledged = {id_: len(chunks) for id_, chunks in child.shown.items()}
                for stream in list(child.streams.values())[-6:]:
                    row = await engine.store.find_message(stream.session_id, stream.message_id)
                    parts = [part.data for part in row.parts] if row else []
                    script = stream.script()
                    fold = Fold(stream.message_id)
                    lengths = []
                    for length, chunk in enumerate(script, start=1):
                        fold.apply(chunk)
                        if fold.parts == parts:
                            lengths.append(length)
                    least = acknowledged[stream.message_id]
                    assert (least == 0 and not parts) or max(lengths) >= least, (stream, least, lengths)


@pytest.mark.rule("ST-9")
async def test_the_store_of_a_killed_owner_can_be_opened_at_once(path: Path) -> None:
    """The lock dies with the process, whatever the owner file still says."""
    with Child(Orders(store=f"sqlite:///{path}", stage="hold")) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    left = read_owner(path)
    assert left is not None
    assert left.pid == child.pid
    async with engine_on(path) as engine:
        now = read_owner(path)
        assert now is not None
        assert now.pid == os.getpid()
        assert await check(engine.store, child.shown) == []
    assert read_owner(path) is None


# Where a store cannot live

MOUNTS = """\
/dev/root / ext4 rw,relatime 0 0
server:/export /mnt/team nfs4 rw 0 0
//server/share /mnt/with\\040space cifs rw 0 0
tmpfs /mnt/team/local tmpfs rw 0 0
host:/home /mnt/données fuse.sshfs rw 0 0
malformed
"""


@pytest.mark.rule("ST-9")
@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/srv/store.db", "ext4"),
        ("/mnt/team/store.db", "nfs4"),
        ("/mnt/team/deep/er/store.db", "nfs4"),
        ("/mnt/teammates/store.db", "ext4"),
        ("/mnt/team/local/store.db", "tmpfs"),
        ("/mnt/with space/store.db", "cifs"),
        ("/mnt/données/store.db", "fuse.sshfs"),
    ],
)
def test_a_network_file_system_is_refused_by_its_name(place: str, kind: str) -> None:
    """The innermost mount decides; its name is in the sentence."""
    assert file_system_of(Path(place), MOUNTS) == kind
    if kind in NETWORK_FILE_SYSTEMS:
        with pytest.raises(StoreUnavailable, match=re.escape(f"network file system ({kind})")):
            refuse_network_file_system(Path(place), MOUNTS)
    else:
        refuse_network_file_system(Path(place), MOUNTS)


@pytest.mark.rule("ST-9")
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_store_on_a_network_file_system_is_not_even_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    """No file, no folder, no lock is made there."""
    monkeypatch.setattr(owner, "file_system_of", lambda path, mounts=None: "nfs")
    with pytest.raises(StoreUnavailable, match=r"network file system \(nfs\)"):
        async with engine_on(tmp_path / "sub" / "store.db", read_only=read_only):
            raise AssertionError("it was opened")
    assert modes(tmp_path) == {}


@pytest.mark.rule("ST-9")
async def test_a_library_that_will_not_do_wal_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a real one: SQLite over lock files has no shared memory, and answers another journal mode."""

    def over_lock_files(database: str, **options: Any) -> sqlite3.Connection:
        return sqlite3.Connection(f"{database}&vfs=unix-dotfile", **options)

    monkeypatch.setattr("clew.store.sql.sqlite.connection.sqlite3.connect", over_lock_files)
    with pytest.raises(StoreUnavailable, match=r"cannot be kept in WAL mode \(SQLite answered 'delete'\)"):
        async with engine_on(path):
            raise AssertionError("it was opened")


@pytest.mark.rule("ST-9")
async def test_a_reader_refuses_a_store_that_is_not_in_wal_mode(two: Two) -> None:
    """Reading it beside a writer would make the writer wait."""
    with raw(two.path) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    with pytest.raises(StoreUnavailable, match="cannot be kept in WAL mode"):
        async with engine_on(two.path, read_only=True):
            raise AssertionError("it was opened")


# Who may read the files


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@pytest.mark.rule("ST-9")
async def test_the_files_of_a_store_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask says; the folder too when clew makes it."""
    old = os.umask(0)
    try:
        folder = tmp_path / "data"
        async with engine_on(folder / "store.db") as engine:
            await engine.create_session()
            assert modes(folder) == {
                "store.db": 0o600,
                "store.db-wal": 0o600,
                "store.db-shm": 0o600,
                "store.db.owner": 0o600,
            }
            await engine.backup(folder / "copy.db")
            assert modes(folder)["copy.db"] == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        os.umask(old)


async def test_files_that_others_could_read_are_repaired_at_the_start(path: Path) -> None:
    """Also the write-ahead log of a process that was killed."""
    with Child(Orders(store=f"sqlite:///{path}", stage="hold")) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    assert set(modes(path.parent)) == {"store.db", "store.db-wal", "store.db-shm", "store.db.owner"}
    for file in path.parent.iterdir():
        file.chmod(0o666)
    async with engine_on(path):
        assert set(modes(path.parent).values()) == {0o600}


# Backup


@pytest.mark.rule("ST-8")
async def test_a_backup_made_while_streams_run_is_whole(path: Path, tmp_path: Path) -> None:
    """Each copy holds everything that was acknowledged before it was asked for, and passes the judge."""
    async with engine_on(path) as engine:
        scribes = [await Scribe.create(engine.store) for _ in range(3)]
        turns = [await scribe.prompt("hello") for scribe in scribes]
        stop = asyncio.Event()
        grown = asyncio.Condition()
        shown: dict[str, list[Chunk]] = {}

        async def stream(turn: OpenedTurn) -> None:
            recorder = turn.recorder()
            shown[recorder.message.id] = turn.shown
            await recorder.send(c.Start(recorder.message.id))
            await recorder.send(c.TextStart("t"))
            while not stop.is_set():
                await recorder.send(c.TextDelta("t", "on and on "))
                await recorder.flush()
                async with grown:
                    grown.notify_all()
            await recorder.close(*turn.settling())

        tasks = [asyncio.create_task(stream(turn)) for turn in turns]
        copies: list[tuple[Path, dict[str, list[Chunk]]]] = []
        for number in range(1, 4):
            async with grown:
                await grown.wait_for(lambda least=20 * number: all(len(turn.shown) >= least for turn in turns))  # type: ignore[misc]
            acknowledged = {id_: list(chunks) for id_, chunks in shown.items()}
            target = tmp_path / f"copy-{number}.db"
            await engine.backup(target)
            copies.append((target, acknowledged))
        stop.set()
        await asyncio.gather(*tasks)
        assert await check(engine.store, shown) == []
    for target, acknowledged in copies:
        assert min(map(len, acknowledged.values())) >= 20
        async with engine_on(target, read_only=True) as engine:
            assert await check(engine.store, acknowledged) == []
        async with engine_on(target) as engine:
            assert await check(engine.store, acknowledged) == []
            for scribe, turn in zip(scribes, turns, strict=True):
                [user, answer] = await engine.messages(scribe.session_id)
                assert user.id == turn.user.id
                before = folded(acknowledged[answer.id], answer.id)[0]["text"]
                assert answer.parts[0]["text"].startswith(before)


@pytest.mark.rule("ST-8")
async def test_a_backup_refuses_to_overwrite(two: Two, tmp_path: Path) -> None:
    """Also a file that is no store."""
    target = tmp_path / "precious.txt"
    target.write_text("mine")
    async with engine_on(two.path) as engine:
        with pytest.raises(InvalidInput, match="already there"):
            await engine.backup(target)
    assert target.read_text() == "mine"


@pytest.mark.rule("ST-8")
async def test_a_backup_that_cannot_be_written_leaves_nothing_behind(two: Two, tmp_path: Path) -> None:
    """The error names the target, not the store."""
    target = tmp_path / "no" / "such" / "folder" / "copy.db"
    async with engine_on(two.path) as engine:
        with pytest.raises(StoreUnavailable, match=re.escape(str(target))):
            await engine.backup(target)
    assert not (tmp_path / "no").exists()


# How the store talks to SQLite


class Traced:
    """A connection of the store's, with every statement it ran since it was handed out."""

    def __init__(self, connection: sqlite3.Connection, writer: bool) -> None:
        self.writer = writer
        self.settings = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys", "query_only")
        }
        self.statements: list[str] = []
        connection.set_trace_callback(self.statements.append)

    def transactions(self) -> list[str]:
        """The sync level of each write transaction, in order; anything that writes outside of one is an error."""
        level, inside, found = "NORMAL", False, []
        for statement in self.statements:
            if match := re.fullmatch(r"PRAGMA synchronous = (\w+)", statement):
                assert not inside
                level = match[1]
            elif statement.startswith("BEGIN"):
                assert statement == "BEGIN IMMEDIATE"
                assert not inside
                inside = True
            elif statement in ("COMMIT", "ROLLBACK"):
                assert inside
                inside = False
                if statement == "COMMIT":
                    found.append(level)
            elif not inside:
                assert statement.startswith(("SELECT", "PRAGMA")), statement
        assert not inside
        return found


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Traced]:
    seen: list[Traced] = []

    def traced_connect(path: Path, *, writer: bool) -> sqlite3.Connection:
        connection = connect(path, writer=writer)
        seen.append(Traced(connection, writer))
        return connection

    monkeypatch.setattr(store_module, "connect", traced_connect)
    monkeypatch.setattr(reader_module, "connect", traced_connect)
    return seen


@pytest.mark.rule("ST-3")
async def test_every_connection_has_the_settings_and_readers_cannot_write(
    path: Path, tmp_path: Path, traced: list[Traced]
) -> None:
    """Writer, readers, a second process's reader, and the one that makes a backup."""
    async with sqlite_store(path) as store:
        await Scribe.create(store)
        await store.session_ids()
        await store.backup(tmp_path / "copy.db")
    async with sqlite_store(path, read_only=True) as store:
        await store.session_ids()
    common = {"journal_mode": "wal", "synchronous": 1, "busy_timeout": 5000, "foreign_keys": 1}
    assert [connection.writer for connection in traced].count(True) == 1
    assert len(traced) >= 4
    for connection in traced:
        assert connection.settings == {**common, "query_only": 0 if connection.writer else 1}
        if not connection.writer:
            starts = {statement.split(" ")[0] for statement in connection.statements}
            assert starts <= {"BEGIN", "SELECT", "COMMIT", "ROLLBACK", "PRAGMA", "WITH"}
            begins = {statement for statement in connection.statements if statement.startswith("BEGIN")}
            assert begins <= {"BEGIN DEFERRED"}


@pytest.mark.rule("ST-3")
async def test_commits_are_full_exactly_where_a_loss_of_power_must_not_matter(path: Path, traced: list[Traced]) -> None:
    """User messages, step ends, settled turns and changes to a session are synced; chunks and folds are not."""
    async with sqlite_store(path):
        pass
    traced.clear()
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)  # NORMAL
        opened = await scribe.prompt("hello")  # FULL
        recorder = opened.recorder()
        for chunk in [c.Start(recorder.message.id), *text("two words", open=True)]:  # NORMAL, four times
            await recorder.send(chunk)
            await recorder.flush()
        await recorder.send(c.FinishStep())
        await recorder.end_step(opened.step(recorder.message.id, clew.Usage(1, 1)))  # FULL
        await recorder.close(*opened.settling())  # FULL
    engine_commits = ["FULL", "FULL", "FULL"]
    async with engine_on(path) as engine:
        session = await engine.create_session()
        await engine.rename_session(session.id, "renamed")
        await engine.delete_session(session.id)
    writers = [connection for connection in traced if connection.writer]
    assert [connection.transactions() for connection in writers] == [
        ["NORMAL", "FULL", "NORMAL", "NORMAL", "NORMAL", "NORMAL", "FULL", "FULL"],
        engine_commits,
    ]


@pytest.mark.rule("ST-3")
async def test_a_group_is_as_safe_as_its_strongest_unit(path: Path, traced: list[Traced]) -> None:
    """One unit that must survive a loss of power makes the whole group sync; the next group does not."""
    async with sqlite_store(path):
        pass
    traced.clear()
    async with sqlite_store(path, window_ms=50) as store:
        session_id = (await Scribe.create(store)).session_id
        weak, strong = retitle(session_id, "weak"), Unit(session_id, (PatchSession(metadata={"a": 1}),), sync="power")
        for group in ([weak, weak], [weak, strong, weak], [weak], [strong], [strong]):
            before = store.commits
            await asyncio.gather(*map(store.submit, group))
            assert store.commits - before == 1
    [writer] = [connection for connection in traced if connection.writer]
    assert writer.transactions() == ["NORMAL", "NORMAL", "FULL", "NORMAL", "FULL", "FULL"]


@pytest.mark.rule("ST-3")
async def test_durability_power_makes_every_commit_full(path: Path, traced: list[Traced]) -> None:
    """Chunks too."""
    async with sqlite_store(path):
        pass
    traced.clear()
    async with clew.open(f"sqlite:///{path}", config=Config(durability="power")) as engine:
        scribe = await Scribe.create(engine.store)
        await scribe.turn("hello", [*tool_call("look", {"at": "it"}), *tool_output("seen"), *text("done")])
    [writer] = [connection for connection in traced if connection.writer]
    assert set(writer.transactions()) == {"FULL"}
    assert len(writer.transactions()) >= 4


# What the source may not say


def strings(path: Path) -> Iterator[str]:
    """The string literals of a Python file that are not documentation."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {
        id(node.value)
        for parent in ast.walk(tree)
        if isinstance(parent, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for node in parent.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


@pytest.mark.rule("ST-3")
def test_no_statement_begins_a_transaction_that_could_wait_for_its_lock() -> None:
    """A deferred transaction that reads and then writes fails at once, whatever the busy timeout; a reader's may."""
    begins = [
        (path.relative_to(SOURCE).as_posix(), text.strip())
        for path in sorted(SOURCE.rglob("*.py"))
        if "testing" not in path.parts
        for text in strings(path)
        if re.match(r"\s*(BEGIN|SAVEPOINT)\b", text)
    ]
    assert {text for _, text in begins} == {"BEGIN IMMEDIATE", "BEGIN DEFERRED"}
    readers = {"store/sql/sqlite/reader.py", "store/sql/sqlite/rebuild.py"}
    assert {name for name, text in begins if text == "BEGIN DEFERRED"} == readers
    for path in SOURCE.rglob("*.sql"):
        bare = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        # The body of a trigger begins so too, and begins no transaction.
        bare = re.sub(r"^CREATE TRIGGER .*\nBEGIN$", "", bare, flags=re.MULTILINE)
        assert re.search(r"\b(BEGIN|SAVEPOINT)\b", bare) is None, path


@pytest.mark.rule("ST-3")
def test_no_connection_is_made_but_through_connect() -> None:
    """A connection made elsewhere would lack the settings; the target of a backup, which nobody reads yet, may."""
    made = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "testing" not in path.parts and "sqlite3.connect(" in path.read_text(encoding="utf-8")
    }
    assert made == {"store/sql/sqlite/connection.py", "store/sql/sqlite/store.py"}


def test_hidden_at_decides_nothing_in_sql() -> None:
    """It is written for other readers; which messages count is the tree's to say."""
    for name, statement in QUERIES.items():
        _, _, condition = statement.partition("WHERE")
        assert "hidden_at" not in condition, name
    for path in SOURCE.rglob("*.sql"):
        if path.name != "queries.sql":
            assert "hidden_at" not in re.sub(r"--.*", "", path.read_text(encoding="utf-8")), path
