"""A message that another process writes: chunks and stored parts in any mixture, and a client has what is stored."""

from __future__ import annotations

from random import Random

import pytest

from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.replay import Diverged, catch_up, named_by_part
from tests.rig.streams import stepped_stream
from tests.rounds import rounds

pytestmark = pytest.mark.rule("RP-2")


@pytest.mark.parametrize("seeds", [range(n, n + rounds(50)) for n in range(0, 8_000, 1_000)])
def test_a_client_holds_what_is_stored_however_it_came(seeds: range) -> None:
    """Cut anywhere into pieces that come as chunks, and pieces that are found stored: nothing twice or missing."""
    for seed in seeds:
        chance, chunks = Random(seed), stepped_stream(seed)
        stored, client, place, in_step = Fold("m1"), Fold("m1"), 0, False
        while place < len(chunks):
            until = min(len(chunks), place + chance.randint(1, 12))
            indexes = [stored.apply(chunk) for chunk in chunks[place:until]]
            shown: list[c.Chunk] = []
            if chance.random() < 0.5:
                for chunk, index in zip(chunks[place:until], indexes, strict=True):
                    shown += [c.FinishStep()] if isinstance(chunk, c.StartStep) and in_step else []
                    shown.append(named_by_part(chunk, index))
                    in_step = isinstance(chunk, c.StartStep) or (in_step and not isinstance(chunk, c.FinishStep))
            else:
                try:
                    shown = catch_up(client.parts, stored.parts, in_step=in_step)
                except Diverged:
                    # The viewer is disconnected, and joins again.
                    client, in_step = Fold("m1"), False
                    shown = catch_up([], stored.parts, in_step=False)
                in_step = in_step or any(isinstance(chunk, c.StartStep) for chunk in shown)
            for chunk in shown:
                client.apply_shown(chunk)
            assert client.parts == stored.parts, seed
            place = until


def test_a_text_has_the_id_of_its_part_wherever_it_was_seen_to_begin() -> None:
    """Two open at once, one of them found stored: each goes on under its own id."""
    begun: list[c.Chunk] = [c.Start("m1"), c.StartStep(), c.TextStart("a"), c.TextDelta("a", "one"), c.TextStart("b")]
    stored = Fold("m1")
    for chunk in begun:
        stored.apply(chunk)
    shown = catch_up([], stored.parts, in_step=False)
    assert shown == [c.StartStep(), c.TextStart("text-1"), c.TextDelta("text-1", "one"), c.TextStart("text-2")]
    index = stored.apply(c.TextDelta("b", "two"))
    assert named_by_part(c.TextDelta("b", "two"), index) == c.TextDelta("text-2", "two")
    assert named_by_part(c.ReasoningDelta("b", "two"), index) == c.ReasoningDelta("b", "two")
    assert named_by_part(c.FinishStep(), None) == c.FinishStep()


def test_a_message_that_is_another_than_was_shown_is_not_called_a_continuation() -> None:
    """Text that was shown is never taken back."""
    with pytest.raises(Diverged):
        catch_up(
            [{"type": "text", "text": "one", "state": "streaming"}],
            [{"type": "text", "text": "two", "state": "done"}],
            in_step=False,
        )
