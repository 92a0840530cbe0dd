"""The cache of a folder of sessions in several processes, and one that is removed or damaged."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clew.clock import SystemClock
from clew.ids import Mint
from clew.store.base import SessionQuery, Store
from clew.store.boot_id import boot_id
from clew.store.files import cache_file, folder, opening
from clew.store.files.opening import FilesOptions, open_files
from clew.store.files.shared import SharedFiles
from clew.store.files.store import FileStore
from clew.store.sql.sqlite.migrate import migrate
from clew.store.unit import STORE_WIDE, PutProjectRules, Unit
from clew.testing.chunks import text
from clew.testing.scribe import Scribe

from .test_files_store import Kind, both


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


async def texts(store: Store) -> list[list[list[str]]]:
    listed = (await store.list_sessions(SessionQuery(limit=50))).sessions
    return [[row.texts for row in await store.load_messages(one.id)] for one in listed]


@both
@pytest.mark.rule("ST-9", "FS-4")
async def test_processes_that_make_the_cache_at_once_do_not_take_it_from_each_other(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    await (await open_files(kind, root)).close()
    for path in (root / "clew" / "cache.db", root / "clew" / "cache.state"):
        path.unlink()
    readers: list[FileStore] = []

    def meanwhile(connection: sqlite3.Connection, path: Path) -> None:
        migrate(connection, path)
        if not readers:
            readers.append(open_reader())

    def open_reader() -> FileStore:
        with monkeypatch.context() as patch:
            patch.setattr(cache_file, "migrate", migrate)
            return opening._open(kind, root, FilesOptions(read_only=True), SystemClock(), Mint())

    monkeypatch.setattr(cache_file, "_WAIT_S", 0.0, raising=False)
    monkeypatch.setattr(cache_file, "migrate", meanwhile)
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    for one in (store, *readers):
        assert await texts(one) == [[["hello"], ["hi"]]]
        await one.close()


@both
@pytest.mark.rule("FS-4")
async def test_the_cache_may_be_removed_while_it_is_open(kind: Kind, tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    for name in ("cache.db", "cache.state", "cache.db-wal", "cache.db-shm"):
        (root / "clew" / name).unlink()
    await scribe.turn("and on", text("it goes"))
    reader = await open_files(kind, root, FilesOptions(read_only=True))
    expected = [["hello"], ["hi"], ["and on"], ["it goes"]]
    assert await texts(reader) == [expected]
    await scribe.turn("once more", text("to the end"))
    expected += [["once more"], ["to the end"]]
    assert await texts(reader) == await texts(store) == [expected]
    await reader.close()
    await store.close()
    store = await open_files(kind, root)
    assert await texts(store) == [expected]
    assert await store.verify() == ()
    await store.close()


@both
@pytest.mark.rule("FS-4", "ST-14")
async def test_a_damaged_cache_of_a_process_that_died_is_made_again(kind: Kind, tmp_path: Path) -> None:
    """It has no checksum yet."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    for n in range(20):
        await (await Scribe.create(store)).turn(f"hello {n}", text("hi"))
    expected = await texts(store)
    await store.close()
    path = root / "clew" / "cache.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'session_files'").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    data = path.read_bytes()
    path.write_bytes(data[: (page - 1) * size] + b"\xa5" * size + data[page * size :])
    state = {"boot": boot_id(), "crc": None, "size": 0}
    (root / "clew" / "cache.state").write_bytes(msgspec.json.encode(state))
    store = await open_files(kind, root)
    assert await texts(store) == expected
    assert await store.verify() == ()
    await store.close()


@both
@pytest.mark.rule("FS-4", "ST-14")
async def test_a_large_cache_is_checked_when_the_machine_has_stopped_since(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not synced."""
    monkeypatch.setattr(cache_file, "_MAX_CHECKED", 0)
    root = tmp_path / "store"
    store = await open_files(kind, root)
    await (await Scribe.create(store)).turn("hello", text("the thread"))
    await store.close()
    path = root / "clew" / "cache.db"
    path.write_bytes(path.read_bytes().replace(b"the thread", b"the needle"))
    monkeypatch.setattr(cache_file, "boot_id", lambda: "another boot")
    store = await open_files(kind, root)
    assert await texts(store) == [[["hello"], ["the thread"]]]
    await store.close()


@both
@pytest.mark.rule("FS-4", "FS-6")
async def test_a_reader_beside_the_owner_reads_shared_entries_again_only_where_they_changed(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it does, the owner waits."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    read: list[str] = []

    def load(self: SharedFiles, name: str, *given: Any) -> Any:
        read.append(name)
        return real(self, name, *given)

    real = SharedFiles.load
    monkeypatch.setattr(SharedFiles, "load", load)
    for n in (1, 2):
        rules = ({"permission": "bash", "pattern": f"ls {n}"},)
        await store.commit(Unit(STORE_WIDE, (PutProjectRules("/project", rules, n),)))
        for expected in (["accepted", "rules"], ["accepted"]):
            read.clear()
            reader = await open_files(kind, root, FilesOptions(read_only=True))
            assert [name for name in read if n == 2 or name in ("accepted", "rules")] == expected
            assert await reader.load_project_rules("/project") == rules
            await reader.close()
    await store.close()
