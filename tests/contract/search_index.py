"""A store to search in, and its index looked at by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from clew.ids import Mint
from clew.store.base import SearchQuery, Store
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.unit import InsertMessage, SealMessage
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe, user_row
from clew.transcript.damage import seal_of
from clew.transcript.message import MessageRow, PartRow


@pytest.fixture
async def disk(tmp_path: Path, clock: FakeClock, mint: Mint) -> AsyncIterator[SqliteStore]:
    opened = await open_sqlite(tmp_path / "store.db", clock=clock, mint=mint)
    yield opened
    await opened.close()


@pytest.fixture
async def pen(disk: SqliteStore, clock: FakeClock, mint: Mint) -> Scribe:
    return await Scribe.create(disk, clock=clock, mint=mint, metadata={"title": "the log"})


async def snippets(disk: Store, wanted: str, **more: Any) -> list[str]:
    return [hit.snippet for hit in (await disk.search(SearchQuery(wanted, **more))).hits]


async def say(pen: Scribe, *texts: str) -> list[str]:
    """User messages in one unit, settled and in no turn; their ids."""
    rows = [user_row(pen.mint, pen.session_id, words, pen.clock.now_ms()) for words in texts]
    writes = [(InsertMessage(row), SealMessage(row.id, row.seal)) for row in rows]
    await pen.commit(*(write for pair in writes for write in pair))
    return [row.id for row in rows]


async def say_parts(pen: Scribe, *parts: dict[str, Any]) -> MessageRow:
    now = pen.clock.now_ms()
    held = tuple(PartRow(pen.mint.part(), index, data, now, now) for index, data in enumerate(parts))
    row = MessageRow(pen.mint.message(), pen.session_id, "assistant", now, now, {}, held)
    await pen.commit(InsertMessage(row), SealMessage(row.id, seal_of(parts)))
    return row


@contextmanager
def by_hand(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as another program sees it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


def count(path: Path, table: str) -> int:
    with by_hand(path) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found


def check_index(path: Path) -> None:
    """FTS5's own look, and word for word: the index is what one that is made now, of what the view shows, would be.

    FTS5 has a command for the second look too, which cannot read a view over ``json_tree``.
    """
    with by_hand(path) as connection:
        connection.execute("INSERT INTO search_index (search_index) VALUES ('integrity-check')")
        connection.execute("CREATE VIRTUAL TABLE temp.made USING fts5(text, tokenize='unicode61 remove_diacritics 2')")
        connection.execute("INSERT INTO temp.made (rowid, text) SELECT id, text FROM search_texts")
        connection.execute("CREATE VIRTUAL TABLE temp.expected USING fts5vocab('temp', 'made', 'instance')")
        connection.execute("CREATE VIRTUAL TABLE temp.held USING fts5vocab('main', 'search_index', 'instance')")
        looks = ["SELECT term, doc, offset FROM temp.{} ORDER BY 1, 2, 3", "SELECT id FROM {} ORDER BY id"]
        pairs = [("held", "expected"), ("search_index_docsize", "search_docs")]
        for look, pair in zip(looks, pairs, strict=True):
            held, expected = (connection.execute(look.format(name)).fetchall() for name in pair)
            assert held == expected
