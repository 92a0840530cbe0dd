"""The judge on what somebody was shown: it must be stored, and a part becomes only what it can become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.session.history.check import Problem, check
from clew.testing.chunks import data, reasoning, reply, step, text, tool_call, tool_output
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.fold_part import continues
from clew.transcript.session import SessionState
from tests.rig.streams import random_stream
from tests.unit.conversation_stores import replace, tell

# What somebody was shown.


async def test_what_was_shown_must_be_stored() -> None:
    """All of it, or something that goes on from it; in folded parts and in the journal."""
    told = await tell()
    shown = [c.StartStep(), *text("one two three", id="t", open=True)]
    for upto in range(len(shown) + 1):
        assert await check(told.store, {told.streaming: shown[:upto]}) == []
    lacking = Problem("the stored message lacks some of what was shown", told.session_id, told.streaming)
    assert await check(told.store, {told.streaming: [*shown, c.TextDelta("t", " four")]}) == [lacking]
    assert await check(told.store, {told.streaming: [*shown, *text("more", id="u")]}) == [lacking]


async def test_a_shown_chunk_that_the_journal_lost_is_found() -> None:
    """Cut off at the end, where the numbers have no gap."""
    told = await tell()
    shown = [c.StartStep(), *text("one two three", id="t", open=True)]
    told.rows.journal[told.streaming] = told.rows.journal[told.streaming][:-1]
    assert await check(told.store, {told.streaming: shown}) == [
        Problem("the stored message lacks some of what was shown", told.session_id, told.streaming)
    ]


async def test_a_message_that_was_shown_must_be_there() -> None:
    """Unless nothing of it had any part yet."""
    told = await tell()
    assert await check(told.store, {"msg_gone": [c.StartStep()]}) == [
        Problem("it was shown but is not stored", None, "msg_gone")
    ]
    assert await check(told.store, {"msg_gone": [c.Start("msg_gone")], "msg_none": []}) == []


async def test_what_is_no_stream_cannot_have_been_shown() -> None:
    """A mistake of the witness is said, not thrown."""
    told = await tell()
    sentence = "the shown chunks are not a valid stream: text-delta: no open text with the id 't'"
    assert await check(told.store, {told.streaming: [c.TextDelta("t", "x")], "msg_gone": [c.TextDelta("t", "x")]}) == [
        Problem(sentence, told.session_id, told.streaming),
        Problem(sentence, None, "msg_gone"),
    ]


# `extends`, by table.

TEXT = {"type": "text", "text": "one", "state": "streaming"}
CALL = {"type": "tool-n", "toolCallId": "c", "state": "input-streaming", "input": {}, "rawInput": '{"a'}
READY = {"type": "tool-n", "toolCallId": "c", "state": "input-available", "input": {"a": 1}}
ASKED = {**READY, "state": "approval-requested", "approval": {"id": "x"}}
ANSWERED = {**READY, "state": "approval-responded", "approval": {"id": "x", "approved": True}}
DONE = {**READY, "state": "output-available", "output": 1}
GOING = {**DONE, "preliminary": True}
FAILED = {**READY, "state": "output-error", "errorText": "no"}
DENIED = {**READY, "state": "output-denied"}
DATA = {"type": "data-x", "id": "1", "data": 1}
SOURCE = {"type": "source-url", "sourceId": "s", "url": "u"}


@pytest.mark.parametrize(
    ("after", "before"),
    [
        ([], []),
        ([TEXT], []),
        ([TEXT, SOURCE], [TEXT]),
        ([{**TEXT, "text": "one two"}], [TEXT]),
        ([{**TEXT, "state": "done"}], [TEXT]),
        ([{**TEXT, "text": "one two", "state": "done", "providerMetadata": {"a": {}}}], [TEXT]),
        ([{**TEXT, "type": "reasoning", "text": "one!"}], [{**TEXT, "type": "reasoning"}]),
        ([{**CALL, "rawInput": '{"a": 1}', "input": {"a": 1}}], [CALL]),
        *(([later], [CALL]) for later in (READY, ASKED, ANSWERED, DONE, GOING, FAILED, DENIED)),
        *(([later], [READY]) for later in (ASKED, ANSWERED, DONE, GOING, FAILED, DENIED)),
        *(([later], [ASKED]) for later in (ANSWERED, DONE, GOING, FAILED, DENIED)),
        *(([later], [ANSWERED]) for later in (DONE, GOING, FAILED, DENIED)),
        *(([later], [GOING]) for later in (DONE, FAILED, {**GOING, "output": 2}, {**DONE, "output": 2})),
        ([{**DATA, "data": 2}], [DATA]),
    ],
)
def test_what_a_part_can_have_become(after: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    """By further chunks."""
    assert continues(after, before)


@pytest.mark.parametrize(
    ("after", "before"),
    [
        ([], [TEXT]),
        ([SOURCE], [TEXT, SOURCE]),
        ([SOURCE, TEXT], [TEXT, SOURCE]),
        ([{**TEXT, "text": "on"}], [TEXT]),
        ([{**TEXT, "text": "two one"}], [TEXT]),
        ([{**TEXT, "type": "reasoning"}], [TEXT]),
        ([{**TEXT, "text": "one two", "state": "done"}], [{**TEXT, "state": "done"}]),
        ([TEXT], [{**TEXT, "state": "done"}]),
        ([{**CALL, "rawInput": '{"b'}], [CALL]),
        ([{**CALL, "rawInput": "{"}], [CALL]),
        ([{**CALL, "toolCallId": "d"}], [CALL]),
        ([{**CALL, "state": "thinking"}], [CALL]),
        ([{**READY, "state": "thinking"}], [READY]),
        *(([earlier], [READY]) for earlier in (CALL, {**READY, "input": {"a": 2}}, {**DONE, "input": {"a": 2}})),
        *(([earlier], [ASKED]) for earlier in (CALL, READY, {**ASKED, "approval": {"id": "y"}})),
        *(([earlier], [ANSWERED]) for earlier in (CALL, READY, ASKED)),
        *(([other], [DONE]) for other in (CALL, READY, ANSWERED, GOING, FAILED, DENIED, {**DONE, "output": 2})),
        *(([other], [FAILED]) for other in (CALL, READY, DONE, DENIED, {**FAILED, "errorText": "yes"})),
        *(([other], [DENIED]) for other in (READY, DONE, FAILED)),
        *(([other], [GOING]) for other in (CALL, READY, ANSWERED, DENIED, {**DONE, "input": {}})),
        ([{**DATA, "data": 2, "id": "2"}], [DATA]),
        ([{**DATA, "data": 2, "more": True}], [DATA]),
        ([{**DATA, "type": "data-y"}], [DATA]),
        ([{"type": "data-x", "data": 2}], [{"type": "data-x", "data": 1}]),
        ([{**SOURCE, "url": "v"}], [SOURCE]),
        ([{"type": "text", "text": "one"}], [{"type": "step-start"}]),
    ],
)
def test_what_a_part_cannot_have_become(after: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    """Shorter, other, earlier, or changed after its end."""
    assert not continues(after, before)


@given(st.integers(0, 100_000), st.data())
def test_a_stream_extends_each_of_its_beginnings(seed: int, draw: st.DataObject) -> None:
    """Any stream, cut anywhere: what the whole became is something the beginning can have become."""
    chunks = random_stream(seed)
    cut = draw.draw(st.integers(0, len(chunks)))
    whole, begun = Fold("m1"), Fold("m1")
    for place, chunk in enumerate(chunks):
        whole.apply(chunk)
        if place < cut:
            begun.apply(chunk)
    assert continues(whole.parts, begun.parts)


def test_the_transcript_of_a_turn_extends_itself_step_by_step() -> None:
    """A reply with reasoning, a call, data and an answer, chunk by chunk against the whole."""
    chunks = reply(
        step(reasoning("the weather"), tool_call("weather", {"city": "Oslo"}), tool_output({"celsius": 3})),
        step(data("progress", 1, id="p"), data("progress", 2, id="p"), text("Three degrees.")),
    )
    whole, begun = Fold("m1"), Fold("m1")
    for chunk in chunks:
        whole.apply(chunk)
    for chunk in chunks:
        assert continues(whole.parts, begun.parts)
        begun.apply(chunk)
    assert begun.parts == whole.parts


def test_a_state_as_a_store_gives_it_is_a_value() -> None:
    """What the cases above rely on."""
    assert replace(SessionState("a", "b", 1), open_turn_id=None) == SessionState("a", None, 1)
