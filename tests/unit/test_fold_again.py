"""How a fold is taken up again: from stored parts, by later runs, and after anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.testing.chunks import abort, error, reply, text, tool_output
from clew.transcript import chunk as c
from clew.transcript import fold_part
from clew.transcript.fold import Fold
from tests.rig.streams import random_runs, random_stream
from tests.unit.folding import by_json, folded

NEW_PART = {"type": "hologram", "beam": {"state": "streaming", "toolCallId": 7}}

# How it is taken up again.


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_fold_rebuilt_from_stored_parts_goes_on_as_if_nothing_happened(seed: int, cut: int) -> None:
    """At any chunk, from parts that went through JSON, byte for byte, knowing no open id."""
    chunks = random_stream(seed)
    cut %= len(chunks) + 1
    whole = Fold("m1")
    places = [whole.apply(chunk) for chunk in chunks]
    first = folded(chunks[:cut])
    stored = by_json(first.message())
    rebuilt = Fold("m1", parts=stored["parts"], metadata=stored.get("metadata"))
    assert json.dumps(rebuilt.message()) == json.dumps(first.message())
    for place, chunk in zip(places[cut:], chunks[cut:], strict=True):
        rebuilt.apply_at(place, chunk)
    assert json.dumps(rebuilt.message()) == json.dumps(whole.message())


@given(st.integers(0, 10**9))
def test_looking_changes_nothing(seed: int) -> None:
    """Snapshots between chunks, at every index, leave the outcome as it is, and are not changed by it."""
    looked_at, left_alone = Fold("m1"), Fold("m1")
    snapshots = []
    for chunk in random_stream(seed):
        looked_at.apply(chunk)
        left_alone.apply(chunk)
        snapshots.append((looked_at.message(), by_json(looked_at.message())))
        for index, part in enumerate(looked_at.parts):
            grows = part.get("text", part.get("rawInput"))
            assert looked_at.text_length(index) == (len(grows) if isinstance(grows, str) else 0)
    assert looked_at.message() == left_alone.message()
    for snapshot, copy in snapshots:
        assert snapshot == copy


@given(st.integers(0, 10**9))
def test_later_runs_go_on_with_the_same_message(seed: int) -> None:
    """Runs that follow answers give the same message whether the fold was kept or rebuilt in between."""
    kept = Fold("m1")
    rebuilt = Fold("m1")
    for run in random_runs(seed):
        stored = by_json(rebuilt.message())
        rebuilt = Fold("m1", parts=stored["parts"], metadata=stored.get("metadata"))
        kept.apply(c.FinishStep())  # a new run knows none of the texts the one before left open
        for answer in run.answers:
            for fold in (kept, rebuilt):
                fold.answer(answer.tool_call_id, approved=answer.approved, reason=answer.reason)
        for chunk in run.chunks:
            assert kept.apply(chunk) == rebuilt.apply(chunk)
    assert json.dumps(kept.message()) == json.dumps(rebuilt.message())


def test_the_ids_of_open_texts_are_known_while_they_are_open() -> None:
    """From their start to their end, or to the end of the step; after a restart from the next delta on."""
    fold = folded([c.TextStart("a"), c.TextStart("b"), c.ReasoningStart("a"), c.TextEnd("b")])
    assert fold.open_ids == {0: "a", 2: "a"}
    rebuilt = Fold("m1", parts=fold.parts)
    assert rebuilt.open_ids == {}
    rebuilt.apply_at(0, c.TextDelta("a", "x"))
    assert rebuilt.open_ids == {0: "a"}
    assert rebuilt.apply(c.TextDelta("a", "y")) == 0
    fold.apply(c.FinishStep())
    assert fold.open_ids == {}


@pytest.mark.rule("ST-5")
def test_parts_and_keys_nobody_knows_survive() -> None:
    """A part of an unknown type is untouched; an unknown key stays on its part while the part moves on."""
    stored: list[dict[str, Any]] = [
        NEW_PART,
        {"x-note": 1, "type": "tool-run", "toolCallId": "c1", "state": "input-available", "input": 1},
        {"type": "text", "text": "old", "x-lang": "en"},
        {"no": "type"},
    ]
    fold = folded(tool_output(2), text("new"), parts=stored)
    assert fold.parts == [
        NEW_PART,
        {
            "type": "tool-run",
            "toolCallId": "c1",
            "state": "output-available",
            "input": 1,
            "output": 2,
            "x-note": 1,
        },
        {"type": "text", "text": "old", "x-lang": "en"},
        {"no": "type"},
        {"type": "text", "text": "new", "state": "done"},
    ]
    assert stored[1]["state"] == "input-available"
    assert fold.text_length(0) == 0


def test_arguments_are_parsed_when_somebody_looks_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand deltas cost one parse, not a thousand."""
    parsed: list[str] = []

    def parse(text: str) -> dict[str, Any]:
        parsed.append(text)
        return {}

    monkeypatch.setattr(fold_part, "parse_partial_json", parse)
    fold = folded([c.ToolInputStart("c1", "run"), *[c.ToolInputDelta("c1", "x")] * 1000])
    assert parsed == []
    assert fold.text_length(0) == 1000
    assert (fold.part(0), fold.part(0)) == (fold.part(0), fold.part(0))
    assert parsed == ["x" * 1000]


def test_an_aborted_or_broken_stream_leaves_its_parts_as_they_are() -> None:
    """The states tell the truth: what was streaming still says so."""
    fold = folded(reply(text("half a", open=True), error("lost"), abort("by user"), finish=None))
    assert fold.parts == [{"type": "text", "text": "half a", "state": "streaming"}]
    assert (fold.error_text, fold.aborted, fold.finish_reason) == ("lost", True, None)
