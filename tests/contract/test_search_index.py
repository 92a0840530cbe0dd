"""The index behind a search: changes, catching up, damage, and what it does not disturb."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import NotSupported, SchemaTooNew, StoreClosed, StoreReadOnly
from clew.session.history.check import check
from clew.store.base import SearchQuery
from clew.store.sql.apply import UnitWriter
from clew.store.sql.sqlite import base, search_index, transactions
from clew.store.sql.sqlite.connection import has_fts5
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.sql.sqlite.search_index import SearchIndex
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.unit import DeleteSession, PatchSession, PutParts, SealMessage, Unit
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.transcript.damage import seal_of
from clew.transcript.message import PartRow
from tests.contract.search_index import by_hand, check_index, count, disk, pen, say, say_parts, snippets
from tests.contract.test_random_histories import ACTIONS, History
from tests.rounds import rounds

__all__ = ["disk", "pen"]

CHILD = """
import asyncio, sys
from pathlib import Path
from clew.store.base import SearchQuery
from clew.store.sql.sqlite import search_index
from clew.store.sql.sqlite.opening import open_sqlite

async def main():
    search_index.BATCH = 5
    store = await open_sqlite(Path(sys.argv[1]))
    await store.search(SearchQuery("word"))

asyncio.run(main())
"""

# Changes


@pytest.mark.rule("ST-11")
async def test_a_deleted_session_is_not_found_and_not_indexed(disk: SqliteStore, pen: Scribe) -> None:
    """Its rows leave the index with it; the others stay; and an index that is not there is no obstacle."""
    other = await Scribe.create(disk, clock=pen.clock, mint=pen.mint)
    third = await Scribe.create(disk, clock=pen.clock, mint=pen.mint)
    for scribe in (pen, other, third):
        await scribe.turn("a thimble", text("another thimble"))
    await third.commit(DeleteSession())
    assert len(await snippets(disk, "thimble")) == 4
    await pen.commit(DeleteSession())
    assert [count(disk.path, table) for table in ("search_docs", "search_index_docsize", "search_marks")] == [2, 2, 2]
    hits = (await disk.search(SearchQuery("thimble"))).hits
    assert {hit.session_id for hit in hits} == {other.session_id}
    check_index(disk.path)
    await other.commit(DeleteSession())
    assert await snippets(disk, "thimble") == []
    check_index(disk.path)


@pytest.mark.rule("ST-11")
async def test_no_word_of_a_deleted_session_stays_in_the_file(disk: SqliteStore, pen: Scribe) -> None:
    """Neither in a row nor in the index, where FTS5 would keep the words of what was taken out."""
    other = await Scribe.create(disk, clock=pen.clock, mint=pen.mint)
    for scribe, word in ((other, "thimble"), (pen, "quagga")):
        await say(scribe, f"{word} and more")
        assert len(await snippets(disk, word)) == 1
    await pen.commit(DeleteSession())
    assert len(await snippets(disk, "thimble")) == 1
    check_index(disk.path)
    await disk.close()
    held = await asyncio.to_thread(disk.path.read_bytes)
    assert (b"thimble" in held, b"quagga" in held) == (True, False)


async def test_a_message_that_changed_is_found_by_what_it_says_now(disk: SqliteStore, pen: Scribe) -> None:
    """Sealed anew or not; the old words are gone, from the index too."""
    row = await say_parts(pen, {"type": "text", "text": "thimble"}, {"type": "text", "text": "stays"})
    await snippets(disk, "thimble")
    changed = {"type": "text", "text": "walrus"}
    part = PartRow(row.parts[0].id, 0, changed, 1, 2)
    await pen.commit(PutParts(row.id, (part,)), SealMessage(row.id, seal_of([changed, row.parts[1].data])))
    assert [await snippets(disk, word) for word in ("thimble", "walrus", "stays")] == [
        [],
        ["**walrus**"],
        ["**stays**"],
    ]
    check_index(disk.path)
    unsealed = PartRow(row.parts[0].id, 0, {"type": "text", "text": "kettle"}, 1, 3)
    more = PartRow(pen.mint.part(), 2, {"type": "text", "text": "lantern"}, 1, 3)
    await pen.commit(PutParts(row.id, (unsealed, more)))
    assert [await snippets(disk, word) for word in ("walrus", "kettle", "lantern")] == [
        [],
        ["[damaged] **kettle**"],
        ["[damaged] **lantern**"],
    ]
    await pen.commit(SealMessage(row.id, "another"))
    assert await snippets(disk, "kettle") == ["[damaged] **kettle**"]
    check_index(disk.path)


async def test_a_unit_that_fails_takes_nothing_out_of_the_index(disk: SqliteStore, pen: Scribe) -> None:
    """The index is in the same transaction as the parts."""
    row = await say_parts(pen, {"type": "text", "text": "thimble"})
    await snippets(disk, "thimble")
    part = PartRow(row.parts[0].id, 0, {"type": "text", "text": "walrus"}, 1, 2)
    with pytest.raises(Exception, match="not in its session"):
        await pen.commit(PutParts(row.id, (part,)), SealMessage("msg_none", "x"))
    assert await snippets(disk, "thimble") == ["**thimble**"]
    check_index(disk.path)


@pytest.mark.rule("ST-11", "CP-4")
@settings(max_examples=rounds(15))
@given(
    seed=st.integers(0, 10**6),
    actions=st.lists(st.sampled_from([*ACTIONS, "branch", "search", "search", "delete", "reopen"]), max_size=16),
)
async def test_after_any_history_the_index_is_what_the_parts_are(seed: int, actions: list[str]) -> None:
    """Searched in between or not, branches copied and deleted: FTS5 finds nothing wrong, every sealed text is found."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        opened = await open_sqlite(path)
        history = History(opened, seed)
        await history.start()
        for action in actions:
            if action == "search":
                await opened.search(SearchQuery("prompt"))
            elif action == "reopen":
                await opened.close()
                opened = history.store = history.scribe.store = await open_sqlite(path)
            elif action == "delete":
                if history.branches:
                    gone = history.branches.pop(history.rng.randrange(len(history.branches)))
                    await opened.commit(Unit(gone, (DeleteSession(),)))
            else:
                await history.run(action)
        expected = set()
        for session_id in await opened.session_ids():
            sealed = await opened.seals(session_id)
            for row in await opened.load_messages(session_id):
                if row.role == "user" and row.id in sealed and row.parts[0].data["text"].startswith("prompt"):
                    expected.add(row.id)
        hits = (await opened.search(SearchQuery("prompt", 100))).hits
        assert {hit.message_id for hit in hits if hit.role == "user"} == expected
        check_index(path)
        assert await check(opened) == []
        await opened.close()


# Catching up


async def test_a_killed_process_leaves_an_index_that_the_next_search_completes(tmp_path: Path) -> None:
    """Killed in the third batch: two are there, whole, and the others come with the next search."""
    path = tmp_path / "store.db"
    opened = await open_sqlite(path)
    await say(await Scribe.create(opened), *[f"word {n}" for n in range(23)])
    await opened.close()
    environment = {**os.environ, "CLEW_FAILPOINTS": "writer.before_commit=kill@3"}
    command = [sys.executable, "-c", CHILD, str(path)]
    died = await asyncio.to_thread(subprocess.run, command, env=environment, check=False, timeout=60)
    assert died.returncode == -SIGKILL
    assert (count(path, "search_marks"), count(path, "search_docs")) == (10, 10)
    check_index(path)
    opened = await open_sqlite(path)
    try:
        assert len((await opened.search(SearchQuery("word", 100))).hits) == 23
    finally:
        await opened.close()
    check_index(path)


@pytest.mark.slow
async def test_no_commit_waits_for_more_than_one_batch(
    disk: SqliteStore, pen: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While 20,000 messages are indexed: units go in between, whenever they come."""
    for _ in range(20):
        await say(pen, *["word"] * 1_000)
    events: list[str] = []
    batch, apply = SearchIndex.batch, UnitWriter.apply

    def noted_batch(self: SearchIndex) -> bool:
        events.append("batch")
        return batch(self)

    def noted_apply(self: UnitWriter, unit: Unit) -> Any:
        events.append("applied")
        return apply(self, unit)

    monkeypatch.setattr(SearchIndex, "batch", noted_batch)
    monkeypatch.setattr(UnitWriter, "apply", noted_apply)
    search = asyncio.create_task(disk.search(SearchQuery("word", 100)))
    while not search.done():
        events.append("submitted")
        await pen.commit(PatchSession(metadata={"n": len(events)}))
    assert len((await search).hits) == 100
    assert count(disk.path, "search_marks") == 20_000
    assert events.count("batch") >= 40
    waits = [piece.partition("applied")[0].count("batch") for piece in " ".join(events).split("submitted")[1:]]
    assert max(waits) == 1
    between = " ".join(events[events.index("batch") : len(events) - events[::-1].index("batch")])
    assert between.count("applied") >= 20


async def test_a_batch_ends_when_it_is_long_enough(
    disk: SqliteStore, pen: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By messages and by characters; a message that is longer than a batch is a batch of its own."""
    monkeypatch.setattr(search_index, "BATCH", 4)
    monkeypatch.setattr(search_index, "BATCH_CHARS", 200)
    marks: list[int] = []
    batch = SearchIndex.batch

    def noted(self: SearchIndex) -> bool:
        more = batch(self)
        seals = self._sql.rows("next_seals", {"after": "", "limit": 99})
        marks.append(len([mark for _, _, mark in seals if mark is not None]))
        return more

    monkeypatch.setattr(SearchIndex, "batch", noted)
    await say(pen, *["word"] * 6, "word " * 1_000, "word " * 1_000, "word")
    assert len(await snippets(disk, "word")) == 9
    assert marks == [4, 7, 8, 9]
    marks.clear()
    await say(pen, *["word"] * 5)
    assert len(await snippets(disk, "word")) == 14
    assert marks == [13, 14]
    marks.clear()
    assert len(await snippets(disk, "word")) == 14
    assert marks == [14]


async def test_many_searches_at_once_share_the_work(
    disk: SqliteStore, pen: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each finds everything."""
    monkeypatch.setattr(search_index, "BATCH", 7)
    await say(pen, *["word"] * 60)
    pages = await asyncio.gather(*(disk.search(SearchQuery("word", 100)) for _ in range(5)))
    assert [len(page.hits) for page in pages] == [60] * 5
    check_index(disk.path)


async def test_notes_that_grow_too_long_are_replaced_by_a_look_at_everything(
    disk: SqliteStore, pen: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was searched once and never again does not remember every message since."""
    monkeypatch.setattr(search_index, "_MAX_STALE", 10)
    monkeypatch.setattr(search_index, "_SCAN_ROWS", 6)
    await say(pen, "word")
    assert len(await snippets(disk, "word")) == 1
    await say(pen, *["word"] * 35)
    assert len((await disk.search(SearchQuery("word", 100))).hits) == 36
    check_index(disk.path)


# The index itself


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm",
    [
        "DROP TABLE search_index",
        "DROP VIEW search_texts",
        "DROP VIEW search_texts; CREATE VIEW search_texts AS SELECT id, part_id AS text FROM search_docs",
        "DROP TABLE search_index; CREATE VIRTUAL TABLE search_index USING fts5(text)",
        "DELETE FROM search_index_data",
        "UPDATE search_index_data SET block = x'0102' WHERE id > 10",
    ],
)
@pytest.mark.parametrize("then", ["search", "add", "write", "delete", "rebuild"])
async def test_an_index_that_is_gone_or_damaged_is_made_again(tmp_path: Path, harm: str, then: str) -> None:
    """By hand, while nobody has the file; whatever is done first afterwards succeeds."""
    path = tmp_path / "store.db"
    opened = await open_sqlite(path)
    pen, other = await Scribe.create(opened), await Scribe.create(opened)
    for scribe in (pen, other):
        await say(scribe, "a thimble", "a walrus")
    await snippets(opened, "thimble")
    await opened.close()
    with by_hand(path) as connection:
        connection.executescript(harm)
    opened = await open_sqlite(path)
    if then == "delete":
        await opened.commit(Unit(other.session_id, (DeleteSession(),)))
    elif then == "write":
        [row] = [
            row for row in await opened.load_messages(other.session_id) if row.parts[0].data["text"] == "a thimble"
        ]
        changed = PartRow(row.parts[0].id, 0, {"type": "text", "text": "a kettle"}, 1, 2)
        await opened.commit(
            Unit(other.session_id, (PutParts(row.id, (changed,)), SealMessage(row.id, seal_of([changed.data]))))
        )
    elif then == "rebuild":
        await opened.rebuild_search()
    elif then == "add":
        await say(Scribe(opened, pen.session_id, pen.mint, pen.clock), "a kettle")
    assert await snippets(opened, "thimble") == ["a **thimble**"] * (1 if then in ("delete", "write") else 2)
    assert await snippets(opened, "kettle") == ["a **kettle**"] * (then in ("add", "write"))
    check_index(path)
    await opened.close()


async def test_an_index_can_be_rebuilt_at_will(disk: SqliteStore, pen: Scribe) -> None:
    """With or without one, and what it finds is the same."""
    await say(pen, "thimble", "a thimble", "walrus")
    await disk.rebuild_search()
    first = await disk.search(SearchQuery("thimble"))
    assert len(first.hits) == 2
    await disk.rebuild_search()
    assert await disk.search(SearchQuery("thimble")) == first
    check_index(disk.path)


async def test_rows_another_program_deleted_are_not_found_and_their_numbers_do_not_come_again(tmp_path: Path) -> None:
    """It knows nothing of the index, whose words then lead nowhere until it is rebuilt."""
    path = tmp_path / "store.db"
    opened = await open_sqlite(path)
    pen, other = await Scribe.create(opened), await Scribe.create(opened)
    await say(pen, "thimble")
    await say(other, "thimble", "thimble")
    await snippets(opened, "thimble")
    with by_hand(path) as connection:
        connection.execute("DELETE FROM chat_sessions WHERE id = ?", (other.session_id,))
    assert await snippets(opened, "thimble") == ["**thimble**"]
    await say(pen, "walrus")
    assert await snippets(opened, "thimble") == ["**thimble**"]
    assert await snippets(opened, "walrus") == ["**walrus**"]
    await opened.rebuild_search()
    check_index(path)
    await opened.close()


async def test_a_part_that_no_longer_decodes_costs_itself(disk: SqliteStore, pen: Scribe) -> None:
    """The other parts are found; metadata that does not decode costs the title and the flag."""
    await say(pen, "a thimble", "b thimble")
    with by_hand(disk.path) as connection:
        connection.execute("UPDATE chat_parts SET data_json = '{broken' WHERE data_json LIKE '%a thimble%'")
        connection.execute("UPDATE chat_messages SET metadata_json = 'no'")
        connection.execute("UPDATE chat_sessions SET metadata_json = '[]'")
    [hit] = (await disk.search(SearchQuery("thimble"))).hits
    assert (hit.snippet, hit.title, hit.hidden) == ("b **thimble**", None, False)
    assert await snippets(disk, "天") == []


@pytest.mark.rule("ST-7", "ST-8")
async def test_an_index_disturbs_nothing_else(disk: SqliteStore, pen: Scribe, tmp_path: Path) -> None:
    """Looking the store over, backing it up, opening it again, for reading and for writing, or refusing to."""
    await pen.turn("a thimble", text("b"))
    assert await snippets(disk, "thimble") == ["a **thimble**"]
    assert list(await disk.verify()) == []
    assert await check(disk) == []
    await disk.backup(tmp_path / "copy.db")
    for options in (SqliteOptions(read_only=True), SqliteOptions()):
        copy = await open_sqlite(tmp_path / "copy.db", options)
        assert await snippets(copy, "thimble") == ["a **thimble**"]
        await copy.close()
    with by_hand(tmp_path / "copy.db") as connection:
        connection.execute("UPDATE clew_schema SET version = 99")
    for options in (SqliteOptions(read_only=True), SqliteOptions()):
        with pytest.raises(SchemaTooNew):
            await open_sqlite(tmp_path / "copy.db", options)


async def test_a_store_opened_for_reading_searches_what_is_indexed(disk: SqliteStore, pen: Scribe) -> None:
    """It indexes nothing; and where nobody has searched yet it says so."""
    await say(pen, "old thimble")
    reading = await open_sqlite(disk.path, SqliteOptions(read_only=True))
    with pytest.raises(NotSupported, match="no search index"):
        await reading.search(SearchQuery("thimble"))
    await snippets(disk, "thimble")
    await say(pen, "new thimble")
    assert reading.capabilities.search is True
    assert await snippets(reading, "thimble") == ["old **thimble**"]
    with pytest.raises(StoreReadOnly):
        await reading.rebuild_search()
    await reading.close()
    with pytest.raises(StoreClosed):
        await reading.search(SearchQuery("thimble"))


async def test_without_fts5_everything_but_searching_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a file that has an index: what is deleted or changed leaves it, and a SQLite with FTS5 makes it anew."""
    path = tmp_path / "store.db"
    assert has_fts5() is True
    opened = await open_sqlite(path)
    pen, other = await Scribe.create(opened), await Scribe.create(opened)
    await say(pen, "thimble")
    await say(other, "thimble walrus")
    assert len(await snippets(opened, "thimble")) == 2
    await opened.close()
    for module in (base, transactions):
        monkeypatch.setattr(module, "has_fts5", lambda: False)
    opened = await open_sqlite(path)
    assert opened.capabilities.search is False
    for call in (opened.search(SearchQuery("thimble")), opened.rebuild_search()):
        with pytest.raises(NotSupported, match="FTS5"):
            await call
    await opened.commit(Unit(other.session_id, (DeleteSession(),)))
    await say(Scribe(opened, pen.session_id, pen.mint, pen.clock), "kettle")
    await opened.close()
    assert [count(path, f"search_index_{table}") for table in ("data", "idx", "docsize")] == [2, 0, 0]
    monkeypatch.undo()
    opened = await open_sqlite(path)
    assert await snippets(opened, "thimble") == ["**thimble**"]
    assert await snippets(opened, "kettle") == ["**kettle**"]
    check_index(path)
    await opened.close()
