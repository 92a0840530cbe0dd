"""The journal of streams under way: each reader goes through his own session's, and finds what the file says."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clew.errors import ClewError
from clew.ids import Mint
from clew.session.turn.recorder import Recorder
from clew.store import unit as u
from clew.store.base import PendingStream
from clew.store.sql import journal, tails
from clew.store.sql.journal import Mark, Tail, mark_crc
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.sql.tails import Tails
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import OpenedTurn, Scribe
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow
from tests.rounds import rounds


@contextlib.asynccontextmanager
async def two_of(path: Path) -> AsyncIterator[tuple[SqliteStore, SqliteStore]]:
    """The owner of a store, and a reader that has nothing but the file."""
    owner = await open_sqlite(path)
    reader = await open_sqlite(path, SqliteOptions(read_only=True))
    yield owner, reader
    await owner.close()
    await reader.close()


async def begin(store: SqliteStore, mint: Mint, clock: FakeClock) -> tuple[OpenedTurn, Recorder]:
    opened = await (await Scribe.create(store, mint=mint, clock=clock)).prompt("go on")
    recorder = opened.recorder()
    for chunk in text("so ", open=True):
        recorder.write(chunk)
    await recorder.flush()
    return opened, recorder


async def look(store: SqliteStore, session_id: str) -> tuple[tuple[MessageRow, ...], tuple[PendingStream, ...]]:
    return await store.load_messages(session_id), await store.pending_streams(session_id)


class Decoded:
    """How many rows of the journal were gone through, and how many chunks were decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.chunks = 0
        split, parse = c.split_rows, c.parse_row

        def split_rows(data: bytes | str) -> list[c.EncodedRow]:
            self.rows += 1
            return split(data)

        def parse_row(row: c.EncodedRow) -> c.Chunk:
            self.chunks += 1
            return parse(row)

        monkeypatch.setattr(journal, "split_rows", split_rows)
        monkeypatch.setattr(journal, "parse_row", parse_row)


@pytest.mark.parametrize("others", [0, 3, 30])
async def test_reading_a_session_that_streams_decodes_its_own_journal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """The owner has it in memory and goes through no row; whoever has only the file decodes no chunk of another one."""
    async with two_of(tmp_path / "store.db") as (owner, reader):
        mint, clock = Mint(), FakeClock()
        streams = [await begin(owner, mint, clock) for _ in range(others + 1)]
        for n in range(3):
            for _, recorder in streams:
                recorder.write(c.TextDelta("t1", f"{n} "))
            await asyncio.gather(*(recorder.flush() for _, recorder in streams))
        session_id = streams[0][0].scribe.session_id
        decoded = Decoded(monkeypatch)
        mine = await look(owner, session_id)
        assert (decoded.rows, decoded.chunks) == (0, 0)
        assert await look(reader, session_id) == mine
        (stream,) = mine[1]
        assert decoded.chunks == 2 * len(stream.entries)
        assert mine[0][-1].parts[0].data["text"] == "so 0 1 2 "


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(6)))
async def test_what_is_remembered_of_streams_is_what_the_file_says(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams that begin, grow, fold and end in any order, sessions that go, units that fail, and other programs."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        monkeypatch.setattr(tails, "MAX_BYTES", 1_000)
    path = tmp_path / "store.db"
    async with two_of(path) as (owner, reader):
        mint, clock = Mint(), FakeClock()
        streams = [await begin(owner, mint, clock) for _ in range(3)]
        gone: list[str] = []
        for _ in range(60):
            opened, recorder = chance.choice(streams)
            match chance.choice(
                ["write", "write", "write", "flush", "wait", "end", "begin", "delete", "fail", "other"]
            ):
                case "write":
                    recorder.write(c.TextDelta("t1", "x" * chance.randrange(1, 400)))
                case "flush":
                    await recorder.flush()
                case "wait":
                    clock.advance(400)
                case "end" if len(streams) > 1:
                    await recorder.close(*opened.settling())
                    streams.remove((opened, recorder))
                case "begin" if len(streams) < 6:
                    streams.append(await begin(owner, mint, clock))
                case "delete" if len(streams) > 1:
                    recorder.abandon()
                    await owner.commit(u.Unit(opened.scribe.session_id, (u.DeleteSession(),)))
                    streams.remove((opened, recorder))
                    gone.append(opened.scribe.session_id)
                case "fail":
                    failing = u.Unit(opened.scribe.session_id, (u.SetTurn(mint.turn(), "failed"),))
                    with pytest.raises(ClewError):
                        await asyncio.gather(recorder.flush(), owner.submit(failing))
                case "other":
                    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as program:
                        program.execute("UPDATE chat_sessions SET archived_at = NULL")
            if chance.random() < 0.3:
                # While others go on: what two states say cannot be compared, but both must read.
                await asyncio.gather(*(look(owner, one.scribe.session_id) for one, _ in streams))
            if chance.random() < 0.5:
                await asyncio.gather(*(one.flush() for _, one in streams))
                for session_id in [*(one.scribe.session_id for one, _ in streams), *gone]:
                    assert await look(owner, session_id) == await look(reader, session_id)
        for _, recorder in streams:
            recorder.abandon()


@pytest.mark.slow
async def test_what_a_viewer_was_shown_is_found_by_every_read_from_then_on(tmp_path: Path) -> None:
    """Reads beside commits and folds: a tail is never shorter than what had been acknowledged when the read began."""
    async with two_of(tmp_path / "store.db") as (owner, _):
        mint, clock = Mint(), FakeClock()
        opened, recorder = await begin(owner, mint, clock)
        over = False

        async def read() -> None:
            while not over:
                shown = "".join(chunk.delta for chunk in opened.shown if isinstance(chunk, c.TextDelta))
                row = await owner.find_message(opened.scribe.session_id, recorder.message.id)
                assert row is not None
                assert row.parts[0].data["text"].startswith(shown)

        readers = [asyncio.get_running_loop().create_task(read()) for _ in range(4)]
        for n in range(150):
            recorder.write(c.TextDelta("t1", f"{n} "))
            clock.advance(40)
            await recorder.flush()
        over = True
        await asyncio.gather(*readers)


def entries(first: int, last: int) -> list[u.JournalEntry]:
    return [u.JournalEntry(n, 0, c.TextDelta("t1", str(n))) for n in range(first, last + 1)]


def mark(through: int) -> Mark:
    return Mark("msg", "ses", through, mark_crc("msg", through))


def test_a_reader_is_told_what_his_own_state_holds_and_no_more() -> None:
    """Entries are noted before their commit; a fold that his state does not hold makes it unknown, as damage does."""
    known = Tails()
    known.note(5, {"msg": entries(1, 2)}, {}, 100)
    known.note(6, {"msg": entries(3, 3)}, {}, 50)
    assert known.find(mark(0), 4) == Tail([], 0)
    assert known.find(mark(0), 5) == Tail(entries(1, 2), 2)
    assert known.find(mark(0), 6) == Tail(entries(1, 3), 3)
    assert known.find(mark(0)._replace(crc=1), 6) is None
    known.note(7, {}, {"msg": 2}, 0)
    assert known.find(mark(0), 6) is None
    assert known.find(mark(2), 7) == Tail(entries(3, 3), 3)
    known.clear()
    known.note(9, {"msg": entries(4, 4)}, {}, 50)
    assert known.find(mark(2), 9) is None
    assert known.find(mark(3), 9) == Tail(entries(4, 4), 4)


def test_what_is_remembered_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it all is forgotten, and a stream is known again from its next fold on."""
    monkeypatch.setattr(tails, "MAX_BYTES", 1_000)
    known = Tails()
    known.note(1, {"msg": entries(1, 4)}, {}, 900)
    assert known.find(mark(0), 1) == Tail(entries(1, 4), 4)
    known.note(2, {"msg": entries(5, 5)}, {}, 200)
    assert known.find(mark(0), 2) is None
    known.note(3, {"msg": entries(7, 7)}, {"msg": 6}, 200)
    assert known.find(mark(6), 3) == Tail(entries(7, 7), 7)
    known.forget(["msg"])
    assert known.find(mark(6), 3) is None
    assert known._bytes == 0


def test_rows_go_from_the_first_on_also_those_that_were_finished_before_a_restart() -> None:
    """One taken out between others would have their page written once more."""
    book = journal.JournalBook()
    for n in (1, 2, 3):
        book.accept("ses", "slow" if n == 1 else "msg", entries(n, n))
        assert book.row(n) is not None
        assert book.done() == ([], [])
    book.fold("msg", 3)
    assert book.done() == ([], [])
    again = journal.JournalBook()
    lines = [(n, c.encode_rows([("slow" if n == 1 else "msg", n, 0, c.TextDelta("t1", "x"))]), None) for n in (1, 2, 3)]
    again.load(lines, {"msg": mark(3), "slow": Mark("slow", "ses", 0, mark_crc("slow", 0))}, lambda ends: ())
    for one in (book, again):
        one.fold("slow", 1)
        ranges, unmarked = one.done()
        assert (ranges, sorted(unmarked)) == ([(1, 3)], ["msg", "slow"])


def test_a_stream_that_is_never_folded_does_not_keep_the_rows_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many of them they go from between."""
    monkeypatch.setattr(journal, "_MAX_FINISHED", 5)
    book = journal.JournalBook()
    gone: list[tuple[int, int]] = []
    for n in range(1, 20):
        book.accept("ses", "stuck" if n == 1 else "msg", entries(n, n))
        book.row(n)
        book.fold("msg", n - 1)
        gone += book.done()[0]
    assert gone == [(2, 7), (8, 13)]
