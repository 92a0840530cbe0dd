"""A store whose file or folder goes away, is replaced or cut short while it is open: nothing more is acknowledged."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

import clew
from clew.errors import StoreClosed, StoreError, StoreGone
from clew.fronts.cli.app import run_command
from clew.session.history.check import check
from clew.session.turn.recorder import Recorder
from clew.store.base import Store
from clew.store.files.opening import open_files
from clew.store.sql.sqlite.opening import open_sqlite
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, say, wait
from clew.transcript.metadata import local_place
from tests.integration.http_client import served
from tests.integration.sqlite_files import engine_on, path, raw, sqlite_store

__all__ = ["path"]

pytestmark = pytest.mark.rule("ST-9")

Fault = Callable[[Path], object]


def moved(path: Path) -> None:
    path.rename(path.with_name("moved"))


def removed(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def replaced(path: Path) -> None:
    moved(path)
    other = path.with_name("moved")
    shutil.copytree(other, path) if other.is_dir() else shutil.copy(other, path)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


@asynccontextmanager
async def opened(kind: Literal["sqlite", "jsonl", "json"], path: Path) -> AsyncIterator[Store]:
    store: Store = await (open_sqlite(path) if kind == "sqlite" else open_files(kind, path))
    try:
        yield store
    finally:
        # What cannot be brought to disk any more is said once more, and the rest is let go of all the same.
        with suppress(StoreGone):
            await store.close()
        with pytest.raises(StoreClosed):
            await store.find_session("ses_" + "0" * 26)


FAULTS: list[tuple[Literal["sqlite", "jsonl", "json"], str, Fault]] = [
    *(("sqlite", "", fault) for fault in (moved, removed, replaced, emptied, halved)),
    *(("sqlite", "-wal", fault) for fault in (moved, removed, replaced, emptied, halved)),
    *((kind, "", fault) for kind in ("jsonl", "json") for fault in (moved, removed, replaced)),
    *((kind, "/sessions", fault) for kind in ("jsonl", "json") for fault in (moved, removed, replaced)),
    *((kind, "/clew", fault) for kind in ("jsonl", "json") for fault in (moved, removed, replaced)),
]


@pytest.mark.parametrize(
    ("kind", "place", "fault"), FAULTS, ids=[f"{kind}{place}-{fault.__name__}" for kind, place, fault in FAULTS]
)
async def test_nothing_is_acknowledged_that_the_next_one_would_not_find(
    kind: Literal["sqlite", "jsonl", "json"], place: str, fault: Fault, tmp_path: Path
) -> None:
    """Whatever became of it: every unit from then on is told that the store is gone, and nothing is begun anew."""
    store_path = tmp_path / "home" / "store.db"
    store_path.parent.mkdir()
    async with opened(kind, store_path) as store:
        scribe = await Scribe.create(store)
        recorder = (await scribe.prompt("hello")).recorder()
        start, delta, *_ = text("said and never said")
        recorder.write(start)
        await recorder.flush()
        there = Path(f"{store_path}{place}")
        fault(there)
        after = size(there)
        recorder.write(delta)
        with pytest.raises(StoreGone) as told:
            await recorder.flush()
        assert told.value.code == "store_gone"
        for _ in range(2):
            with pytest.raises(StoreGone):
                await Scribe.create(store)
        assert size(there) == after


@pytest.mark.parametrize("fault", [moved, removed, replaced, emptied, halved])
@pytest.mark.parametrize("kind", ["jsonl", "json"])
async def test_a_session_whose_files_somebody_else_changed_is_not_written_to(
    kind: Literal["jsonl", "json"], fault: Fault, tmp_path: Path
) -> None:
    """It alone: the others go on, and what lies there now is left as it is."""
    async with opened(kind, tmp_path / "store") as store:
        scribe, other = await Scribe.create(store), await Scribe.create(store)
        await scribe.turn("hello", text("hi"))
        sessions = tmp_path / "store" / "sessions"
        file = sessions / (f"{scribe.session_id}.json" if kind == "json" else f"{scribe.session_id}/session.jsonl")
        fault(file)
        left = file.read_bytes() if file.exists() else None
        with pytest.raises(StoreGone, match=scribe.session_id):
            await scribe.turn("again", text("never"))
        await other.turn("hello", text("hi"))
        assert (file.read_bytes() if file.exists() else None) == left


async def test_a_session_that_cannot_be_written_keeps_no_other_from_the_disk(tmp_path: Path) -> None:
    """What a json: store has only in memory is written when it closes, of all but the one; and that is said."""
    store = await open_files("json", tmp_path / "store")
    grown: dict[str, str] = {}
    for _ in range(3):
        scribe = await Scribe.create(store)
        recorder = (await scribe.prompt("hello")).recorder()
        for chunk in text("in memory")[:-1]:
            recorder.write(chunk)
        await recorder.flush()
        grown[scribe.session_id] = recorder.message.id
    first, *others = grown
    emptied(tmp_path / "store" / "sessions" / f"{first}.json")
    with pytest.raises(StoreGone, match=first):
        await store.close()
    async with opened("json", tmp_path / "store") as again:
        found = [await again.find_message(session_id, grown[session_id]) for session_id in others]
        assert [row.parts[0].data["text"] if row is not None else None for row in found] == ["in memory"] * 2


async def test_another_program_may_move_the_log_into_the_database(path: Path) -> None:
    """A shell that checkpoints, or makes the file smaller, takes nothing away."""
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
        for number in range(20):
            await scribe.turn(f"{number}", text("word " * 500))
        with raw(path) as shell:
            shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await scribe.turn("on", text("and on"))
        with raw(path) as shell:
            shell.execute("CREATE TABLE ballast AS SELECT randomblob(1000000) AS much")
            shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await scribe.turn("on", text("and on"))
        with raw(path) as shell:
            shell.execute("DROP TABLE ballast")
            shell.execute("VACUUM")
            shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await scribe.turn("on", text("and on"))
        assert await check(store) == []


@pytest.mark.parametrize("fault", [removed, emptied])
def test_where_a_store_was_no_other_is_begun_without_a_word(
    path: Path, fault: Fault, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until what says that there was one is taken away too, which the command line tells."""
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(path.parent / name))
    words = ["run", "hello", "--store", f"sqlite:///{path}", "--model", "demo/echo"]
    assert [run(words), capsys.readouterr().out] == [0, "hello\n"]
    fault(path)
    left = size(path)
    assert run(words) == 7
    said = capsys.readouterr().err
    assert "remove store.db.owner too to create a new one (store_gone)" in said
    assert size(path) == left
    Path(f"{path}.owner").unlink()
    assert [run(words), capsys.readouterr().out] == [0, "hello\n"]


def run(words: list[str]) -> object:
    """The exit code of a command."""
    return run_command(words)


async def test_a_log_without_its_database_is_not_thrown_away(path: Path, tmp_path: Path) -> None:
    """SQLite would: it takes a log beside an empty database for rubbish."""
    async with sqlite_store(path) as store:
        await Scribe.create(store)
        shutil.copy(log_of(path), tmp_path / "left.db-wal")
    for name in ("left.db", "empty.db"):
        if name == "empty.db":
            (tmp_path / name).touch()
            (tmp_path / "left.db-wal").rename(tmp_path / "empty.db-wal")
        with pytest.raises(StoreGone, match=f"{name}-wal"):
            async with engine_on(tmp_path / name):
                raise AssertionError("an empty store")
        assert (tmp_path / f"{name}-wal").stat().st_size > 0


@pytest.mark.parametrize("url", ["sqlite:///{}", "jsonl:{}", "json:{}"])
async def test_a_link_that_leads_nowhere_is_no_place_for_a_new_store(url: str, tmp_path: Path) -> None:
    """What it led to is on a disk that is not there today."""
    (tmp_path / "store").symlink_to(tmp_path / "disk" / "store")
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for name in ("store", "home/store", "round"):
        with pytest.raises(StoreGone, match="which does not exist"):
            async with clew.open(url.format(tmp_path / name), config=clew.Config()):
                raise AssertionError(name)
    assert not (tmp_path / "disk").exists()


async def test_a_folder_that_lost_its_sessions_is_not_a_new_store(tmp_path: Path) -> None:
    """For writing and for reading."""
    await (await open_files("jsonl", tmp_path / "store")).close()
    (tmp_path / "store" / "sessions").rmdir()
    for read_only in (False, True):
        with pytest.raises(StoreGone, match="sessions is gone"):
            async with clew.open(f"jsonl:{tmp_path}/store", config=clew.Config(), read_only=read_only):
                raise AssertionError("an empty store")


@pytest.mark.parametrize("kind", ["sqlite:///", "jsonl:", "json:"])
async def test_http_says_that_the_store_is_gone(kind: str, tmp_path: Path) -> None:
    """503 for whatever would be written; what was said stays readable where its file is still open."""
    async with served(say("hi"), store=f"{kind}{tmp_path}/store") as client:
        place = local_place(None)
        session_id = await client.session(metadata=place)
        await client.chat(session_id, "hello")
        said = await client.messages(session_id)
        store: Any = client.engine.store
        while kind != "sqlite:///" and session_id in store.in_memory:
            await store.release(session_id)
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        answers = [await client.prompt(session_id, "again"), await client.post("/api/sessions", {"metadata": place})]
        assert [(answer.status, answer.code) for answer in answers] == [(503, "store_gone")] * 2
        assert await client.messages(session_id) == said


def running(*steps: Any) -> dict[str, Any]:
    return {"providers": FakeProviders(ScriptedModel([*steps]))}


@pytest.mark.parametrize("when", ["at the close", "before it"])
async def test_an_engine_that_closes_tells_which_turns_the_store_did_not_let_settle(tmp_path: Path, when: str) -> None:
    """Once, and also of a run that had ended by then."""
    gate = Gate()
    async with engine_on(tmp_path / "store", **running([say("some words "), wait(gate), say("more")])) as engine:
        session = await engine.create_session(model="test/model")
        submission = await engine.submit(session.id, "go")
        await gate.reached.wait()
        moved(tmp_path / "store")
        if when == "before it":
            gate.set()
            outcome = await submission.wait()
            assert (outcome.status, (outcome.error or {})["code"]) == ("failed", "store_gone")
        assert [await engine.close(), await engine.close()] == [(submission.turn_id,), ()]


async def test_a_turn_that_was_settled_since_is_not_told_as_one_that_was_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever spoke to its session next; a session that was deleted has none."""
    script = running(say("one"), say("two"), say("three"))
    async with engine_on(tmp_path / "store", **script) as engine:

        async def refuse(*_: object, **__: object) -> None:
            raise StoreError("the disk is full")

        spoken, deleted = [await engine.create_session(model="test/model") for _ in range(2)]
        with monkeypatch.context() as patched:
            patched.setattr(Recorder, "close", refuse)
            ends = [await (await engine.submit(one.id, "go")).wait() for one in (spoken, deleted)]
        assert [(end.status, (end.error or {})["code"]) for end in ends] == [("failed", "store_error")] * 2
        assert (await (await engine.submit(spoken.id, "again")).wait()).status == "completed"
        await engine.delete_session(deleted.id)
        assert await engine.close() == ()
