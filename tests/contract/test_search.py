"""Search: every settled message of every session is found, hidden or not, and what was deleted is not."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import InvalidInput, NotSupported, SchemaTooNew, StoreClosed, StoreReadOnly
from clew.history.check import check
from clew.ids import Mint
from clew.store.base import SearchHit, SearchPage, SearchQuery
from clew.store.memory import MemoryStore
from clew.store.search import excerpt, plan_search
from clew.store.sql.apply import UnitWriter
from clew.store.sql.sqlite import search_index, store, writer
from clew.store.sql.sqlite.connection import has_fts5
from clew.store.sql.sqlite.search_index import SearchIndex
from clew.store.sql.sqlite.store import SqliteOptions, SqliteStore, open_sqlite
from clew.store.unit import (
    DeleteSession,
    InsertMessage,
    MoveHead,
    PatchSession,
    PutParts,
    SealMessage,
    SetHidden,
    Unit,
)
from clew.testing.chunks import reasoning, text, tool_call, tool_error, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe, user_row
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.project import project, tails_of
from clew.transcript.seal import seal_of
from tests.contract.test_random_histories import ACTIONS, History

CHILD = """
import asyncio, sys
from pathlib import Path
from clew.store.base import SearchQuery
from clew.store.sql.sqlite import search_index
from clew.store.sql.sqlite.store import open_sqlite

async def main():
    search_index.BATCH = 5
    store = await open_sqlite(Path(sys.argv[1]))
    await store.search(SearchQuery("word"))

asyncio.run(main())
"""


@pytest.fixture
async def disk(tmp_path: Path, clock: FakeClock, mint: Mint) -> AsyncIterator[SqliteStore]:
    opened = await open_sqlite(tmp_path / "store.db", clock=clock, mint=mint)
    yield opened
    await opened.close()


@pytest.fixture
async def pen(disk: SqliteStore, clock: FakeClock, mint: Mint) -> Scribe:
    return await Scribe.create(disk, clock=clock, mint=mint, metadata={"title": "the log"})


async def snippets(disk: SqliteStore, wanted: str, **more: Any) -> list[str]:
    return [hit.snippet for hit in (await disk.search(SearchQuery(wanted, **more))).hits]


async def say(pen: Scribe, *texts: str) -> list[str]:
    """User messages in one unit, settled and in no turn; their ids."""
    rows = [user_row(pen.mint, pen.session_id, words, pen.clock.now_ms()) for words in texts]
    writes = [(InsertMessage(row), SealMessage(row.id, seal_of(part.data for part in row.parts))) for row in rows]
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


# What is found


async def test_a_memory_store_says_that_it_cannot_search() -> None:
    """In its capabilities and when it is asked."""
    memory = MemoryStore()
    assert memory.capabilities.search is False
    with pytest.raises(NotSupported):
        await memory.search(SearchQuery("word"))
    with pytest.raises(NotSupported):
        await memory.rebuild_search()


async def test_text_reasoning_and_both_sides_of_a_tool_call_are_found(disk: SqliteStore, pen: Scribe) -> None:
    """Each as a hit on its own part, with all that a front needs to show it."""
    assert disk.capabilities.search is True
    chunks = [
        *reasoning("perhaps a thimble"),
        *tool_call("bash", {"command": "ls harbour", "deep": [{"port": 8080}]}, id="call_1"),
        *tool_output({"files": ["lantern.txt"], "ok": True, "share": 0.5}, call="call_1"),
        *tool_call("read", {"path": "x"}, id="call_2"),
        *tool_error("no such anchor", call="call_2"),
        *text("There is a walrus."),
    ]
    _, user, assistant = await pen.turn("Where is the compass?", chunks)
    marker = await say_parts(pen, {"type": "data-compaction", "data": {"summary": "a kettle", "tail_start_id": "x"}})
    rows = {row.id: row for row in await disk.load_messages(pen.session_id)}

    def hit(message_id: str, part: int, snippet: str) -> SearchPage:
        row = rows[message_id]
        part_id = row.parts[part].id
        found = SearchHit(
            pen.session_id, message_id, part_id, "the log", snippet, False, row.role, created_at=row.created_at
        )
        return SearchPage((found,), None)

    expected = {
        "compass": hit(user, 0, "Where is the **compass**?"),
        "thimble": hit(assistant, 1, "perhaps a **thimble**"),
        "harbour": hit(assistant, 2, "ls **harbour**\n8080\nlantern.txt"),
        "8080": hit(assistant, 2, "ls harbour\n**8080**\nlantern.txt"),
        "lantern": hit(assistant, 2, "ls harbour\n8080\n**lantern**.txt"),
        "anchor": hit(assistant, 3, "x\nno such **anchor**"),
        "walrus": hit(assistant, 4, "There is a **walrus**."),
        "kettle": hit(marker.id, 0, "a **kettle**"),
    }
    assert {word: await disk.search(SearchQuery(word)) for word in expected} == expected
    assert await disk.search(SearchQuery("command")) == SearchPage((), None)
    check_index(disk.path)


@pytest.mark.rule("CP-4")
async def test_what_was_rewound_or_summarised_is_found_and_said_to_be_hidden(disk: SqliteStore, pen: Scribe) -> None:
    """The index does not change when the line does: the flag comes from the message."""
    await pen.turn("first thimble", text("second thimble"))
    assert [hit.hidden for hit in (await disk.search(SearchQuery("thimble"))).hits] == [False, False]
    await pen.commit(MoveHead(None, 5, "rewind"))
    tree = await disk.load_tree(pen.session_id)
    rows = {row.id: row for row in await disk.load_messages(pen.session_id)}
    await pen.commit(SetHidden(dict(project(tree, tails_of(tree, rows)))))
    hits = (await disk.search(SearchQuery("thimble"))).hits
    assert [(hit.role, hit.hidden, hit.snippet) for hit in hits] == [
        ("assistant", True, "second **thimble**"),
        ("user", True, "first **thimble**"),
    ]


async def test_a_message_is_found_once_it_is_settled(disk: SqliteStore, pen: Scribe) -> None:
    """While it streams it is not, and nothing is indexed by writing."""
    opened = await pen.prompt("go")
    recorder = opened.recorder()
    for chunk in text("a walrus"):
        await recorder.send(chunk)
    assert await snippets(disk, "walrus") == []
    marked = count(disk.path, "search_marks")
    await recorder.close(*opened.settling())
    assert (count(disk.path, "search_marks"), marked) == (1, 1)
    assert await snippets(disk, "walrus") == ["a **walrus**"]
    assert count(disk.path, "search_marks") == 2


async def test_the_title_is_the_present_one_and_may_be_missing(disk: SqliteStore, pen: Scribe) -> None:
    """It is read from the session with the hit."""
    await say(pen, "thimble")
    await pen.commit(PatchSession(metadata={"title": "renamed"}))
    assert [hit.title for hit in (await disk.search(SearchQuery("thimble"))).hits] == ["renamed"]
    await pen.commit(PatchSession(drop=("title",)))
    assert [hit.title for hit in (await disk.search(SearchQuery("thimble"))).hits] == [None]


async def test_one_session_can_be_searched_alone(disk: SqliteStore, pen: Scribe) -> None:
    """And one that is not there has nothing."""
    other = await Scribe.create(disk, clock=pen.clock, mint=pen.mint)
    await say(pen, "thimble here")
    await say(other, "thimble there")
    assert await snippets(disk, "thimble", session_id=other.session_id) == ["**thimble** there"]
    assert await snippets(disk, "thimble", session_id="ses_none") == []
    assert sorted(await snippets(disk, "thimble")) == ["**thimble** here", "**thimble** there"]


async def test_a_part_is_searched_up_to_a_million_characters(disk: SqliteStore, pen: Scribe) -> None:
    """The rest of it is kept and not found."""
    await say(pen, "x " * 499_990 + "thimble " + "y " * 20 + "walrus")
    assert len(await snippets(disk, "thimble")) == 1
    assert await snippets(disk, "walrus") == []


async def test_a_snippet_is_a_piece_of_the_text_as_it_is(disk: SqliteStore, pen: Scribe) -> None:
    """About twenty words, with its control characters: to neutralise them is a front's business."""
    await say(pen, "\x1b[31mred\x07 \u202ethimble")
    await say(pen, f"{'a ' * 100}walrus{' b' * 100}")
    assert await snippets(disk, "thimble") == ["\x1b[31mred\x07 \u202e**thimble**"]
    [long] = await snippets(disk, "walrus")
    assert long.startswith("…a a")
    assert long.endswith("b b…")
    assert len(long.split()) == 20


# Queries


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("lazy dog", {0}),
        ("dog lazy", {0}),
        ("LAZY", {0}),
        ("laz", {0}),
        ("laz dog", set()),
        ("dog laz", {0}),
        ('"lazy dog"', {0}),
        ('"dog lazy"', set()),
        ('"laz"', set()),
        ('quick "lazy dog', {0}),
        ("cafe", {1}),
        ("CAFÉ", {1}),
        ("cafe\u0301", {1}),
        ("foo-bar", {1}),
        ("foo_b", {1}),
        ("C++", {1}),
        ("AND", {1, 2}),
        ("OR", {2}),
        ("dog OR cat", set()),
        ("NOT dog", set()),
        ("NEAR(lazy dog)", set()),
        ("text:lazy", set()),
        ("{text} lazy", set()),
        ("^quick", {0}),
        ("lazy*", {0}),
        ("(lazy)", {0}),
        ("lazy -- dog", {0}),
        ("lazy 🙂 dog", {0}),
        ("'; DROP TABLE search_docs; --", set()),
        ("lazy\x00dog", {0}),
        ("lazy\ud800dog", {0}),
        ("zebra", set()),
    ],
)
async def test_every_word_counts_the_last_one_also_as_a_beginning(
    disk: SqliteStore, pen: Scribe, wanted: str, expected: set[int]
) -> None:
    """Quotes make a phrase, and nothing that means something to FTS5 means anything here."""
    ids = await say(pen, "quick: the lazy dog", "a Café with foo-bar_baz and C++, credit", "AND/OR")
    found = {ids.index(hit.message_id) for hit in (await disk.search(SearchQuery(wanted))).hits}
    assert found == expected


@pytest.mark.parametrize("wanted", ["", "  ", '"', '""', '" "', "***", "🙂", "\x00", "\ud800", "-- , !", "_"])
async def test_a_query_without_a_word_is_refused(disk: SqliteStore, wanted: str) -> None:
    """It would match nothing, or everything."""
    with pytest.raises(InvalidInput):
        await disk.search(SearchQuery(wanted))


@pytest.mark.parametrize(
    "query",
    [
        SearchQuery("word", limit=0),
        SearchQuery("word", limit=101),
        SearchQuery("w" * 1_001),
        SearchQuery("w " * 65),
        *(
            SearchQuery("word", cursor=cursor)
            for cursor in ("", "20", "x", "0-00000000", "-20-00000000", "20-00000000", "２0-00000000", "20-00000000\n")
        ),
    ],
    ids=repr,
)
async def test_a_query_out_of_bounds_is_refused(disk: SqliteStore, query: SearchQuery) -> None:
    """Sizes, and cursors that no search has given."""
    with pytest.raises(InvalidInput):
        await disk.search(query)


async def test_a_cursor_belongs_to_its_search(disk: SqliteStore, pen: Scribe) -> None:
    """With another text or another session it is refused; with another size of page it goes on."""
    await say(pen, *["word thing"] * 3)
    cursor = (await disk.search(SearchQuery("word", 1))).next_cursor
    assert cursor is not None
    for query in (SearchQuery("thing", 1, cursor), SearchQuery("word", 1, cursor, pen.session_id)):
        with pytest.raises(InvalidInput):
            await disk.search(query)
    assert len((await disk.search(SearchQuery("word", 50, cursor))).hits) == 2


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an index, closed."""
    path = tmp_path_factory.mktemp("searched") / "store.db"

    async def make() -> None:
        made = await open_sqlite(path)
        await say(await Scribe.create(made), "a b AND NOT d", "今天天气")
        await made.search(SearchQuery("a"))
        await made.close()

    asyncio.run(make())
    return path


@settings(max_examples=150)
@given(wanted=st.text(st.characters(), max_size=40) | st.text('ab"*^:(){}-+ ,.NOTADR\\天', max_size=30))
async def test_no_text_makes_a_search_fail(searched: Path, wanted: str) -> None:
    """Whatever is typed: a page, or a refusal because there is no word in it."""
    opened = await open_sqlite(searched, SqliteOptions(read_only=True))
    try:
        page = await opened.search(SearchQuery(wanted))
        assert (page.next_cursor, len(page.hits) <= 2) == (None, True)
    except InvalidInput:
        assert not any(character.isalnum() for character in wanted)
    finally:
        await opened.close()


async def test_scripts_without_spaces_are_found_anywhere_in_a_run(disk: SqliteStore, pen: Scribe) -> None:
    """An index of words would know the beginning of the run only. All words count, the newest comes first."""
    await say(pen, "今天天气很好 in Oslo", "天气预报", "unrelated", "Übermut 天気")
    assert await snippets(disk, "天气") == ["**天气**预报", "今天**天气**很好 in Oslo"]
    assert await snippets(disk, "oslo 天气") == ["今天**天气**很好 in **Oslo**"]
    assert await snippets(disk, '"天气很好"') == ["今天**天气很好** in Oslo"]
    assert await snippets(disk, "天气。") == ["**天气**预报", "今天**天气**很好 in Oslo"]
    assert await snippets(disk, "ÜBER 天") == ["**Über**mut **天**気"]
    assert await snippets(disk, "天地") == []
    first = await disk.search(SearchQuery("天", 2))
    second = await disk.search(SearchQuery("天", 2, first.next_cursor))
    assert [len(page.hits) for page in (first, second)] == [2, 1]
    assert second.next_cursor is None


def test_an_excerpt_is_cut_around_what_was_found() -> None:
    """Also where the letters that match are not the letters that were asked for."""
    assert excerpt("天" * 100 + "气" + "天" * 100, ("气",)) == f"…{'天' * 60}**气**{'天' * 60}…"
    assert excerpt("STRASSE", ("straße",)) == "STRASSE"
    assert plan_search(SearchQuery("(a.b) 天,")).words == ("a.b", "天")


# Pages


async def test_pages_have_neither_gap_nor_repeat(disk: SqliteStore, pen: Scribe) -> None:
    """In the order of one large page: the best first, then the newest; also when messages come in between."""
    rng = random.Random(7)
    for _ in range(57):
        pen.clock.advance(1)  # type: ignore[attr-defined]  # a fake clock
        await say(pen, " ".join(["thimble"] * rng.randint(1, 2) + ["other"] * rng.randint(0, 2)))
    whole = await disk.search(SearchQuery("thimble", 100))
    assert len(whole.hits) == 57
    assert whole.next_cursor is None
    pages: list[SearchHit] = []
    cursor: str | None = None
    while True:
        page = await disk.search(SearchQuery("thimble", 10, cursor))
        pages += page.hits
        cursor = page.next_cursor
        if cursor is None:
            break
        await say(pen, "thimble, and later")
    assert tuple(pages) == whole.hits
    same = [hit.created_at for hit in whole.hits if hit.snippet == "**thimble**"]
    assert len(same) > 3
    assert same == sorted(same, reverse=True)


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
        ["**kettle**"],
        ["**lantern**"],
    ]
    await pen.commit(SealMessage(row.id, "another"))
    assert await snippets(disk, "kettle") == ["**kettle**"]
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
@settings(max_examples=15)
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
    monkeypatch.setattr(search_index, "_LOOK", 6)
    await say(pen, "word")
    assert len(await snippets(disk, "word")) == 1
    await say(pen, *["word"] * 35)
    assert len((await disk.search(SearchQuery("word", 100))).hits) == 36
    check_index(disk.path)


# The index itself


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
        await opened.commit(Unit(other.session_id, (PutParts(row.id, (changed,)),)))
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
        connection.execute("PRAGMA user_version = 99")
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
    for module in (store, writer):
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
