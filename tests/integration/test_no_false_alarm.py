"""What is no damage is not called damage: ordinary use of a store and its files leaves nothing to accept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from clew.errors import StoreUnavailable
from clew.store.sql.sqlite.commit_counter import read_notes
from clew.testing.scribe import Scribe
from tests.integration.sqlite_files import path, raw, retitle, sqlite_store
from tests.integration.test_cli_history import Say
from tests.integration.test_cli_history import say as say_fixture
from tests.migration.test_migrations import add_sessions
from tests.rig.old_store import make_old_store

__all__ = ["path"]

pytestmark = pytest.mark.rule("ST-14")

command = say_fixture

CLEAN = "1 sessions, 0 problems"


def test_a_backup_in_the_place_of_its_store_is_no_loss(command: Say, tmp_path: Path) -> None:
    """Whoever puts it there knows that it is older."""
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    assert command("run", "--model", "demo/echo", "one")[0] == 0
    assert command("backup", str(copy))[0] == 0
    assert command("run", "--model", "demo/echo", "two")[0] == 0
    shutil.move(copy, store)
    for _ in range(2):
        code, out, errors = command("check")
        assert (code, out.strip(), errors) == (0, CLEAN, "")
        assert "acknowledged" not in command("run", "--continue", "--model", "demo/echo", "three")[2]


async def test_a_loss_is_accepted_by_the_id_it_is_first_told_with(path: Path) -> None:
    """A reader notices it before any owner has noted it, and says what to type."""
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
    shutil.copy(path, path.with_name("older.db"))
    async with sqlite_store(path) as store:
        await store.commit(retitle(scribe.session_id, "newer"))
    newest = read_notes(path)[-1].commit
    shutil.copy(path.with_name("older.db"), path)
    async with sqlite_store(path, read_only=True) as store:
        [told] = await store.losses()
    assert (told.id, f"--accept {told.id}" in told.what) == (f"loss-{newest}", True)
    async with sqlite_store(path) as store:
        assert await store.losses() == (told,)
        assert await store.accept_loss(f"loss-{newest}", 5) is True
        assert (await store.losses(), await store.accept_loss(f"loss-{newest}", 6)) == ((), False)
    async with sqlite_store(path, read_only=True) as store:
        assert await store.losses() == ()


async def test_what_another_program_wrote_beside_a_conversation_is_not_called_damaged(path: Path) -> None:
    """It has no seal because nothing holds it yet, not because one was lost."""
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
    with raw(path) as file:
        file.execute(
            "INSERT INTO chat_messages (id, session_id, role, metadata_json, created_at, updated_at) "
            "VALUES ('msg_x', ?, 'user', '{}', 4102444800000, 4102444800000)",
            (scribe.session_id,),
        )
    async with sqlite_store(path) as store:
        whole = await store.find_full_session(scribe.session_id)
        assert whole is not None
        assert ([row.id for row in whole.messages], whole.damaged) == (["msg_x"], ())


async def test_a_store_on_a_medium_for_reading_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no file can be made beside it; with something in its log it says what to do."""
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    before = sorted(path.parent.iterdir())
    real = os.statvfs(path)

    class ReadOnly:
        f_flag = real.f_flag | os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _: ReadOnly)
    async with sqlite_store(path, read_only=True) as store:
        assert (await store.session_ids(), await store.losses()) == ((scribe.session_id,), ())
        assert sorted(path.parent.iterdir()) == before
    path.with_name(path.name + "-wal").write_bytes(b"x")
    with pytest.raises(StoreUnavailable, match="copy both to another folder"):
        async with sqlite_store(path, read_only=True):
            pass


async def test_an_unsealed_message_of_an_older_version_is_not_called_damaged_whatever_its_clock_said(
    path: Path,
) -> None:
    """The clock was ahead when it was written, and has been put right since."""
    make_old_store(path, 10)
    [session_id], ahead = add_sessions(path, 1), 4102444800000
    with raw(path) as file:
        file.execute("INSERT INTO chat_messages VALUES ('msg_1', ?, 'user', '{}', ?, ?)", (session_id, ahead, ahead))
        file.execute(
            "INSERT INTO chat_turns (id, session_id, turn_type, status, depth, created_at, settled_at) "
            "VALUES ('trn_1', ?, 'normal', 'completed', 0, ?, ?)",
            (session_id, ahead, ahead),
        )
        file.execute("INSERT INTO turn_messages (turn_id, position, message_id) VALUES ('trn_1', 0, 'msg_1')")
    async with sqlite_store(path) as store:
        found = await store.find_message(session_id, "msg_1")
        assert found is not None
        assert found.damage is None


async def test_what_a_reader_kept_from_the_disk_is_not_noted_as_synced(path: Path) -> None:
    """After a loss of power it would be called lost, and nobody had promised it."""
    async with sqlite_store(path, checkpoints=False) as store:
        scribe = await Scribe.create(store)
        await store.commit(retitle(scribe.session_id, "not synced"))
        for suffix in ("", "-wal", ".acked"):
            shutil.copy(f"{path}{suffix}", f"{path}.killed{suffix}")
    killed = path.with_name(path.name + ".killed")
    synced = max(note.synced for note in read_notes(killed))
    with raw(killed) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chat_sessions").fetchone()
        async with sqlite_store(killed) as store:
            await store.commit(retitle(scribe.session_id, "on"))
            assert read_notes(killed)[-1].synced == synced
    async with sqlite_store(killed) as store:
        await store.commit(retitle(scribe.session_id, "alone"))
        newest = read_notes(killed)[-1]
        assert newest.synced == newest.commit - 1
