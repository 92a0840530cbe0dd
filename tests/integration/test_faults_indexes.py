"""A damaged index of a SQLite file hides no row: what the tree names is shown, and not only `clew check` tells."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

from clew.session.api import Engine
from clew.session.history.check import check
from clew.session.history.views import View
from clew.store.unit import PutBlob, Unit
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.transcript.message import Message
from tests.integration.sqlite_files import engine_on, path
from tests.rig.flip import index_pages

__all__ = ["path"]

VIEWS: Final[tuple[View, ...]] = ("all", "visible", "model")
BLOB = b"a picture of the harbour"
SHA = hashlib.sha256(BLOB).hexdigest()


def damage(path: Path, index: str, entry: str) -> None:
    """Flip one bit of an entry of an index, in the last byte of its key."""
    pages, size = index_pages(path)
    data = bytearray(path.read_bytes())
    for page in pages[index]:
        place = data.find(entry.encode(), (page - 1) * size, page * size)
        if place >= 0:
            data[place + len(entry) - 1] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError(f"{index} has no entry {entry}")


def damage_time(path: Path, session_id: str) -> None:
    """Have the index say that one message is half an hour older, or younger."""
    pages, size = index_pages(path)
    data = bytearray(path.read_bytes())
    start = (pages["chat_messages_by_session"][0] - 1) * size
    place = data.find(session_id.encode(), start, start + size) + len(session_id)
    data[place + 3] ^= 0x20  # of six bytes, the fourth
    path.write_bytes(data)


async def make(path: Path) -> tuple[str, dict[View, list[Message]]]:
    async with engine_on(path) as engine:
        scribe = await Scribe.create(engine.store)
        for number in range(5):
            await scribe.turn(f"question {number}", text(f"answer {number}"))
        return scribe.session_id, await shown(engine, scribe.session_id)


async def shown(engine: Engine, session_id: str) -> dict[View, list[Message]]:
    return {view: await engine.messages(session_id, view=view) for view in VIEWS}


@pytest.mark.rule("ST-14")
async def test_a_damaged_index_of_messages_hides_none(path: Path) -> None:
    session_id, truth = await make(path)
    damage(path, "chat_messages_by_session", session_id)
    async with engine_on(path) as engine:
        assert await shown(engine, session_id) == truth
        assert "answer 4" in (await engine.export(session_id, "md", hidden=True)).decode()


@pytest.mark.rule("ST-14")
async def test_a_damaged_index_of_messages_says_nothing_of_their_times(path: Path) -> None:
    """The index holds them too; the order is the table's."""
    session_id, truth = await make(path)
    damage_time(path, session_id)
    async with engine_on(path) as engine:
        assert await shown(engine, session_id) == truth


async def read(engine: Engine, session_id: str) -> dict[str, Any]:
    """What is read by indexes beside messages."""
    return {
        "list": [(one.id, one.total_tokens, one.spend) for one in (await engine.list_sessions()).sessions],
        "tree": await engine.tree(session_id),
        "queue": await engine.queue(session_id),
        "usage": await engine.usage("session"),
        "search": await engine.search("answer", limit=100),
        "reflog": await engine.reflog(session_id),
    }


@pytest.mark.rule("ST-14")
@pytest.mark.parametrize("index", ["sqlite_autoindex_chat_sessions_1", "chat_turns_by_session"])
async def test_a_damaged_index_hides_nothing_from_lists_sums_trees_and_searches(
    path: Path, index: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is built again as the store is opened, and the log says so."""
    session_id, truth = await make(path)
    async with engine_on(path) as engine:
        known = await read(engine, session_id)
    damage(path, index, session_id)
    async with engine_on(path) as engine:
        assert await read(engine, session_id) == known
        assert await shown(engine, session_id) == truth
    assert f"the index {index} of " in caplog.text
    async with engine_on(path) as engine:
        assert await check(engine.store) == []


@pytest.mark.rule("ST-14")
async def test_a_message_that_only_its_turn_names_is_shown_as_damaged(path: Path) -> None:
    session_id, truth = await make(path)
    gone = truth["all"][3].id
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DELETE FROM chat_messages WHERE id = ?", (gone,))
        connection.commit()
    async with engine_on(path) as engine:
        for view in VIEWS:
            found = {one.id: one for one in await engine.messages(session_id, view=view)}
            assert found.keys() == {one.id for one in truth[view]}
            assert [part["type"] for part in found[gone].parts] == ["text" if view == "model" else "data-damaged"]
            assert "damaged" in str(found[gone].parts)


@pytest.mark.rule("ST-14")
async def test_a_damaged_index_of_holders_hides_no_page(path: Path) -> None:
    session_id, truth = await make(path)
    last = truth["visible"][-2].id
    damage(path, "turn_messages_by_message", last)
    async with engine_on(path) as engine:
        assert await engine.messages(session_id, limit=2, before=last) == truth["visible"][-4:-2]


@pytest.mark.rule("ST-14")
async def test_a_damaged_index_of_blobs_hides_no_file(path: Path) -> None:
    async with engine_on(path) as engine:
        scribe = await Scribe.create(engine.store)
        await engine.store.commit(Unit(scribe.session_id, (PutBlob(SHA, "image/png", BLOB, 0),)))
    damage(path, "sqlite_autoindex_blobs_1", SHA)
    async with engine_on(path) as engine:
        found = await engine.store.find_blob(SHA)
        assert found is not None
        assert found.data == BLOB


@pytest.mark.rule("ST-14")
async def test_a_model_call_whose_session_does_not_exist_is_named(path: Path) -> None:
    """One bit of a row of the ledger: its cost is no session's. Calls of a deleted session name none."""
    async with engine_on(path) as engine:
        kept, gone = [(await engine.create_session(model="demo/echo")).id for _ in range(2)]
        for session_id in (kept, gone):
            async for _ in engine.run(session_id, "hello"):
                pass
        await engine.delete_session(gone)
        assert await check(engine.store) == []
    other = kept[:-1] + chr(ord(kept[-1]) ^ 1)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE model_calls SET session_id = ? WHERE session_id = ?", (other, kept))
    async with engine_on(path) as engine:
        [problem] = [one for one in await check(engine.store) if one.session_id == other]
        assert problem.what == "model calls name a session that does not exist"
