"""Search on PostgreSQL: the answers SQLite's index gives on the same sessions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clew.errors import InvalidInput
from clew.ids import Mint
from clew.store.base import SearchQuery, Store
from clew.store.sql.postgres.opening import PostgresOptions, open_postgres
from clew.store.sql.postgres.search_words import MAX_CHARS
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.unit import DeleteSession, PutParts, SealMessage, Unit
from clew.testing.chunks import reasoning, text, tool_call, tool_error, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript.damage import seal_of
from clew.transcript.message import PartRow
from tests.contract.search_index import say, say_parts

pytestmark = [pytest.mark.service, pytest.mark.rule("ST-12")]

SAID = [
    "quick: the lazy dog",
    "a Café with foo-bar_baz and C++, credit",
    "AND/OR",
    "see src/clew/store.py:42 or mail me@example.com, v1.2.3 at 12:30",
    "Straße, ŁÓDŹ, İstanbul, Ωμέγα, ﬁne ½ x²",
    "it's a 'quoted' \\ back & slash | pipe ! not <-> near :* ( ) word",
    "今天天气很好 in Oslo",
    "天气预报",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty lantern twenty-two twenty-three twenty-four the lantern again, and more to the end of it",
    "It began here. Nothing was said. Then: a harbour, and a boat. " * 6
    + "The last harbour of all. And then some more words.",
    "under_score __init__ 0x1F -5 3.14 1e9",
    "cafe\u0301 decomposed, naïve résumé",
]
ASKED = [
    *(
        "lazy dog",
        "dog lazy",
        "LAZY",
        "laz",
        "laz dog",
        "dog laz",
        '"lazy dog"',
        '"dog lazy"',
        '"laz"',
        'quick "lazy dog',
    ),
    *("cafe", "CAFÉ", "cafe\u0301", "foo-bar", "foo_b", "C++", "AND", "OR", "dog OR cat", "NOT dog", "NEAR(lazy dog)"),
    *("text:lazy", "{text} lazy", "^quick", "lazy*", "(lazy)", "lazy -- dog", "lazy 🙂 dog", "'; DROP TABLE x; --"),
    *(
        "lazy\x00dog",
        "lazy\ud800dog",
        "zebra",
        "store.py",
        "clew/st",
        "example.com",
        "me@",
        "1.2",
        "v1.2.3",
        "12:30",
        "42",
    ),
    *(
        "straße",
        "strasse",
        "lodz",
        "łódź",
        "istanbul",
        "ωμεγα",
        "fine",
        "ﬁne",
        "½",
        "x2",
        "it's",
        "quoted",
        "\\",
        "slash",
    ),
    *(
        "word",
        "a & b",
        "near",
        "天气",
        "oslo 天气",
        "lantern",
        '"lantern again"',
        "twenty two",
        "__init__",
        "score",
        "3.14",
    ),
    *("1e9", "0x1f", "-5", "naive resume", "decomposed", "the the", "a", "t"),
]


@pytest.fixture
async def both(
    tmp_path: Path, postgres_store_url: str, clock: FakeClock, mint: Mint
) -> AsyncIterator[tuple[Store, Store]]:
    stores = (
        await open_sqlite(tmp_path / "store.db", clock=clock, mint=mint),
        await open_postgres(postgres_store_url, PostgresOptions(writers=1, readers=1), clock=clock, mint=mint),
    )
    yield stores
    for store in stores:
        await store.close()


async def found(store: Store, wanted: str) -> Any:
    try:
        page = await store.search(SearchQuery(wanted, 100))
    except InvalidInput as error:
        return str(error)
    hits = sorted((hit.session_id, hit.created_at, hit.snippet, hit.hidden, hit.title, hit.role) for hit in page.hits)
    return hits, page.total, page.complete, page.next_cursor


async def test_the_same_words_find_the_same_parts_with_the_same_snippets(both: tuple[Store, Store]) -> None:
    """Names of files, addresses, numbers, other scripts, and what means something to one of the engines."""
    for store in both:
        clock = FakeClock()
        pen = await Scribe.create(store, clock=clock, mint=Mint(clock, random=random.Random(3).randrange))
        for words in SAID:
            clock.advance(1)
            await say(pen, words)
        chunks = [
            *reasoning("perhaps a thimble"),
            *tool_call("bash", {"command": "ls harbour", "deep": [{"port": 8080}]}, id="call_1"),
            *tool_output({"files": ["lantern.txt"], "ok": True, "share": 0.5}, call="call_1"),
            *tool_call("read", {"path": "x"}, id="call_2"),
            *tool_error("no such anchor", call="call_2"),
            *text("There is a walrus."),
        ]
        await pen.turn("Where is the compass?", chunks)
        await say_parts(pen, {"type": "data-compaction", "data": {"summary": "a kettle", "tail_start_id": "x"}})
    asked = [
        *ASKED,
        "thimble",
        "harbour",
        "8080",
        "lantern.txt",
        "true",
        "0.5",
        "anchor",
        "walrus",
        "compass",
        "kettle",
    ]
    for wanted in asked:
        assert await found(both[1], wanted) == await found(both[0], wanted), wanted


async def test_the_word_itself_ranks_before_longer_ones(both: tuple[Store, Store]) -> None:
    """However short and new the text with the longer word is."""
    for store in both:
        pen = await Scribe.create(store)
        await say(pen, "in the long report of the year there is a cat among many other things")
        await say(pen, "cathedral", "cats and categories")
        page = await store.search(SearchQuery("cat"))
        assert [hit.snippet.count("**cat**") for hit in page.hits] == [1, 0, 0]


async def test_a_random_text_is_found_by_what_stands_in_it(both: tuple[Store, Store]) -> None:
    """Words of few letters of many scripts, with whatever stands between them."""
    rng = random.Random(11)
    letters = "abÄéñßØλЖ1٣ _-./'\"&|!:*()\\,;\n\té̈"
    texts = ["".join(rng.choices(letters, k=rng.randint(1, 60))) for _ in range(60)]
    for store in both:
        clock = FakeClock()
        await say(await Scribe.create(store, clock=clock, mint=Mint(clock, random=random.Random(3).randrange)), *texts)
    for _ in range(80):
        told = rng.choice(texts)
        first = rng.randrange(len(told))
        wanted = told[first : first + rng.randint(1, 9)]
        one, other = [await found(store, wanted) for store in both]
        parts = [found if isinstance(found, str) else found[1:] for found in (one, other)]
        assert parts[0] == parts[1], (wanted, one, other)


async def test_what_changes_goes_or_comes_later_is_found_as_it_is(
    postgres_store_url: str, clock: FakeClock, mint: Mint
) -> None:
    """By whichever process searches; the index is made anew where it is asked for."""
    one, other = [await open_postgres(postgres_store_url, clock=clock, mint=mint) for _ in range(2)]
    try:
        pen = await Scribe.create(one, clock=clock, mint=mint)
        (message_id,) = await say(pen, "first words")
        assert [hit.snippet for hit in (await other.search(SearchQuery("words"))).hits] == ["first **words**"]
        part = PartRow(mint.part(), 0, {"type": "text", "text": "second thoughts"}, 1, 1)
        await pen.commit(PutParts(message_id, (part,)))
        assert (await other.search(SearchQuery("words"))).hits == ()
        await pen.commit(SealMessage(message_id, seal_of([part.data])))
        assert [hit.snippet for hit in (await other.search(SearchQuery("thoughts"))).hits] == ["second **thoughts**"]
        await other.rebuild_search()
        assert len((await one.search(SearchQuery("thoughts"))).hits) == 1
        await other.commit(Unit(pen.session_id, (DeleteSession(),)))
        assert (await one.search(SearchQuery("thoughts"))).hits == ()
    finally:
        await one.close()
        await other.close()


@pytest.mark.slow
async def test_a_long_part_is_found_by_its_words_up_to_a_megabyte_of_them(
    postgres_store_url: str, clock: FakeClock, mint: Mint
) -> None:
    """And by phrases as far as places are counted."""
    store = await open_postgres(postgres_store_url, clock=clock, mint=mint)
    try:
        pen = await Scribe.create(store, clock=clock, mint=mint)
        await say(pen, "early bird " + "filler " * 20_000 + "late worm")
        await say(pen, "start " + " ".join(f"w{number:x}" for number in range(MAX_CHARS // 6)) + " unfound")
        await say(pen, "x" * 5_000 + " behind")
        counts = [
            len((await store.search(SearchQuery(wanted))).hits)
            for wanted in ('"early bird"', "worm", '"late worm"', "start", "unfound", "behind", "x" * 900)
        ]
        assert counts == [1, 1, 0, 1, 0, 1, 1]
    finally:
        await store.close()
