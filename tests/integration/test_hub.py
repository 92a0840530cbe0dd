"""Many streams at once: one item and one wake-up for all that arrives together, and each ends by itself."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clew.errors import InternalError, StaleEpoch
from clew.ids import Mint
from clew.session.history.check import check
from clew.session.turn.recorder import Recorder
from clew.store import unit as u
from clew.store.commit_batcher import UNITS_PER_FOLD, Answered, CommitBatcher, Watched
from clew.store.sql.inbox import Inbox, Item
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.sql.sqlite.writer import ThreadedWriter
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import OpenedTurn, Scribe
from clew.transcript import chunk as c

LONG_MS = 600_000
"""A gap that nobody would wait out."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await open_sqlite(tmp_path / "store.db", SqliteOptions(gap_ms=0))
    yield store
    await store.close()


@pytest.fixture
def rested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that rests for the whole gap, however little it had to do."""
    monkeypatch.setattr("clew.store.sql.inbox.REST", 1e12)


@pytest.fixture
async def slow_store(tmp_path: Path, rested: None) -> AsyncIterator[SqliteStore]:
    store = await open_sqlite(tmp_path / "slow.db", SqliteOptions(gap_ms=LONG_MS))
    yield store
    await store.close()


async def begun(store: SqliteStore, count: int) -> list[tuple[OpenedTurn, Recorder]]:
    """Streams, each on a session of its own, whose text has begun."""
    clock, mint = FakeClock(), Mint()
    streams = []
    for _ in range(count):
        opened = await (await Scribe.create(store, mint=mint, clock=clock)).prompt("go on")
        streams.append((opened, opened.recorder()))
    for _, recorder in streams:
        for chunk in text("so ", open=True):
            recorder.write(chunk)
    await asyncio.gather(*(recorder.flush() for _, recorder in streams))
    return streams


def said(opened: OpenedTurn) -> str:
    return "".join(chunk.delta for chunk in opened.shown if isinstance(chunk, c.TextDelta))


async def shown_by(*recorders: Recorder) -> None:
    """Until all that was written is shown, without asking for it: whoever waits at a recorder makes it hurry."""
    while any(recorder._inflight or recorder._growing.has_chunks for recorder in recorders):  # noqa: ASYNC110
        await asyncio.sleep(0)


def inbox_of(store: SqliteStore) -> Inbox:
    assert isinstance(store._writer, ThreadedWriter)
    return store._writer._inbox


class Counted:
    """How often something was handed to the writer's thread, and how often it woke the event loop."""

    def __init__(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.items = self.wake_ups = 0
        inbox = inbox_of(store)
        queue, loop = inbox._queue, asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def put(item: Any) -> None:
            self.items += 1
            queue.put(item)

        def wake_up(*args: Any, **kwargs: Any) -> Any:
            self.wake_ups += 1
            return wake(*args, **kwargs)

        watched = SimpleNamespace(put=put, get=queue.get, get_nowait=queue.get_nowait, empty=queue.empty)
        monkeypatch.setattr(inbox, "_queue", watched)
        monkeypatch.setattr(loop, "call_soon_threadsafe", wake_up)


@pytest.mark.parametrize("count", [1, 5, 60])
async def test_what_all_streams_say_in_one_turn_of_the_loop_is_one_item_and_one_wake_up(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """However many they are, and however much each says; each viewer still gets his own."""
    streams = await begun(store, count)
    counted, commits = Counted(store, monkeypatch), store.commits
    for _, recorder in streams:
        recorder.write(c.TextDelta("t1", "far "))
        recorder.write(c.TextDelta("t1", "and on"))
    await shown_by(*(recorder for _, recorder in streams))
    assert (counted.items, counted.wake_ups, store.commits - commits) == (1, 1, 1)
    assert [said(opened) for opened, _ in streams] == ["so far and on"] * count


async def test_whoever_waits_for_his_chunk_shares_the_item_of_his_turn_too(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk acknowledged before the next: a round of all streams costs one hand-over."""
    streams = await begun(store, 20)
    counted, commits = Counted(store, monkeypatch), store.commits

    async def speak(recorder: Recorder) -> None:
        for n in range(5):
            recorder.write(c.TextDelta("t1", str(n)))
            await recorder.flush()

    await asyncio.gather(*(speak(recorder) for _, recorder in streams))
    assert (counted.items, counted.wake_ups, store.commits - commits) == (5, 5, 5)


@pytest.mark.rule("SV-3")
async def test_a_unit_that_is_refused_or_fails_ends_its_own_stream_alone(store: SqliteStore) -> None:
    """One stream was superseded, one names a turn that is not there: the others of the item are stored and shown."""
    streams = await begun(store, 5)
    (stale, _), (_, bad_recorder) = streams[1], streams[3]
    await stale.scribe.commit(u.SetEpoch(stale.epoch + 1))
    bad_recorder.add_to_next_unit(u.SetTurn("trn_none", "failed"))
    for _, recorder in streams:
        recorder.write(c.TextDelta("t1", "good"))
    outcomes = await asyncio.gather(*(recorder.flush() for _, recorder in streams), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [
        *(type(None), StaleEpoch, type(None)),
        *(InternalError, type(None)),
    ]
    assert [said(opened) for opened, _ in streams] == ["so good", "so ", "so good", "so ", "so good"]
    for opened, recorder in streams:
        row = await store.find_message(opened.scribe.session_id, recorder.message.id)
        assert row is not None
        assert row.parts[0].data["text"] == said(opened)
    assert await check(store) == []


async def test_under_load_chunks_that_nobody_waits_for_share_a_commit(slow_store: SqliteStore) -> None:
    """Each came in its own turn of the loop; a synced unit of another stream is not delayed and takes them along."""
    streams = await begun(slow_store, 10)
    commits = slow_store.commits
    for _, recorder in streams[1:]:
        recorder.write(c.TextDelta("t1", "late"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [said(opened) for opened, _ in streams] == ["so "] * 10
    streams[0][1].write(c.TextDelta("t1", "now"))
    await streams[0][1].flush_synced()
    assert slow_store.commits - commits == 1
    assert [said(opened) for opened, _ in streams] == ["so now", *["so late"] * 9]


async def test_nobody_who_waits_waits_for_the_gap(slow_store: SqliteStore) -> None:
    """A flush of what is on its way already, units of others, and the end of it all."""
    (opened, recorder), (_, other) = await begun(slow_store, 2)
    recorder.write(c.TextDelta("t1", "one "))
    other.write(c.TextDelta("t1", "one"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await recorder.flush()
    assert said(opened) == "so one "
    recorder.write(c.TextDelta("t1", "two"))
    await asyncio.sleep(0)
    await opened.scribe.commit(u.PatchSession(metadata={"a": 1}))
    await recorder.close(*opened.settling())
    assert said(opened) == "so one two"
    other.write(c.TextDelta("t1", "two"))


@pytest.mark.parametrize(("took", "rests"), [(0.0001, 0.0004), (0.2, 0.8), (1, 1)])
async def test_the_longer_a_commit_took_the_longer_the_writer_rests(
    took: float, rests: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few times as long, and no longer than it is told: who has little to do hardly rests."""
    inbox, now = Inbox(0, 1000), 100.0
    monkeypatch.setattr("clew.store.sql.inbox.time", SimpleNamespace(monotonic=lambda: now))
    inbox.add([u.Unit("ses_1", ())], lambda answers: None, awaited=True)
    inbox.take([], [])
    now += took
    inbox.add([u.Unit("ses_1", ())], lambda answers: None, awaited=True)
    inbox.take([], [])
    assert inbox._rest_s == pytest.approx(rests)


@pytest.mark.parametrize(("hand_overs", "rests"), [((4,), 2), ((1, 7), 2), ((1, 6), 0.4), ((1,) * 8, 0.4)])
async def test_where_units_come_in_ticks_the_writer_rests_for_more_than_one(
    hand_overs: tuple[int, ...], rests: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little it had to do: several come with each hand-over, and in less than a tick no more."""
    inbox, now = Inbox(0, 1000), 100.0
    monkeypatch.setattr("clew.store.sql.inbox.time", SimpleNamespace(monotonic=lambda: now))
    for count in hand_overs:
        inbox.add([u.Unit("ses_1", ())] * count, lambda answers: None, awaited=True)
    inbox.take([], [])
    now += 0.1
    inbox.add([u.Unit("ses_1", ())], lambda answers: None, awaited=True)
    inbox.take([], [])
    assert inbox._rest_s == pytest.approx(rests)


async def test_the_first_chunk_after_a_pause_is_not_delayed(tmp_path: Path, rested: None) -> None:
    """Nothing was committed for longer than the gap: there is nothing to keep it from."""
    store = await open_sqlite(tmp_path / "paused.db", SqliteOptions(gap_ms=LONG_MS))
    ((opened, recorder),) = await begun(store, 1)
    inbox_of(store)._last_take_at -= LONG_MS / 1000
    recorder.write(c.TextDelta("t1", "again"))
    await shown_by(recorder)
    assert said(opened) == "so again"
    await store.close()


async def test_units_commit_in_the_order_they_came_whichever_way(slow_store: SqliteStore) -> None:
    """What is submitted by itself between two items of the hub is written between them."""
    scribe = await Scribe.create(slow_store)
    last: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def unit(n: int) -> u.Unit:
        return u.Unit(scribe.session_id, (u.PatchSession(metadata={"n": n, f"n{n}": True}),))

    slow_store.submit_all([unit(1)], lambda answers: None, awaited=False)
    alone = slow_store.submit(unit(2))
    slow_store.submit_all([unit(3)], lambda answers: last.set_result(None), awaited=True)
    await asyncio.gather(alone, last)
    assert (await scribe.session()).metadata == {"n": 3, "n1": True, "n2": True, "n3": True}


async def test_what_is_kept_back_is_stored_when_the_store_is_closed(tmp_path: Path, rested: None) -> None:
    """Closing finishes what was handed over, however long the gap is."""
    store = await open_sqlite(tmp_path / "closed.db", SqliteOptions(gap_ms=LONG_MS))
    ((opened, recorder),) = await begun(store, 1)
    recorder.write(c.TextDelta("t1", "far"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await store.close()
    again = await open_sqlite(tmp_path / "closed.db", SqliteOptions(read_only=True))
    row = await again.find_message(opened.scribe.session_id, recorder.message.id)
    assert row is not None
    assert row.parts[0].data["text"] == "so far"
    await again.close()


async def test_who_fails_over_what_became_of_his_unit_keeps_nobody_from_hearing(slow_store: SqliteStore) -> None:
    """They are told in one call; so one who raises there would leave the others waiting for ever."""
    scribe = await Scribe.create(slow_store)
    last: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    unit = u.Unit(scribe.session_id, (u.PatchSession(metadata={"a": 1}),))

    def fail(answers: object) -> None:
        raise RuntimeError("not today")

    slow_store.submit_all([unit], fail, awaited=False)
    slow_store.submit_all([unit], lambda answers: last.set_result(None), awaited=True)
    await asyncio.wait_for(last, 60)


async def test_a_loop_that_ends_while_its_unit_is_written_takes_no_other_along(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may be written to from several loops, and one of them closed at any moment."""
    scribe = await Scribe.create(store)
    unit = u.Unit(scribe.session_id, (u.PatchSession(metadata={"a": 1}),))
    gone = asyncio.new_event_loop()
    gone.close()
    monkeypatch.setattr(gone, "is_closed", lambda: False)  # as it was when the writer asked
    inbox_of(store)._put(Item((unit,), None, gone, lambda outcomes: None, awaited=True), stays_open=False)
    assert await store.commit(unit) == u.Committed()


async def test_nothing_is_handed_over_behind_the_end(store: SqliteStore) -> None:
    """Closing comes from another thread: a unit is taken before it, or refused, and never left lying."""
    scribe = await Scribe.create(store)
    unit = u.Unit(scribe.session_id, (u.PatchSession(metadata={"a": 1}),))
    inbox = inbox_of(store)
    put, ended = inbox._queue.put, threading.Event()

    def end_first(item: Any) -> None:
        # Whoever closes now gets as far as he can before the item is in the queue.
        if isinstance(item, Item):
            closing.start()
            ended.wait(0.05)
        put(item)

    def end() -> None:
        inbox.close()
        ended.set()

    closing = threading.Thread(target=end)
    inbox._queue = SimpleNamespace(  # type: ignore[assignment]
        put=end_first, get=inbox._queue.get, get_nowait=inbox._queue.get_nowait, empty=inbox._queue.empty
    )
    assert await asyncio.wait_for(store.submit(unit), 60) == u.Committed()
    closing.join()


@pytest.mark.parametrize("name", ["submit", "submit_all"])
async def test_a_store_that_raises_instead_of_answering_ends_the_streams_of_that_item(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever it raises, as a store of somebody's own may; whoever waits is told."""
    store = MemoryStore()
    if name == "submit":  # a store that takes units one by one
        monkeypatch.setattr(store, "submit_all", functools.partial(Watched.submit_all, store))
    opened = await (await Scribe.create(store)).prompt("go on")

    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("not today")

    monkeypatch.setattr(store, name, fail)
    recorder = opened.recorder()
    for chunk in text("so ", open=True):
        recorder.write(chunk)
    with pytest.raises(RuntimeError, match="not today"):
        await asyncio.wait_for(recorder.flush(), 60)


async def test_folds_that_are_under_way_count_until_they_are_answered() -> None:
    """As long as the store has not begun with them they are written together, in however many turns of the loop."""
    handed: list[tuple[int, Answered]] = []
    hub = CommitBatcher(
        asyncio.get_running_loop(), lambda units, answered, *, awaited: handed.append((len(units), answered))
    )
    stream = SimpleNamespace(gather=lambda: None, answered=lambda answer: None)
    taken = []
    for size in (1, 1, UNITS_PER_FOLD - 2, 1):
        taken.append(hub.takes_fold())
        for _ in range(size):
            hub.hand_in(stream, u.Unit("s", ()))
        await asyncio.sleep(0)
    assert taken == [True, False, False, True]
    assert not hub.takes_fold()
    for size, answered in handed:
        for place in range(size):
            answered([(place, u.Committed())])
    assert hub.takes_fold()
