"""The live layer: replayed from the first part, followed to the end, and never in the run's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any

import pytest

from clew.errors import InternalError, ViewerLagged
from clew.live import stream as streams
from clew.live.base import Event, Signal, Status
from clew.live.local import MAX_ENDED, MAX_ENDED_LOG, MAX_EVENTS, LocalLive
from clew.live.stream import LocalStream
from clew.testing.chunks import reply, step, text, tool_call, tool_output
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from tests.rig.streams import random_stream, show
from tests.rounds import rounds


async def taken(follower: AsyncIterator[Sequence[c.Chunk]]) -> list[c.Chunk]:
    return [chunk async for batch in follower for chunk in batch]


def folded(chunks: Sequence[c.Chunk], message_id: str) -> list[dict[str, Any]]:
    fold = Fold(message_id)
    for chunk in chunks:
        fold.apply(chunk)
    return fold.parts


async def test_a_viewer_from_the_start_gets_every_chunk_once() -> None:
    """Two of them, at their own pace, the same chunks."""
    stream = LocalStream("m1", [])
    chunks = reply(step(text("hello there")))
    viewers = [asyncio.create_task(taken(stream.follow(replay=False))) for _ in range(2)]
    for chunk in chunks:
        show(stream, [chunk])
        await asyncio.sleep(0)
    stream.end()
    assert [await viewer for viewer in viewers] == [chunks, chunks]


@pytest.mark.rule("SR-2")
@pytest.mark.parametrize("seed", range(20))
async def test_a_viewer_that_joins_anywhere_reduces_the_same_message(seed: int) -> None:
    """Replay and tail fit together without gap, double or reorder, wherever the seam is."""
    chunks = random_stream(seed, message_id="m1", size=40)
    whole = folded(chunks, "m1")
    for seam in range(0, len(chunks) + 1, 3):
        stream = LocalStream("m1", [])
        show(stream, chunks[:seam])
        follower = stream.follow(replay=True)
        viewer = asyncio.create_task(taken(follower))
        await asyncio.sleep(0)
        show(stream, chunks[seam:])
        stream.end()
        got = await viewer
        assert folded(got, "m1") == whole
        assert sum(isinstance(chunk, c.Start) for chunk in got) <= 1


@pytest.mark.rule("SR-2")
async def test_a_message_that_goes_on_is_replayed_from_its_first_part() -> None:
    """Parts of an earlier run come first, then what this run has shown, then the tail."""
    first = [c.Start(message_id="m1"), c.StartStep(), *text("look"), *tool_call("bash", {"x": 1})]
    second = [c.Start(message_id="m1"), *tool_output("y"), c.StartStep(), *text("done", id="t2")]
    earlier = folded(first, "m1")
    stream = LocalStream("m1", earlier)
    early = asyncio.create_task(taken(stream.follow(replay=True)))
    await asyncio.sleep(0)
    show(stream, second[:3])
    late = asyncio.create_task(taken(stream.follow(replay=True)))
    own = asyncio.create_task(taken(stream.follow(replay=False)))
    await asyncio.sleep(0)
    show(stream, second[3:])
    stream.end()
    whole = folded([*first, *second], "m1")
    assert folded(await early, "m1") == whole
    assert folded(await late, "m1") == whole
    assert await own == second


async def test_a_stalled_viewer_costs_nothing_and_is_let_go_of() -> None:
    """The log is bounded; whoever has not read what was dropped from it is told to join again."""
    stream = LocalStream("m1", [], max_log=100)
    stalled = stream.follow(replay=False)
    show(stream, [c.Start(message_id="m1"), c.TextStart(id="t")])
    await anext(stalled)
    for _ in range(300):
        show(stream, [c.TextDelta(id="t", delta="x")])
    with pytest.raises(ViewerLagged):
        await anext(stalled)
    assert len(stream._log) <= 125
    stream.end()
    again = await taken(stream.follow(replay=True))
    assert folded(again, "m1") == [{"type": "text", "text": "x" * 300, "state": "streaming"}]


async def test_one_stream_at_a_time_on_a_session() -> None:
    """The next begins when the one before has ended; an ended one is not found."""
    live = LocalLive()
    first = live.open_stream("s", "m1", [])
    with pytest.raises(InternalError):
        live.open_stream("s", "m2", [])
    assert live.find_stream("s") is first
    first.end()
    assert live.find_stream("s") is None
    assert live.open_stream("s", "m2", []).message_id == "m2"


@pytest.mark.rule("SR-5")
async def test_a_few_ended_streams_are_remembered_the_long_and_the_deleted_are_not() -> None:
    """Most clients that were cut off come back soon; what they get is bounded."""
    live = LocalLive()
    for n in range(MAX_ENDED + 2):
        stream = live.open_stream(f"s{n}", f"m{n}", [])
        show(stream, [c.Start(message_id=f"m{n}")])
        stream.end()
    assert [live.find_ended(f"s{n}") is not None for n in (0, 1, 2, MAX_ENDED + 1)] == [False, False, True, True]
    live.forget("s2")
    assert live.find_ended("s2") is None
    long = live.open_stream("s3", "m", [])
    assert live.find_ended("s3") is not None
    show(long, [c.TextStart("t"), *[c.TextDelta("t", "x")] * MAX_ENDED_LOG])
    long.end()
    assert live.find_ended("s3") is None


async def test_status_is_readable_and_watchable() -> None:
    """A watcher gets each change it is awake for, and always the newest."""
    live = LocalLive()
    assert live.status("s") is None
    watcher = live.watch_status("s")
    first = asyncio.ensure_future(anext(watcher))
    await asyncio.sleep(0)
    live.set_status("s", Status("busy", started_at=1))
    assert await first == Status("busy", started_at=1)
    live.set_status("s", Status("retrying", attempt=2))
    live.set_status("s", Status("idle"))
    assert await anext(watcher) == Status("idle")
    assert live.status("s") == Status("idle")


@pytest.mark.rule("EV-3")
async def test_subscribers_get_events_from_now_on_and_a_lagging_one_is_let_go_of() -> None:
    """Without replay; the others do not notice."""
    live = LocalLive()
    live.publish(Event("session_created", {"session_id": "before"}))
    lively, lagging = live.subscribe(), live.subscribe()
    first = [asyncio.ensure_future(anext(subscriber)) for subscriber in (lively, lagging)]
    await asyncio.sleep(0)
    live.publish(Event("session_created", {"session_id": "a"}))
    assert [(await event).data for event in first] == [{"session_id": "a"}] * 2
    for number in range(MAX_EVENTS + 1):
        live.publish(Event("status", {"n": number}))
        assert (await anext(lively)).data == {"n": number}
    left: list[Event] = []
    with pytest.raises(ViewerLagged):
        await read_all(lagging, left)
    assert len(left) == MAX_EVENTS


async def read_all(events: AsyncIterator[Event], into: list[Event]) -> None:
    async for event in events:
        into.append(event)  # noqa: PERF401 - what was read before it raised is wanted


@pytest.mark.parametrize("seed", range(rounds(10)))
async def test_a_late_viewer_gets_what_chunk_by_chunk_would_have_come_to(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fold for replays is made when somebody comes, of deltas said at once; the message is the same."""
    monkeypatch.setattr(streams, "MAX_UNFOLDED", 16)
    chunks = [chunk for chunk in random_stream(seed) if not isinstance(chunk, c.Data)]
    assert folded(list(c.joined_deltas(chunks)), "m1") == folded(chunks, "m1")
    stream, chance, place = LocalStream("m1", []), Random(seed), 0
    while place < len(chunks):
        until = place + chance.randrange(1, 30)
        show(stream, chunks[place:until])
        place = until
        follower = stream.follow(replay=True)
        assert folded(list(await anext(follower)), "m1") == folded(chunks[:place], "m1")
        await follower.aclose()  # type: ignore[attr-defined]


async def test_a_signal_that_waits_is_told_once() -> None:
    """Whoever reads slowly is told what to look at, not how often."""
    live = LocalLive()
    reader = live.signals()
    for session_id in ("a", "b", "a", "a"):
        live.signal(Signal(session_id, "queue"))
    live.signal(Signal("a", "stop"))
    assert [await anext(reader) for _ in range(3)] == [Signal("a", "queue"), Signal("b", "queue"), Signal("a", "stop")]
    live.signal(Signal("a", "queue"))
    assert await anext(reader) == Signal("a", "queue")


async def test_a_stream_that_broke_off_does_not_look_ended() -> None:
    """Its viewers are shown all there was, and let go of: what became of it they see when they come back."""
    stream = LocalStream("m1", [])
    show(stream, [c.Start(message_id="m1"), c.TextStart(id="t"), c.TextDelta(id="t", delta="half")])
    stream.end("the run broke off")
    stream.end()
    follower = stream.follow(replay=True)
    assert list(await anext(follower))[-1] == c.TextDelta(id="t", delta="half")
    with pytest.raises(ViewerLagged, match="broke off"):
        await anext(follower)
