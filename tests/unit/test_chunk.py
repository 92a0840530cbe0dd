"""The chunk vocabulary: what is a chunk, what is not, and the way to the wire and back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import IllegalChunk
from clew.transcript import chunk as c
from clew.transcript.chunk import CHUNK_TYPES, chunk_dict, decode_rows, encode_chunk, encode_rows, parse_chunk
from tests.rig.streams import random_stream

METADATA = {"provider": {"key": [1, None]}}
ABOUT_TOOL = {
    "providerExecuted": False,
    "providerMetadata": METADATA,
    "toolMetadata": {"a": None},
    "dynamic": False,
}
WHOLE: list[dict[str, Any]] = [
    {"type": "start", "messageId": "m1", "messageMetadata": {"a": 1}},
    {"type": "start-step"},
    {"type": "finish-step"},
    {"type": "text-start", "id": "t", "providerMetadata": METADATA},
    {"type": "text-delta", "id": "t", "delta": "x", "providerMetadata": METADATA},
    {"type": "text-end", "id": "t", "providerMetadata": METADATA},
    {"type": "reasoning-start", "id": "r", "providerMetadata": METADATA},
    {"type": "reasoning-delta", "id": "r", "delta": "x", "providerMetadata": METADATA},
    {"type": "reasoning-end", "id": "r", "providerMetadata": METADATA},
    {
        "type": "tool-input-start",
        "toolCallId": "c",
        "toolName": "n",
        "inputEncoding": "text",
        "title": "",
        **ABOUT_TOOL,
    },
    {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{"},
    {
        "type": "tool-input-available",
        "toolCallId": "c",
        "toolName": "n",
        "input": None,
        "title": "T",
        **ABOUT_TOOL,
    },
    {
        "type": "tool-input-error",
        "toolCallId": "c",
        "toolName": "n",
        "input": "{",
        "errorText": "no",
        "title": "T",
        **ABOUT_TOOL,
    },
    {
        "type": "tool-approval-request",
        "approvalId": "a",
        "toolCallId": "c",
        "approvalDescriptor": {"x": 1},
        "inputSchemaInput": None,
        "signature": "s",
    },
    {"type": "tool-output-available", "toolCallId": "c", "output": None, "preliminary": False, **ABOUT_TOOL},
    {"type": "tool-output-error", "toolCallId": "c", "errorText": "no", **ABOUT_TOOL},
    {"type": "tool-output-denied", "toolCallId": "c"},
    {"type": "source-url", "sourceId": "s", "url": "u", "title": "T", "providerMetadata": METADATA},
    {
        "type": "source-document",
        "sourceId": "s",
        "mediaType": "text/plain",
        "title": "T",
        "filename": "f",
        "providerMetadata": METADATA,
    },
    {"type": "file", "url": "u", "mediaType": "image/png", "providerMetadata": METADATA},
    {"type": "data-weather", "data": None, "id": "d", "transient": False},
    {"type": "message-metadata", "messageMetadata": None},
    {"type": "finish", "finishReason": "tool-calls", "messageMetadata": {"a": 1}},
    {"type": "abort", "reason": "why"},
    {"type": "error", "errorText": "no"},
]
REQUIRED = {
    "text-start": {"id"},
    "text-delta": {"id", "delta"},
    "text-end": {"id"},
    "reasoning-start": {"id"},
    "reasoning-delta": {"id", "delta"},
    "reasoning-end": {"id"},
    "tool-input-start": {"toolCallId", "toolName"},
    "tool-input-delta": {"toolCallId", "inputTextDelta"},
    "tool-input-available": {"toolCallId", "toolName", "input"},
    "tool-input-error": {"toolCallId", "toolName", "input", "errorText"},
    "tool-approval-request": {"approvalId", "toolCallId"},
    "tool-output-available": {"toolCallId", "output"},
    "tool-output-error": {"toolCallId", "errorText"},
    "tool-output-denied": {"toolCallId"},
    "source-url": {"sourceId", "url"},
    "source-document": {"sourceId", "mediaType", "title"},
    "file": {"url", "mediaType"},
    "data-weather": {"data"},
    "message-metadata": {"messageMetadata"},
    "error": {"errorText"},
}


def by_type(obj: dict[str, Any]) -> str:
    return str(obj["type"])


def test_the_examples_are_the_whole_vocabulary() -> None:
    """One example a type, in the order of the list."""
    assert [obj["type"].replace("data-weather", "data-*") for obj in WHOLE] == list(CHUNK_TYPES)


@pytest.mark.parametrize("obj", WHOLE, ids=by_type)
def test_a_chunk_goes_out_as_it_came_in(obj: dict[str, Any]) -> None:
    """Every field of every type, nulls and falses included, by both ways to the wire."""
    chunk = parse_chunk(obj)
    assert chunk.type == obj["type"]
    assert chunk_dict(chunk) == obj
    assert json.loads(encode_chunk(chunk)) == obj
    assert next(iter(chunk_dict(chunk))) == "type"
    assert encode_chunk(chunk).startswith(b'{"type":')


@pytest.mark.parametrize("obj", WHOLE, ids=by_type)
def test_what_is_absent_stays_absent(obj: dict[str, Any]) -> None:
    """With only what it must have, a chunk has nothing else, on the wire or as a dict."""
    least = {key: value for key, value in obj.items() if key in REQUIRED.get(obj["type"], set()) | {"type"}}
    assert chunk_dict(parse_chunk(least)) == least
    assert json.loads(encode_chunk(parse_chunk(least))) == least


@pytest.mark.parametrize("obj", WHOLE, ids=by_type)
def test_a_chunk_without_a_field_it_needs_is_refused(obj: dict[str, Any]) -> None:
    """Each required field is missed by name."""
    for key in REQUIRED.get(obj["type"], set()):
        with pytest.raises(IllegalChunk, match=f"invalid {obj['type']} chunk: .*{key}"):
            parse_chunk({name: value for name, value in obj.items() if name != key})


@pytest.mark.rule("ST-5")
@pytest.mark.parametrize("obj", WHOLE, ids=by_type)
def test_fields_nobody_knows_are_kept(obj: dict[str, Any]) -> None:
    """Also when they are called like something of ours."""
    more = {**obj, "x-new": {"deep": [1]}, "extra": None, "name": 1}
    chunk = parse_chunk(more)
    assert chunk.extra == {"x-new": {"deep": [1]}, "extra": None, "name": 1}
    assert chunk_dict(chunk) == more
    assert json.loads(encode_chunk(chunk)) == more


def test_a_field_cannot_be_overruled_by_an_unknown_one() -> None:
    """A known field wins over its namesake in extra."""
    chunk = c.TextDelta("t", "x", extra={"delta": "y", "type": "z", "more": 1})
    assert chunk_dict(chunk) == {"type": "text-delta", "id": "t", "delta": "x", "more": 1}


@pytest.mark.parametrize(
    ("obj", "sentence"),
    [
        (5, "a chunk must be an object with a string in 'type'"),
        ([], "a chunk must be an object with a string in 'type'"),
        ({}, "a chunk must be an object with a string in 'type'"),
        ({"type": None}, "a chunk must be an object with a string in 'type'"),
        ({"type": "text"}, "unknown chunk type 'text'"),
        ({"type": "reset-step"}, "unknown chunk type 'reset-step'"),
        ({"type": "text-start", "id": 1}, "invalid text-start chunk: Expected `str`, got `int` - at `$.id`"),
        (
            {"type": "text-start", "id": "t", "providerMetadata": None},
            "invalid text-start chunk: Expected `object`, got `null` - at `$.providerMetadata`",
        ),
        (
            {"type": "text-start", "id": "t", "providerMetadata": {"p": []}},
            "invalid text-start chunk: Expected `object`, got `array` - at `$.providerMetadata[...]`",
        ),
        (
            {"type": "finish", "finishReason": "aborted"},
            "invalid finish chunk: Invalid enum value 'aborted' - at `$.finishReason`",
        ),
        (
            {"type": "finish", "messageMetadata": "text"},
            "invalid finish chunk: Expected `object | null`, got `str` - at `$.messageMetadata`",
        ),
        (
            {"type": "data-x", "data": 1, "id": 2},
            "invalid data-x chunk: Expected `str`, got `int` - at `$.id`",
        ),
    ],
)
def test_what_is_no_chunk_is_refused_with_a_sentence(obj: Any, sentence: str) -> None:
    """The sentence names the type, the field and what was there instead."""
    with pytest.raises(IllegalChunk) as refusal:
        parse_chunk(obj)
    assert str(refusal.value) == sentence


def test_a_chunk_cannot_be_changed() -> None:
    """Chunks are shared between the fold, the journal and viewers."""
    chunk = c.TextDelta("t", "x")
    with pytest.raises(AttributeError):
        chunk.delta = "y"  # type: ignore[misc]


@given(st.integers(0, 10**9))
def test_rows_come_back_from_the_journal_as_they_went_in(seed: int) -> None:
    """Any stream, with places, in one JSON array; in full its chunks stand in it as they do on the wire."""
    chunks = random_stream(seed)
    rows: list[c.JournalRow] = [("m1", n, None if n % 7 == 0 else n, chunk) for n, chunk in enumerate(chunks, start=1)]
    encoded = encode_rows(rows)
    assert decode_rows(encoded) == rows
    assert decode_rows(encoded.decode()) == rows
    in_full = encode_rows(rows, in_full=True)
    assert [row[3] for row in msgspec.json.decode(in_full)] == [chunk_dict(chunk) for chunk in chunks]
    assert decode_rows(in_full) == rows


def test_plain_words_stand_in_a_row_without_the_names_of_their_fields() -> None:
    """What says more than its words stands there as it does on the wire."""
    chunks: list[c.Chunk] = [
        c.TextDelta("t1", "so "),
        c.ReasoningDelta("r1", "hm"),
        c.ToolInputDelta("call_1", '{"at'),
        c.TextDelta("t1", "", provider_metadata={"p": {"k": 1}}),
        c.ReasoningDelta("r1", "", provider_metadata={}),
        c.ToolInputDelta("call_1", "", extra={"more": None}),
        c.TextEnd("t1"),
    ]
    rows: list[c.JournalRow] = [("m", n, 0, chunk) for n, chunk in enumerate(chunks, 1)]
    assert msgspec.json.decode(encode_rows(rows)) == [
        ["m", 1, 0, "t1", "so "],
        ["m", 2, 0, "r1", "hm", "reasoning"],
        ["m", 3, 0, "call_1", '{"at', "tool-input"],
        ["m", 4, 0, {"type": "text-delta", "id": "t1", "delta": "", "providerMetadata": {"p": {"k": 1}}}],
        ["m", 5, 0, {"type": "reasoning-delta", "id": "r1", "delta": "", "providerMetadata": {}}],
        ["m", 6, 0, {"type": "tool-input-delta", "toolCallId": "call_1", "inputTextDelta": "", "more": None}],
        ["m", 7, 0, {"type": "text-end", "id": "t1"}],
    ]
    assert decode_rows(encode_rows(rows)) == rows


@pytest.mark.parametrize(
    "entry",
    [
        ["m", 1, 0],
        ["m", 1, 0, "t1"],
        ["m", 1, 0, 7, "words"],
        ["m", 1, 0, "t1", 7],
        ["m", 1, 0, "t1", "words", "another"],
        ["m", 1, 0, "t1", "words", "reasoning", 1],
        ["m", "1", 0, "t1", "words"],
        [7, 1, 0, "t1", "words"],
    ],
)
def test_what_is_no_row_is_refused(entry: list[Any]) -> None:
    """A row that reads as something else than what was written would be put together wrongly."""
    with pytest.raises((msgspec.DecodeError, IllegalChunk)):
        decode_rows(msgspec.json.encode([entry]))
