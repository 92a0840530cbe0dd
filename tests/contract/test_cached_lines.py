"""The line that a SQLite store keeps in memory is the one in the file, whatever was written to it, and by whom."""

from __future__ import annotations

import asyncio
import gc
import random
import sqlite3
import tempfile
import threading
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fill import add_sessions, fill_turns
from clew.errors import RowUndecodable
from clew.ids import Mint
from clew.session.context.context import load_counted
from clew.session.history.views import load_messages
from clew.store import unit as u
from clew.store.base import LineSlice, Store
from clew.store.sql import line_cache, messages, rows
from clew.store.sql.line_cache import LineCache
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.sql.sqlite.transactions import Transactions
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c
from clew.transcript.line import LineTurn
from clew.transcript.message import Message
from clew.transcript.pruned import pruned_through
from clew.transcript.turn import Turn
from clew.transcript.usage import Usage
from clew.transcript.view import find_compaction, model_view, model_view_at
from tests.contract.test_random_histories import ACTIONS, History
from tests.rounds import rounds


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = await open_sqlite(path)
    try:
        yield store
    finally:
        await store.close()


def lines_of(store: SqliteStore) -> LineCache:
    lines = store._readers.lines
    assert lines is not None
    return lines


async def kept_view(store: Store, session_id: str) -> LineSlice:
    view = await store.find_view(session_id, keep_damaged=True, kept=True)
    assert view is not None
    return view


def sent(view: LineSlice) -> list[Message]:
    return model_view_at(view.turns, find_compaction(view.turns), pruned_through(view.pruned))


async def compare(store: Store, session_id: str) -> None:
    """What is kept is what is read anew, and so is what a model is sent of it, and its last page that people see."""
    kept, read = await kept_view(store, session_id), await store.find_view(session_id, keep_damaged=True)
    assert read is not None
    assert kept == read
    assert sent(kept) == model_view(read.turns, read.pruned)
    counted = await load_counted(store, session_id)
    assert counted is not None
    noted = [entry for entry in counted.line.turns if "steps" in entry.memo]
    assert [entry.memo["steps"] for entry in noted] == [tuple(await store.load_steps(one.turn.id)) for one in noted]
    seen = await load_messages(store, session_id, "visible", None, None)
    for limit in (1, 4, 40):
        # Twice: the second time the loop reads it.
        pages = [await load_messages(store, session_id, "visible", limit, None) for _ in range(2)]
        assert pages == [seen[-limit:]] * 2


async def play(store: Store, seed: int, actions: list[str]) -> None:
    """Random operations; looked at after some of them, so that what is kept is any number of units behind."""
    chance = random.Random(seed)
    history = History(store, seed)
    await history.start()
    for action in actions:
        await history.run(action)
        for session_id in (history.scribe.session_id, *history.branches):
            if chance.random() < 0.6:
                await compare(store, session_id)
    await compare(store, history.scribe.session_id)


async def test_what_is_kept_of_a_random_history_is_what_is_stored(tmp_path: Path) -> None:
    """A few histories of every kind of operation; the many are drawn below."""
    for seed in range(3):
        async with opened(tmp_path / f"{seed}.db") as store:
            await play(store, seed, random.Random(seed).choices(ACTIONS, k=25))


async def test_steps_noted_with_turns_in_memory_are_those_that_are_there() -> None:
    """A store in memory hands out the same turns again as long as they and their messages are the same."""
    for seed in range(3):
        await play(MemoryStore(), seed, random.Random(seed).choices(ACTIONS, k=25))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_steps_of_a_turn_that_is_looked_at_as_it_goes_are_not_noted_too_soon(kind: str, tmp_path: Path) -> None:
    """Booked, over, and a second one: each look has what is stored then."""
    async with opened(tmp_path / "store.db") as sqlite:
        store: Store = sqlite if kind == "sqlite" else MemoryStore()
        scribe = await Scribe.create(store, clock=FakeClock(), mint=Mint(FakeClock()))
        turn = await scribe.prompt("go")
        recorder = turn.recorder()
        await recorder.send(c.Start(message_id=recorder.message.id))
        for index in range(2):
            await recorder.end_step(u.RecordStep(turn.step(recorder.message.id, Usage(10, 5))))
            await compare(store, scribe.session_id)
            await scribe.commit(u.FinishStep(turn.id, index, 77))
            await compare(store, scribe.session_id)
        await recorder.close(*turn.settling())
        await compare(store, scribe.session_id)


@pytest.mark.slow
@settings(max_examples=rounds(60))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from(ACTIONS), max_size=30))
async def test_what_is_kept_of_any_history_is_what_is_stored(seed: int, actions: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with opened(Path(folder) / "store.db") as store:
            await play(store, seed, actions)


async def test_reads_beside_writes_leave_nothing_old_behind(tmp_path: Path) -> None:
    """Each line is read while it is written to, by several at once; what is kept in the end is what is stored."""
    async with opened(tmp_path / "store.db") as store:
        histories = [History(store, seed) for seed in range(3)]
        for history in histories:
            await history.start()

        async def write(history: History) -> None:
            for action in random.Random(history.clock.now_ms()).choices(ACTIONS, k=12):
                await history.run(action)

        writing = asyncio.gather(*map(write, histories))
        while not writing.done():
            await asyncio.gather(*(kept_view(store, history.scribe.session_id) for history in histories))
        await writing
        for history in histories:
            await compare(store, history.scribe.session_id)


_PART = "(SELECT id FROM chat_parts WHERE session_id = :session_id ORDER BY abs(rowid * 7919 * :chance) % 101 LIMIT 1)"
OTHERS = (
    f"""UPDATE chat_parts SET data_json = '{{"type":"text","text":"changed"}}' WHERE id = {_PART}""",
    f"DELETE FROM chat_parts WHERE id = {_PART}",
    "UPDATE chat_messages SET updated_at = updated_at + 1 WHERE session_id = :session_id AND :chance < 0.5",
    "UPDATE chat_sessions SET updated_at = updated_at + 1 WHERE id = :session_id AND :chance IS NOT NULL",
)
"""What a program does that knows only the three shared tables."""


async def long_session(store: Store, turns: int) -> str:
    mint = Mint()
    session_id = await add_sessions(store, mint, 1, lambda _: {})
    await fill_turns(store, mint, session_id, range(turns))
    return session_id


@pytest.mark.rule("ST-13", "ST-14")
async def test_what_another_program_changes_is_read_again_and_damage_is_told(tmp_path: Path) -> None:
    """It knows nothing of seals, so what it has changed does not fit any more; nothing damaged is kept."""
    async with opened(tmp_path / "store.db") as store:
        session_id = await long_session(store, 5)
        await kept_view(store, session_id)
        whole = await store.load_line(session_id)
        part = whole.turns[1].messages[1].parts[0]
        for data in ('{"type":"text","text":"changed"}', rows.encode(part.data)):
            with closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
                other.execute("UPDATE chat_parts SET data_json = ? WHERE id = ?", (data, part.id))
            await compare(store, session_id)
            damage = (await kept_view(store, session_id)).turns[1].messages[1].damage
            assert (damage is not None, lines_of(store).bytes > 0) == (
                (True, False) if "changed" in data else (False, True)
            )


@pytest.mark.rule("ST-13")
@settings(max_examples=rounds(10))
@given(seed=st.integers(0, 10**6), actions=st.lists(st.sampled_from((*ACTIONS, *["other"] * 8)), max_size=25))
async def test_a_cached_line_is_what_is_stored_whichever_of_two_programs_wrote_last(
    seed: int, actions: list[str]
) -> None:
    """The other program changes, adds and removes parts; what is cached then equals a fresh read, damage included."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        async with opened(path) as store:
            history = History(store, seed)
            await history.start()
            session_id = history.scribe.session_id
            for action in actions:
                if action == "other":
                    with closing(sqlite3.connect(path, timeout=30)) as other, other:
                        other.execute(chance.choice(OTHERS), {"session_id": session_id, "chance": chance.random()})
                else:
                    with suppress(RowUndecodable):  # some actions refuse a damaged message
                        await history.run(action)
                if chance.random() < 0.6:
                    cached = await kept_view(store, session_id)
                    assert cached == await store.find_view(session_id, keep_damaged=True)


@pytest.mark.rule("ST-13")
async def test_what_another_program_commits_while_the_writer_waits_for_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the write lock; its commit is seen from then on, though the writer has not begun."""
    monkeypatch.setattr("clew.store.sql.inbox.MAX_ADOPTION_WAIT_S", 0.02)
    async with opened(tmp_path / "store.db") as store:
        session_id = await long_session(store, 5)
        before = await kept_view(store, session_id)
        part = (await store.load_line(session_id)).turns[1].messages[1].parts[0]
        begin, committed, read = Transactions.begin, threading.Event(), threading.Event()

        def wait_for_it(self: Transactions) -> None:
            if not committed.is_set():
                with closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
                    data = '{"type":"text","text":"changed"}'
                    other.execute("UPDATE chat_parts SET data_json = ? WHERE id = ?", (data, part.id))
                committed.set()
                read.wait(60)
            begin(self)

        monkeypatch.setattr(Transactions, "begin", wait_for_it)
        writing = store.submit(u.Unit(session_id, (u.PatchSession(metadata={"a": 1}),)))
        await asyncio.to_thread(committed.wait, 60)
        try:
            seen = await kept_view(store, session_id)
        finally:
            read.set()
        await writing
        told = [view.turns[1].messages[1].damage is not None for view in (before, seen)]
        assert told == [False, True]
        await compare(store, session_id)


async def test_only_the_newest_turns_of_a_kept_line_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows at 20 turns as at 200, and the rest are the very same values."""
    read: list[Any] = []
    loads = orjson.loads

    def count(data: bytes) -> Any:
        read.append(data)
        return loads(data)

    monkeypatch.setattr(messages, "orjson", SimpleNamespace(loads=count, JSONDecodeError=ValueError))
    counted: list[int] = []
    async with opened(tmp_path / "store.db") as store:
        for turns in (20, 200):
            session_id = await long_session(store, turns)
            before = await kept_view(store, session_id)
            scribe = Scribe(store, session_id, Mint(), FakeClock())
            turn = await scribe.prompt("And now?")
            read.clear()
            after = await kept_view(store, session_id)
            counted.append(len(read))
            assert [one is two for one, two in zip(before.turns, after.turns, strict=False)] == [True] * turns
            await scribe.commit(u.SetTurn(turn.id, "failed", settled_at=1))
            await compare(store, session_id)
    # The prompt's one part.
    assert counted == [1, 1]


async def test_lines_are_kept_up_to_a_number_of_bytes_and_the_one_used_longest_ago_goes(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        sessions = [await long_session(store, 10) for _ in range(3)]
        lines = lines_of(store)
        await kept_view(store, sessions[0])
        lines._max_bytes = lines.bytes * 2
        for session_id in (sessions[1], sessions[0], sessions[2]):
            await kept_view(store, session_id)
        assert (list(lines._lines), lines.bytes <= lines._max_bytes) == ([sessions[0], sessions[2]], True)
        long = await long_session(store, 30)
        await compare(store, long)
        assert (list(lines._lines), lines.bytes <= lines._max_bytes) == ([sessions[0], sessions[2]], True)


@pytest.mark.slow
async def test_a_kept_line_takes_no_more_than_it_is_counted_for(tmp_path: Path) -> None:
    """Counted as a model's request is made from it, with all that is noted in it on the way."""
    async with opened(tmp_path / "store.db") as store:
        session_id = await long_session(store, 300)
        tracemalloc.start()
        try:
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            for message in sent(await kept_view(store, session_id)):
                message.memo.update(extent=((None, None), tuple(range(1000, 1012))), digest="0" * 64, files=False)
            gc.collect()
            taken = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert taken <= lines_of(store).bytes <= 4 * taken


def slice_of(*ids: str) -> LineSlice:
    turns = [Turn(id=id_, session_id="s", parent_turn_id=None, created_at=0, status="completed") for id_ in ids]
    return LineSlice(tuple(LineTurn(turn, ()) for turn in turns), complete=True)


def test_a_line_is_given_only_to_who_sees_no_more_than_was_told() -> None:
    """The writer tells after its commit, and readers see that at once: between the two, everything is read."""
    lines = LineCache(lambda _: True)
    lines.forget(10)
    lines.keep("s", 10, slice_of("a", "b"), None)
    told = [lines.find("s", commit) is not None for commit in (9, 10, 11)]
    lines.committed(11, [u.Unit("s", (u.SetTurn("b", "failed"),)), u.Unit("t", ())])
    found = lines.find("s", 11)
    assert (told, found and found.untouched) == ([False, True, False], 1)


def test_what_is_touched_while_a_line_is_read_is_touched_still() -> None:
    """Whether something of it was kept before or not; an older reading never takes the place of a newer one."""
    lines = LineCache(lambda _: True)
    lines.forget(10)
    lines.committed(11, [u.Unit("new", (u.SetTurn("b", "failed"),))])
    lines.keep("new", 10, slice_of("a", "b"), None)
    lines.keep("old", 10, slice_of("a", "b"), None)
    lines.committed(12, [u.Unit("old", (u.SetTurn("a", "failed"),))])
    lines.committed(13, [u.Unit("old", (u.SetTurn("b", "failed"),))])
    lines.keep("old", 12, slice_of("a", "b"), lines.find("old", 13))
    lines.keep("old", 11, slice_of("c"), None)
    found = lines.find("old", 13)
    assert (lines.find("new", 13), found and (found.untouched, found.at)) == (None, (1, 12))


def test_nothing_is_kept_or_given_while_others_may_have_written() -> None:
    known = True
    lines = LineCache(lambda _: known)
    lines.forget(10)
    lines.keep("s", 10, slice_of("a"), None)
    known = False
    assert lines.find("s", 10) is None
    lines.keep("t", 10, slice_of("a"), None)
    known = True
    assert ([lines.find(id_, 10) is not None for id_ in ("s", "t")]) == [True, False]


def test_it_is_known_of_every_write_what_it_touches() -> None:
    """A write that is added is named here: one that is in no table makes the store forget the line."""
    known = {*line_cache._TOUCHED, u.MoveHead}
    forgets = {u.MoveTurn, u.InsertSession, u.DeleteSession, u.BeginDeletion, u.CopyLine}
    every = {kind for kind in vars(u).values() if isinstance(kind, type) and issubclass(kind, u.Write)}
    assert every - {u.Write, u.SharedWrite} - known == forgets
