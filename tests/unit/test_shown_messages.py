"""A reader who cannot be shown anything twice: a terminal that prints, a log of chunks."""

from __future__ import annotations

from random import Random

import pytest

from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.replay import replay
from clew.transcript.shown_messages import ShownMessages
from clew.transcript.stream_cursor import reset_chunk
from tests.rig.streams import stepped_stream
from tests.rounds import rounds

pytestmark = pytest.mark.rule("SR-2")


@pytest.mark.parametrize("seeds", [range(n, n + rounds(50)) for n in range(0, 4_000, 1_000)])
def test_a_message_that_begins_again_and_again_is_shown_once_and_whole(seeds: range) -> None:
    """Whatever came before the cut: a strict reader, which refuses what comes twice, has what is stored."""
    for seed in seeds:
        chance = Random(seed)
        chunks = [c.Start("m1"), *(one for one in stepped_stream(seed) if not isinstance(one, c.Start))]
        stored, reader, shown, place = Fold("m1"), Fold("m1"), ShownMessages(), 0
        while place < len(chunks):
            until = min(len(chunks), place + chance.randint(1, 12))
            for chunk in chunks[place:until]:
                stored.apply(chunk)
            if place and chance.random() < 0.5:
                whole = [*replay(stored.message(), open_ids=stored.open_ids)]
                pairs = [(reset_chunk("m1"), None), *((one, None) for one in whole[:-1]), (whole[-1], "m1:9")]
            else:
                pairs = [(one, "m1:9") for one in chunks[place:until]]
            for given, cursor in pairs:
                for _, new in shown.take(given, cursor):
                    reader.apply_shown(new)
            assert reader.parts == stored.parts, seed
            place = until


def test_an_end_that_was_not_shown_is_shown_behind_what_is_new() -> None:
    """With the end of its step, if the stream had one; each message of a turn by itself."""
    shown = ShownMessages()
    first: list[c.Chunk] = [c.Start("m1"), c.StartStep(), c.TextStart("t"), c.TextDelta("t", "one")]
    again = [*first[:3], c.TextDelta("t", "one two"), c.TextEnd("t"), c.FinishStep(), c.Finish("stop")]
    printed = [new for n, chunk in enumerate(first) for _, new in shown.take(chunk, f"m1:{n}")]
    assert printed == first
    assert [new for chunk in again for new in shown.take(chunk, None)] == []
    rest = [(1, c.TextDelta("t", " two")), (1, c.TextEnd("t")), (None, c.FinishStep()), (None, c.Finish("stop"))]
    assert shown.end() == rest
    assert shown.take(c.Start("m2"), None) == [(None, c.Start("m2"))]
    assert shown.end() == []
