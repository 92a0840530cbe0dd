"""Ids in a replay: a reasoning keeps its own, and what is made up is nobody else's."""

from __future__ import annotations

import pytest

from clew.errors import IllegalChunk
from clew.transcript.chunk import ReasoningStart, TextStart, parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.replay import replay


def folded(*wires: dict[str, object]) -> Fold:
    fold = Fold("m1")
    for wire in wires:
        fold.apply(parse_chunk(wire))
    return fold


def test_a_reasoning_left_open_and_begun_again_keeps_its_id_in_both() -> None:
    """The client replaces what is open under an id, as the live stream had it do: both parts come out as stored."""
    fold = folded(
        {"type": "reasoning-start", "id": "0"},
        {"type": "start-step"},
        {"type": "finish-step"},
        {"type": "reasoning-start", "id": "0"},
    )
    starts = [chunk.id for chunk in replay(fold.message(), open_ids=fold.open_ids) if isinstance(chunk, ReasoningStart)]
    assert starts == ["0", "0"]


def test_an_id_that_is_made_up_is_none_that_the_message_has() -> None:
    """The id a replay would make up first is that of a later reasoning."""
    fold = folded(
        {"type": "text-start", "id": "0"},
        {"type": "text-end", "id": "0"},
        {"type": "reasoning-start", "id": "replayed-1"},
        {"type": "reasoning-delta", "id": "replayed-1", "delta": "own"},
    )
    chunks = list(replay(fold.message(), open_ids=fold.open_ids))
    assert [chunk.id for chunk in chunks if isinstance(chunk, TextStart | ReasoningStart)] == [
        "replayed-2",
        "replayed-1",
    ]


def test_half_a_character_where_a_word_belongs_is_an_illegal_chunk() -> None:
    """Not an error of the codec's."""
    with pytest.raises(IllegalChunk, match="invalid finish chunk"):
        parse_chunk({"type": "finish", "finishReason": "\ud800"})
