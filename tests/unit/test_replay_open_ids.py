"""A message whose stream used one id for several reasonings is replayed as a stream that any client takes."""

from __future__ import annotations

import pytest

from clew.errors import IllegalChunk
from clew.transcript.chunk import parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.replay import replay


def texts(fold: Fold) -> list[str]:
    return [part["text"] for part in fold.parts if part["type"] == "reasoning"]


def replayed(fold: Fold) -> Fold:
    again = Fold("m1")
    for chunk in replay(fold.message(), open_ids=fold.open_ids):
        again.apply(chunk)
    return again


def folded(*wires: dict[str, object]) -> Fold:
    fold = Fold("m1")
    for wire in wires:
        fold.apply(parse_chunk(wire))
    return fold


def test_a_reasoning_left_open_and_begun_again_under_its_id_is_replayed() -> None:
    """A step ended without ending the first one; the second goes on under the id the live stream knows."""
    fold = folded(
        {"type": "reasoning-start", "id": "0"},
        {"type": "reasoning-delta", "id": "0", "delta": "first"},
        {"type": "start-step"},
        {"type": "finish-step"},
        {"type": "reasoning-start", "id": "0"},
        {"type": "reasoning-delta", "id": "0", "delta": "second"},
    )
    again = replayed(fold)
    assert texts(again) == ["first", "second"]
    again.apply(parse_chunk({"type": "reasoning-delta", "id": "0", "delta": ", more"}))
    assert texts(again) == ["first", "second, more"]


def test_an_id_that_is_made_up_is_none_that_the_message_has() -> None:
    """The id a replay would make up first is that of a later reasoning."""
    fold = folded(
        {"type": "reasoning-start", "id": "0"},
        {"type": "start-step"},
        {"type": "finish-step"},
        {"type": "reasoning-start", "id": "0"},
        {"type": "reasoning-start", "id": "replayed-1"},
        {"type": "reasoning-delta", "id": "replayed-1", "delta": "own"},
    )
    assert texts(replayed(fold)) == ["", "", "own"]


def test_half_a_character_where_a_word_belongs_is_an_illegal_chunk() -> None:
    """Not an error of the codec's."""
    with pytest.raises(IllegalChunk, match="this is not a finish chunk"):
        parse_chunk({"type": "finish", "finishReason": "\ud800"})
