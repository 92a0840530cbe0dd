"""The log of a SQLite store is moved into the database beside the writer, which only moves what came meanwhile."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from clew.store.sql.sqlite import owned_file
from clew.store.sql.sqlite.pool import ReaderPool
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.unit import PatchSession, Unit
from clew.testing.scribe import Scribe
from tests.integration.sqlite_files import sqlite_store


async def say(store: SqliteStore, session_id: str, count: int) -> None:
    for n in range(count):
        await store.commit(Unit(session_id, (PatchSession(metadata={"n": n}),)))


def said_in_the_database(path: Path) -> list[object]:
    """What the file alone holds, without its log."""
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as file:
        return [n for (n,) in file.execute("SELECT json_extract(metadata_json, '$.n') FROM chat_sessions")]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten commits, and never because nobody writes."""
    monkeypatch.setattr("clew.store.sql.inbox.IDLE_S", 600.0)
    for pace in ("quiet", "busy"):
        monkeypatch.setitem(owned_file._CHECKPOINT_COMMITS, pace, 10)
    monkeypatch.setattr(owned_file, "_CHECKPOINT_SYNCS", dict.fromkeys(owned_file._CHECKPOINT_SYNCS, 1_000))


async def test_a_readers_thread_moves_the_log_unless_all_are_in_use(tmp_path: Path) -> None:
    """Then the writer does it itself, as it does when nobody writes."""
    async with sqlite_store(tmp_path / "store.db", checkpoints=False) as store:
        await say(store, (await Scribe.create(store)).session_id, 3)
        assert said_in_the_database(tmp_path / "store.db") == []
        moving = store._readers.backfill()
        assert moving is not None
        await asyncio.wrap_future(moving)
        assert said_in_the_database(tmp_path / "store.db") == [2]
        with ExitStack() as busy:
            while store._readers._long.is_free:
                busy.enter_context(store._readers._long.connection())
            assert store._readers.backfill() is None


async def test_the_writer_goes_on_beside_it_and_then_begins_the_log_anew(
    tmp_path: Path, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is being moved the log grows; it stays as long as it is once that is done."""
    moving: list[Future[None]] = []

    def begin(self: ReaderPool) -> Future[None]:
        moving.append(Future())
        return moving[-1]

    monkeypatch.setattr(ReaderPool, "backfill", begin)
    log = tmp_path / "store.db-wal"
    async with sqlite_store(tmp_path / "store.db") as store:
        session_id = (await Scribe.create(store)).session_id
        sizes = [log.stat().st_size]
        for _ in range(2):
            await say(store, session_id, 30)
            sizes.append(log.stat().st_size)
        assert (len(moving), sizes == sorted(set(sizes))) == (1, True)
        store._readers._backfill()
        moving.pop().set_result(None)
        await say(store, session_id, 8)
        assert (moving, log.stat().st_size) == ([], sizes[-1])
        await say(store, session_id, 30)
        assert (len(moving), log.stat().st_size) == (1, sizes[-1])


async def test_one_that_does_not_succeed_is_made_good_by_the_writer(
    tmp_path: Path, often: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: ReaderPool) -> Future[None]:
        failed: Future[None] = Future()
        failed.set_exception(sqlite3.OperationalError("disk I/O error"))
        return failed

    monkeypatch.setattr(ReaderPool, "backfill", fail)
    async with sqlite_store(tmp_path / "store.db") as store:
        await say(store, (await Scribe.create(store)).session_id, 13)
        assert said_in_the_database(tmp_path / "store.db") != []
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert told == [f"a checkpoint of {tmp_path}/store.db failed: disk I/O error"]
