"""Units of a folder that fail half-way, and sessions whose files cannot be used as they are."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from pathlib import Path

import orjson
import pytest

from clew.errors import RowUndecodable, StorageFull, StoreError
from clew.ids import Mint
from clew.store.base import FullSession, SessionQuery, Store, get_session
from clew.store.files import folder, follow, writer
from clew.store.files.cache import Cache, CachedFile
from clew.store.files.opening import open_files
from clew.store.unit import STORE_WIDE, Committed, DeleteSession, PatchSession, PutProjectRules, Unit
from clew.testing.chunks import reply, step, text
from clew.testing.scribe import Scribe

from .test_files_store import Kind, both


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


def refuse(*_: object, **__: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


async def titles(store: Store) -> list[str | None]:
    return [one.title for one in (await store.list_sessions(SessionQuery(limit=50))).sessions]


@both
@pytest.mark.rule("FS-2", "FS-4")
async def test_the_cache_that_does_not_note_a_written_unit_is_read_again(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    with monkeypatch.context() as patch:
        patch.setattr(Cache, "set_file", refuse)
        assert await store.commit(Unit(scribe.session_id, (PatchSession(metadata={"title": "x"}),))) == Committed()
    assert await titles(store) == ["x"]
    await store.close()


@both
@pytest.mark.rule("FS-4", "ST-11")
async def test_a_session_that_only_the_files_have_lost_is_in_no_list_and_in_no_file(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("secret-word-xyz"))
    with monkeypatch.context() as patch:
        patch.setattr(writer, "failpoint", refuse)
        assert await store.commit(Unit(scribe.session_id, (DeleteSession(),))) == Committed()
    assert await titles(store) == []
    await store.close()
    left = await asyncio.to_thread(lambda: [path for path in tmp_path.rglob("*") if path.is_file()])
    assert [path for path in left if b"secret-word-xyz" in path.read_bytes()] == []


@both
@pytest.mark.rule("FS-2", "FS-6")
async def test_a_list_shows_what_only_the_files_have(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "failpoint", refuse)
        assert await store.commit(Unit(scribe.session_id, (PatchSession(metadata={"title": "x"}),))) == Committed()
        await Scribe.create(store, metadata={"title": "y"})
    assert await titles(store) == ["y", "x"]
    await store.close()


@both
@pytest.mark.rule("FS-3")
async def test_what_was_accepted_before_a_unit_failed_is_saved_when_the_store_closes(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    for chunk in reply(step(text("the thread leads out")), id=recorder.message.id)[:-1][:4]:
        await recorder.send(chunk)
    await recorder.flush()
    expected = await store.load_messages(scribe.session_id)
    with monkeypatch.context() as patch:
        patch.setattr(writer.FileTransactions, "_persist", refuse)
        with pytest.raises(StoreError):
            await scribe.commit(PatchSession(metadata={"title": "x"}))
    await store.close()
    store = await open_files(kind, tmp_path / "store")
    assert await store.load_messages(scribe.session_id) == expected
    await store.close()


def place(root: Path, kind: Kind, session_id: str) -> Path:
    return root / "sessions" / (session_id + (".json" if kind == "json" else ""))


def copied(source: Path, target: Path) -> None:
    (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)


@both
@pytest.mark.rule("FS-1", "FS-3", "FS-5")
async def test_copies_by_hand_and_their_copies_are_continued_and_the_original_keeps_its_alias(
    kind: Kind, tmp_path: Path
) -> None:
    """Also right after a copy, and where the cache is made again."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store, alias="work")
    await scribe.turn("hello", text("hi"))
    newest = scribe.session_id
    expected = {newest: [["hello"], ["hi"]]}
    for turns in (0, 1, 2, 0, 1):
        await store.close()
        original, newest = newest, scribe.mint.session(store.capabilities.session_ids)
        copied(place(root, kind, original), place(root, kind, newest))
        expected[newest] = [*expected[original]]
        (root / "clew" / "cache.db").unlink()
        scribe.store = store = await open_files(kind, root)
        for scribe.session_id in (original, newest):
            for n in range(turns):
                await scribe.turn(f"on {n}", text("and on"))
                expected[scribe.session_id] += [[f"on {n}"], ["and on"]]
        assert await store.verify() == ()
        assert {id_: [row.texts for row in await store.load_messages(id_)] for id_ in expected} == expected
    aliases = {id_: (await get_session(store, id_)).alias for id_ in expected}
    assert aliases == {id_: "work" if id_ == next(iter(expected)) else None for id_ in expected}
    await store.close()


@both
@pytest.mark.rule("FS-5")
async def test_a_session_with_the_ids_of_another_one_is_shown_damaged_and_not_written_to(
    kind: Kind, tmp_path: Path
) -> None:
    """Its files name it, so it is no copy by hand. It can be deleted."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store, alias="work")
    await scribe.turn("hello", text("hi"))
    first, second = scribe.session_id, scribe.mint.session(store.capabilities.session_ids)
    await store.close()
    copied(place(root, kind, first), place(root, kind, second))
    path = place(root, kind, second) / "session.jsonl" if kind == "jsonl" else place(root, kind, second)
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        line.pop("check")
        if kind == "json":
            line["clew"].pop("session_check")
            line["clew"]["session"]["id"] = second
        elif line["recordType"] == "session":
            line["value"]["id"] = second
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    before = path.read_bytes()
    for _ in range(2):
        store = await open_files(kind, root)
        assert [row.texts for row in await store.load_messages(first)] == [["hello"], ["hi"]]
        assert await store.load_messages(second) == ()
        assert [damage.what for damage in (await full_session(store, second)).damaged] == [
            "what its files say cannot be used: UNIQUE constraint failed: index 'session_state_by_alias'"
        ]
        with pytest.raises(RowUndecodable):
            await store.commit(Unit(second, (PatchSession(metadata={"title": "x"}),)))
        await store.close()
        assert path.read_bytes() == before
    store = await open_files(kind, root)
    assert await store.commit(Unit(second, (DeleteSession(),))) == Committed()
    assert [row.texts for row in await store.load_messages(first)] == [["hello"], ["hi"]]
    assert await store.verify() == ()
    await store.close()


async def full_session(store: Store, session_id: str) -> FullSession:
    found = await store.find_full_session(session_id)
    assert found is not None
    return found


@both
@pytest.mark.rule("FS-2", "FS-4")
async def test_files_that_change_twice_at_one_time_are_read_twice(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a change of their size, as two writes within a tick of the system's clock leave them."""
    monkeypatch.setattr(follow, "_GRAIN_NS", 10**18)
    root = tmp_path / "store"
    store = await open_files(kind, root)
    session_id = Mint().session(store.capabilities.session_ids)
    if kind == "json":
        path, said = place(root, kind, session_id), '{"messages":[{"role":"user","text":"one"}]}'
    else:
        path = place(root, kind, session_id) / "session.jsonl"
        block = '[{"type":"text","text":"one"}]'
        said = f'{{"recordType":"message","schemaVersion":1,"seq":1,"role":"user","content":{block}}}\n'
        path.parent.mkdir()
    path.write_text(said)
    at = path.stat().st_mtime_ns
    assert [row.texts for row in await store.load_messages(session_id)] == [["one"]]
    path.write_text(said.replace("one", "two"))
    os.utime(path, ns=(at, at))
    assert [row.texts for row in await store.load_messages(session_id)] == [["two"]]
    await store.close()


@both
@pytest.mark.rule("FS-4")
async def test_shared_entries_are_read_again_until_that_is_committed(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit after the one whose commit failed fails as well, and what it had read with it."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    rules = ({"permission": "bash", "pattern": "ls *", "action": "allow"},)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "failpoint", refuse)
        assert await store.commit(Unit(STORE_WIDE, (PutProjectRules("/project", rules, 1),))) == Committed()
        patch.setattr(writer.FileTransactions, "_apply", refuse)
        with pytest.raises(StoreError):
            await scribe.commit(PatchSession(metadata={"title": "x"}))
    assert await store.load_project_rules("/project") == rules
    await store.close()


@both
@pytest.mark.rule("FS-4", "FS-5")
async def test_a_write_of_rules_that_fails_leaves_no_file_behind(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    store = await open_files(kind, root)
    await store.commit(Unit(STORE_WIDE, (PutProjectRules("/project", (), 1),)))
    before = sorted((root / "clew" / "rules").iterdir())

    def fail(name: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "failpoint", fail)
        with pytest.raises(StoreError):
            await store.commit(Unit(STORE_WIDE, (PutProjectRules("/project", ({"n": 1},), 1),)))
    assert sorted((root / "clew" / "rules").iterdir()) == before
    assert await store.load_project_rules("/project") == ()
    assert await store.verify() == ()
    await store.close()


def refuse_as_full(*_: object) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


@both
@pytest.mark.rule("FS-2", "FS-4", "ST-11")
async def test_sessions_are_read_and_deleted_on_a_disk_that_became_full(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that failed leaves the log as it was, so that it need not be read again into a cache without room."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))

    def fail(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder, "_write_all", fail)
    monkeypatch.setattr(Cache, "put_file", refuse_as_full)
    with pytest.raises(StorageFull):
        await scribe.prompt("and on")
    assert [row.texts for row in await store.load_messages(scribe.session_id)] == [["hello"], ["hi"]]
    assert await titles(store) == [None]
    assert await store.commit(Unit(scribe.session_id, (DeleteSession(),))) == Committed()
    assert await titles(store) == []
    await store.close()


@both
@pytest.mark.rule("FS-4")
async def test_a_store_on_a_full_disk_is_opened_with_a_temporary_cache(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    await store.close()
    (root / "clew" / "cache.db").unlink()
    put_file = Cache.put_file

    def put(self: Cache, session_id: str, file: CachedFile) -> None:
        if self.connection.execute("PRAGMA database_list").fetchone()[2].startswith(str(root)):
            refuse_as_full()
        put_file(self, session_id, file)

    monkeypatch.setattr(Cache, "put_file", put)
    store = await open_files(kind, root)
    assert [row.texts for row in await store.load_messages(scribe.session_id)] == [["hello"], ["hi"]]
    await store.close()
