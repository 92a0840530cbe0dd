"""The writer of a SQLite database without a guard: inline on one in memory, or in a thread on a file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from clew.errors import InternalError, NotFound, StoreClosed, StoreGone
from clew.ids import Mint
from clew.store import unit as u
from clew.store.sql.inbox import Inbox
from clew.store.sql.line_cache import LineCache
from clew.store.sql.sqlite.connection import connect
from clew.store.sql.sqlite.migrate import migrate
from clew.store.sql.sqlite.pool import ReaderPool
from clew.store.sql.sqlite.transactions import BeforeCommit, Transactions
from clew.store.sql.sqlite.writer import InlineWriter, ThreadedWriter
from clew.testing.scribe import MODEL
from clew.transcript.session import Session

TITLE = "SELECT json_extract(metadata_json, '$.title') FROM chat_sessions ORDER BY 1"


def make(connection: sqlite3.Connection, path: Path | None, before_commit: BeforeCommit | None = None) -> Transactions:
    migrate(connection, path or Path(":memory:"))
    return Transactions(connection, path, Mint(), LineCache(lambda _: True), before_commit=before_commit)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)) as connection:
        yield connection


def new_session(session_id: str, title: str | None = None) -> u.Unit:
    metadata = {} if title is None else {"title": title}
    session = Session(id=session_id, agent="a", model=MODEL, created_at=1, updated_at=1, metadata=metadata)
    return u.Unit(session_id, (u.InsertSession(session),))


def titles(connection: sqlite3.Connection) -> list[str | None]:
    return [title for (title,) in connection.execute(TITLE)]


async def test_an_inline_writer_has_committed_when_submit_returns(connection: sqlite3.Connection) -> None:
    writer = InlineWriter(make(connection, None))
    created = writer.submit(new_session("a", "one"))
    assert (created.done(), created.result(), connection.in_transaction) == (True, u.Committed(), False)
    assert titles(connection) == ["one"]
    assert writer.submit(new_session("a")).result() == u.Refused("session_exists")
    missing = writer.submit(u.Unit("a", (u.MarkFolded("m", 1), u.SetHidden({"m": None}))))
    assert isinstance(missing.exception(), InternalError)
    indexed = writer.work(lambda index: index.batch())
    assert indexed.done()
    indexed.result()
    assert writer.transactions.commits == 3
    await writer.close()
    with pytest.raises(StoreClosed):
        writer.submit(new_session("b"))


async def test_an_inline_writer_answers_a_group_in_the_next_iteration(connection: sqlite3.Connection) -> None:
    writer, answers = InlineWriter(make(connection, None)), list[object]()
    writer.submit_all([new_session("a"), new_session("b")], answers.extend, awaited=False)
    writer.submit_all([], answers.extend, awaited=True)
    assert (titles(connection), answers) == ([None, None], [])
    await asyncio.sleep(0)
    assert answers == [u.Committed(), u.Committed()]
    assert writer.transactions.commits == 1


def test_a_step_before_the_commit_sees_what_was_applied(connection: sqlite3.Connection) -> None:
    seen: list[object] = []

    def before_commit(units: Sequence[u.Unit], outcomes: Sequence[u.Outcome]) -> None:
        seen.append(([unit.session_id for unit in units], list(outcomes), titles(connection)))
        assert connection.in_transaction

    transactions = make(connection, None, before_commit)
    missing = u.Unit("c", (), guards=(u.EpochIs(1),))
    answers = transactions.write([new_session("a", "one"), new_session("b", "two"), missing])
    assert [type(answer) for answer in answers] == [u.Committed, u.Committed, u.Refused]
    assert seen == [(["a", "b", "c"], answers, ["one", "two"])]
    transactions.work(lambda index: index.batch())
    assert len(seen) == 1


def test_a_failure_before_the_commit_fails_only_its_unit(connection: sqlite3.Connection) -> None:
    tried: list[list[str]] = []

    def before_commit(units: Sequence[u.Unit], outcomes: Sequence[u.Outcome]) -> None:
        tried.append([unit.session_id for unit in units])
        if any(unit.session_id == "b" for unit in units):
            raise OSError(28, "no space")

    transactions = make(connection, None, before_commit)
    answers = transactions.write([new_session(id_, id_) for id_ in "abc"])
    assert [type(answer) for answer in answers] == [u.Committed, OSError, u.Committed]
    assert tried == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert titles(connection) == ["a", "c"]
    assert transactions.commits == 2


def test_a_store_that_is_gone_before_the_commit_is_not_written_again(connection: sqlite3.Connection) -> None:
    def before_commit(units: Sequence[u.Unit], outcomes: Sequence[u.Outcome]) -> None:
        raise StoreGone("the folder was removed")

    transactions = make(connection, None, before_commit)
    assert [type(answer) for answer in transactions.write([new_session("a")])] == [StoreGone]
    with pytest.raises(StoreGone):
        transactions.check()
    assert [type(answer) for answer in transactions.write([new_session("b")])] == [StoreGone]
    assert titles(connection) == []


async def test_a_file_without_a_guard_is_written_in_a_thread_and_read_at_once(tmp_path: Path) -> None:
    """A cache: its readers wait for no adoption, and next to it lies nothing but SQLite's own files."""
    path = tmp_path / "cache.db"
    transactions = make(connect(path, writer=True), path)
    readers = ReaderPool(path)
    readers.lines, readers.tails = transactions.lines, transactions.journal.tails
    writer = ThreadedWriter(transactions, Inbox(0.0, 1.0))
    assert await writer.submit(new_session("a", "one")) == u.Committed()
    assert await readers.run(lambda sql: sql.first("find_session", {"id": "a"}), "a") is not None
    with pytest.raises(NotFound):
        await readers.run(_fail, "a")
    await asyncio.to_thread(readers.close)
    await writer.close()
    assert await asyncio.to_thread(lambda: [file.name for file in tmp_path.iterdir()]) == ["cache.db"]
    with pytest.raises(StoreClosed):
        writer.submit(new_session("b"))


def _fail(sql: object) -> None:
    raise NotFound("no session")
