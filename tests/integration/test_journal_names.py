"""What rows of the journal call a stream: the end of its id where no other is called so. Nothing ever goes astray."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clew.errors import ClewError
from clew.ids import Mint
from clew.session.acquire.recovery import fold_streams
from clew.session.history.check import check
from clew.session.turn.recorder import Recorder
from clew.store import unit as u
from clew.store.sql.journal import Mark, mark_crc, row_crc, short_name
from clew.store.sql.postgres.writer import StreamJournal
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import OpenedTurn, Scribe
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow
from tests.integration.sqlite_files import path, raw, sqlite_store

__all__ = ["path"]

LOST = "its mark in the journal is lost, and its end with it"
DAMAGED = "its mark in the journal is damaged: what came after its stored parts is lost"
UNREADABLE = "a row of the journal cannot be decoded: this stream has lost its end"

Stream = tuple[OpenedTurn, Recorder]


def alike(clock: FakeClock) -> Mint:
    """Ids that all end the same."""
    return Mint(clock, lambda limit: 7)


async def begin(store: SqliteStore, mint: Mint, clock: FakeClock, said: str) -> Stream:
    opened = await (await Scribe.create(store, mint=mint, clock=clock)).prompt("go on")
    recorder = opened.recorder()
    for chunk in text(said, open=True):
        recorder.write(chunk)
    await recorder.flush()
    return opened, recorder


async def go_on(streams: list[Stream], *words: str) -> None:
    """Each word of every stream, in one commit."""
    for word in words:
        for _, recorder in streams:
            recorder.write(c.TextDelta("t1", word))
        await asyncio.gather(*(recorder.flush() for _, recorder in streams))


async def streaming(file: Path, *said: str, mint: Mint | None = None, more: tuple[str, ...] = ()) -> list[Stream]:
    """A store that was left while streams were under way, none of whose chunks is in a part. The last says ``more``."""
    store, clock = await open_sqlite(file), FakeClock()
    streams = [await begin(store, mint or Mint(clock), clock, one) for one in said]
    await go_on(streams, "and ", "on")
    await go_on(streams[-1:], *more)
    for _, recorder in streams:
        recorder.abandon()
    await store.close()
    return streams


def rows_of(file: Path) -> list[list[Any]]:
    with raw(file) as connection:
        return [json.loads(data) for (data,) in connection.execute("SELECT data FROM stream_journal ORDER BY n")]


def marks_of(file: Path) -> dict[str, Mark]:
    with raw(file) as connection:
        found = connection.execute("SELECT message_id, session_id, folded_through, crc FROM journal_marks")
        return {row[0]: Mark(*row) for row in found}


async def read(store: SqliteStore, stream: Stream) -> MessageRow:
    row = await store.find_message(stream[0].scribe.session_id, stream[1].message.id)
    assert row is not None
    return row


async def told(store: SqliteStore, streams: list[Stream]) -> list[tuple[list[str], str | None]]:
    """What each message says, and what is wrong with it."""
    rows = [await read(store, stream) for stream in streams]
    return [(row.texts, row.damage) for row in rows]


def test_a_short_name_is_of_ids_that_clew_has_made_and_looks_like_none() -> None:
    """Whoever else has made it may have made another that ends the same."""
    assert short_name("msg_0a9602350004rklEc9K5n87VY7") == "~K5n87VY7"
    assert [short_name(id_) for id_ in ("msg", "K5n87VY7", "ses_0a9602350004rklEc9K5n87VY7")] == [None, None, None]


def test_a_mark_says_which_name_its_stream_goes_by() -> None:
    """And nothing when it is damaged; one of an older file goes by the whole id."""
    id_ = "msg_0a9602350004rklEc9K5n87VY7"
    crcs = [None, mark_crc(id_, 4), mark_crc(id_, 4, id_), mark_crc(id_, 4, "~K5n87VY7"), 1, mark_crc(id_, 5)]
    assert [Mark(id_, "ses", 4, crc).name for crc in crcs] == [id_, id_, id_, "~K5n87VY7", None, None]


async def test_rows_name_a_stream_by_the_end_of_its_id_and_hold_plain_words_without_their_fields(path: Path) -> None:
    """Another kind of chunk stands in them as it does on the wire; the mark is one of a short name."""
    [(_, recorder)] = await streaming(path, "so ")
    id_, name = recorder.message.id, short_name(recorder.message.id)
    assert rows_of(path) == [
        [[name, 1, 0, {"type": "text-start", "id": "t1"}], [name, 2, 0, "t1", "so "]],
        [[name, 3, 0, "t1", "and "]],
        [[name, 4, 0, "t1", "on"]],
    ]
    assert {id_: mark.name for id_, mark in marks_of(path).items()} == {id_: name}


async def test_streams_that_end_the_same_are_told_apart_by_everybody(path: Path) -> None:
    """The first goes by the end, the others by their whole ids: beside one another, elsewhere, and after a restart."""
    store, clock = await open_sqlite(path), FakeClock()
    mint = alike(clock)
    streams = [await begin(store, mint, clock, one) for one in ("one ", "two ", "three ")]
    await go_on(streams, "and ", "on")
    ids = [recorder.message.id for _, recorder in streams]
    assert {id_[-14:] for id_ in ids} == {ids[0][-14:]}
    assert {entry[0] for row in rows_of(path) for entry in row} == {short_name(ids[0]), ids[1], ids[2]}
    wanted: list[tuple[list[str], str | None]] = [([f"{n} and on"], None) for n in ("one", "two", "three")]
    async with sqlite_store(path, read_only=True) as reader:
        assert (await told(store, streams), await told(reader, streams)) == (wanted, wanted)
        assert await check(reader) == []
    for _, recorder in streams:
        recorder.abandon()
    await store.close()
    async with sqlite_store(path) as store:
        assert await told(store, streams) == wanted
        assert await check(store) == []
    assert (rows_of(path), marks_of(path)) == ([], {})


async def test_a_name_is_free_again_when_no_row_holds_it(path: Path) -> None:
    """Streams one after the other go by the same end, and a second one at the same time does not."""
    store, clock = await open_sqlite(path), FakeClock()
    mint = alike(clock)
    names = []
    for _ in range(2):
        streams = [await begin(store, mint, clock, "so ") for _ in range(2)]
        names.append([mark.name for _, mark in sorted(marks_of(path).items())])
        for opened, recorder in streams:
            await recorder.close(*opened.settling())
        assert names[-1] == [short_name(streams[0][1].message.id), streams[1][1].message.id]
        assert rows_of(path) == []
    await store.close()


async def test_a_unit_that_fails_does_not_change_what_streams_are_called(path: Path) -> None:
    """The transaction is rolled back and the book read again; both go on as they were called."""
    store, clock = await open_sqlite(path), FakeClock()
    mint = alike(clock)
    streams = [await begin(store, mint, clock, one) for one in ("one ", "two ")]
    before = {entry[0] for row in rows_of(path) for entry in row}
    failing = u.Unit(streams[0][0].scribe.session_id, (u.SetTurn(Mint().turn(), "failed"),))
    with pytest.raises(ClewError):
        await store.submit(failing)
    await go_on(streams, "and ", "on")
    assert {entry[0] for row in rows_of(path) for entry in row} == before
    async with sqlite_store(path, read_only=True) as reader:
        assert await told(reader, streams) == [(["one and on"], None), (["two and on"], None)]
    for _, recorder in streams:
        recorder.abandon()
    await store.close()


@pytest.mark.parametrize("gone", [0, 1])
async def test_a_session_that_goes_takes_its_chunks_along_and_none_of_those_that_end_the_same(
    path: Path, gone: int
) -> None:
    """Whichever of the two goes by the end alone."""
    streams = await streaming(path, "one ", "two ", mint=alike(FakeClock()))
    shared = [len({entry[0] for entry in row}) for row in rows_of(path)]
    assert shared[-2:] == [2, 2]
    store = await open_sqlite(path)
    await store.commit(u.Unit(streams[gone][0].scribe.session_id, (u.DeleteSession(),)))
    left = streams[1 - gone]
    names = {str(short_name(left[1].message.id)), left[1].message.id}
    [kept] = marks_of(path).values()
    assert kept.message_id == left[1].message.id
    assert {entry[0] for row in rows_of(path) for entry in row} == {kept.name} <= names
    assert await told(store, [left]) == [([f"{('one', 'two')[1 - gone]} and on"], None)]
    await store.close()


# Rows of older versions


@pytest.mark.parametrize("crc", [True, False])
async def test_a_row_of_an_older_version_is_read_and_recovered(path: Path, crc: bool) -> None:
    """Whole ids, and every chunk as it is on the wire; those before version 11 have no checksums."""
    streams = await streaming(path, "one ", "two ")
    by_name = {mark.name: id_ for id_, mark in marks_of(path).items()}
    with raw(path) as connection:
        for n, data in connection.execute("SELECT n, data FROM stream_journal").fetchall():
            entries = [(by_name[name], at, part, chunk) for name, at, part, chunk in c.decode_rows(data)]
            older = c.encode_rows(entries, in_full=True)
            values = (older.decode(), row_crc(n, older) if crc else None, n)
            connection.execute("UPDATE stream_journal SET data = ?, crc = ? WHERE n = ?", values)
        for mark in marks_of(path).values():
            older_crc = mark_crc(mark.message_id, mark.folded_through) if crc else None
            connection.execute("UPDATE journal_marks SET crc = ? WHERE message_id = ?", (older_crc, mark.message_id))
    last = [
        [streams[0][1].message.id, 4, 0, {"type": "text-delta", "id": "t1", "delta": "on"}],
        [streams[1][1].message.id, 4, 0, {"type": "text-delta", "id": "t1", "delta": "on"}],
    ]
    assert rows_of(path)[-1] == last
    wanted: list[tuple[list[str], str | None]] = [(["one and on"], None), (["two and on"], None)]
    async with sqlite_store(path, read_only=True) as store:
        assert (await told(store, streams), await check(store)) == (wanted, [])
    async with sqlite_store(path) as store:
        assert (await told(store, streams), await check(store)) == (wanted, [])
    assert (rows_of(path), marks_of(path)) == ([], {})


class Ran:
    """Takes statements down instead of running them."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def run(self, name: str, params: dict[str, Any]) -> int:
        self.rows.append(json.loads(params["data"]))
        return 1


def test_where_an_older_clew_may_serve_the_same_database_rows_are_written_as_it_reads_them() -> None:
    """In PostgreSQL two versions run side by side, and take over one another's sessions."""
    ran = Ran()
    journal = StreamJournal(ran)  # type: ignore[arg-type]
    journal.accept("ses", "msg_0a9602350004rklEc9K5n87VY7", [u.JournalEntry(1, 0, c.TextDelta("t1", "so "))])
    journal.flush()
    delta = {"type": "text-delta", "id": "t1", "delta": "so "}
    assert ran.rows == [[["msg_0a9602350004rklEc9K5n87VY7", 1, 0, delta]]]


# Damage


@pytest.mark.rule("ST-14")
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("ends", ["the same", "otherwise"])
async def test_a_stream_whose_mark_is_lost_is_found_by_its_end_and_says_so(path: Path, lost: int, ends: str) -> None:
    """Another that ends the same and has its mark is whole, and was put nothing that is not its own."""
    mint = alike(FakeClock()) if ends == "the same" else None
    streams = await streaming(path, "one ", "two ", mint=mint)
    message_id = streams[lost][1].message.id
    with raw(path) as connection:
        connection.execute("DELETE FROM journal_marks WHERE message_id = ?", (message_id,))
    async with sqlite_store(path, read_only=True) as store:
        no_mark = "the journal holds a stream that has no mark"
        assert (no_mark, message_id) in [(one.what, one.id) for one in await check(store)]
    async with sqlite_store(path) as store:
        wanted: list[tuple[list[str], str | None]] = [(["one and on"], None), (["two and on"], None)]
        wanted[lost] = ([], LOST)
        assert await told(store, streams) == wanted
        assert [(one.what, one.id) for one in await check(store)] == [(LOST, message_id)]
    assert (rows_of(path), marks_of(path)) == ([], {})


@pytest.mark.rule("ST-14")
@pytest.mark.parametrize(
    "change",
    [
        "message_id = 'msg_f' || substr(message_id, 6)",
        "message_id = substr(message_id, 1, 29) || '-'",
        "message_id = substr(message_id, 1, 29) || char(unicode(substr(message_id, 30)) + 1)",
        "folded_through = folded_through + 1",
        "folded_through = 'x'",
        "message_id = CAST(message_id AS BLOB)",
        "crc = crc + 1",
    ],
)
@pytest.mark.parametrize("hit", [0, 1])
async def test_a_damaged_mark_leads_to_its_message_whatever_of_it_was_hit(path: Path, change: str, hit: int) -> None:
    """Its stream goes by its end or, being the second, by its whole id; the other one is whole."""
    streams = await streaming(path, "one ", "two ", mint=alike(FakeClock()))
    message_id = streams[hit][1].message.id
    with raw(path) as connection:
        connection.execute(f"UPDATE journal_marks SET {change} WHERE message_id = ?", (message_id,))
    async with sqlite_store(path) as store:
        wanted: list[tuple[list[str], str | None]] = [(["one and on"], None), (["two and on"], None)]
        wanted[hit] = ([], LOST if change.startswith("message_id") else DAMAGED)
        assert await told(store, streams) == wanted
        assert (wanted[hit][1], message_id) in [(one.what, one.id) for one in await check(store)]
    assert rows_of(path) == []


@pytest.mark.rule("ST-14")
async def test_a_mark_that_lost_its_checksum_leads_to_its_message_too(path: Path) -> None:
    """Older versions left none, and called streams by whole ids: one that goes by its end may have lost it."""
    streams = await streaming(path, "one ", "two ", mint=alike(FakeClock()))
    with raw(path) as connection:
        connection.execute("UPDATE journal_marks SET crc = NULL")
    async with sqlite_store(path) as store:
        assert await told(store, streams) == [([], DAMAGED), (["two and on"], None)]
        named = [(one.what, one.id) for one in await check(store)]
        assert named == [(DAMAGED, streams[0][1].message.id)]
    assert rows_of(path) == []


@pytest.mark.rule("ST-14")
async def test_a_name_that_was_changed_into_that_of_another_stream_puts_nothing_there(path: Path) -> None:
    """The checksum of the row tells, whose ever the name is now."""
    streams = await streaming(path, "one ", "two ")
    one, two = (str(short_name(recorder.message.id)) for _, recorder in streams)
    with raw(path) as connection:
        found = connection.execute("SELECT n, data FROM stream_journal ORDER BY n DESC LIMIT 1").fetchall()
        [(n, data)] = found
        connection.execute("UPDATE stream_journal SET data = ? WHERE n = ?", (data.replace(one, two), n))
    maybe = UNREADABLE.replace("has lost", "may have lost")
    async with sqlite_store(path) as store:
        assert await told(store, streams) == [(["one and "], maybe), (["two and "], maybe)]
    assert rows_of(path) == []


@pytest.mark.rule("ST-14")
async def test_a_name_that_nobody_has_any_more_is_not_given_to_a_stream_that_ends_the_same(path: Path) -> None:
    """Mark and message are both lost: what the rows hold of it stays named, and is put to no other."""
    [(opened, _)] = await streaming(path, "one ", mint=alike(FakeClock()))
    with raw(path) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM journal_marks")
        connection.execute("DELETE FROM chat_sessions WHERE id = ?", (opened.scribe.session_id,))
    before = rows_of(path)
    async with sqlite_store(path) as store:
        clock = FakeClock(FakeClock().now_ms() + 1_000)
        stream = await begin(store, alike(clock), clock, "two ")
        assert {entry[0] for entry in rows_of(path)[-1]} == {stream[1].message.id}
        no_mark = "the journal holds a stream that has no mark"
        name = str(short_name(stream[1].message.id))
        assert [(one.what, one.id) for one in await check(store)] == [(no_mark, name)]
        async with sqlite_store(path, read_only=True) as reader:
            assert await told(reader, [stream]) == [(["two "], None)]
        stream[1].abandon()
    async with sqlite_store(path) as store:
        assert await told(store, [stream]) == [(["two "], None)]
    assert rows_of(path)[: len(before)] == before


@pytest.mark.rule("ST-14")
@pytest.mark.parametrize("hit", [0, 1])
async def test_a_recovery_that_is_cut_after_a_damaged_stream_leaves_no_row_behind_for_good(
    path: Path, hit: int
) -> None:
    """Rows wait for another stream then; when that is folded they go, since the mark says again whose name it is."""
    streams = await streaming(path, "one ", "two ", mint=alike(FakeClock()), more=("!",))
    message_id, session_id = streams[hit][1].message.id, streams[hit][0].scribe.session_id
    name = marks_of(path)[message_id].name
    with raw(path) as connection:
        connection.execute("UPDATE journal_marks SET crc = crc + 1 WHERE message_id = ?", (message_id,))
    store = await open_sqlite(path)
    [pending] = await store.pending_streams(session_id)
    assert (pending.entries, pending.last, pending.damage) == ((), 4 + hit, DAMAGED)
    assert await fold_streams(store, Mint(), 1, session_id) == 1
    await store.close()
    assert (len(rows_of(path)[-2]), marks_of(path)[message_id].name) == (2, name)
    wanted: list[tuple[list[str], str | None]] = [(["one and on"], None), (["two and on!"], None)]
    wanted[hit] = ([], DAMAGED)
    async with sqlite_store(path) as store:
        assert await told(store, streams) == wanted
        assert [one.id for one in await check(store)] == [message_id]
    assert (rows_of(path), marks_of(path)) == ([], {})
