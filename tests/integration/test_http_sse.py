"""Server-sent events: what one client does never touches the run or another client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import pytest

from clew.errors import ViewerLagged
from clew.fronts.http import sse
from clew.fronts.http.sse import BODY_SEND, EventStream, Streams, chunk_frames, frame
from clew.live.stream import LocalStream
from clew.testing.chunks import text
from clew.testing.scripted import hang
from clew.transcript import chunk as c
from tests.integration.http_client import chat_body, served
from tests.rig.streams import show


class Peer:
    """The other end of a response: takes what is sent, until it stops taking, and leaves when told."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.takes = asyncio.Event()
        self.takes.set()
        self._news = asyncio.Condition()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.takes.wait()
        async with self._news:
            self.sent.append(message)
            self._news.notify_all()

    async def until(self, enough: Any) -> None:
        async with self._news:
            await self._news.wait_for(lambda: enough(self))

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]

    @property
    def complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False

    def watch(self, response: EventStream) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(response({}, self.receive, self.send))


class Endless:
    """A source of frames that never ends by itself, and remembers that it was closed."""

    def __init__(self, *first: bytes) -> None:
        self.first = first
        self.closed = False

    async def frames(self) -> AsyncGenerator[bytes, None]:
        try:
            for data in self.first:
                yield data
            await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_the_head_of_a_stream_passes_everybody_and_its_bodies_go_straight_to_the_server() -> None:
    """Whoever stands between looks at heads alone; a stream has one of them and thousands of bodies."""
    between, server = Peer(), Peer()
    stream = LocalStream("m1", [])
    show(stream, text("hello"))
    stream.end()
    response = EventStream(chunk_frames(stream.follow(replay=False)), Streams(), finite=True)
    await response({BODY_SEND: server.send}, between.receive, between.send)
    assert [message["type"] for message in between.sent] == ["http.response.start"]
    assert {message["type"] for message in server.sent} == {"http.response.body"}
    assert server.complete


async def test_a_client_that_leaves_closes_its_source() -> None:
    """At once, also while nothing is being sent; there is no error and no last frame."""
    peer, source = Peer(), Endless(b"data: 1\n\n")
    task = peer.watch(EventStream(source.frames(), Streams(), finite=False))
    await peer.until(lambda p: p.bodies)
    peer.left.set()
    await task
    assert source.closed
    assert not peer.complete


async def test_a_client_that_does_not_read_and_then_leaves_is_let_go() -> None:
    """Nobody waits for it to read what it was sent."""
    peer, source = Peer(), Endless(b"data: 1\n\n", b"data: 2\n\n")
    task = peer.watch(EventStream(source.frames(), Streams(), finite=False))
    await peer.until(lambda p: p.sent)
    peer.takes.clear()
    peer.left.set()
    await task
    assert source.closed
    assert not peer.complete


async def test_a_comment_comes_now_and_then() -> None:
    """Between frames, whether or not there are any; never after the end."""
    peer, source = Peer(), Endless(b"data: 1\n\n")
    task = peer.watch(EventStream(source.frames(), Streams(heartbeat_s=0.001), finite=False))
    await peer.until(lambda p: len(p.bodies) >= 4)
    peer.left.set()
    await task
    assert peer.bodies[:4] == [b"data: 1\n\n", *[b": keep-alive\n\n"] * 3]


async def test_frames_that_wait_together_are_sent_together() -> None:
    """A replay is one piece, however many chunks it is made of."""
    stream = LocalStream("msg_1", [])
    show(stream, [c.Start("msg_1"), c.StartStep(), c.TextStart("t"), c.TextDelta("t", "a"), c.TextEnd("t")])
    show(stream, [c.FinishStep(), c.Finish("stop")])
    stream.end()
    peer = Peer()
    await peer.watch(EventStream(chunk_frames(stream.follow(replay=False)), Streams(), finite=True))
    pieces = [body for body in peer.bodies if body]
    assert len(pieces) == 1
    assert pieces[0].count(b"data: ") == 8
    assert pieces[0].endswith(b"data: [DONE]\n\n")
    assert peer.complete


@pytest.mark.rule("SR-2")
async def test_a_stalled_viewer_holds_up_nobody() -> None:
    """Beside one that takes nothing, the run shows its chunks and another viewer gets all of them."""
    stream = LocalStream("msg_1", [])
    streams = Streams()
    stalled, other = Peer(), Peer()
    stalled.takes.clear()
    tasks = [
        peer.watch(EventStream(chunk_frames(stream.follow(replay=True)), streams, finite=True))
        for peer in (stalled, other)
    ]
    await other.until(lambda p: p.sent)
    show(stream, [c.Start("msg_1"), c.TextStart("t")])
    for n in range(1_000):
        show(stream, [c.TextDelta("t", f"{n} ")])
    show(stream, [c.TextEnd("t"), c.Finish("stop")])
    stream.end()
    await tasks[1]
    assert b"".join(other.bodies).count(b"text-delta") == 1_000
    assert stalled.sent == []
    stalled.takes.set()
    await tasks[0]
    assert reduced_texts(stalled) == reduced_texts(other) == "".join(f"{n} " for n in range(1_000))


@pytest.mark.rule("SR-2")
@pytest.mark.parametrize("last", [[c.Finish("stop")], [c.Error("broken"), c.Finish("error")], [c.Abort("enough")]])
async def test_a_viewer_who_comes_at_the_very_end_is_told_how_it_ended(last: list[c.Chunk]) -> None:
    """Between the last chunk and the end of the stream, or just after: the replay ends as the run did."""
    stream = LocalStream("msg_1", [])
    show(stream, [c.Start("msg_1"), c.TextStart("t"), c.TextDelta("t", "all"), c.TextEnd("t"), *last])
    peers = [Peer(), Peer()]
    before = stream.follow(replay=True)
    tasks = [peers[0].watch(EventStream(chunk_frames(before), Streams(), finite=True))]
    await peers[0].until(lambda p: p.bodies)
    stream.end()
    tasks.append(peers[1].watch(EventStream(chunk_frames(stream.follow(replay=True)), Streams(), finite=True)))
    await asyncio.gather(*tasks)
    for peer in peers:
        assert [one["type"] for one in data_of(peer)][-len(last) :] == [chunk.type for chunk in last]


def data_of(peer: Peer) -> list[Any]:
    """What the frames hold, without ``[DONE]``."""
    frames = [one.rpartition(b"data: ")[2] for one in b"".join(peer.bodies).split(b"\n\n") if one]
    assert frames.pop() == b"[DONE]"
    return [json.loads(one) for one in frames]


def reduced_texts(peer: Peer) -> str:
    return "".join(one["delta"] for one in data_of(peer) if one["type"] == "text-delta")


async def test_a_viewer_that_fell_too_far_behind_is_cut_not_finished() -> None:
    """It must not take what it got for the whole; it comes back and is told from the start."""

    async def lagging() -> AsyncIterator[Sequence[c.Chunk]]:
        yield [c.Start("msg_1")]
        raise ViewerLagged("too far behind")

    peer = Peer()
    await peer.watch(EventStream(chunk_frames(lagging()), Streams(), finite=True))
    assert b"[DONE]" not in b"".join(peer.bodies)
    assert not peer.complete


async def test_a_source_that_breaks_is_our_error() -> None:
    """It comes out, so that it is logged; the client sees a broken stream."""

    async def broken() -> AsyncGenerator[bytes, None]:
        yield frame({"a": 1})
        raise RuntimeError("a bug")

    peer = Peer()
    with pytest.raises(RuntimeError, match="a bug"):
        await peer.watch(EventStream(broken(), Streams(), finite=True))
    assert not peer.complete


async def test_streams_end_with_their_server() -> None:
    """Those without an end of their own at once, in good order; also one that begins later."""
    streams, peers = Streams(), [Peer(), Peer()]
    tasks = [peers[0].watch(EventStream(Endless(b"data: 1\n\n").frames(), streams, finite=False))]
    await peers[0].until(lambda p: p.bodies)
    streams.close()
    tasks.append(peers[1].watch(EventStream(Endless().frames(), streams, finite=False)))
    await asyncio.gather(*tasks)
    assert peers[0].complete
    assert streams.count == 0


async def test_a_chat_stream_may_still_show_its_end_when_the_server_ends() -> None:
    """The run settles, its last chunks are shown, and the stream ends by itself."""
    async with served(hang()) as client:
        session_id = await client.session()
        async with client.open("POST", "/api/chat", chat_body(session_id, "go")) as reply:
            frames = reply.frames()
            await anext(frames)
            client.streams.close()
            await client.engine.close()
            rest = [one async for one in frames]
        assert [one if one == "[DONE]" else one["type"] for one in rest][-2:] == ["abort", "[DONE]"]
        assert reply.finished


async def test_a_chat_stream_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment, also for a client that reads nothing."""
    monkeypatch.setattr(sse, "GRACE_S", 0.01)
    monkeypatch.setattr(sse, "_LAST_WRITE_S", 0.01)
    streams, reading, stalled = Streams(), Peer(), Peer()
    stalled.takes.clear()
    tasks = [peer.watch(EventStream(Endless(b"x").frames(), streams, finite=True)) for peer in (reading, stalled)]
    await reading.until(lambda p: p.bodies)
    streams.close()
    await asyncio.gather(*tasks)
    assert reading.complete
    assert stalled.sent == []
