"""A store in a file, its rows as they lie there, and what a test writes into it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.clock import Clock, SystemClock
from clew.config import Config
from clew.ids import Mint
from clew.session.acquire.recovery import recover
from clew.session.api import Engine
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.unit import PatchSession, Unit
from clew.testing.chunks import reasoning, text
from clew.testing.scribe import Scribe
from clew.transcript.chunk import Chunk
from clew.transcript.fold import Fold


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@asynccontextmanager
async def sqlite_store(path: Path, clock: Clock | None = None, **options: Any) -> AsyncIterator[SqliteStore]:
    """A store that is recovered when it is opened for writing, as ``clew.open`` does it."""
    store = await open_sqlite(path, SqliteOptions(**options), clock=clock)
    try:
        if not options.get("read_only"):
            await recover(store, Mint(), 1)
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def engine_on(path: Path, **options: Any) -> AsyncIterator[Engine]:
    async with clew.open(f"sqlite:///{path}", config=Config(), **options) as engine:
        yield engine


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file through plain SQLite, each statement its own transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def folded(chunks: list[Chunk], message_id: str) -> list[dict[str, Any]]:
    fold = Fold(message_id)
    for chunk in chunks:
        fold.apply(chunk)
    return fold.parts


def retitle(session_id: str, title: str) -> Unit:
    return Unit(session_id, (PatchSession(metadata={"title": title}),))


class Two:
    """A store with two sessions of one turn each; the first one is about to be damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = self.sound = ""
        self.user_id = self.message_id = ""
        self.parts: list[dict[str, Any]] = []
        self.sound_messages: list[Any] = []

    async def make(self) -> None:
        async with engine_on(self.path) as engine:
            for name in ("damaged", "sound"):
                scribe = await Scribe.create(engine.store, metadata={"title": f"the {name} one"})
                setattr(self, name, scribe.session_id)
                ids = await scribe.turn(f"asked of {name}", [*reasoning("hm"), *text(f"spoken by the {name} session")])
                if name == "damaged":
                    _, self.user_id, self.message_id = ids
            self.parts = (await engine.messages(self.damaged))[1].parts
            self.sound_messages = await engine.messages(self.sound)
        # Without this, older copies of a row may lie in the free space of its page.
        with raw(self.path) as connection:
            connection.execute("VACUUM")

    def flip(self, near: bytes, mask: int, offset: int = 0) -> None:
        """Flip bits of one byte in the file."""
        data = bytearray(self.path.read_bytes())
        assert data.count(near) == 1
        data[data.index(near) + offset] ^= mask
        self.path.write_bytes(data)

    def part_id(self, index: int) -> str:
        with raw(self.path) as connection:
            query = 'SELECT id FROM chat_parts WHERE message_id = ? AND "index" = ?'
            found: str = connection.execute(query, (self.message_id, index)).fetchone()[0]
            return found

    async def others_work(self, engine: Engine) -> None:
        """The other session reads and writes as ever, and the list shows both."""
        listed = {session.id for session in (await engine.list_sessions()).sessions}
        assert listed == {self.damaged, self.sound}
        assert await engine.messages(self.sound) == self.sound_messages
        scribe = Scribe(engine.store, self.sound, Mint(), SystemClock())
        await scribe.turn("still there?", text("yes"))
        assert [message.id for message in (await engine.messages(self.sound))][:2] == [
            message.id for message in self.sound_messages
        ]


@pytest.fixture
async def two(path: Path) -> Two:
    made = Two(path)
    await made.make()
    return made
