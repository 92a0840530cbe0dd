"""The stream cursor: a client that is cut off anywhere has the message once and whole, by the exact rest or a reset."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from clew.errors import InvalidCursor
from clew.live.stream import LocalStream
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.stream_cursor import RESET, StreamChunk, StreamCursor, StreamPosition, reset_chunk
from tests.rig.streams import numbered, show, stepped_stream
from tests.rounds import rounds

pytestmark = [pytest.mark.rule("SR-2"), pytest.mark.rule("EM-5")]


class Viewer:
    """A client that folds what it gets, and remembers its position."""

    def __init__(self, message_id: str) -> None:
        self.fold = Fold(message_id)
        self.position: int | None = None
        self.resets = 0
        self.transient: list[c.Chunk] = []

    async def connect(self, stream: LocalStream, at_most: int) -> None:
        """Take so many chunks of a new connection, or those that are there by now."""
        if self.position is None:
            self.fold = Fold(stream.message_id)
        source = stream.follow(replay=self.position is None, after=self.position)
        ready = stream.shown_n
        while at_most > 0 and (self.position or 0) < ready:
            batch = await anext(source)
            assert len(batch) == len(batch.numbers) or not batch.numbers
            for chunk, cursor in zip(batch, batch.cursors(), strict=True):
                at_most -= 1
                if at_most < 0:
                    break
                if chunk.type == RESET:
                    self.resets += 1
                    self.fold, self.position = Fold(stream.message_id), None
                elif c.is_transient(chunk):
                    self.transient.append(chunk)
                else:
                    self.fold.apply_shown(chunk)
                self.position = self.position if cursor is None else StreamCursor.parse(cursor).n
        await source.aclose()  # type: ignore[attr-defined]


def folded(chunks: Sequence[c.Chunk], message_id: str = "m1") -> Fold:
    fold = Fold(message_id)
    for chunk in chunks:
        fold.apply_shown(chunk)
    return fold


@pytest.mark.parametrize("seeds", [range(n, n + rounds(40)) for n in range(0, 4_000, 1_000)])
@pytest.mark.parametrize("max_log", [8, 50_000])
async def test_a_client_that_is_cut_anywhere_has_the_message_once_and_whole(seeds: range, max_log: int) -> None:
    """However the chunks came and wherever each connection ended; nothing is reset that is still known."""
    for seed in seeds:
        chance, chunks = Random(seed), stepped_stream(seed, transient=True)
        stream, viewer, place = LocalStream("m1", max_log=max_log), Viewer("m1"), 0
        while place < len(chunks):
            until = place + chance.randint(1, 12)
            show(stream, chunks[place:until])
            place = until
            for _ in range(chance.randint(0, 2)):
                await viewer.connect(stream, chance.randint(1, 20))
        stream.end()
        while viewer.position != stream.shown_n:
            await viewer.connect(stream, 1_000)
        assert (viewer.fold.parts, viewer.fold.metadata) == (folded(chunks).parts, folded(chunks).metadata), seed
        assert max_log == 8 or viewer.resets == 0
        assert len(viewer.transient) == len({id(one) for one in viewer.transient})


async def rest(stream: LocalStream, after: int) -> list[tuple[c.Chunk, str | None]]:
    stream.end()
    found: list[tuple[c.Chunk, str | None]] = []
    async for batch in stream.follow(replay=False, after=after):
        found += zip(batch, batch.cursors(), strict=True)
    return found


def stream_of(chunks: Sequence[c.Chunk], max_log: int = 100) -> LocalStream:
    stream = LocalStream("m1", max_log=max_log)
    show(stream, chunks)
    return stream


HELLO: list[c.Chunk] = [c.Start("m1"), c.TextStart("t"), c.TextDelta("t", "a"), c.TextDelta("t", "b"), c.TextEnd("t")]
WHOLE: list[c.Chunk] = [c.Start("m1"), c.TextStart("t"), c.TextDelta("t", "ab")]


async def test_the_rest_after_a_number_is_exact() -> None:
    """From each position on: the chunks above it, each with its own."""
    for after in range(1, 6):
        wanted = [(chunk, f"m1:{n}") for n, chunk in numbered(HELLO) if n is not None and n > after]
        assert await rest(stream_of(HELLO), after) == wanted


async def test_a_position_that_is_not_known_is_answered_with_a_reset_and_the_whole_message() -> None:
    """Beyond what was shown, before a run began, or dropped from the log; the whole has one position, at its end."""
    reset = (reset_chunk("m1"), None)
    assert await rest(stream_of(HELLO[:4]), 7) == [reset, *((one, None) for one in WHOLE[:-1]), (WHOLE[-1], "m1:4")]
    second = LocalStream("m1", [{"type": "text", "text": "first", "state": "done"}], last_n=4)
    show(second, [c.Start("m1"), c.StartStep()])
    assert (await rest(second, 3))[0] == reset
    assert await rest(second, 4) == [(c.StartStep(), "m1:6")]
    long = stream_of([*HELLO[:4], *[c.TextDelta("t", "x")] * 40], max_log=8)
    assert (await rest(long, 12))[0] == reset
    assert await rest(long, 42) == [(c.TextDelta("t", "x"), "m1:43"), (c.TextDelta("t", "x"), "m1:44")]


async def test_no_position_lies_inside_what_was_shown_as_one() -> None:
    """Chunks that make up for what another process no longer has belong to the number at their end."""
    stream = stream_of(HELLO[:3])
    stream.show([(None, c.TextDelta("t", "b")), (9, c.TextEnd("t"))])
    assert await rest(stream, 3) == [(c.TextDelta("t", "b"), None), (c.TextEnd("t"), "m1:9")]
    for inside in (4, 8, 10):
        assert (await rest(stream, inside))[0] == (reset_chunk("m1"), None)
    assert await rest(stream, 9) == []


async def test_an_end_that_is_not_stored_is_shown_after_the_last_position() -> None:
    """It has no position, so a client that comes back gets it again."""
    stream = stream_of(HELLO)
    stream.show([(None, c.Error("full"))])
    assert await rest(stream, 5) == [(c.Error("full"), None)]
    assert (await rest(stream, 6))[0] == (reset_chunk("m1"), None)


@pytest.mark.parametrize("text", ["", "m1", ":4", "m1:", "m1:-1", "m1:4x", "m 1:4", "m1:1.5", "m1:٣", "m1:" + "9" * 16])
def test_a_cursor_of_another_form_is_refused(text: str) -> None:
    """With a code of its own; a message id may hold a colon."""
    with pytest.raises(InvalidCursor):
        StreamCursor.parse(text)
    assert StreamCursor.parse("m:1:4") == StreamCursor("m:1", 4)
    assert str(StreamCursor("m1", 4)) == "m1:4"


def test_a_message_that_begins_a_second_time_is_reset_for_the_reader() -> None:
    """As after a connection that ended before its first position; a server's own reset is passed on once."""
    position = StreamPosition()
    start = StreamChunk({"type": "start", "messageId": "m1"})
    reset = {"type": RESET, "data": {"messageId": "m1"}, "transient": True}
    assert position.take(start) == [start]
    assert position.take(StreamChunk({"type": "start-step"}, "m1:2")) == [{"type": "start-step"}]
    assert (position.take(start), position.cursor) == ([reset, start], "m1:2")
    assert (position.take(StreamChunk(reset)), position.cursor) == ([reset], None)
    assert position.take(start) == [start]
    assert position.take(StreamChunk({"type": "start", "messageId": "m2"})) == [{"type": "start", "messageId": "m2"}]
