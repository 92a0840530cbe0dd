"""What was acknowledged and is gone: noticed when the store is opened, named, and let be only by a human's word."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clew.clock import SystemClock
from clew.errors import ClewError, StorageFull, StoreUnavailable
from clew.ids import Mint
from clew.session.acquire.recovery import recover
from clew.session.history.check import check
from clew.store.sql.sqlite.commit_counter import CommitCounter, Loss, Note, boot_bytes, find_loss, read_notes
from clew.store.sql.sqlite.connection import translate
from clew.store.sql.sqlite.opening import open_sqlite
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.transcript.chunk import Chunk
from clew.transcript.fold_part import continues
from tests.integration.http_client import served
from tests.integration.sqlite_files import folded, path, raw, retitle, sqlite_store
from tests.integration.test_cli_history import Say
from tests.integration.test_cli_history import say as say_fixture
from tests.rig.child import Child, Orders
from tests.rounds import rounds

__all__ = ["path"]

pytestmark = pytest.mark.rule("ST-14")

command = say_fixture


def killed(path: Path, **orders: Any) -> dict[str, list[Chunk]]:
    """A store whose process was killed half-way; what it had shown, by message."""
    with Child(Orders(store=f"sqlite:///{path}", stage="hold", size=60, **orders)) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    return child.shown


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def cut(path: Path, share: float = 0.5) -> None:
    """Break the log off."""
    os.truncate(wal(path), int(wal(path).stat().st_size * share))


@pytest.mark.slow
async def test_a_log_that_was_broken_off_is_named_over_http_until_a_human_accepts_it(path: Path) -> None:
    """How many commits, and which sessions; the server runs on with what is left."""
    killed(path, streams=2)
    newest = read_notes(path)[-1].commit
    cut(path)
    for _ in range(2):  # it is not forgotten by opening once more
        async with served(store=f"sqlite:///{path}") as client:
            [loss] = (await client.get("/api/server")).json()["losses"]
            assert f" to {newest}) are missing from the file" in loss["what"]
            assert f"clew check --accept {loss['id']}" in loss["what"]
            assert str(loss["id"]) in [problem.id for problem in await check(client.engine.store)]
    async with served(store=f"sqlite:///{path}") as client:
        [loss] = (await client.get("/api/server")).json()["losses"]
        assert (await client.post(f"/api/losses/{loss['id']}/accept", {})).status == 204
        assert (await client.post(f"/api/losses/{loss['id']}/accept", {})).status == 404
        assert (await client.get("/api/server")).json()["losses"] == []


@pytest.mark.slow
def test_the_check_of_a_file_that_nobody_opened_since_names_the_loss(command: Say, tmp_path: Path) -> None:
    """Reading is enough to notice; with the word given it is told no more."""
    path = tmp_path / "store.db"
    killed(path, streams=1)
    held, sessions = read_notes(path)[-1].commit, {note.session_id for note in read_notes(path)} - {""}
    cut(path)
    code, out, _ = command("check", "--json")
    told = [one for one in json.loads(out)["problems"] if str(one["id"]).startswith("loss-")]
    assert (code, len(told)) == (7, 1)
    assert f"to {held})" in told[0]["what"]
    assert any(session in told[0]["what"] for session in sessions)
    assert command("check", "--accept", told[0]["id"])[0] in (0, 7)
    assert "acknowledged" not in command("check")[1]


@pytest.mark.slow
async def test_a_kill_alone_is_no_loss(path: Path) -> None:
    """Whatever was under way: the file holds what was acknowledged."""
    shown = killed(path)
    async with sqlite_store(path) as store:
        assert (await store.losses(), await check(store, shown)) == ((), [])


async def test_an_older_copy_in_the_place_of_a_store_is_noticed(path: Path) -> None:
    """It has the same id and fewer commits; numbers go on from what was acknowledged."""
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
    shutil.copy(path, path.with_name("older.db"))
    async with sqlite_store(path) as store:
        await store.commit(retitle(scribe.session_id, "newer"))
        newest = read_notes(path)[-1].commit
    shutil.copy(path.with_name("older.db"), path)
    async with sqlite_store(path) as store:
        [loss] = await store.losses()
        assert (loss.session_id, loss.what.startswith("1 acknowledged commit (")) == (scribe.session_id, True)
        await store.commit(retitle(scribe.session_id, "on"))
        assert read_notes(path)[-1].commit == newest + 1
    async with sqlite_store(path.with_name("older.db")) as store:
        assert await store.losses() == ()


def test_after_another_boot_only_what_was_synced_counts() -> None:
    """A loss of power may take commits that were never synced; it may not take those that were."""
    here, there = boot_bytes(), bytes(range(16))
    store = CommitCounter.hash_store_id("store")
    for boot, held, loss in (
        (here, 9, None),
        (here, 6, Loss(6, 9, ("ses_a", "ses_b"))),
        (there, 6, None),
        (there, 5, None),
        (there, 4, Loss(4, 5)),
    ):
        notes = [Note(boot, store, 8, 5, 1, "ses_a"), Note(boot, store, 9, 5, 1, "ses_b")]
        assert find_loss(notes, "store", held) == loss
    assert find_loss([Note(here, store, 9, 5, 1, "ses_a")], "another", 0) is None


@pytest.mark.slow
async def test_a_store_that_shrank_to_nothing_is_not_a_new_one(path: Path) -> None:
    """A file that is a database and holds nothing: what was acknowledged here was not acknowledged for nothing."""
    killed(path, streams=1)
    for name in (path, wal(path), path.with_name("store.db.owner")):
        os.unlink(name)
    with raw(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="commits were acknowledged here; restore a backup"):
            await open_sqlite(path)


@pytest.mark.slow
async def test_bits_flipped_in_the_log_of_a_killed_process_lose_nothing_without_a_word(
    path: Path, tmp_path: Path, record_property: Any
) -> None:
    """What somebody was shown is there, or it is said that something is missing; what is there is what was shown."""
    shown = killed(path, streams=3)
    lost = 0
    for n in range(rounds(12)):
        folder = tmp_path / f"flip-{n}"
        folder.mkdir()
        for name in (path, wal(path), path.with_name("store.db.acked")):
            shutil.copy(name, folder)
        target = folder / "store.db-wal"
        data, random = bytearray(target.read_bytes()), Random(n)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        target.write_bytes(data)
        try:
            store = await open_sqlite(folder / "store.db")
        except ClewError:
            lost += 1
            continue
        try:
            await recover(store, Mint(), 1)
            spoke = await check(store)
            rows = {
                row.id: row
                for id_ in await store.session_ids()
                for row in await store.load_messages(id_, keep_damaged=True)
            }
            whole = all(
                id_ in rows and continues([part.data for part in rows[id_].parts], folded(chunks, id_))
                for id_, chunks in shown.items()
            )
            assert whole or spoke, f"flip {n}: something was lost, and the judge is content"
            lost += not whole
        finally:
            await store.close()
    record_property(
        "figure", f"bits flipped in the log of a killed process: {rounds(12)}, {lost} lost something and said so"
    )


@pytest.mark.slow
async def test_a_damaged_row_of_the_journal_costs_only_what_it_held(path: Path) -> None:
    """The stream it cut off keeps its beginning and says that it lost its end; one that ended before it is whole."""
    shown = killed(path, streams=1)
    [(message_id, chunks)] = shown.items()
    with raw(path) as connection:
        rows = connection.execute("SELECT n, data FROM stream_journal ORDER BY n").fetchall()
        n, data = rows[len(rows) // 2]
        # Still JSON, and still a chunk: only the checksum tells.
        changed = re.sub(r'"(?=(,"[a-z-]+")?\])', 'X"', data, count=1)
        assert changed != data
        connection.execute("UPDATE stream_journal SET data = ? WHERE n = ?", (changed, n))
    async with sqlite_store(path) as store:
        [problem] = await check(store)
        assert (problem.id, problem.what) == (
            message_id,
            "a row of the journal cannot be decoded: this stream has lost its end",
        )
        session_id = str(problem.session_id)
        row = await store.find_message(session_id, message_id)
        assert row is not None
        assert row.damage == problem.what
        kept = [part.data for part in row.parts]
        assert "X" not in json.dumps(kept)
        assert any(folded(chunks[:n], message_id) == kept for n in range(len(chunks)))
        with raw(path) as connection:
            assert connection.execute("SELECT count(*) FROM stream_journal").fetchone() == (0,)
        scribe = Scribe(store, session_id, Mint(), SystemClock())
        await scribe.turn("go on", text("yes"))
    async with sqlite_store(path, read_only=True) as store:
        assert [one.id for one in await check(store)] == [message_id]


async def test_when_nobody_writes_the_log_is_emptied(path: Path) -> None:
    """What is in the database already cannot be lost with the log, and old pages cannot come back out of it."""
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
        await scribe.turn("hello", text("hi"))
        while wal(path).stat().st_size:
            await store.session_ids()


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC])
async def test_an_io_error_is_not_called_a_full_disk(path: Path, code: int) -> None:
    """Nobody is told to make room where the disk is broken."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    told = translate(error, path)
    assert isinstance(told, StoreUnavailable)
    assert "an I/O error (disk I/O error)" in str(told)


async def test_a_quota_is_called_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite calls it an error of input and output: what the system says to a write of the same place decides."""

    def refuse(*_: Any) -> int:
        raise OSError(errno.EDQUOT, "over quota")

    monkeypatch.setattr(os, "pwrite", refuse)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    assert isinstance(translate(error, path), StorageFull)
