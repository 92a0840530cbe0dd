"""The mirror: chunks and stored messages in any mixture, and a client ends up with what is stored."""

from __future__ import annotations

from random import Random

import pytest

from clew.errors import IllegalChunk
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.mirror import Mirror, Unplaced
from clew.transcript.replay import Diverged
from tests.rig.streams import random_stream
from tests.rounds import rounds

_ABOUT_ALL = (c.Start, c.MessageMetadata, c.Finish, c.Abort, c.Error)


def in_steps(seed: int, size: int = 60) -> list[c.Chunk]:
    """A random stream as a loop would have it: what belongs to a part is inside a step, and steps end."""
    fold, kept, inside = Fold("m1"), list[c.Chunk](), False
    for chunk in random_stream(seed, size=size):
        ahead: list[c.Chunk] = []
        if isinstance(chunk, c.StartStep):
            ahead = [c.FinishStep()] if inside else []
        elif isinstance(chunk, c.FinishStep) and not inside:
            continue
        elif not inside and not isinstance(chunk, (*_ABOUT_ALL, c.FinishStep)):
            ahead = [c.StartStep()]
        for one in (*ahead, chunk):
            if isinstance(one, c.Data) and one.transient is True:
                continue
            try:
                fold.apply(one)
            except IllegalChunk:
                continue
            kept.append(one)
            inside = isinstance(one, c.StartStep) or (inside and not isinstance(one, c.FinishStep))
    return kept


@pytest.mark.parametrize("seeds", [range(n, n + rounds(50)) for n in range(0, 8_000, 1_000)])
def test_a_client_holds_what_is_stored_however_it_came(seeds: range) -> None:
    """Cut anywhere into pieces that came as chunks, and pieces that were found stored: nothing twice or missing."""
    for seed in seeds:
        chance, chunks = Random(seed), in_steps(seed)
        stored, mirror, client, place = Fold("m1"), Mirror("m1"), Fold("m1"), 0
        while place < len(chunks) or not mirror.began:
            until = min(len(chunks), place + chance.randint(0, 12))
            indexes = [stored.apply(chunk) for chunk in chunks[place:until]]
            shown: list[c.Chunk] = []
            if mirror.began and chance.random() < 0.5:
                for chunk, index in zip(chunks[place:until], indexes, strict=True):
                    try:
                        shown += mirror.take(chunk, index if chance.random() < 0.3 else None)
                    except Unplaced:
                        shown += mirror.take(chunk, index)
            else:
                try:
                    shown = mirror.catch_up(stored.parts, stored.metadata or {})
                except Diverged:
                    # Let go of, and come back.
                    mirror, client = Mirror("m1"), Fold("m1")
                    shown = mirror.catch_up(stored.parts, stored.metadata or {})
            for chunk in shown:
                client.apply(chunk)
            assert client.parts == stored.parts
            place = until


def test_a_text_goes_on_under_the_id_its_viewers_know_it_by() -> None:
    """What is stored does not say the id; a second one beside it cannot be told apart without its place."""
    mirror = Mirror("m1")
    parts = [{"type": "text", "text": "one", "state": "streaming"}]
    assert mirror.catch_up(parts, {}) == [c.Start("m1", {}), c.TextStart("stored-0"), c.TextDelta("stored-0", "one")]
    assert mirror.take(c.TextDelta("t", " more")) == [c.TextDelta("stored-0", " more")]
    assert mirror.take(c.TextStart("stored-0")) == [c.TextStart("stored-0+")]
    assert mirror.take(c.TextDelta("stored-0", "b")) == [c.TextDelta("stored-0+", "b")]
    assert mirror.take(c.TextEnd("t")) == [c.TextEnd("stored-0")]
    two = Mirror("m2")
    two.catch_up([*parts, *parts], {})
    with pytest.raises(Unplaced):
        two.take(c.TextDelta("t", "!"))
    assert two.take(c.TextDelta("t", "!"), 1) == [c.TextDelta("stored-1", "!")]
    assert two.take(c.TextDelta("u", "?")) == [c.TextDelta("stored-0", "?")]


def test_a_message_that_is_another_than_was_shown_is_not_called_a_continuation() -> None:
    """A process that showed what it could not keep: its viewers are let go of, and come back to what is stored."""
    mirror = Mirror("m1")
    mirror.catch_up([{"type": "text", "text": "shown", "state": "streaming"}], {})
    with pytest.raises(Diverged):
        mirror.catch_up([{"type": "text", "text": "stored", "state": "streaming"}], {})
