"""What was changed at the gate says so, beside what the provider said itself."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clew.testing.chunks import tool_call, tool_output
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from tests.unit.sanitized_chunks import GONE, HIGH, LOW, REPLACED, parts, through

# Parts say so.


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_a_text_says_that_it_was_changed(kind: str) -> None:
    """In `providerMetadata.clew.replaced`, from the delta on that was changed."""
    start, delta, end = (c.TextStart, c.TextDelta, c.TextEnd)
    if kind == "reasoning":
        start, delta, end = (c.ReasoningStart, c.ReasoningDelta, c.ReasoningEnd)  # type: ignore[assignment]
    chunks = through(start("t"), delta("t", "a"), delta("t", "b\x00"), delta("t", "c"), end("t"))
    assert chunks == [
        start("t"),
        delta("t", "a"),
        delta("t", "b" + GONE, provider_metadata=REPLACED),
        delta("t", "c"),
        end("t", provider_metadata=REPLACED),
    ]
    [part] = parts(*chunks)
    assert (part["text"], part["providerMetadata"]) == (f"ab{GONE}c", REPLACED)


@pytest.mark.rule("ST-4")
def test_arguments_say_that_they_were_changed() -> None:
    """In `callProviderMetadata`: for arguments that come at once, and for those that were written bit by bit."""
    at_once, by_bits = parts(
        c.ToolInputAvailable("c1", "n", {"a": "\x00", "b": math.nan, "c": 2**64}),
        c.ToolInputStart("c2", "n"),
        c.ToolInputDelta("c2", '{"a": "\x00"}'),
        c.ToolInputAvailable("c2", "n", {"a": "x"}),
    )
    assert at_once == {
        "type": "tool-n",
        "toolCallId": "c1",
        "state": "input-available",
        "input": {"a": GONE, "b": "nan", "c": "18446744073709551616"},
        "callProviderMetadata": REPLACED,
    }
    assert (by_bits["input"], by_bits["callProviderMetadata"]) == ({"a": "x"}, REPLACED)


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("result", "key", "value"),
    [
        (c.ToolOutputAvailable("c1", ["\x00"]), "output", [GONE]),
        (c.ToolOutputAvailable("c1", {HIGH: LOW}, True), "output", {GONE: GONE}),
        (c.ToolOutputError("c1", "no\x00"), "errorText", "no" + GONE),
    ],
)
def test_an_output_says_that_it_was_changed_beside_a_call_that_was_not(result: Chunk, key: str, value: Any) -> None:
    """In `resultProviderMetadata`."""
    [part] = parts(*tool_call("n", {}), result)
    assert (part[key], part["resultProviderMetadata"]) == (value, REPLACED)
    assert "callProviderMetadata" not in part


@pytest.mark.rule("ST-4")
def test_a_call_that_was_changed_does_not_make_its_output_say_so() -> None:
    """Each of the two speaks for itself."""
    [part] = parts(c.ToolInputAvailable("c1", "n", "\x00"), *tool_output("clean"))
    assert part["callProviderMetadata"] == REPLACED
    assert "resultProviderMetadata" not in part


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("chunk", "part"),
    [
        (
            c.SourceUrl("s", "u\x00", "T"),
            {"type": "source-url", "sourceId": "s", "url": "u" + GONE, "title": "T", "providerMetadata": REPLACED},
        ),
        (
            c.SourceDocument("s", "text/plain", HIGH),
            {
                "type": "source-document",
                "sourceId": "s",
                "mediaType": "text/plain",
                "title": GONE,
                "providerMetadata": REPLACED,
            },
        ),
        (
            c.File("data:\x00", "image/png"),
            {"type": "file", "mediaType": "image/png", "url": "data:" + GONE, "providerMetadata": REPLACED},
        ),
        (
            c.Data("x", {"n": math.inf}, "1"),
            {"type": "data-x", "data": {"n": "inf"}, "id": "1", "providerMetadata": REPLACED},
        ),
        (
            c.ToolInputError("c", "n", "{\x00", "bad"),
            {
                "type": "tool-n",
                "toolCallId": "c",
                "state": "output-error",
                "rawInput": "{" + GONE,
                "errorText": "bad",
                "resultProviderMetadata": REPLACED,
            },
        ),
    ],
    ids=["source-url", "source-document", "file", "data", "input-error"],
)
def test_a_part_that_comes_at_once_says_that_it_was_changed(chunk: Chunk, part: dict[str, Any]) -> None:
    """Sources, files, data and calls that failed; and without the U+0000 they would say nothing."""
    assert parts(chunk) == [part]


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("metadata", ["text", 5, None, ["a"], {"clew": "text"}, {"clew": None}], ids=repr)
def test_data_that_was_changed_says_so_whatever_stood_in_its_place(metadata: Any) -> None:
    """A data part may carry any key, of any type; a model's chunk is never refused."""
    assert parts(c.Data("x", "\x00", extra={"providerMetadata": metadata})) == [
        {"type": "data-x", "data": GONE, "providerMetadata": REPLACED}
    ]


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("chunk", "cleaned"),
    [
        (c.Start("m1", {"a": "\x00"}), c.Start("m1", {"a": GONE})),
        (c.MessageMetadata({"a": math.nan}), c.MessageMetadata({"a": "nan"})),
        (c.Finish("stop", {HIGH: 1}), c.Finish("stop", {GONE: 1})),
        (c.Abort("\x00"), c.Abort(GONE)),
        (c.Error("\x00"), c.Error(GONE)),
        (c.StartStep(extra={"x": HIGH}), c.StartStep(extra={"x": GONE})),
        (c.ToolApprovalRequest("a", "c", {"d": 2**63}), c.ToolApprovalRequest("a", "c", {"d": str(2**63)})),
        (c.ToolOutputDenied("c", extra={"x": "\x00"}), c.ToolOutputDenied("c", extra={"x": GONE})),
    ],
    ids=lambda chunk: chunk.type,
)
def test_a_chunk_that_has_no_place_to_say_so_is_cleaned_all_the_same(chunk: Chunk, cleaned: Chunk) -> None:
    """It belongs to no part, or v6 gives it no metadata."""
    assert through(chunk) == [cleaned]


# The provider's own metadata.


@pytest.mark.rule("ST-4")
def test_what_the_provider_said_of_a_text_stands_beside_the_flag() -> None:
    """A client replaces metadata whole, so it is said again; the newest word of the provider counts."""
    [part] = parts(
        c.TextStart("t", provider_metadata={"p": {"a": 1}}),
        c.TextDelta("t", "\x00"),
        c.TextDelta("t", "b", provider_metadata={"p": {"a": 2}, "clew": {"x": 3}}),
        c.TextEnd("t"),
    )
    assert part["providerMetadata"] == {"p": {"a": 2}, "clew": {"x": 3, "replaced": True}}


@pytest.mark.rule("ST-4")
def test_what_the_provider_takes_back_stays_taken_back() -> None:
    """Empty metadata replaces what was there, and still says that the text was changed."""
    [part] = parts(
        c.TextStart("t", provider_metadata={"p": {"a": 1}}),
        c.TextDelta("t", "\x00", provider_metadata={}),
        c.TextEnd("t"),
    )
    assert part["providerMetadata"] == REPLACED


@pytest.mark.rule("ST-4")
def test_what_the_provider_said_of_a_call_and_of_its_result_stands_beside_each_flag() -> None:
    """A preliminary output's metadata is kept by the output that replaces it."""
    [part] = parts(
        c.ToolInputStart("c1", "n", provider_metadata={"p": {"call": 1}}),
        c.ToolInputDelta("c1", "\x00"),
        c.ToolInputAvailable("c1", "n", {}),
        c.ToolOutputAvailable("c1", 1, True, provider_metadata={"p": {"result": 1}}),
        c.ToolOutputAvailable("c1", "\x00"),
    )
    assert part["callProviderMetadata"] == {"p": {"call": 1}, **REPLACED}
    assert part["resultProviderMetadata"] == {"p": {"result": 1}, **REPLACED}


@pytest.mark.rule("ST-4")
def test_what_the_provider_said_of_whole_parts_stands_beside_the_flag() -> None:
    """Sources, files and data."""
    metadata = {"p": {"a": 1}}
    found = parts(
        c.SourceUrl("s", "\x00", provider_metadata=metadata),
        c.File("\x00", "image/png", provider_metadata=metadata),
        c.Data("x", "\x00", extra={"providerMetadata": metadata, "more": 2}),
    )
    assert [part["providerMetadata"] for part in found] == [{**metadata, **REPLACED}] * 3
    assert found[2]["more"] == 2


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("bad", ["\x00", math.nan, HIGH])
def test_metadata_itself_is_cleaned_and_says_so(bad: Any) -> None:
    """On a start, on a delta whose text is fine, and on a result."""
    cleaned = {"p": {"a": GONE if isinstance(bad, str) else "nan"}, **REPLACED}
    given_ = {"p": {"a": bad}}
    begun, grown, call = parts(
        c.TextStart("a", provider_metadata=given_),
        c.TextStart("b"),
        c.TextDelta("b", "fine", provider_metadata=given_),
        *tool_call("n", {}),
        c.ToolOutputAvailable("c1", 1, provider_metadata=given_),
    )
    assert begun["providerMetadata"] == grown["providerMetadata"] == call["resultProviderMetadata"] == cleaned


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("end", [[c.TextEnd("1")], [c.FinishStep(), c.StartStep()]], ids=["text-end", "finish-step"])
def test_an_id_that_is_used_again_names_another_part(end: list[Chunk]) -> None:
    """Providers count their texts anew in every step: neither flag nor metadata passes to the next one."""
    found = parts(
        c.TextStart("1", provider_metadata={"p": {"a": 1}}),
        c.TextDelta("1", "\x00"),
        *end,
        c.TextStart("1"),
        c.TextDelta("1", "fine"),
        c.TextEnd("1"),
    )
    assert found[0]["providerMetadata"] == {"p": {"a": 1}, **REPLACED}
    assert found[-1] == {"type": "text", "text": "fine", "state": "done"}


@pytest.mark.rule("ST-4")
def test_ids_are_cleaned_alike_in_every_chunk_that_names_them() -> None:
    """A text, and a call with its approval and its output, all under ids that no store keeps."""
    id_ = "1\x00"
    found = parts(
        c.StartStep(),
        c.TextStart(id_),
        c.TextDelta(id_, "plain"),
        c.TextDelta(id_, HIGH),
        c.TextEnd(id_),
        c.ToolInputStart(id_, "n"),
        c.ToolInputDelta(id_, "{" + HIGH),
        c.ToolInputAvailable(id_, "n", {}),
        c.ToolApprovalRequest("a" + HIGH, id_),
        c.FinishStep(),
    )
    assert [part.get("text") or part.get("toolCallId") for part in found] == [None, "plain" + GONE, "1" + GONE]
    assert found[2]["approval"] == {"id": "a" + GONE}
