"""Backup, how the store talks to SQLite, and what the source may not say to it."""

from __future__ import annotations

import ast
import asyncio
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew.config import Config
from clew.errors import InvalidInput, StoreUnavailable
from clew.session.history.check import check
from clew.store.sql.sqlite import opening, owned_file
from clew.store.sql.sqlite.connection import QUERIES, connect
from clew.store.sql.sqlite.migrate import statements
from clew.store.unit import FinishStep, PatchSession, RecordStep, Unit
from clew.testing.chunks import text, tool_call, tool_output
from clew.testing.scribe import OpenedTurn, Scribe
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from tests.integration.sqlite_files import Two, engine_on, folded, path, retitle, sqlite_store, two

__all__ = ["path", "two"]

SOURCE = Path(clew.__file__).parent

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
        with pytest.raises(InvalidInput, match="already exists"):
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
            elif not inside and not statement.startswith("--"):  # a comment is within another statement
                assert statement.startswith(("SELECT", "WITH", "PRAGMA")), statement
        assert not inside
        return found


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Traced]:
    seen: list[Traced] = []

    def traced_connect(path: Path, *, writer: bool) -> sqlite3.Connection:
        connection = connect(path, writer=writer)
        seen.append(Traced(connection, writer))
        return connection

    monkeypatch.setattr(opening, "connect", traced_connect)
    monkeypatch.setitem(opening.open_sqlite.__kwdefaults__ or {}, "connect", traced_connect)
    return seen


@pytest.mark.timeout(30)
async def test_a_failure_between_two_commits_keeps_nobody_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log cannot be moved, for a reason that nobody thought of: the writer goes on, and says what happened."""
    failed = threading.Event()

    def fail(connection: sqlite3.Connection) -> bool:
        failed.set()
        raise RuntimeError("no thread can be started any more")

    monkeypatch.setattr(owned_file, "empty_log", fail)
    async with sqlite_store(path) as store:
        scribe = await Scribe.create(store)
        assert await asyncio.to_thread(failed.wait, 20)
        await store.commit(retitle(scribe.session_id, "after it"))
        found = await store.find_session(scribe.session_id)
        assert getattr(found, "title", None) == "after it"
    assert {record.getMessage() for record in caplog.records} == {f"maintenance of {path} failed"}


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
            starts = {statement.split(" ")[0] for statement in connection.statements} - {"--"}
            assert starts <= {"BEGIN", "SELECT", "COMMIT", "ROLLBACK", "PRAGMA", "WITH"}
            begins = {statement for statement in connection.statements if statement.startswith("BEGIN")}
            assert begins <= {"BEGIN DEFERRED"}


@pytest.mark.rule("ST-3")
async def test_commits_are_full_exactly_where_a_loss_of_power_must_not_matter(path: Path, traced: list[Traced]) -> None:
    """User messages, what a step cost, settled turns and changes to a session are synced; chunks and folds are not."""
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
        recorder.add_to_next_sync(RecordStep(opened.step(recorder.message.id, clew.Usage(1, 1))))
        await recorder.flush_synced()  # FULL
        await recorder.end_step(FinishStep(opened.id, 0, scribe.clock.now_ms()))  # NORMAL
        await recorder.close(*opened.settling())  # FULL
    engine_commits = ["FULL", "FULL", "FULL", "NORMAL"]  # recovery repeats the portions of a deletion that has begun
    async with engine_on(path) as engine:
        session = await engine.create_session()
        await engine.rename_session(session.id, "renamed")
        await engine.delete_session(session.id)
    writers = [connection for connection in traced if connection.writer]
    assert [connection.transactions() for connection in writers] == [
        ["NORMAL", "FULL", "NORMAL", "NORMAL", "NORMAL", "NORMAL", "FULL", "NORMAL", "FULL"],
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


@pytest.mark.slow
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
    # The savepoint is inside a transaction that has the lock.
    assert {text for _, text in begins} == {"BEGIN IMMEDIATE", "BEGIN DEFERRED", "SAVEPOINT session"}
    readers = {"store/sql/sqlite/pool.py", "store/sql/sqlite/rebuild.py"}
    assert {name for name, text in begins if text == "BEGIN DEFERRED"} == readers
    for file in SOURCE.rglob("sqlite/**/*.sql"):
        bare = re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
        # The body of a trigger begins so too, and begins no transaction.
        bare = re.sub(r"^CREATE TRIGGER [^;]*\nBEGIN$", "", bare, flags=re.MULTILINE)
        assert re.search(r"\b(BEGIN|SAVEPOINT)\b", bare) is None, file


@pytest.mark.rule("ST-3")
def test_no_connection_is_made_but_through_connect() -> None:
    """A connection made elsewhere would lack the settings; the target of a backup, which nobody reads yet, may, and so
    may the database of another program, which is only read."""
    made = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if "testing" not in file.parts and "sqlite3.connect(" in file.read_text(encoding="utf-8")
    }
    others = {"interop/programs/opencode_disk.py", "store/sql/sqlite/names.py"}  # the second one's is in memory
    assert made == {"store/sql/sqlite/connection.py", "store/sql/sqlite/store.py"} | others


def test_hidden_at_decides_nothing_in_sql() -> None:
    """It is written for other readers; which messages count is the tree's to say."""
    for name, statement in QUERIES.items():
        _, _, condition = statement.partition("WHERE")
        assert "hidden_at" not in condition, name
    for file in SOURCE.rglob("sqlite/**/*.sql"):
        if file.name != "queries.sql":
            for statement in statements(file.read_text(encoding="utf-8")):
                assert "hidden_at" not in statement.partition("WHERE")[2], file
