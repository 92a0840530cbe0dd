"""The fold: what chunks make of a message, what they may not do, and how it is taken up again."""

from __future__ import annotations

from typing import Any

import pytest

from clew.errors import IllegalChunk
from clew.testing.chunks import (
    approval,
    data,
    document,
    file,
    metadata,
    reasoning,
    reply,
    source,
    step,
    text,
    tool_call,
    tool_denied,
    tool_error,
    tool_input_error,
    tool_output,
)
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.fold import Fold
from tests.unit.folding import by_json, folded

# What it becomes.


def test_a_reply_becomes_a_message() -> None:
    """Reasoning, a call with its output, and an answer in a second step."""
    fold = folded(
        reply(
            step(
                reasoning("look it up"),
                tool_call("weather", {"city": "Oslo"}),
                tool_output({"celsius": 3}),
            ),
            step(text("Three degrees.")),
        )
    )
    assert fold.message() == {
        "id": "m1",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "id": "r1", "text": "look it up", "state": "done"},
            {
                "type": "tool-weather",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"city": "Oslo"},
                "output": {"celsius": 3},
            },
            {"type": "step-start"},
            {"type": "text", "text": "Three degrees.", "state": "done"},
        ],
    }
    assert (fold.finish_reason, fold.error_text, fold.aborted) == ("stop", None, False)


def test_a_chunk_says_which_part_it_landed_in() -> None:
    """Interleaved texts go to their own parts; chunks about the message go to none."""
    fold = Fold("m1")
    chunks: list[Chunk] = [
        c.Start("m1"),
        c.StartStep(),
        c.TextStart("a"),
        c.ReasoningStart("a"),
        c.TextDelta("a", "x"),
        c.ReasoningDelta("a", "y"),
        c.MessageMetadata({"k": 1}),
        c.Data("note", 1, transient=True),
        c.Data("note", 1, "n"),
        c.Data("note", 2, "n"),
        c.Data("note", 3),
        c.TextEnd("a"),
        c.FinishStep(),
        c.Error("no"),
        c.Abort(),
        c.Finish("error"),
    ]
    landed = [fold.apply(chunk) for chunk in chunks]
    assert landed == [None, 0, 1, 2, 1, 2, None, None, 3, 3, 4, 1, None, None, None, None]
    assert fold.parts == [
        {"type": "step-start"},
        {"type": "text", "text": "x", "state": "done"},
        {"type": "reasoning", "id": "a", "text": "y", "state": "streaming"},
        {"type": "data-note", "data": 2, "id": "n"},
        {"type": "data-note", "data": 3},
    ]
    assert (fold.finish_reason, fold.error_text, fold.aborted) == ("error", "no", True)


def test_sources_files_and_unknown_fields_of_data_become_parts() -> None:
    """A data part is its chunk, unknown fields included; other parts hold what their type has."""
    extra = {"x-new": 1}
    fold = folded(
        source("https://a.example", title="A"),
        document("Report"),
        file("data:,x"),
        [c.Data("note", 1, transient=False, extra=extra), c.TextStart("t", extra=extra)],
    )
    assert fold.parts == [
        {"type": "source-url", "sourceId": "s1", "url": "https://a.example", "title": "A"},
        {"type": "source-document", "sourceId": "s1", "mediaType": "text/plain", "title": "Report"},
        {"type": "file", "mediaType": "image/png", "url": "data:,x"},
        {"type": "data-note", "data": 1, "transient": False, "x-new": 1},
        {"type": "text", "text": "", "state": "streaming"},
    ]


def test_arguments_show_their_value_while_they_are_written() -> None:
    """The text so far is kept, and the value it has so far beside it, in JSON or as plain text."""
    fold = folded(
        [
            c.ToolInputStart("a", "run"),
            c.ToolInputStart("b", "run", "text", dynamic=True),
            c.ToolInputDelta("a", '{"cmd":"l'),
            c.ToolInputDelta("b", '{"cmd'),
        ]
    )
    assert fold.parts == [
        {
            "type": "tool-run",
            "toolCallId": "a",
            "state": "input-streaming",
            "input": {"cmd": "l"},
            "rawInput": '{"cmd":"l',
        },
        {
            "type": "dynamic-tool",
            "toolName": "run",
            "toolCallId": "b",
            "state": "input-streaming",
            "input": '{"cmd',
            "inputEncoding": "text",
            "rawInput": '{"cmd',
        },
    ]
    fold.apply(c.ToolInputDelta("a", 's"}'))
    fold.apply(c.ToolInputAvailable("a", "run", {"cmd": "ls"}))
    fold.apply(c.ToolOutputError("b", "interrupted"))
    assert fold.parts == [
        {"type": "tool-run", "toolCallId": "a", "state": "input-available", "input": {"cmd": "ls"}},
        {
            "type": "dynamic-tool",
            "toolName": "run",
            "toolCallId": "b",
            "state": "output-error",
            "input": '{"cmd',
            "errorText": "interrupted",
        },
    ]


def test_a_call_that_was_interrupted_keeps_what_was_written() -> None:
    """A static call keeps the text; one whose arguments did not validate keeps only that."""
    cut = folded(tool_call("run", {"cmd": "ls"}, open=True), tool_error("interrupted"))
    assert cut.parts == [
        {
            "type": "tool-run",
            "toolCallId": "c1",
            "state": "output-error",
            "input": {"cmd": "ls"},
            "rawInput": '{"cmd": "ls"',
            "errorText": "interrupted",
        }
    ]
    wrong = folded(tool_call("run", {"cmd": 1}, open=True), tool_input_error("run", {"cmd": 1}, "no text"))
    assert wrong.parts == [
        {
            "type": "tool-run",
            "toolCallId": "c1",
            "state": "output-error",
            "rawInput": {"cmd": 1},
            "errorText": "no text",
        }
    ]


def test_a_preliminary_output_gives_way_to_the_last_one() -> None:
    """Metadata of the call and of the result are kept apart; a result leaves no trace of being preliminary."""
    fold = folded(
        [
            c.ToolInputAvailable("c1", "run", 1, "Run", provider_metadata={"p": {"a": 1}}, tool_metadata={"m": 1}),
            c.ToolOutputAvailable("c1", "half", True, provider_metadata={"p": {"b": 1}}),
        ]
    )
    assert fold.part(0)["preliminary"] is True
    fold.apply(c.ToolOutputAvailable("c1", "whole", provider_executed=True))
    assert fold.parts == [
        {
            "type": "tool-run",
            "toolCallId": "c1",
            "state": "output-available",
            "title": "Run",
            "toolMetadata": {"m": 1},
            "providerExecuted": True,
            "input": 1,
            "output": "whole",
            "callProviderMetadata": {"p": {"a": 1}},
            "resultProviderMetadata": {"p": {"b": 1}},
        }
    ]


@pytest.mark.parametrize(
    ("before", "after", "merged"),
    [
        (None, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}, "x": [1, 2]}, {"a": {"c": None}, "x": [3]}, {"a": {"b": 1, "c": None}, "x": [3]}),
        ({"a": {"b": 1}}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
        ({"a": 1}, {}, {"a": 1}),
        ({"a": {}}, {"__proto__": 1, "a": {"constructor": 2, "ok": 3}}, {"a": {"ok": 3}}),
    ],
)
def test_metadata_is_merged_object_into_object(before: Any, after: Any, merged: Any) -> None:
    """Lists and plain values are replaced, and neither side is changed."""
    kept = by_json([before, after])
    fold = folded([c.MessageMetadata(after)], metadata=before)
    assert fold.metadata == merged
    assert fold.message()["metadata"] == merged
    assert [before, after] == kept


def test_a_message_nobody_gave_metadata_has_none() -> None:
    """Null adds nothing, an empty object is something."""
    assert "metadata" not in folded([c.Start("m1", None), c.Finish()]).message()
    assert folded(metadata()).message()["metadata"] == {}


# Tools and people.


def test_an_answer_is_written_into_the_call_that_waits() -> None:
    """The request stays, the answer is added, and only then may the call end."""
    fold = folded([c.ToolInputAvailable("c1", "run", 1), c.ToolApprovalRequest("a1", "c1", None, None, "sig")])
    assert fold.part(0)["approval"] == {"id": "a1", "inputSchemaInput": None, "signature": "sig"}
    with pytest.raises(IllegalChunk):
        fold.apply(c.ToolOutputAvailable("c1", 1))
    assert fold.answer("c1", approved=False, reason="not now") == 0
    assert fold.parts == [
        {
            "type": "tool-run",
            "toolCallId": "c1",
            "state": "approval-responded",
            "input": 1,
            "approval": {
                "id": "a1",
                "inputSchemaInput": None,
                "signature": "sig",
                "approved": False,
                "reason": "not now",
            },
        }
    ]
    fold.apply(c.ToolOutputDenied("c1"))
    assert fold.part(0)["state"] == "output-denied"


@pytest.mark.rule("SV-2")
def test_only_a_call_that_waits_can_be_answered() -> None:
    """Not one that is not there, not one that was not asked about, not twice."""
    fold = folded(tool_call("run", 1))
    for call in ("c1", "nobody"):
        with pytest.raises(IllegalChunk):
            fold.answer(call, approved=True)
    folded_on = folded(tool_call("run", 1), approval())
    folded_on.answer("c1", approved=True)
    with pytest.raises(IllegalChunk, match="approval-response cannot follow approval-responded"):
        folded_on.answer("c1", approved=True)


def test_a_result_finds_its_call_in_an_earlier_step() -> None:
    """A call that waited for a human ends after the next step began."""
    fold = folded(step(tool_call("run", 1)), [c.StartStep()])
    assert fold.apply(c.ToolOutputAvailable("c1", 2)) == 1
    assert fold.find_tool("c1") == 1
    assert fold.find_tool("c2") is None


# What is refused.


@pytest.mark.rule("SV-2")
@pytest.mark.parametrize(
    ("before", "chunk", "sentence"),
    [
        ([], c.TextDelta("t1", "x"), "text-delta: no open text with the id 't1'"),
        (text("x"), c.TextDelta("t1", "x"), "text-delta: no open text with the id 't1'"),
        (text("x", open=True), c.ReasoningEnd("t1"), "reasoning-end: no open text with the id 't1'"),
        (text("x", open=True), c.TextStart("t1"), "text-start: 't1' is already open"),
        (step(text("x", open=True)), c.TextEnd("t1"), "text-end: no open text with the id 't1'"),
        (
            [],
            c.ToolOutputAvailable("c1", 1),
            "tool-output-available cannot follow nothing: there is no such tool call (c1)",
        ),
        ([], c.ToolInputDelta("c1", "{"), "tool-input-delta cannot follow nothing: there is no such tool call (c1)"),
        (
            tool_call("run", 1, open=True),
            c.ToolInputStart("c1", "run"),
            "tool-input-start cannot follow input-streaming of a tool call (c1)",
        ),
        (
            tool_call("run", 1, open=True),
            c.ToolOutputAvailable("c1", 1),
            "tool-output-available cannot follow input-streaming of a tool call (c1)",
        ),
        (
            tool_call("run", 1) + tool_output(1),
            c.ToolOutputAvailable("c1", 2),
            "tool-output-available cannot follow output-available of a tool call (c1)",
        ),
        (
            tool_call("run", 1) + tool_denied(),
            c.ToolOutputError("c1", "late"),
            "tool-output-error cannot follow output-denied of a tool call (c1)",
        ),
        (
            tool_call("run", 1) + tool_output(1),
            c.ToolInputAvailable("c1", "run", 1),
            "tool-input-available cannot follow output-available of a tool call (c1)",
        ),
        (
            [*tool_call("run", 1, open=True), c.StartStep()],
            c.ToolInputDelta("c1", "x"),
            "tool-input-delta: the tool call 'c1' began in an earlier step",
        ),
        (
            tool_call("run", 1, open=True),
            c.ToolInputAvailable("c1", "run", 1, dynamic=True),
            "the tool call 'c1' began as static",
        ),
        ([], c.Start("m2"), "start has the message id 'm2', expected 'm1'"),
    ],
)
def test_a_refused_chunk_changes_nothing(before: list[Chunk], chunk: Chunk, sentence: str) -> None:
    """Neither where it is located nor where it is applied; the sentence says what was wrong."""
    fold = folded(before)
    kept = (by_json(fold.message()), fold.open_ids)
    for take in (fold.locate, fold.apply):
        with pytest.raises(IllegalChunk) as refusal:
            take(chunk)
        assert str(refusal.value) == sentence
    assert (fold.message(), fold.open_ids) == kept


@pytest.mark.parametrize(
    ("index", "chunk", "sentence"),
    [
        (9, c.TextStart("t"), "text-start: no part 9"),
        (-1, c.TextDelta("t1", "x"), "text-delta: no part -1"),
        (0, c.TextStart("t"), "text-start begins a new part"),
        (3, c.TextDelta("t1", "x"), "text-delta cannot begin a part"),
        (3, c.Finish(), "finish cannot begin a part"),
        (0, c.ReasoningDelta("t1", "x"), "reasoning-delta for 't1': the part is not an open reasoning"),
        (1, c.ToolOutputAvailable("c2", 1), "tool-output-available: the part is not the tool call 'c2'"),
        (2, c.Data("note", 1, "other"), "data-note: the part holds other data"),
        (2, c.Data("note", 1), "data-note: the part holds other data"),
        (3, c.Data("note", 1, transient=True), "data-note is transient and has no part"),
        (None, c.Data("note", 1), "data-note needs a part"),
        (None, c.TextDelta("t1", "x"), "text-delta needs a part"),
        (None, c.Start("m2"), "start has the message id 'm2', expected 'm1'"),
    ],
)
def test_a_chunk_is_not_applied_where_it_does_not_belong(index: int | None, chunk: Chunk, sentence: str) -> None:
    """A journal that does not fit its parts is found out."""
    fold = folded(text("x", open=True), tool_call("run", 1), data("note", 1, id="n"))
    kept = by_json(fold.message())
    with pytest.raises(IllegalChunk) as refusal:
        fold.apply_at(index, chunk)
    assert str(refusal.value) == sentence
    assert fold.message() == kept
