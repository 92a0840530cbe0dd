"""New chunks: a message shown again from its start is printed from where it was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clew.fronts.cli.commands.printer import NewChunks
from clew.transcript.chunk import Chunk, encode_chunk, parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.replay import replay

START = {"type": "start", "messageId": "m"}
CALL: dict[str, Any] = {"toolCallId": "c", "toolName": "bash"}
BEFORE: list[dict[str, Any]] = [
    START,
    {"type": "start-step"},
    {"type": "reasoning-start", "id": "r"},
    {"type": "reasoning-delta", "id": "r", "delta": "hm"},
    {"type": "reasoning-end", "id": "r"},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "one "},
    {"type": "text-delta", "id": "t", "delta": "two"},
    {"type": "text-end", "id": "t"},
    {"type": "tool-input-start", **CALL},
    {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{}"},
    {"type": "tool-input-available", **CALL, "input": {}},
]
AFTER: list[dict[str, Any]] = [
    {"type": "tool-output-available", "toolCallId": "c", "output": "done"},
    {"type": "finish-step"},
    {"type": "start-step"},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "three"},
    {"type": "text-end", "id": "t"},
    {"type": "finish-step"},
]
FINISH = {"type": "finish"}


def taken(new_chunks: NewChunks, chunks: Iterable[Chunk | dict[str, Any]], *, replayed: bool) -> list[Chunk]:
    parsed = [parse_chunk(chunk) if isinstance(chunk, dict) else chunk for chunk in chunks]
    return [new for chunk in parsed for new in new_chunks.take(chunk, replayed=replayed)]


def folded(chunks: Iterable[Chunk | dict[str, Any]]) -> Fold:
    fold = Fold("m")
    for chunk in chunks:
        fold.apply(parse_chunk(chunk) if isinstance(chunk, dict) else chunk)
    return fold


def test_what_goes_on_begins_again_and_repeats_nothing() -> None:
    """Whether the run that goes on is followed, or played from the start."""
    ended = [*BEFORE, {"type": "finish-step"}, FINISH]
    rest = [AFTER[0], *AFTER[2:]]
    for replayed in (False, True):
        new_chunks = NewChunks()
        assert [encode_chunk(c) for c in taken(new_chunks, ended, replayed=replayed)] == [
            encode_chunk(parse_chunk(c)) for c in ended
        ]
        again = [START, *rest, FINISH] if not replayed else [*BEFORE, {"type": "finish-step"}, *rest, FINISH]
        assert [encode_chunk(c) for c in taken(new_chunks, again, replayed=replayed)] == [
            encode_chunk(parse_chunk(c)) for c in [START, *rest, FINISH]
        ]
        assert taken(new_chunks, replay(folded([*BEFORE, *AFTER]).message(), finish=True), replayed=True) == []


def test_an_end_that_was_printed_is_over() -> None:
    """A server shows whoever comes at the very end a last step without its end; that alone is nothing new."""
    whole = folded([*BEFORE, *AFTER])
    new_chunks = NewChunks()
    late = [*replay(whole.message()), parse_chunk(FINISH)]
    assert taken(new_chunks, late, replayed=True) == late
    assert taken(new_chunks, replay(whole.message(), finish=True), replayed=True) == []
    cut = NewChunks()
    taken(cut, replay(whole.message()), replayed=True)
    rest = taken(cut, replay(whole.message(), finish=True), replayed=True)
    assert [chunk.type for chunk in rest] == ["start", "finish-step", "finish"]


def test_a_failure_is_never_old() -> None:
    """Even with nothing else to say."""
    new_chunks = NewChunks()
    taken(new_chunks, [START, {"type": "start-step"}, FINISH], replayed=True)
    failed = [START, {"type": "start-step"}, {"type": "error", "errorText": "no"}, FINISH]
    assert [chunk.type for chunk in taken(new_chunks, failed, replayed=True)] == ["start", "error", "finish"]


@given(st.lists(st.integers(0, len(BEFORE + AFTER)), max_size=4))
def test_a_stream_that_is_cut_anywhere_is_whole_in_the_end(cuts: list[int]) -> None:
    """Followed so far, played from the store so far: what is printed makes the same message, each text once."""
    whole = [*BEFORE, *AFTER]
    new_chunks, printed = NewChunks(), []
    for cut in sorted(cuts):
        fold = folded(whole[: max(cut, 1)])
        printed += taken(new_chunks, replay(fold.message(), open_ids=fold.open_ids), replayed=True)
    printed += taken(new_chunks, replay(folded(whole).message(), finish=True), replayed=True)
    texts = [chunk.delta for chunk in printed if hasattr(chunk, "delta")]
    assert "".join(texts) == "hmone twothree"
    kinds = [chunk.type for chunk in printed]
    for kind, count in {"start-step": 2, "text-start": 2, "text-end": 2, "tool-output-available": 1}.items():
        assert kinds.count(kind) == count, kind
