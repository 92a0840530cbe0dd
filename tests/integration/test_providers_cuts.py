"""Real models whose answers are cut off, or are garbage."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from clew.providers.base import EndpointKind, ProviderFailure, StepEnd
from clew.providers.pydantic_ai import endpoint
from clew.transcript import chunk as c
from clew.transcript.usage import Usage
from tests.integration.wire_answers import answer, failed, talk, text_of
from tests.integration.wire_server import (
    ANTHROPIC,
    HALF_CLOSE,
    OPENAI,
    RESET,
    RESPONSES,
    Pause,
    Step,
    WireServer,
    chunked,
    ok,
    sse,
)
from tests.integration.wire_talk import Items, Talk, anthropic, openai, wire
from tests.rounds import ROUNDS, rounds

__all__ = ["anthropic", "openai", "talk", "wire"]

pytestmark = pytest.mark.slow

# Cut


@pytest.mark.parametrize("ending", ["end", "reset", "chunked"])
async def test_a_stream_cut_at_any_byte(talk: Talk, ending: str) -> None:
    """Up to the last whole event, in order, nothing guessed; then a failure that another try may mend.

    An answer counts as whole from the event on that says why it ended.
    """
    events = answer(talk)
    whole = b"".join(events)
    *complete, end = await talk.play(*ok(), whole)
    assert isinstance(end, StepEnd)
    says_why = (b'"tool_calls"}', b'"tool_use"', b'"response.completed"')
    ends = [index for index, event in enumerate(events) if any(word in event for word in says_why)]
    enough = len(b"".join(events[: ends[-1] + 1]))
    longest = 0
    cuts = cuts_of(events, 10 if ending == "end" else 20)
    for at in cuts:
        piece = whole[:at]
        steps: list[Step] = chunked([piece] if piece else [], end=False) if ending == "chunked" else [*ok(), piece]
        got: Items = []
        if at >= enough:
            # A reset may overtake bytes that were sent before it, also those that say why it ended.
            with contextlib.suppress(ProviderFailure) if ending == "reset" else contextlib.nullcontext():
                assert (await talk.play(*steps, *([RESET] if ending == "reset" else [])))[:-1] == complete
            continue
        failure = await failed(talk, *steps, *([RESET] if ending == "reset" else []), into=got)
        assert failure.kind in (("transient", "invalid") if got else ("transient",)), (at, failure)
        assert got == complete[: len(got)], at
        # Otherwise what was heard stays heard.
        assert ending == "reset" or len(got) >= longest
        longest = len(got)
    assert len(talk.wire.requests) == len(cuts) + 1


def cuts_of(events: list[bytes], stride: int) -> list[int]:
    """Every so many bytes, each byte around the end of an event and each inside a character; all of them when there are
    rounds enough."""
    whole = b"".join(events)
    ends = {sum(map(len, events[:index])) + beside for index in range(len(events) + 1) for beside in (-2, -1, 0, 1)}
    torn = {at for at, byte in enumerate(whole) if byte & 0xC0 == 0x80}
    every = range(0, len(whole), max(stride * len(whole) // 700 * 100 // ROUNDS, 1))
    return sorted((ends | torn | set(every)) & set(range(len(whole))))


async def test_a_stream_that_ends_in_the_middle_of_a_character_is_not_guessed(talk: Talk) -> None:
    """The event with the torn character is not used."""
    whole = b"".join(answer(talk))
    at = whole.index("🙂".encode()) + 2
    got: Items = []
    failure = await failed(talk, *ok(), whole[:at], into=got)
    assert (failure.kind in ("transient", "invalid"), text_of(got)) == (True, "Grüße ")


async def test_a_connection_that_is_closed_one_way_counts_as_cut(talk: Talk) -> None:
    """The other way being open helps nobody."""
    failure = await failed(talk, *ok(), b"".join(answer(talk)[:2]), HALF_CLOSE)
    assert failure.kind == "transient"
    await asyncio.wait_for(talk.wire.requests[0].gone.wait(), 60)


# Garbage


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"data: {not json}\n\n",
        b"event: message_start\ndata: {not json}\n\n",
        b"event: message_start\ndata: \xff\xfe\n\n",
        b"data: \xff\xfe\n\n",
        b"<html><body>Welcome to the hotel network</body></html>",
        b"\x00" * 5000,
        b'data: null\n\ndata: [1]\n\ndata: "text"\n\n',
        b"event: message_stop\ndata: {}\n\n",
        b"data: [DONE]\n\n",
        b"\r\n" * 1000,
    ],
)
async def test_garbage_instead_of_an_answer_may_be_tried_again(talk: Talk, garbage: bytes) -> None:
    """Nothing of it was used."""
    got: Items = []
    failure = await failed(talk, *ok(), garbage, into=got)
    assert (failure.kind, got) == ("transient", [])


@pytest.mark.parametrize("garbage", [b"event: message_stop\ndata: {oops\n\n", b"event: ping\ndata: \xff\n\n"])
async def test_garbage_in_the_middle_of_an_answer_ends_it(talk: Talk, garbage: bytes) -> None:
    """What was said before stays said."""
    events = answer(talk)
    at = next(index for index, event in enumerate(events) if "Grüße".encode() in event) + 1
    got: Items = []
    failure = await failed(talk, *ok(), *events[:at], garbage, *events[at:], into=got)
    assert failure.kind in ("invalid", "transient")
    assert text_of(got) == "Grüße "


async def test_unknown_events_and_fields_are_passed_over(talk: Talk) -> None:
    """Providers add things."""
    known = await talk.play(*ok(), *answer(talk))
    news = [
        sse({"type": "content_block_news", "index": 0, "novelty": True}, "content_block_news"),
        sse({"object": "chat.completion.news", "choices": None, "id": "chatcmpl-1", "model": "gpt-test"}),
        b": a comment\n\n",
    ]
    mixed = [event for pair in zip(answer(talk), news * 9, strict=False) for event in pair]
    assert await talk.play(*ok(), *mixed) == known


async def test_events_in_any_order_never_make_an_illegal_chunk(talk: Talk) -> None:
    """Shuffled, doubled, dropped and bent: a whole answer or a typed failure, and the fold takes every chunk."""
    dice = random.Random(20_261_115)
    outcomes: set[str] = set()
    for _ in range(rounds(100)):
        events = list(answer(talk))
        for _ in range(dice.randint(1, 6)):
            index = dice.randrange(len(events))
            trick = dice.randrange(5)
            if trick == 0:
                events.insert(index, events.pop(dice.randrange(len(events))))
            elif trick == 1:
                events.insert(index, dice.choice(events))
            elif trick == 2 and len(events) > 1:
                events.pop(index)
            elif trick == 3:
                events[index] = (
                    events[index].replace(b'"index": 0', b'"index": 1').replace(b'"index": 2', b'"index": 0')
                )
            else:
                events[index] = events[index].replace(b'": "', b'": null, "x": "', 1)
        try:
            await talk.play(*ok(), *events)
        except ProviderFailure as failure:
            outcomes.add(failure.kind)
        else:
            outcomes.add("whole")
    assert "whole" in outcomes
    assert outcomes <= {"whole", "transient", "invalid"}


async def test_a_line_without_end_does_not_fill_the_memory(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up at a bound, long before the server is done with it."""
    monkeypatch.setattr(endpoint, "LONGEST_LINE", 100_000)
    sent: Items = []
    endless = [b"data: ", *([b"x" * 65_536] * 1_000)]
    failure = await failed(talk, *ok(), *endless, Pause(asyncio.Event()), into=sent)
    assert (failure.kind, sent) == ("transient", [])
    assert "longer than 100000 bytes" in str(failure)


async def test_late_words_for_a_text_that_was_closed_are_kept(anthropic: Talk) -> None:
    """They open a text of their own: nothing is lost and nothing is illegal."""
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        ANTHROPIC.open(0, {"type": "text", "text": ""}),
        ANTHROPIC.delta(0, {"type": "text_delta", "text": "one "}),
        *ANTHROPIC.text_block(1, "two "),
        ANTHROPIC.delta(0, {"type": "text_delta", "text": "three"}),
        ANTHROPIC.close(0),
        *ANTHROPIC.stop(),
    )
    assert text_of(got) == "one two three"
    assert len({item.id for item in got if isinstance(item, c.TextStart)}) == 3


# What was used


@pytest.mark.rule("US-1")
async def test_usage_is_told_when_the_wire_says_it_and_no_failure_loses_it(anthropic: Talk) -> None:
    """The input is counted in the first event, before a word; the output again with the reason it stopped."""
    start = ANTHROPIC.start(
        input_tokens=100, output_tokens=1, cache_read_input_tokens=40, cache_creation_input_tokens=7
    )
    first = Usage(input=100, output=1, cache_read=40, cache_write=7)
    delta, stop = ANTHROPIC.stop(output_tokens=30)
    words = ANTHROPIC.text_block(0, "one ", "two")
    end = (await anthropic.play(*ok(), start, *words, delta, stop))[-1]
    whole = Usage(input=100, output=30, cache_read=40, cache_write=7)
    assert (anthropic.said, end) == (
        [first],
        StepEnd(usage=whole, data={"response_id": "msg_1", "response_model": "claude-test"}),
    )
    for count in range(1, len(words) + 1):
        await failed(anthropic, *ok(), start, *words[: count - 1])
        assert anthropic.said == [first]
    # Once it has said why it stopped, what breaks takes nothing back.
    assert (await anthropic.play(*ok(), start, *words, delta, b"event: message_stop\ndata: {oops\n\n"))[-1] == end


@pytest.mark.rule("US-1")
async def test_usage_that_comes_before_a_failure_counts_on_the_wire_of_openai(openai: Talk) -> None:
    """It is told last there; an error after it does not take it back."""
    await failed(openai, *ok(), *OPENAI.text("hi")[:2], OPENAI.usage(50, 9, cached=20), OPENAI.error("overloaded"))
    assert openai.said == [Usage(input=30, output=9, cache_read=20)]


@pytest.mark.rule("RN-9")
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("kind", ["openai", "openai-responses"])
async def test_a_refusal_that_is_cut_is_no_whole_one_and_keeps_its_words(
    wire: WireServer, kind: EndpointKind, broken: bool
) -> None:
    """The first word of it says that it is one, and not that it has ended."""
    events = {
        "openai": [OPENAI.chunk({"refusal": "I can"}), OPENAI.chunk({"refusal": "not"})],
        "openai-responses": [*RESPONSES.created(), *RESPONSES.message(0, "I can", "not", kind="refusal")[:4]],
    }
    talk = Talk(wire, kind)
    got: Items = []
    await failed(talk, *(chunked(events[kind], end=False) if broken else [*ok(), *events[kind]]), into=got)
    assert text_of(got) == "I cannot"
    await talk.provider.close()
