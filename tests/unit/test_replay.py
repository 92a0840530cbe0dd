"""The way back: from a stored message to a stream that makes it again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clew.errors import InvalidInput
from clew.testing.chunks import approval, reasoning, reply, step, text, tool_call, tool_denied, tool_output
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk, parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.replay import replay
from tests.rig.streams import random_runs


def folded(chunks: list[Chunk]) -> Fold:
    fold = Fold("m1")
    for chunk in chunks:
        fold.apply(chunk)
    return fold


def message(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "m1", "role": "assistant", "parts": list(parts), **more}


def as_replayed(stored: dict[str, Any]) -> dict[str, Any]:
    """What v6 can be told of a message: not how approvals were answered."""
    told = copy.deepcopy(stored)
    for part in told["parts"]:
        if "approved" in part.get("approval", {}):
            del part["approval"]
            if part["state"] == "approval-responded":
                part["state"] = "input-available"
    return told


def test_a_stored_reply_comes_back_as_a_stream() -> None:
    """Deltas joined, steps closed before the next begins, metadata at the start."""
    stream = reply(
        [c.MessageMetadata({"model": "demo"})],
        step(reasoning("look it up"), tool_call("weather", {"city": "Oslo"}), tool_output(3)),
        step(text("Three degrees.")),
    )
    assert list(replay(folded(stream).message(), finish="stop")) == [
        c.Start("m1", {"model": "demo"}),
        c.StartStep(),
        c.ReasoningStart("r1"),
        c.ReasoningDelta("r1", "look it up"),
        c.ReasoningEnd("r1"),
        c.ToolInputAvailable("c1", "weather", {"city": "Oslo"}),
        c.ToolOutputAvailable("c1", 3),
        c.FinishStep(),
        c.StartStep(),
        c.TextStart("replayed-1"),
        c.TextDelta("replayed-1", "Three degrees."),
        c.TextEnd("replayed-1"),
        c.FinishStep(),
        c.Finish("stop"),
    ]


def test_a_message_without_steps_or_words_is_a_stream_too() -> None:
    """An empty text has no delta; without a step there is none to finish."""
    assert list(replay(message({"type": "text", "text": "", "state": "done"}), finish=True)) == [
        c.Start("m1"),
        c.TextStart("replayed-1"),
        c.TextEnd("replayed-1"),
        c.Finish(),
    ]


@pytest.mark.rule("SR-2")
def test_what_is_open_stays_open_under_its_live_id() -> None:
    """The live stream goes on with the same ids; ids made up for other texts keep out of its way."""
    fold = folded(
        [
            c.TextStart("old"),
            c.TextEnd("old"),
            c.TextStart("replayed-1"),
            c.TextDelta("replayed-1", "half"),
            c.ReasoningStart("r"),
            c.ToolInputStart("c1", "run"),
            c.ToolInputDelta("c1", '{"a'),
        ]
    )
    assert list(replay(fold.message(), open_ids=fold.open_ids)) == [
        c.Start("m1"),
        c.TextStart("replayed-2"),
        c.TextEnd("replayed-2"),
        c.TextStart("replayed-1"),
        c.TextDelta("replayed-1", "half"),
        c.ReasoningStart("r"),
        c.ToolInputStart("c1", "run"),
        c.ToolInputDelta("c1", '{"a'),
    ]


def test_a_text_that_was_interrupted_is_not_ended() -> None:
    """It is stored as streaming and comes back so, though nothing will follow."""
    assert list(replay(message({"type": "text", "text": "half", "state": "streaming"}))) == [
        c.Start("m1"),
        c.TextStart("replayed-1"),
        c.TextDelta("replayed-1", "half"),
    ]


def test_a_step_is_not_finished_over_an_open_text() -> None:
    """A client would forget the text; the live stream still knows it."""
    fold = folded([c.StartStep(), c.TextStart("t"), c.StartStep(), c.TextDelta("t", "x")])
    assert list(replay(fold.message(), open_ids=fold.open_ids)) == [
        c.Start("m1"),
        c.StartStep(),
        c.TextStart("t"),
        c.TextDelta("t", "x"),
        c.StartStep(),
    ]


@pytest.mark.rule("SR-2")
def test_an_answered_call_comes_without_its_request() -> None:
    """Waiting for its output it is a call that runs; denied it is denied; a request that waits is asked again."""
    fold = folded([*tool_call("run", 1, streamed=False), *approval()])
    call = c.ToolInputAvailable("c1", "run", 1)
    assert list(replay(fold.message())) == [c.Start("m1"), call, c.ToolApprovalRequest("a1", "c1")]
    fold.answer("c1", approved=False)
    assert list(replay(fold.message())) == [c.Start("m1"), call]
    fold.apply(tool_denied()[0])
    assert list(replay(fold.message())) == [c.Start("m1"), call, c.ToolOutputDenied("c1")]


ABOUT = {
    "title": "Run",
    "toolMetadata": {"m": 1},
    "providerExecuted": False,
    "callProviderMetadata": {"p": {"call": 1}},
}
RESULT = {"errorText": "no", "resultProviderMetadata": {"p": {"result": 1}}}


@pytest.mark.parametrize(
    "part",
    [
        {"state": "input-streaming", "inputEncoding": "json"},
        {"state": "input-streaming", "rawInput": ""},
        {"state": "input-streaming", "rawInput": '{"a":1', "input": {"a": 1}},
        {"state": "input-streaming", "rawInput": "ls", "input": "ls", "inputEncoding": "text"},
        {"state": "input-available", "input": None},
        {"state": "approval-requested", "input": 1, "approval": {"id": "a", "inputSchemaInput": None}},
        {"state": "approval-requested", "input": 1, "approval": {"id": "a", "descriptor": {}, "signature": "s"}},
        {"state": "output-available", "input": 1, "output": None, "preliminary": True},
        {"state": "output-available", "input": 1, "output": [], "preliminary": False},
        {"state": "output-available", "input": 1, "output": 2, "resultProviderMetadata": {"p": {}}},
        {"state": "output-error", **RESULT},
        {"state": "output-error", "input": 1, **RESULT},
        {"state": "output-denied", "input": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [{"type": "tool-read-file"}, {"type": "dynamic-tool", "toolName": "x"}], ids=str)
def test_a_call_comes_back_in_every_state(kind: dict[str, Any], part: dict[str, Any]) -> None:
    """Static and dynamic, with title, metadata of both kinds, and all that its state holds."""
    stored = message({**kind, "toolCallId": "c1", **part, **ABOUT})
    assert folded(list(replay(stored))).message() == stored


@pytest.mark.parametrize(
    "part",
    [
        {"rawInput": {"not": "valid"}},
        {"rawInput": '{"not": "valid"}'},
        {"rawInput": None},
        {"rawInput": '{"a":1', "input": {"a": 1}},
        {"rawInput": "ls", "input": "ls"},
        {"rawInput": '"x"', "input": "x"},
    ],
    ids=str,
)
def test_a_static_call_that_failed_keeps_what_was_written(part: dict[str, Any]) -> None:
    """Arguments that did not validate, and arguments that were cut off, in JSON or as text."""
    stored = message({"type": "tool-run", "toolCallId": "c1", "state": "output-error", **part, **ABOUT, **RESULT})
    assert folded(list(replay(stored))).message() == stored


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"type": "hologram", "beam": 1}, None),
        ({"no": "type"}, None),
        ({"type": "text", "text": None}, None),
        ({"type": "tool-run", "toolCallId": "c1", "state": "dreaming", "input": 1}, None),
        ({"type": "tool-run", "toolCallId": "c1", "state": "approval-requested", "input": 1}, None),
        ({"type": "text", "text": "x"}, {"type": "text", "text": "x", "state": "done"}),
        (
            {"type": "text", "text": "x", "state": "done", "providerMetadata": None, "x-new": 1},
            {"type": "text", "text": "x", "state": "done"},
        ),
        (
            {"type": "reasoning", "text": "x", "state": "done"},
            {"type": "reasoning", "id": "replayed-1", "text": "x", "state": "done"},
        ),
        (
            {"type": "tool-run", "toolCallId": "c1", "state": "input-streaming", "input": {"a": 1}},
            {"type": "tool-run", "toolCallId": "c1", "state": "input-streaming"},
        ),
        (
            {"type": "tool-run", "toolCallId": "c1", "state": "input-available"},
            {"type": "tool-run", "toolCallId": "c1", "state": "input-available", "input": None},
        ),
        ({"type": "data-note", "data": 1, "x-new": 1}, {"type": "data-note", "data": 1, "x-new": 1}),
        ({"type": "data-note", "data": 1, "transient": True}, {"type": "data-note", "data": 1}),
    ],
    ids=str,
)
def test_what_no_stream_makes_is_told_as_well_as_it_can_be(part: dict[str, Any], told: Any) -> None:
    """Left out, or with what a client would not take made right; the parts around it come through."""
    before, after = {"type": "step-start"}, {"type": "file", "mediaType": "image/png", "url": "u"}
    expected = message(before, *([] if told is None else [told]), after)
    chunks = list(replay(message(before, part, after)))
    assert folded(chunks).message() == expected
    assert [parse_chunk(c.chunk_dict(chunk)) for chunk in chunks] == chunks


def test_the_name_of_a_file_goes_along() -> None:
    """v6 has no field for it; a client that knows one can read it."""
    stored = message({"type": "file", "mediaType": "image/png", "url": "u", "filename": "a.png"})
    assert list(replay(stored))[1] == c.File("u", "image/png", extra={"filename": "a.png"})


def test_only_an_assistant_speaks_in_streams() -> None:
    """A stream has no field for the role."""
    with pytest.raises(InvalidInput):
        list(replay({"id": "m1", "role": "user", "parts": []}))


@pytest.mark.rule("SR-2")
@given(st.integers(0, 10**9), st.data())
def test_a_replay_and_the_live_tail_make_the_same_message(seed: int, data: st.DataObject) -> None:
    """At any chunk of any run. The real client answers the same question in the integration tests."""
    runs = random_runs(seed, size=25)
    live = Fold("m1")
    for run in runs[:-1]:
        _take(live, run.answers, run.chunks)
        live = Fold("m1", parts=live.parts, metadata=live.metadata)
    cut = data.draw(st.integers(0, len(runs[-1].chunks)))
    _take(live, runs[-1].answers, runs[-1].chunks[:cut])
    assume(not _reopens_a_reasoning(live.parts))
    viewer = folded(list(replay(live.message(), open_ids=live.open_ids)))
    assert viewer.message() == as_replayed(live.message())
    # A text that was interrupted stays open on the viewer's side; a live start of the same id takes its place.
    viewer = Fold("m1", parts=viewer.parts, metadata=viewer.metadata)
    for chunk in runs[-1].chunks[cut:]:
        viewer.apply_at(live.apply(chunk), chunk)
    assert viewer.message() == as_replayed(live.message())


def _take(fold: Fold, answers: Any, chunks: list[Chunk]) -> None:
    for answer in answers:
        fold.answer(answer.tool_call_id, approved=answer.approved, reason=answer.reason)
    for chunk in chunks:
        fold.apply(chunk)


def _reopens_a_reasoning(parts: list[dict[str, Any]]) -> bool:
    """The client lets a reasoning take the place of an interrupted one of the same id; the fold is stricter."""
    open_ids: set[str] = set()
    for part in parts:
        if part["type"] == "reasoning":
            if part["id"] in open_ids:
                return True
            if part["state"] == "streaming":
                open_ids.add(part["id"])
    return False
