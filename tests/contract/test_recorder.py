"""The recorder on every store: durable before shown, folded in time, refused when superseded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clew.config import SavePolicy
from clew.errors import IllegalChunk, SessionNotFound, StaleEpoch
from clew.ids import Mint
from clew.session.acquire.recovery import fold_streams
from clew.session.history.check import check
from clew.session.turn.recorder import Recorder
from clew.store.base import Store
from clew.store.commit_batcher import Stream
from clew.store.unit import Committed, DeleteSession, SetEpoch, SetTurn, Unit
from clew.testing.chunks import approval, data, reasoning, reply, step, text, tool_call, tool_denied, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.turn_state import OPEN
from tests.rig.streams import random_stream
from tests.rounds import rounds


def folded(chunks: list[c.Chunk], message_id: str) -> list[dict[str, Any]]:
    fold = Fold(message_id)
    for chunk in chunks:
        fold.apply(chunk)
    return fold.parts


async def stored_parts(store: Store, session_id: str, message_id: str) -> list[dict[str, Any]]:
    row = await store.find_message(session_id, message_id)
    return [part.data for part in row.parts] if row else []


def under_way(recorder: Recorder) -> bool:
    return recorder._inflight is not None


@pytest.mark.rule("SV-3")
async def test_a_chunk_is_shown_only_after_it_is_durable(store: Store, scribe: Scribe) -> None:
    """Whenever something is shown, a reader of the store finds it there; nothing is shown twice or out of order."""
    if not store.capabilities.chunk_durable:
        pytest.skip("this store says that it does not keep every chunk")
    opened = await scribe.prompt("hello")
    checks: list[asyncio.Task[bool]] = []
    shown: list[c.Chunk] = []

    async def is_there(message_id: str, expected: list[dict[str, Any]]) -> bool:
        from clew.transcript.fold_part import continues

        return continues(await stored_parts(store, scribe.session_id, message_id), expected)

    def on_shown(chunks: Any) -> None:
        shown.extend(chunks)
        expected = folded(shown, recorder.message.id)
        checks.append(asyncio.get_running_loop().create_task(is_there(recorder.message.id, expected)))

    base = opened.recorder()
    recorder = Recorder(
        store,
        base.message,
        turn_id=opened.id,
        epoch=opened.epoch,
        mint=scribe.mint,
        clock=scribe.clock,
        on_shown=on_shown,
    )
    stream = reply(step(reasoning("let me think about it"), text("hello there, you")), id=recorder.message.id)
    for chunk in stream:
        before = len(shown)
        recorder.write(chunk)
        assert len(shown) == before, "write must not show"
        await recorder.flush()
        assert shown == stream[: len(shown)]
    await recorder.close(*opened.settling())
    assert shown == stream
    assert all(await asyncio.gather(*checks))
    assert len(checks) > 10
    assert await check(store) == []


@pytest.mark.rule("SV-2")
async def test_the_assistant_row_comes_with_the_first_chunk(store: Store, scribe: Scribe) -> None:
    """Not before it; parts are upserted in place, a tool call stays one row through all its states."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    mid = recorder.message.id
    assert await store.find_message(scribe.session_id, mid) is None
    states = []
    chunks = [*tool_call("bash", {"cmd": "ls"}, id="c1"), *approval(id="a1", call="c1")]
    for chunk in chunks:
        recorder.write(chunk)
        await recorder.flush()
        row = await store.find_message(scribe.session_id, mid)
        assert row is not None
        assert len(row.parts) == 1
        states.append(row.parts[0].tool_state)
    assert states == [*["input-streaming"] * (len(chunks) - 2), "input-available", "approval-requested"]
    line = await store.load_line(scribe.session_id)
    assert [message.id for message in line.turns[-1].messages] == [opened.user.id, mid]


@pytest.mark.rule("SV-2")
async def test_a_transition_outside_the_table_is_refused_and_changes_nothing(store: Store, scribe: Scribe) -> None:
    """The stream can go on after it."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    mid = recorder.message.id
    for chunk in [*tool_call("bash", {"cmd": "ls"}, id="c1"), *tool_output("a", call="c1")]:
        recorder.write(chunk)
    await recorder.flush()
    before = await stored_parts(store, scribe.session_id, mid)
    for bad in (
        *tool_output("b", call="c1"),
        *tool_denied(call="c1"),
        *approval(call="c1"),
        c.TextDelta(id="x", delta="y"),
    ):
        with pytest.raises(IllegalChunk):
            recorder.write(bad)
    await recorder.flush()
    assert await stored_parts(store, scribe.session_id, mid) == before
    for chunk in text("and on"):
        recorder.write(chunk)
    await recorder.close(*opened.settling())
    assert [part["type"] for part in await stored_parts(store, scribe.session_id, mid)] == ["tool-bash", "text"]
    assert await check(store) == []


async def test_a_superseded_run_cannot_write(store: Store, scribe: Scribe) -> None:
    """Its unit is refused by epoch, nothing of it is shown, and every later call says why."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder(policy=SavePolicy(save_on="chunk"))
    mid = recorder.message.id
    for chunk in text("before ", open=True):
        recorder.write(chunk)
    await recorder.flush()
    shown = list(opened.shown)
    await scribe.commit(SetEpoch(opened.epoch + 1))
    recorder.write(c.TextDelta(id="t1", delta="after"))
    with pytest.raises(StaleEpoch):
        await recorder.flush()
    with pytest.raises(StaleEpoch):
        recorder.write(c.TextDelta(id="t1", delta="after"))
    with pytest.raises(StaleEpoch):
        await recorder.close(*opened.settling())
    assert opened.shown == shown
    assert await stored_parts(store, scribe.session_id, mid) == [
        {"type": "text", "text": "before ", "state": "streaming"}
    ]
    assert (await store.load_tree(scribe.session_id)).turns[opened.id].status in OPEN


async def test_a_session_deleted_under_a_run_ends_the_recording(store: Store, scribe: Scribe) -> None:
    """The recorder is told; nothing comes back from the dead."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    for chunk in text("some text", open=True):
        recorder.write(chunk)
    await recorder.flush()
    await scribe.commit(DeleteSession())
    recorder.write(c.TextDelta(id="t1", delta="more"))
    with pytest.raises(SessionNotFound):
        await recorder.flush()
    assert await store.pending_streams() == ()
    assert await check(store) == []


@pytest.mark.rule("SV-3")
@pytest.mark.parametrize("save_on", ["step", "turn"])
async def test_other_policies_show_at_once_and_store_at_their_boundary(
    store: Store, scribe: Scribe, save_on: Any
) -> None:
    """With the forced flushes off, nothing is stored before the end of the step or the turn."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder(policy=SavePolicy(save_on=save_on, save_buffer_size=0, save_buffer_ms=0))
    mid = recorder.message.id
    stream = reply(step(text("one two")), step(text("three", id="t2")), id=mid)
    stored: list[int] = []
    for number, chunk in enumerate(stream, start=1):
        recorder.write(chunk)
        # The end itself is not shown before what it ends is stored.
        is_end = isinstance(chunk, c.Finish) or (save_on == "step" and isinstance(chunk, c.FinishStep))
        assert opened.shown == stream[: number - is_end]
        await asyncio.sleep(0)
        if recorder._inflight is not None:
            await recorder._wait_for_unit()
        assert opened.shown == stream[:number]
        stored.append(len(await stored_parts(store, scribe.session_id, mid)))
    ends = [n for n, chunk in enumerate(stream) if isinstance(chunk, c.FinishStep)]
    first = ends[0] if save_on == "step" else len(stream) - 1
    assert stored[:first] == [0] * first
    assert stored[first] == (2 if save_on == "step" else 4)
    await recorder.close(*opened.settling())
    assert await stored_parts(store, scribe.session_id, mid) == folded(stream, mid)


@pytest.mark.rule("SV-3")
async def test_a_full_buffer_and_an_old_one_force_a_flush(store: Store, scribe: Scribe, clock: FakeClock) -> None:
    """64 KiB gathered, or 50 ms waited, whichever comes first."""
    assert SavePolicy() == SavePolicy(save_on=None, save_buffer_size=64 * 1024, save_buffer_ms=50)
    opened = await scribe.prompt("hello")
    recorder = opened.recorder(policy=SavePolicy(save_on="turn"))
    mid = recorder.message.id
    recorder.write(c.TextStart(id="t"))
    recorder.write(c.TextDelta(id="t", delta="old"))
    assert await stored_parts(store, scribe.session_id, mid) == []
    clock.advance(50)
    await recorder._wait_for_unit()
    assert await stored_parts(store, scribe.session_id, mid) == [{"type": "text", "text": "old", "state": "streaming"}]
    recorder.write(c.TextDelta(id="t", delta="x" * 40_000))
    assert recorder._inflight is None
    recorder.write(c.TextDelta(id="t", delta="y" * 40_000))
    await recorder._wait_for_unit()
    assert len((await stored_parts(store, scribe.session_id, mid))[0]["text"]) == 80_003


@pytest.mark.rule("SV-3")
@pytest.mark.parametrize("save_on", ["step", "turn"])
async def test_the_limit_of_waiting_holds_while_a_fold_is_still_to_come(
    store: Store, scribe: Scribe, clock: FakeClock, save_on: Any
) -> None:
    """What comes after a flush waits as long as what came before it, and a fold that is due later changes nothing."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder(policy=SavePolicy(save_on=save_on))
    mid = recorder.message.id
    stored: list[list[str]] = []
    for piece in ("one ", "two ", "three "):
        recorder.write(c.TextStart(id="t") if piece == "one " else c.TextDelta(id="t", delta=""))
        recorder.write(c.TextDelta(id="t", delta=piece))
        clock.advance(49)
        assert not under_way(recorder)
        clock.advance(1)
        assert under_way(recorder)
        await recorder._wait_for_unit()
        stored.append([part["text"] for part in await stored_parts(store, scribe.session_id, mid)])
    assert stored == [["one "], ["one two "], ["one two three "]]


@pytest.mark.rule("SV-3")
async def test_what_comes_while_a_unit_is_under_way_is_stored_within_its_own_limit(
    store: Store, scribe: Scribe, clock: FakeClock
) -> None:
    """Where the limit passes before that unit has ended, the next one goes with its end; no chunk has to follow."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder(policy=SavePolicy(save_on="turn"))
    mid = recorder.message.id
    recorder.write(c.TextStart(id="t"))
    clock.advance(50)
    assert under_way(recorder)
    recorder.write(c.TextDelta(id="t", delta="meanwhile"))
    clock.advance(50)
    await recorder._wait_for_unit()
    assert under_way(recorder)
    await recorder._wait_for_unit()
    assert [part["text"] for part in await stored_parts(store, scribe.session_id, mid)] == ["meanwhile"]


@pytest.mark.rule("SV-3")
async def test_a_limit_that_is_off_is_off_after_a_full_buffer_too(
    store: Store, scribe: Scribe, clock: FakeClock
) -> None:
    """Only the buffer's size, and the end of the turn, store anything then."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder(policy=SavePolicy(save_on="turn", save_buffer_size=1_000, save_buffer_ms=0))
    mid = recorder.message.id
    recorder.write(c.TextStart(id="t"))
    recorder.write(c.TextDelta(id="t", delta="x" * 1_000))
    await recorder._wait_for_unit()
    recorder.write(c.TextDelta(id="t", delta="late"))
    clock.advance(60_000)
    assert not under_way(recorder)
    assert [part["text"] for part in await stored_parts(store, scribe.session_id, mid)] == ["x" * 1_000]


async def test_a_paused_stream_is_folded_within_a_second(store: Store, scribe: Scribe, clock: FakeClock) -> None:
    """A reader that knows the parts alone sees a long text late by at most that; past 64 KB, by five seconds."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder(policy=SavePolicy(save_on="chunk"))
    for chunk in (c.TextStart(id="t"), c.TextDelta(id="t", delta="short")):
        recorder.write(chunk)
    await recorder.flush()
    assert len(await store.pending_streams()) == 1
    clock.advance(1_000)
    await recorder._wait_for_unit()
    assert await store.pending_streams() == ()
    recorder.write(c.TextDelta(id="t", delta="x" * 70_000))
    await recorder.flush()
    assert await store.pending_streams() == ()
    recorder.write(c.TextDelta(id="t", delta="tail"))
    await recorder.flush()
    clock.advance(1_500)
    assert len(await store.pending_streams()) == 1
    clock.advance(3_500)
    await recorder._wait_for_unit()
    assert await store.pending_streams() == ()
    await recorder.close(*opened.settling())
    assert await check(store) == []


async def test_transient_data_is_shown_in_its_place_and_never_stored(store: Store, scribe: Scribe) -> None:
    """Also when nothing else is under way."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    first, last = data("progress", 1, transient=True), data("progress", 2, transient=True)
    stream = [*first, *text("hello"), *last, *data("kept", {"x": 1}, id="k")]
    for chunk in stream:
        recorder.write(chunk)
    await recorder.flush()
    assert opened.shown == stream
    recorder.write(first[0])
    await recorder.flush()
    assert opened.shown == [*stream, *first]
    await recorder.close(*opened.settling())
    parts = await stored_parts(store, scribe.session_id, recorder.message.id)
    assert [part["type"] for part in parts] == ["text", "data-kept"]


async def test_a_consumer_that_throws_does_not_stop_the_recording(store: Store, scribe: Scribe) -> None:
    """Its error is logged; what it was shown is durable all the same."""
    opened = await scribe.prompt("hello")
    base = opened.recorder()

    def angry(chunks: Any) -> None:
        raise RuntimeError("no")

    recorder = Recorder(
        store, base.message, turn_id=opened.id, epoch=1, mint=scribe.mint, clock=scribe.clock, on_shown=angry
    )
    for chunk in text("hello"):
        recorder.write(chunk)
    await recorder.close(*opened.settling())
    assert await stored_parts(store, scribe.session_id, recorder.message.id) == [
        {"type": "text", "text": "hello", "state": "done"}
    ]


@pytest.mark.rule("ST-4")
async def test_what_a_model_sends_is_never_refused_for_its_characters(store: Store, scribe: Scribe) -> None:
    """Halves of neighbouring deltas are joined, the rest is replaced, and the part says so."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    for chunk in (
        c.TextStart(id="t"),
        c.TextDelta(id="t", delta="a\ud83e"),
        c.TextDelta(id="t", delta="\uddf5b\x00"),
        c.TextEnd(id="t"),
        c.ToolInputAvailable(tool_call_id="c", tool_name="x", input={"n": 2**70, "f": float("nan")}),
        c.ToolOutputAvailable(tool_call_id="c", output="\ud800"),
    ):
        recorder.write(chunk)
    await recorder.close(*opened.settling())
    flag = {"clew": {"replaced": True}}
    assert await stored_parts(store, scribe.session_id, recorder.message.id) == [
        {"type": "text", "text": "a🧵b\ufffd", "providerMetadata": flag, "state": "done"},
        {
            "type": "tool-x",
            "toolCallId": "c",
            "state": "output-available",
            "input": {"n": str(2**70), "f": "nan"},
            "output": "\ufffd",
            "callProviderMetadata": flag,
            "resultProviderMetadata": flag,
        },
    ]
    assert await check(store) == []


@pytest.mark.parametrize("seed", range(rounds(12)))
async def test_whatever_moment_a_stream_is_left_at_recovery_finds_all_of_it(
    store: Store, scribe: Scribe, mint: Mint, clock: FakeClock, seed: int
) -> None:
    """Streams of every kind, flushed at random and abandoned; reading before and after recovery is the same."""
    import random

    rng = random.Random(seed)
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    mid = recorder.message.id
    written: list[c.Chunk] = []
    for chunk in random_stream(seed, message_id=mid, size=60):
        recorder.write(chunk)
        written.append(chunk)
        if rng.random() < 0.5:
            await recorder.flush()
        if rng.random() < 0.05:
            clock.advance(1_000)
    await recorder.flush()
    recorder.abandon()
    expected = folded(written, mid)
    assert await stored_parts(store, scribe.session_id, mid) == expected
    before = await store.find_message(scribe.session_id, mid)
    await fold_streams(store, mint, clock.now_ms())
    after = await store.find_message(scribe.session_id, mid)
    assert await stored_parts(store, scribe.session_id, mid) == expected
    assert before is not None
    assert after is not None
    assert after.metadata == before.metadata
    assert await fold_streams(store, mint, clock.now_ms()) == 0
    assert await store.find_message(scribe.session_id, mid) == after
    assert await store.pending_streams() == ()
    assert await check(store, {mid: opened.shown}) == []


async def test_a_message_goes_on_in_a_second_run(store: Store, scribe: Scribe, mint: Mint) -> None:
    """As after an approval: same message, chunks numbered on, parts of the first run untouched."""
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    mid = recorder.message.id
    first = [c.Start(message_id=mid), c.StartStep(), *text("let me see"), *tool_call("bash", {"cmd": "ls"}, id="c1")]
    for chunk in first:
        recorder.write(chunk)
    await recorder.close(SetTurn(opened.id, "waiting"), seal=False)
    row = await store.find_message(scribe.session_id, mid)
    assert row is not None
    await scribe.commit(SetEpoch(2), SetTurn(opened.id, "running"))
    again = Recorder(
        store,
        row,
        turn_id=opened.id,
        epoch=2,
        mint=mint,
        clock=scribe.clock,
        stored=True,
        last_n=(await store.load_tail(row.session_id, mid)).last,
    )
    second = [c.Start(message_id=mid), *tool_output("a b", call="c1"), c.StartStep(), *text("done", id="t9")]
    for chunk in second:
        again.write(chunk)
        await again.flush()
    await again.close(*opened.settling())
    after = await store.find_message(scribe.session_id, mid)
    assert after is not None
    assert [part.data for part in after.parts] == folded([*first, *second], mid)
    assert [part.id for part in after.parts[:3]] == [part.id for part in row.parts]
    line = await store.load_line(scribe.session_id)
    assert [message.id for message in line.turns[-1].messages] == [opened.user.id, mid]
    assert await check(store) == []


async def test_streams_side_by_side_do_not_disturb_one_another(store: Store, clock: FakeClock, mint: Mint) -> None:
    """Thirty sessions streaming at once: each message is its own stream's fold, and the journal ends empty."""
    scribes = [await Scribe.create(store, clock=clock, mint=mint) for _ in range(30)]
    turns = [await scribe.prompt("go") for scribe in scribes]
    recorders = [turn.recorder() for turn in turns]
    streams = [random_stream(seed, message_id=r.message.id, size=40) for seed, r in enumerate(recorders, start=100)]
    for place in range(max(map(len, streams))):
        for recorder, stream in zip(recorders, streams, strict=True):
            if place < len(stream):
                await recorder.send(stream[place])
        if place % 7 == 0:
            await asyncio.gather(*(recorder.flush() for recorder in recorders))
    for recorder, turn in zip(recorders, turns, strict=True):
        await recorder.close(*turn.settling())
    for scribe, recorder, stream in zip(scribes, recorders, streams, strict=True):
        assert await stored_parts(store, scribe.session_id, recorder.message.id) == folded(stream, recorder.message.id)
    assert await store.pending_streams() == ()
    assert await check(store, {r.message.id: t.shown for r, t in zip(recorders, turns, strict=True)}) == []


@pytest.mark.rule("SV-3")
async def test_what_comes_meanwhile_goes_with_whoever_waits_to_commit(
    store: Store, scribe: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit less for each booking and each end; and one whose waiting is given up leaves nothing behind."""
    if not store.capabilities.chunk_durable:
        pytest.skip("this store says that it does not keep every chunk")
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    units: list[Unit] = []
    hand_in = store.hub.hand_in

    def noted(stream: Stream, unit: Unit) -> None:
        units.append(unit)
        hand_in(stream, unit)

    monkeypatch.setattr(store.hub, "hand_in", noted)

    def follow_up(first: c.Chunk, second: c.Chunk) -> None:
        recorder.write(first)
        recorder._flush()
        recorder.write(second)

    follow_up(c.Start(recorder.message.id), c.TextStart("t"))
    await recorder.flush_synced()
    assert [unit.sync for unit in units] == ["process", "power"]
    follow_up(c.TextDelta("t", "one "), c.TextDelta("t", "two"))
    gives_up = asyncio.ensure_future(recorder.flush_synced())
    await asyncio.sleep(0)
    gives_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gives_up
    await recorder.flush()
    await recorder.close(*opened.settling())
    parts = await stored_parts(store, scribe.session_id, recorder.message.id)
    assert [part["text"] for part in parts] == ["one two"]
    assert [chunk.delta for chunk in opened.shown if isinstance(chunk, c.TextDelta)] == ["one ", "two"]


async def test_what_rests_goes_with_the_next_commit_or_after_a_moment_by_itself(
    store: Store, scribe: Scribe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is about to commit need not wait for a unit of a few chunks before it; nothing waits for ever."""
    if store.capabilities.save_on != "chunk":
        pytest.skip("this store says that it does not keep every chunk")
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    units: list[Unit] = []
    hand_in = store.hub.hand_in

    def noted(stream: Stream, unit: Unit) -> None:
        units.append(unit)
        hand_in(stream, unit)

    monkeypatch.setattr(store.hub, "hand_in", noted)
    recorder.write(c.Start(recorder.message.id))
    recorder.write(c.TextStart("t"))
    recorder.defer_flush()
    await asyncio.sleep(0)
    recorder.write(c.TextDelta("t", "one "))
    await asyncio.sleep(0)
    assert units == []
    await recorder.flush_synced()
    assert [unit.sync for unit in units] == ["power"]
    recorder.write(c.TextDelta("t", "two"))
    recorder.defer_flush()
    await asyncio.sleep(0)
    assert len(units) == 1
    clock.advance(20)
    await asyncio.sleep(0)
    assert [unit.sync for unit in units] == ["power", "process"]
    await recorder.close(*opened.settling())
    parts = await stored_parts(store, scribe.session_id, recorder.message.id)
    assert [part["text"] for part in parts] == ["one two"]


@pytest.mark.rule("SV-3")
async def test_an_end_is_not_shown_with_a_unit_that_stores_no_chunk(
    store: Store, scribe: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``turn`` a write that cannot wait goes alone; an end that came meanwhile waits for its own unit."""
    opened = await scribe.prompt("hello")
    units: list[Unit] = []
    base = opened.recorder()
    shown: list[str] = []
    recorder = Recorder(
        store,
        base.message,
        turn_id=opened.id,
        epoch=opened.epoch,
        mint=scribe.mint,
        clock=scribe.clock,
        policy=SavePolicy(save_on="turn", save_buffer_size=0, save_buffer_ms=0),
        on_shown=lambda chunks: shown.extend(chunk.type for chunk in chunks),
    )
    monkeypatch.setattr(store.hub, "hand_in", lambda _, unit: units.append(unit))
    monkeypatch.setattr(store.hub, "wake", lambda stream: stream.gather())
    first, second = (SetTurn(opened.id, "running", data={"n": n}) for n in range(2))
    chunks = reply(step(text("hello")), id=recorder.message.id)
    for chunk in chunks[:-1]:
        recorder.write(chunk)
    recorder.add_to_next_unit(first)
    recorder.write(chunks[-1])
    recorder.add_to_next_unit(second)
    recorder.answered(Committed())
    assert [unit.writes for unit in units] == [(first,), (second,)]
    assert "finish" not in shown
    recorder.answered(Committed())
    assert (len(units), "finish" in shown) == (3, False)
    recorder.answered(Committed())
    assert shown[-1] == "finish"
    recorder.abandon()
