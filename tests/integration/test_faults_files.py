"""Files of other versions, a second process, places where no store can live, and who may read the files."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from clew.errors import OwnedByAnotherProcess, SchemaTooNew, StoreError, StoreUnavailable
from clew.ids import Mint
from clew.session.history.check import check
from clew.store import owner
from clew.store.owner import NETWORK_FILE_SYSTEMS, file_system_of, owner_path, read_owner, refuse_network_file_system
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.transcript.fold import Fold
from clew.transcript.session import Session
from tests.integration.sqlite_files import Two, engine_on, folded, path, raw, sqlite_store, two
from tests.rig.child import Child, Orders
from tests.rig.old_store import make_old_store

__all__ = ["path", "two"]


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
        connection.execute("UPDATE clew_schema SET version = version + 1")
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
        connection.execute("UPDATE clew_schema SET version = version + 1")
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.rule("ST-9")
async def test_the_store_of_a_killed_owner_can_be_opened_at_once(path: Path) -> None:
    """The lock dies with the process, and with it whatever the owner file still says."""
    with Child(Orders(store=f"sqlite:///{path}", stage="hold")) as child:
        child.wait_until(lambda child: child.staged)
        owner = read_owner(path)
        child.kill()
    assert owner is not None
    assert owner.pid == child.pid
    assert f'"pid":{child.pid}' in owner_path(path).read_text()
    assert read_owner(path) is None
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
    with pytest.raises(StoreUnavailable, match=r"cannot use WAL mode \(SQLite reports 'delete'\)"):
        async with engine_on(path):
            raise AssertionError("it was opened")


@pytest.mark.rule("ST-9")
async def test_a_reader_refuses_a_store_that_is_not_in_wal_mode(two: Two) -> None:
    """Reading it beside a writer would make the writer wait."""
    with raw(two.path) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    with pytest.raises(StoreUnavailable, match="cannot use WAL mode"):
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
                "store.db.acked": 0o600,
                "store.db.owner": 0o600,
            }
            await engine.backup(folder / "copy.db")
            assert modes(folder)["copy.db"] == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        os.umask(old)


@pytest.mark.slow
async def test_files_that_others_could_read_are_repaired_at_the_start(path: Path) -> None:
    """Also the write-ahead log of a process that was killed."""
    with Child(Orders(store=f"sqlite:///{path}", stage="hold")) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    assert set(modes(path.parent)) == {
        "store.db",
        "store.db-wal",
        "store.db-shm",
        "store.db.acked",
        "store.db.owner",
    }
    for file in path.parent.iterdir():
        file.chmod(0o666)
    async with engine_on(path):
        assert set(modes(path.parent).values()) == {0o600}
