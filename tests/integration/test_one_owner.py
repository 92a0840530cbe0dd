"""One store has one owner, by whatever name it is opened, and nobody else writes a byte of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

import clew
from clew.errors import OwnedByAnotherProcess, StoreUnavailable
from clew.session.history.check import check
from clew.store.files.opening import open_files
from clew.store.owner import is_loopback, owner_path, read_owner
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from tests.integration.sqlite_files import engine_on, path, raw, sqlite_store
from tests.rig.child import Child, Orders

__all__ = ["path"]

pytestmark = pytest.mark.rule("ST-9")

Kind = Literal["sqlite", "jsonl", "json"]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder. The shared memory beside a database is no part of it."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if not file.name.endswith("-shm")}


def names_of(kind: Kind, store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Ways to name one store, each told apart; links are made as they are come to."""
    prefix = {"sqlite": "sqlite:///", "jsonl": "jsonl:", "json": "json:"}[kind]
    home, aside = store.parent, store.parent.parent / "aside"
    aside.mkdir()
    monkeypatch.chdir(home)
    yield "absolute", f"{prefix}{store}"
    yield "relative", f"{prefix}{store.name}"
    yield "up and down", f"{prefix}{home}/../{home.name}/./{store.name}"
    (aside / "link").symlink_to(store)
    yield "a link", f"{prefix}{aside}/link"
    (aside / "to_link").symlink_to("link")
    yield "a link to a link", f"{prefix}{aside}/to_link"
    (aside / "folder").symlink_to(home)
    yield "a link to its folder", f"{prefix}{aside}/folder/{store.name}"
    monkeypatch.setenv("HOME", f"{aside}/folder")
    yield "a home that is a link", f"{prefix}~/{store.name}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "json"])
async def test_a_second_writer_is_turned_away_by_every_name(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its owner file there, gone, another's, unreadable or a link: told so, and nothing is written."""
    (tmp_path / "home").mkdir()
    store = tmp_path / "home" / "store.db"
    beside = owner_path(store if kind == "sqlite" else store / "clew" / "store")
    url = f"sqlite:///{store}" if kind == "sqlite" else f"{kind}:{store}"
    with Child(Orders(store=url, stage="hold")) as child:
        child.wait_until(lambda child: child.staged)
        os.kill(child.pid, 19)  # stopped: it puts nothing back, and writes nothing
        before = contents(store.parent)
        for way, named in names_of(kind, store, monkeypatch):
            with pytest.raises(OwnedByAnotherProcess, match=f"process {child.pid};"):
                async with clew.open(named, config=clew.Config()):
                    raise AssertionError(way)
        kept = beside.read_bytes()
        for spoil in ("gone", "another's", "unreadable", "a link", "of another user's making"):
            beside.unlink(missing_ok=True)
            if spoil == "a link":
                beside.symlink_to("/dev/null")
            elif spoil != "gone":
                beside.write_bytes(kept)
                beside.chmod({"another's": 0o600, "unreadable": 0o000}.get(spoil, 0o644))
            with pytest.raises(OwnedByAnotherProcess):
                async with clew.open(url, config=clew.Config()):
                    raise AssertionError(spoil)
        beside.unlink()
        beside.write_bytes(kept)
        assert contents(store.parent) == before
        async with clew.open(url, config=clew.Config(), read_only=True) as engine:
            assert len((await engine.list_sessions()).sessions) == len(child.streams)
        os.kill(child.pid, 18)
        child.kill()
    async with clew.open(url, config=clew.Config()) as engine:
        assert await check(engine.store, child.shown if kind != "json" else None) == []


async def test_a_database_with_two_names_is_not_opened(path: Path, tmp_path: Path) -> None:
    """By neither of them, for writing or reading: what is newest is kept under one name, and the other is behind."""
    async with engine_on(path) as engine:
        await engine.create_session(model="demo/echo")
        os.link(path, tmp_path / "other.db")
        # The one who has it goes on; nobody else comes in.
        await engine.create_session(model="demo/echo")
        with pytest.raises(OwnedByAnotherProcess):
            async with engine_on(tmp_path / "other.db"):
                raise AssertionError("two owners")
    for name in ("store.db", "other.db"):
        for read_only in (False, True):
            with pytest.raises(StoreUnavailable, match="second name"):
                async with engine_on(tmp_path / name, read_only=read_only):
                    raise AssertionError(name)
    assert sorted(os.listdir(tmp_path)) == ["other.db", "store.db", "store.db.acked", "store.db.owner"]
    (tmp_path / "other.db").unlink()
    async with engine_on(path) as engine:
        assert len((await engine.list_sessions()).sessions) == 2


def locks_on(file: Path) -> int:
    """How many locks of SQLite's this process has on a file."""
    inode = file.stat().st_ino
    held = re.findall(rf"POSIX .* {os.getpid()} \w+:\w+:{inode} ", Path("/proc/locks").read_text())
    return len(held)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not tell its locks")
async def test_whoever_is_turned_away_takes_no_lock_of_sqlites_along(path: Path) -> None:
    """Closing any handle of the file would: a reader here, an owner here or elsewhere, one after the other."""
    with Child(Orders(store=f"sqlite:///{path}", stage="hold")) as child:
        child.wait_until(lambda child: child.staged)
        async with engine_on(path, read_only=True) as reader:
            await reader.list_sessions()
            held = locks_on(path)
            assert held > 0
            with pytest.raises(OwnedByAnotherProcess):
                async with engine_on(path):
                    raise AssertionError("two owners")
            assert locks_on(path) == held
    async with engine_on(path, read_only=True) as reader:
        await reader.list_sessions()
        async with engine_on(path) as owner:
            await owner.list_sessions()
            held = locks_on(path)
            with pytest.raises(OwnedByAnotherProcess, match=f"process {os.getpid()};"):
                async with engine_on(path):
                    raise AssertionError("two owners")
            assert locks_on(path) == held
        # The owner has closed; the reader beside it has not.
        assert locks_on(path) > 0
    assert locks_on(path) == 0


async def test_a_superseded_run_is_refused_though_its_writer_remembers_another_epoch(path: Path) -> None:
    """The epoch is compared with what the file says, inside the transaction, however it got there."""
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
        turn = await scribe.prompt("hello")
        recorder = turn.recorder()
        start, delta, *_ = text("one two three")
        recorder.write(start)
        await recorder.flush()
        with raw(path) as other:
            other.execute("UPDATE session_state SET epoch = epoch + 1, open_turn_id = NULL")
            other.execute("UPDATE chat_turns SET status = 'failed', settled_at = 1")
            rows = other.execute("SELECT * FROM stream_journal").fetchall()
        recorder.write(delta)
        with pytest.raises(clew.ClewError) as refused:
            await recorder.flush()
        assert refused.value.code == "stale_epoch"
        with raw(path) as other:
            assert other.execute("SELECT * FROM stream_journal").fetchall() == rows


async def test_an_owner_file_that_was_taken_away_is_put_back(path: Path) -> None:
    """Whoever comes second is told whom to ask, as before; also when something else lies in its place."""
    async with sqlite_store(path) as store:
        store.announce("http://127.0.0.1:1")
        known = read_owner(path)
        for spoil in (lambda: None, lambda: owner_path(path).symlink_to("/dev/null"), owner_path(path).touch):
            owner_path(path).unlink()
            spoil()
            assert read_owner(path) is None
            await Scribe.create(store)
            assert read_owner(path) == known


@pytest.mark.parametrize(
    "url",
    [
        *("http://10.0.0.1:80", "http://example.com:80", "http://localhost.example:80", "https://127.0.0.1:80"),
        *("http://127.0.0.1", "http://user@127.0.0.1:80", "http://127.0.0.1:80@10.0.0.1:80", "http://127.0.0.1:80/x"),
        *("http://127.0.0.1:80#x", "http://127.0.0.1:80?x", "http://0x7f.1:80", "http://[::ffff:127.0.0.1]:80"),
        *("http://0.0.0.0:80", "http://[::1%25eth0]:80", "file:///etc/passwd", "http://127.0.0.1:99999", ""),
    ],
)
def test_an_address_that_is_not_this_machines_own_is_none(url: str) -> None:
    assert not is_loopback(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:7717", "http://127.3.2.1:1", "http://[::1]:65535"])
def test_a_loopback_address_is_one(url: str) -> None:
    assert is_loopback(url)


async def test_a_folder_has_one_owner_in_one_process_too(tmp_path: Path) -> None:
    """The second handle is turned away by another name, and the store is free once the first is closed."""
    store = await open_files("jsonl", tmp_path / "store")
    with pytest.raises(OwnedByAnotherProcess, match=f"process {os.getpid()};"):
        await open_files("jsonl", tmp_path / "store" / "." / "sessions" / "..")
    await store.close()
    await (await open_files("jsonl", tmp_path / "store")).close()
