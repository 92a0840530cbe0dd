"""The gate for a stream: characters cut in two, values no store keeps, and parts that say what happened to them."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.testing.chunks import approval, reply, step, text, tool_call, tool_error, tool_output
from clew.transcript import chunk as c
from clew.transcript.chunk import UNSET, Chunk, chunk_dict, encode_chunk, parse_chunk
from clew.transcript.chunk_sanitizer import ChunkSanitizer
from clew.transcript.fold import Fold
from clew.transcript.value_check import check_value, clean_text
from tests.rig.streams import random_stream
from tests.unit.sanitized_chunks import GONE, HIGH, LOW, REPLACED, parts, through

ENDS = [c.TextEnd("t"), c.FinishStep(), c.Finish(), c.Abort(), c.Error("it broke")]


def cut(whole: str, at: set[int]) -> list[str]:
    """Text as UTF-16 cut into pieces, whatever that does to its characters."""
    units = whole.encode("utf-16-le", "surrogatepass")
    ends = sorted({min(2 * place, len(units)) for place in at} | {0, len(units)})
    return [units[start:end].decode("utf-16-le", "surrogatepass") for start, end in pairwise(ends)] or [""]


# Characters cut in two.


@pytest.mark.rule("ST-4")
def test_a_character_cut_in_two_is_joined() -> None:
    """The half waits for its other half; nothing was replaced, so nothing is said."""
    assert through(c.TextStart("t"), c.TextDelta("t", "a" + HIGH), c.TextDelta("t", LOW + "b"), c.TextEnd("t")) == [
        c.TextStart("t"),
        c.TextDelta("t", "a"),
        c.TextDelta("t", "😀b"),
        c.TextEnd("t"),
    ]


@pytest.mark.rule("ST-4")
def test_a_half_waits_over_empty_deltas_and_for_its_own_part() -> None:
    """What comes for another part in between is neither held up nor mixed in."""
    assert parts(
        c.TextStart("a"),
        c.TextStart("b"),
        c.ReasoningStart("a"),
        c.ToolInputStart("a", "n", "text"),
        c.TextDelta("a", "1" + HIGH),
        c.ReasoningDelta("a", "2" + HIGH),
        c.ToolInputDelta("a", "3" + HIGH),
        c.TextDelta("b", LOW),
        c.TextDelta("a", ""),
        c.ReasoningDelta("a", LOW + HIGH),
        c.ToolInputDelta("a", LOW),
        c.TextDelta("a", LOW),
        c.ReasoningDelta("a", LOW),
        c.TextDelta("b", "plain"),
    ) == [
        {"type": "text", "text": "1😀", "state": "streaming"},
        {"type": "text", "text": GONE + "plain", "state": "streaming", "providerMetadata": REPLACED},
        {"type": "reasoning", "id": "a", "text": "2😀😀", "state": "streaming"},
        {
            "type": "tool-n",
            "toolCallId": "a",
            "state": "input-streaming",
            "inputEncoding": "text",
            "input": "3😀",
            "rawInput": "3😀",
        },
    ]


@pytest.mark.rule("ST-4")
def test_a_half_that_is_followed_by_something_else_is_replaced_in_its_place() -> None:
    """Plain text, another first half, and metadata without any text."""
    assert through(
        c.TextStart("t"),
        c.TextDelta("t", HIGH),
        c.TextDelta("t", "plain"),
        c.TextDelta("t", HIGH),
        c.TextDelta("t", HIGH),
        c.TextDelta("t", "", provider_metadata={"p": {}}),
        c.TextDelta("t", LOW),
    ) == [
        c.TextStart("t"),
        c.TextDelta("t", ""),
        c.TextDelta("t", GONE + "plain", provider_metadata=REPLACED),
        c.TextDelta("t", ""),
        c.TextDelta("t", GONE, provider_metadata=REPLACED),
        c.TextDelta("t", "", provider_metadata={"p": {}, **REPLACED}),
        c.TextDelta("t", "😀"),
    ]


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.type)
def test_a_half_of_a_text_that_is_never_completed_is_replaced_before_the_end(end: Chunk) -> None:
    """The last moment at which the part can still say it."""
    assert through(c.TextStart("t"), c.TextDelta("t", "a" + HIGH), end) == [
        c.TextStart("t"),
        c.TextDelta("t", "a"),
        c.TextDelta("t", GONE, provider_metadata=REPLACED),
        *([c.TextEnd("t", provider_metadata=REPLACED)] if isinstance(end, c.TextEnd) else [end]),
    ]


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("end", [c.ReasoningEnd("r"), *ENDS[1:]], ids=lambda end: end.type)
def test_a_half_of_a_reasoning_that_is_never_completed_is_replaced_before_the_end(end: Chunk) -> None:
    """As with a text."""
    assert through(c.ReasoningStart("r"), c.ReasoningDelta("r", HIGH), end) == [
        c.ReasoningStart("r"),
        c.ReasoningDelta("r", ""),
        c.ReasoningDelta("r", GONE, provider_metadata=REPLACED),
        *([c.ReasoningEnd("r", provider_metadata=REPLACED)] if isinstance(end, c.ReasoningEnd) else [end]),
    ]


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("end", [*ENDS[1:], c.StartStep()], ids=lambda end: end.type)
def test_a_half_of_arguments_that_is_never_completed_is_replaced_before_the_end(end: Chunk) -> None:
    """Arguments also end with their step, whether or not anybody says so."""
    assert through(c.ToolInputStart("c", "n"), c.ToolInputDelta("c", '{"a": "' + HIGH), end) == [
        c.ToolInputStart("c", "n"),
        c.ToolInputDelta("c", '{"a": "'),
        c.ToolInputDelta("c", GONE),
        end,
    ]


@pytest.mark.rule("ST-4")
def test_every_half_is_replaced_at_the_end_of_a_step() -> None:
    """Several parts at once, in the order they were cut."""
    assert parts(
        c.StartStep(),
        c.TextStart("a"),
        c.TextStart("b"),
        c.TextDelta("b", HIGH),
        c.TextDelta("a", HIGH),
        c.FinishStep(),
        c.Finish(),
    ) == [
        {"type": "step-start"},
        {"type": "text", "text": GONE, "state": "streaming", "providerMetadata": REPLACED},
        {"type": "text", "text": GONE, "state": "streaming", "providerMetadata": REPLACED},
    ]


@pytest.mark.rule("ST-4")
def test_a_half_of_a_text_may_find_its_other_half_in_the_next_step() -> None:
    """A step may begin without the last one having ended, and a text goes on."""
    assert parts(c.TextStart("t"), c.TextDelta("t", HIGH), c.StartStep(), c.TextDelta("t", LOW))[0] == {
        "type": "text",
        "text": "😀",
        "state": "streaming",
    }


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    "whole", [c.ToolInputAvailable("c", "n", {"a": "😀"}), c.ToolInputError("c", "n", '{"a":"😀', "cut off")]
)
def test_a_half_of_arguments_gives_way_when_they_come_whole(whole: Chunk) -> None:
    """What was written so far is no longer in the part, so nothing of it was replaced; the stream goes on."""
    start: list[Chunk] = [c.StartStep(), c.ToolInputStart("c", "n")]
    half = c.ToolInputDelta("c", '{"a":"' + HIGH)
    rest = [*text("fine"), c.FinishStep(), c.Finish()]
    assert parts(*start, half, whole, *rest) == parts(*start, whole, *rest)


@pytest.mark.rule("ST-4")
def test_arguments_that_were_cut_off_say_so_when_the_call_fails() -> None:
    """An abort settles the call with an error; its arguments stay as far as they came."""
    assert parts(
        c.ToolInputStart("c", "n", "text"), c.ToolInputDelta("c", "a" + HIGH), c.ToolOutputError("c", "aborted")
    ) == [
        {
            "type": "tool-n",
            "toolCallId": "c",
            "state": "output-error",
            "input": "a" + GONE,
            "rawInput": "a" + GONE,
            "errorText": "aborted",
            "resultProviderMetadata": REPLACED,
        }
    ]


@pytest.mark.rule("ST-4")
def test_a_half_for_a_part_that_is_not_open_is_not_held() -> None:
    """The fold refuses such a delta; the end of the step must not be refused for its sake."""
    gate = ChunkSanitizer()
    for _ in range(2):
        assert gate.clean(c.TextDelta("t", HIGH)) == (c.TextDelta("t", GONE, provider_metadata=REPLACED),)
    assert gate.clean(c.FinishStep()) == (c.FinishStep(),)


# What is fine is left alone.


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("content", ["", "plain", "é 漢 😀", GONE])
def test_a_delta_that_every_store_keeps_leaves_as_the_same_object(content: str) -> None:
    """It is the hot path."""
    gate = ChunkSanitizer()
    start: list[Chunk] = [c.TextStart("t"), c.ReasoningStart("t"), c.ToolInputStart("t", "n")]
    for chunk in (*start, c.TextDelta("t", content), c.ReasoningDelta("t", content), c.ToolInputDelta("t", content)):
        [clean] = gate.clean(chunk)
        assert clean is chunk


@pytest.mark.rule("ST-4")
@given(st.integers(0, 10_000))
def test_a_stream_that_every_store_keeps_leaves_as_the_same_objects(seed: int) -> None:
    """The whole vocabulary in any order."""
    gate = ChunkSanitizer()
    for chunk in random_stream(seed):
        [clean] = gate.clean(chunk)
        assert clean is chunk


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize(
    ("chunk", "value"),
    [
        (c.ToolOutputAvailable("c1", {"a": [HIGH + LOW]}), {"a": ["😀"]}),
        (c.ToolOutputAvailable("c1", {HIGH + LOW: (1, 2)}), {"😀": [1, 2]}),
    ],
)
def test_a_pair_inside_a_whole_value_is_joined_and_nothing_is_said(chunk: Chunk, value: Any) -> None:
    """As some JSON readers hand them over: two halves in one text."""
    [part] = parts(*tool_call("n", {}), chunk)
    assert part["output"] == value
    assert "resultProviderMetadata" not in part


# Properties.

units = st.sampled_from([HIGH, LOW, "\udbff", "\udc00", "a", "é", "\x00", GONE]) | st.characters(exclude_categories=[])
astral = st.sampled_from("a😀🧵") | st.characters(exclude_characters="\x00", exclude_categories=["Cs"])
places = st.sets(st.integers(0, 16))


@pytest.mark.rule("ST-4")
@given(st.text(astral), places, st.sampled_from(["text", "reasoning", "tool"]))
def test_text_cut_anywhere_is_folded_to_the_same_text(whole: str, at: set[int], kind: str) -> None:
    """Any text without U+0000, cut at any UTF-16 units into deltas: nothing is lost, nothing is said."""
    stream = _streamed(kind, cut(whole, at))
    [part] = parts(*stream)
    assert part["rawInput" if kind == "tool" else "text"] == whole
    assert "providerMetadata" not in part


@pytest.mark.rule("ST-4")
@given(st.text(units), places, st.sampled_from(["text", "reasoning"]))
def test_halves_cut_anywhere_are_folded_as_if_they_had_come_at_once(whole: str, at: set[int], kind: str) -> None:
    """Any sequence of UTF-16 units; the part says that something was replaced exactly when something was."""
    [part] = parts(*_streamed(kind, cut(whole, at)), c.FinishStep())
    cleaned, replaced = clean_text(whole)
    assert (part["text"], part.get("providerMetadata")) == (cleaned, REPLACED if replaced else None)


@pytest.mark.rule("ST-4")
@given(st.data())
def test_texts_that_come_at_once_do_not_touch_one_another(data: st.DataObject) -> None:
    """Three streams of halves, shuffled together."""
    wholes = [data.draw(st.text(units, max_size=8)) for _ in range(3)]
    waiting = {id_: cut(whole, data.draw(places)) for id_, whole in zip("abc", wholes, strict=True)}
    chunks: list[Chunk] = [c.TextStart(id_) for id_ in waiting]
    while left := [id_ for id_, deltas in waiting.items() if deltas]:
        id_ = data.draw(st.sampled_from(left))
        chunks.append(c.TextDelta(id_, waiting[id_].pop(0)))
    found = parts(*chunks, c.FinishStep())
    assert [(part["text"], "providerMetadata" in part) for part in found] == [clean_text(whole) for whole in wholes]


@pytest.mark.rule("ST-4")
@given(st.integers(0, 1_000_000))
def test_whatever_leaves_the_gate_can_be_kept_and_is_taken(seed: int) -> None:
    """A random stream with bad values put everywhere: encoded, checked, folded and never refused."""
    random = Random(seed)
    fold = Fold("m1")
    gate = ChunkSanitizer()
    for chunk in random_stream(seed):
        for clean in gate.clean(_spoiled(chunk, random)):
            check_value(chunk_dict(clean))
            assert parse_chunk(orjson.loads(orjson.dumps(chunk_dict(clean)))) == clean
            assert parse_chunk(msgspec.json.decode(encode_chunk(clean))) == clean
            fold.apply(clean)
    check_value(fold.parts)


@pytest.mark.rule("ST-4")
def test_a_deep_output_is_cut_so_that_its_part_can_be_kept() -> None:
    """Depth is counted from the part, not from the value in it."""
    output: Any = 1
    for _ in range(300):
        output = [output]
    found = parts(*reply(step(tool_call("n", {}), tool_output(output), text("fine"))))
    check_value(found[1])
    assert found[1]["resultProviderMetadata"] == REPLACED


def test_a_call_that_waits_for_a_human_and_then_fails_passes_unchanged() -> None:
    """Chunks without text of their own have nothing to say."""
    chunks = [*tool_call("n", {"a": 1}), *approval()]
    assert through(*chunks) == chunks
    assert through(*tool_error("no")) == tool_error("no")


def _streamed(kind: str, deltas: list[str]) -> list[Chunk]:
    if kind == "text":
        return [c.TextStart("t"), *(c.TextDelta("t", delta) for delta in deltas)]
    if kind == "reasoning":
        return [c.ReasoningStart("t"), *(c.ReasoningDelta("t", delta) for delta in deltas)]
    return [c.ToolInputStart("t", "n", "text"), *(c.ToolInputDelta("t", delta) for delta in deltas)]


_KEPT = {"type", "messageId", "toolName", "finishReason", "inputEncoding"}
_IDS = {"id", "toolCallId", "approvalId"}


def _spoiled(chunk: Chunk, random: Random) -> Chunk:
    """The chunk with what no store keeps put into its ids (always the same), its texts and its values."""
    wire = chunk_dict(chunk)
    for key, value in wire.items():
        if key in _IDS:
            wire[key] = f"{value}\x00"
        elif key not in _KEPT:
            wire[key] = _spoiled_value(value, random)
    known = msgspec.structs.replace(chunk, extra=UNSET)
    spoiled = parse_chunk({key: value for key, value in wire.items() if key in chunk_dict(known)})
    if chunk.extra is UNSET:
        return spoiled
    return msgspec.structs.replace(spoiled, extra={key: wire[key] for key in chunk.extra})


def _spoiled_value(value: Any, random: Random) -> Any:
    if isinstance(value, str):
        at = random.randint(0, len(value))
        return value[:at] + random.choice(["", "", "\x00", HIGH, LOW, HIGH + LOW, LOW + HIGH]) + value[at:]
    if isinstance(value, dict):
        return {_spoiled_value(key, random): _spoiled_value(item, random) for key, item in value.items()}
    if isinstance(value, list):
        return [_spoiled_value(item, random) for item in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return random.choice([value, math.nan, math.inf, 2**63, -(2**70)])
    return value
