"""Search: every settled message of every session is found, hidden or not, and what was deleted is not."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import InvalidInput, StoreClosed
from clew.store.base import SearchHit, SearchPage, SearchQuery
from clew.store.search import excerpt, plan_search
from clew.store.sql.sqlite.connection import has_fts5
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.unit import MoveHead, PatchSession, SetHidden
from clew.testing.chunks import reasoning, text, tool_call, tool_error, tool_output
from clew.testing.scribe import Scribe
from clew.transcript.projection import compaction_tails, hidden_messages
from tests.contract.search_index import check_index, count, disk, pen, say, say_parts, snippets
from tests.rounds import rounds

__all__ = ["disk", "pen"]


# What is found


async def test_a_memory_store_searches_too() -> None:
    """What was said since the last search, and after its index was made again."""
    memory = MemoryStore()
    assert memory.capabilities.search is has_fts5() is True
    pen = await Scribe.create(memory)
    await say(pen, "a thimble")
    assert await snippets(memory, "thimble") == ["a **thimble**"]
    await say(pen, "another thimble")
    await memory.rebuild_search()
    assert sorted(await snippets(memory, "thimble")) == ["a **thimble**", "another **thimble**"]
    await memory.close()
    with pytest.raises(StoreClosed):
        await memory.search(SearchQuery("thimble"))


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
        return SearchPage((found,), None, total=1)

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
    await pen.commit(SetHidden(dict(hidden_messages(tree, compaction_tails(tree, rows)))))
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


@pytest.mark.slow
@settings(max_examples=rounds(150))
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


async def test_the_word_itself_ranks_before_longer_ones(disk: SqliteStore, pen: Scribe) -> None:
    """However short and new the text with the longer word is, and however often it occurs there."""
    await say(pen, "in the harbour master's long report of the year there is a cat among many other things and names")
    await say(pen, "cathedral", "a category of categories, cats")
    found = await disk.search(SearchQuery("cat"))
    assert [hit.snippet.count("**cat**") for hit in found.hits] == [1, 0, 0]
    first, rest = await disk.search(SearchQuery("cat", 1)), await disk.search(SearchQuery("a cat"))
    second = await disk.search(SearchQuery("cat", 2, first.next_cursor))
    assert [hit.part_id for hit in (*first.hits, *second.hits)] == [hit.part_id for hit in found.hits]
    assert [hit.snippet.count("**cat**") for hit in rest.hits] == [1, 0]


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
