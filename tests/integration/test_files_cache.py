"""The cache of a folder of sessions: behind its files, beside another process, and where it cannot be written."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from clew.session.history.check import check
from clew.store.files import folder, writer
from clew.store.files.opening import FilesOptions, open_files
from clew.store.unit import STORE_WIDE, Committed, PatchSession, PutProjectRules, PutSchedule, RecordStep, Unit
from clew.testing.chunks import reply, step, text
from clew.testing.scribe import Scribe
from clew.transcript.usage import Usage

from .test_files_edges import SCHEDULE
from .test_files_store import Kind, both, everything

RULES = ({"permission": "bash", "pattern": "ls *", "action": "allow"},)


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


@both
@pytest.mark.rule("FS-2", "FS-4")
async def test_a_unit_that_only_the_files_have_is_acknowledged_and_read_from_them(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache does not commit; the files have the unit, so it happened."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))

    def refuse(name: str) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "failpoint", refuse)
        changes = (PatchSession(metadata={"title": "kept"}), PutProjectRules("/project", RULES, 1))
        assert await store.commit(Unit(scribe.session_id, changes)) == Committed()
        assert await store.commit(Unit(STORE_WIDE, (PutSchedule(SCHEDULE),))) == Committed()
    assert (await scribe.session()).title == "kept"
    await scribe.turn("and on", text("it goes"))
    assert await store.load_project_rules("/project") == RULES
    assert await store.list_schedules() == (SCHEDULE,)
    assert await check(store) == []
    expected = await everything(store)
    await store.close()
    store = await open_files(kind, tmp_path / "store")
    assert await everything(store) == expected
    await store.close()


@both
@pytest.mark.rule("FS-3", "ST-9")
async def test_a_reader_beside_the_owner_takes_nothing_from_a_message_that_grows(kind: Kind, tmp_path: Path) -> None:
    """Of a ``json:`` session the cache has more than the file until the step ends."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    chunks = reply(step(text("the thread leads out")), id=recorder.message.id)[:-1]
    for chunk in chunks[:3]:
        await recorder.send(chunk)
    await recorder.flush()
    reader = await open_files(kind, tmp_path / "store", FilesOptions(read_only=True))
    shown = await store.load_messages(scribe.session_id)
    assert await reader.load_messages(scribe.session_id) == shown
    for path in (path for path in (tmp_path / "store" / "sessions").rglob("*") if path.is_file() and kind == "json"):
        left = path.stat()
        os.utime(path, ns=(1, 1))  # as another program that touches it
        assert await reader.load_messages(scribe.session_id) == shown
        os.utime(path, ns=(left.st_atime_ns, left.st_mtime_ns))
    for chunk in chunks[3:]:
        await recorder.send(chunk)
    await recorder.flush()
    await recorder.end_step(RecordStep(opened.step(recorder.message.id, Usage(1, 1))))
    await recorder.close(*opened.settling())
    expected = await store.load_messages(scribe.session_id)
    assert [row.texts for row in expected] == [["hello"], ["the thread leads out"]]
    assert await reader.load_messages(scribe.session_id) == expected
    await reader.close()
    await store.close()
    (tmp_path / "store" / "clew" / "cache.db").unlink()
    store = await open_files(kind, tmp_path / "store")
    assert await store.load_messages(scribe.session_id) == expected
    await store.close()


@both
@pytest.mark.rule("FS-4", "FS-6")
async def test_what_another_program_changes_is_read_when_it_is_asked_for(kind: Kind, tmp_path: Path) -> None:
    """By the owner and by a reader, also a session that was not there; what is gone is gone."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe, other = await Scribe.create(store), await Scribe.create(store)
    for one in (scribe, other):
        await one.turn("hello", text("hi"))
    await store.close()
    shutil.copytree(root, tmp_path / "before")
    store = await open_files(kind, root)
    scribe.store = store
    await scribe.turn("and on", text("it goes"))
    expected = await store.find_full_session(scribe.session_id)
    await store.close()
    after = tmp_path / "after"
    root.rename(after)
    shutil.copytree(tmp_path / "before", root)
    owner = await open_files(kind, root)
    reader = await open_files(kind, root, FilesOptions(read_only=True))
    name = scribe.session_id + (".json" if kind == "json" else "")
    gone = other.session_id + (".json" if kind == "json" else "")
    for place in (root / "sessions" / name, root / "sessions" / gone):
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    source = after / "sessions" / name
    (shutil.copytree if source.is_dir() else shutil.copy2)(source, root / "sessions" / name)
    for opened in (owner, reader):
        assert await opened.find_full_session(scribe.session_id) == expected
        assert await opened.find_session(other.session_id) is None
        await opened.close()


@both
@pytest.mark.rule("FS-4")
async def test_a_folder_that_cannot_be_written_is_read_through_a_temporary_cache(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    expected = await everything(store)
    await store.close()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: access(path, mode) and not str(path).startswith(str(root)))
    reader = await open_files(kind, root, FilesOptions(read_only=True))
    assert await everything(reader) == expected
    await reader.close()
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
