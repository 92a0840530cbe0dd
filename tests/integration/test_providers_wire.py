"""Real models over real wires: Anthropic messages and OpenAI chat completions, as bytes over a socket.

What a whole answer becomes, what a conversation looks like to the provider, and what is counted. What goes wrong is
in ``test_providers_faults``.
"""

from __future__ import annotations

import asyncio

import pytest

from clew.providers.base import ModelRequest, StepEnd
from clew.providers.pydantic_ai.stream import _CallIds
from clew.transcript import chunk as c
from clew.transcript.usage import Usage
from tests.integration.wire_server import ANTHROPIC, OPENAI, ok
from tests.integration.wire_talk import Talk, anthropic, assistant, calls_of, openai, user, wire

__all__ = ["anthropic", "openai", "wire"]

pytestmark = pytest.mark.slow


def stamp(request: ModelRequest) -> str:
    return _CallIds(request).stamp


# Answers


async def test_anthropic_text_and_reasoning(anthropic: Talk) -> None:
    """Chunk for chunk; the signature that the provider wants back goes with the reasoning."""
    asked = anthropic.request()
    mark = stamp(asked)
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        ANTHROPIC.ping,
        *ANTHROPIC.thinking_block(0, "let me ", "see", signature="signed"),
        *ANTHROPIC.text_block(1, "Grüße, ", "", "世界 🙂"),
        *ANTHROPIC.stop(),
        asked=asked,
    )
    assert got == [
        c.ReasoningStart(f"reasoning_{mark}_1"),
        c.ReasoningDelta(f"reasoning_{mark}_1", "let me "),
        c.ReasoningDelta(f"reasoning_{mark}_1", "see"),
        c.ReasoningEnd(f"reasoning_{mark}_1", provider_metadata={"anthropic": {"signature": "signed"}}),
        c.TextStart(f"text_{mark}_2"),
        c.TextDelta(f"text_{mark}_2", "Grüße, "),
        c.TextDelta(f"text_{mark}_2", "世界 🙂"),
        c.TextEnd(f"text_{mark}_2"),
        StepEnd(
            usage=Usage(input=10, output=5),
            data={"response_id": "msg_1", "response_model": "claude-test"},
        ),
    ]


async def test_openai_text_and_reasoning(openai: Talk) -> None:
    """Reasoning comes in a field of its own, which is remembered to send it back the same way."""
    asked = openai.request()
    mark = stamp(asked)
    got = await openai.play(
        *ok(),
        OPENAI.chunk({"role": "assistant", "content": ""}),
        OPENAI.chunk({"reasoning_content": "let me see"}),
        OPENAI.chunk({"content": "Grüße, "}),
        b": keep-alive\n\n",
        OPENAI.chunk({"content": "世界 🙂"}),
        OPENAI.chunk({}, "stop"),
        OPENAI.usage(),
        OPENAI.done,
        asked=asked,
    )
    assert got == [
        c.ReasoningStart(f"reasoning_{mark}_1"),
        c.ReasoningDelta(f"reasoning_{mark}_1", "let me see"),
        c.ReasoningEnd(f"reasoning_{mark}_1", provider_metadata={"local": {"id": "reasoning_content"}}),
        c.TextStart(f"text_{mark}_2"),
        c.TextDelta(f"text_{mark}_2", "Grüße, "),
        c.TextDelta(f"text_{mark}_2", "世界 🙂"),
        c.TextEnd(f"text_{mark}_2"),
        StepEnd(
            usage=Usage(input=10, output=5),
            data={"response_id": "chatcmpl-1", "response_model": "gpt-test"},
        ),
    ]


async def test_reasoning_that_is_kept_secret_is_still_kept(anthropic: Talk) -> None:
    """There is nothing to read in it, but the provider wants it back."""
    hidden = {"type": "redacted_thinking", "data": "encrypted"}
    asked = anthropic.request()
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        *ANTHROPIC.block(0, hidden),
        *ANTHROPIC.text_block(1, "hi"),
        *ANTHROPIC.stop(),
        asked=asked,
    )
    id_ = f"reasoning_{stamp(asked)}_1"
    kept = {"anthropic": {"id": "redacted_thinking", "signature": "encrypted"}}
    assert got[:2] == [c.ReasoningStart(id_), c.ReasoningEnd(id_, provider_metadata=kept)]


async def test_anthropic_tool_calls(anthropic: Talk) -> None:
    """Arguments as they are written, then the calls; one without arguments has none."""
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        *ANTHROPIC.text_block(0, "Let me look."),
        *ANTHROPIC.tool_block(1, "toolu_0123456789abcdef", "read", '{"path"', ': "a.txt"}'),
        *ANTHROPIC.tool_block(2, "toolu_abcdef0123456789", "ls"),
        *ANTHROPIC.stop("tool_use"),
    )
    assert got[3:] == [
        c.ToolInputStart("toolu_0123456789abcdef", "read"),
        c.ToolInputDelta("toolu_0123456789abcdef", '{"path"'),
        c.ToolInputDelta("toolu_0123456789abcdef", ': "a.txt"}'),
        c.ToolInputStart("toolu_abcdef0123456789", "ls"),
        c.ToolInputAvailable("toolu_0123456789abcdef", "read", {"path": "a.txt"}),
        c.ToolInputAvailable("toolu_abcdef0123456789", "ls", {}),
        StepEnd(
            usage=Usage(input=10, output=5),
            finish_reason="tool-calls",
            data={"response_id": "msg_1", "response_model": "claude-test"},
        ),
    ]


async def test_openai_tool_calls_that_are_written_in_turns(openai: Talk) -> None:
    """Pieces of two calls may alternate; each goes to its own."""
    first, second = "call_0123456789abcdef", "call_abcdef0123456789"
    got = await openai.play(
        *ok(),
        OPENAI.call(0, first, "read", ""),
        OPENAI.call(1, second, "ls", ""),
        OPENAI.call(0, None, None, '{"path":'),
        OPENAI.call(1, None, None, "{}"),
        OPENAI.call(0, None, None, '"a"}'),
        OPENAI.chunk({}, "stop"),
        OPENAI.usage(),
        OPENAI.done,
    )
    assert got == [
        c.ToolInputStart(first, "read"),
        c.ToolInputStart(second, "ls"),
        c.ToolInputDelta(first, '{"path":'),
        c.ToolInputDelta(second, "{}"),
        c.ToolInputDelta(first, '"a"}'),
        c.ToolInputAvailable(first, "read", {"path": "a"}),
        c.ToolInputAvailable(second, "ls", {}),
        StepEnd(
            usage=Usage(input=10, output=5),
            finish_reason="tool-calls",
            data={"response_id": "chatcmpl-1", "response_model": "gpt-test"},
        ),
    ]


@pytest.mark.parametrize(
    "written", ["{not json", "[1, 2]", '"text"', "null", '{"n": NaN}', '{"a":1}{"b":2}', "[" * 9999]
)
async def test_arguments_that_are_no_object_are_an_error_of_the_call(
    anthropic: Talk, openai: Talk, written: str
) -> None:
    """With what was written, on both wires; the rest of the answer is not affected."""
    error = "the arguments are not a JSON object"
    got = await openai.play(*ok(), *OPENAI.calls(OPENAI.call(0, "call_0123456789abcdef", "read", written)))
    assert calls_of(got) == [c.ToolInputError("call_0123456789abcdef", "read", written, error)]
    got = await anthropic.play(
        *ok(),
        ANTHROPIC.start(),
        *ANTHROPIC.tool_block(0, "toolu_0123456789abcdef", "read", written),
        *ANTHROPIC.stop("tool_use"),
    )
    assert calls_of(got) == [c.ToolInputError("toolu_0123456789abcdef", "read", written, error)]
    assert isinstance(got[-1], StepEnd)


async def test_two_calls_with_the_same_id_become_two(openai: Talk) -> None:
    """Ids that are counted, not drawn, are also told apart from those of other answers."""
    asked = openai.request()
    mark = stamp(asked)
    pieces = [OPENAI.call(index, "call_1", "read", f'{{"path":"{index}"}}') for index in range(2)]
    got = await openai.play(*ok(), *OPENAI.calls(*pieces), asked=asked)
    assert calls_of(got) == [
        c.ToolInputAvailable(f"call_1_{mark}", "read", {"path": "0"}),
        c.ToolInputAvailable(f"call_1_{mark}_2", "read", {"path": "1"}),
    ]


async def test_an_id_that_the_conversation_has_already_is_not_used_again(openai: Talk) -> None:
    """Also a long one."""
    used = "call_0123456789abcdef"
    done = {"type": "tool-read", "toolCallId": used, "input": {}, "state": "output-available", "output": "x"}
    asked = openai.request(user("hello"), assistant({"type": "step-start"}, done))
    got = await openai.play(*ok(), *OPENAI.calls(OPENAI.call(0, used, "read", "{}")), asked=asked)
    assert calls_of(got) == [c.ToolInputAvailable(f"{used}_{stamp(asked)}_2", "read", {})]


@pytest.mark.parametrize(
    ("wire_reason", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content-filter"),
        ("odd", "other"),
        ("model_length", "length"),
        ("eos", "stop"),
    ],
)
async def test_openai_finish_reasons(openai: Talk, wire_reason: str, reason: str) -> None:
    """As the contract names them."""
    *_, end = await openai.play(*ok(), OPENAI.chunk({"content": "x"}), OPENAI.chunk({}, wire_reason), OPENAI.done)
    assert isinstance(end, StepEnd)
    assert (end.finish_reason, end.data["usage"]) == (reason, "not reported")


@pytest.mark.parametrize(
    ("wire_reason", "reason"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("refusal", "content-filter"), ("pause_turn", "other")],
)
async def test_anthropic_finish_reasons(anthropic: Talk, wire_reason: str, reason: str) -> None:
    """As the contract names them."""
    *_, end = await anthropic.play(
        *ok(), ANTHROPIC.start(), *ANTHROPIC.text_block(0, "x"), *ANTHROPIC.stop(wire_reason)
    )
    assert isinstance(end, StepEnd)
    assert end.finish_reason == reason


@pytest.mark.rule("RN-9")
async def test_the_words_of_a_refusal_are_kept(openai: Talk) -> None:
    """They come in a field of their own and are what the model said."""
    pieces = [OPENAI.chunk({"refusal": words}) for words in ("I will ", "not.")]
    asked = openai.request()
    got = await openai.play(*ok(), *pieces, OPENAI.chunk({}, "stop"), OPENAI.usage(), OPENAI.done, asked=asked)
    id_ = f"text_{stamp(asked)}_1"
    assert got[:-1] == [c.TextStart(id_), c.TextDelta(id_, "I will not."), c.TextEnd(id_)]
    assert isinstance(got[-1], StepEnd)
    assert got[-1].finish_reason == "content-filter"


async def test_two_calls_at_a_time_do_not_mix(openai: Talk) -> None:
    """Each has its own connection."""
    answers = await asyncio.gather(
        *(openai.play(*ok(), *OPENAI.text("a", "b"), asked=openai.request(user(str(n)))) for n in range(8))
    )
    assert [[item.delta for item in got if isinstance(item, c.TextDelta)] for got in answers] == [["a", "b"]] * 8


# What is counted


@pytest.mark.rule("US-1")
async def test_anthropic_usage_in_five_kinds_that_do_not_overlap(anthropic: Talk) -> None:
    """On this wire input excludes the cache and output includes the thinking."""
    *_, end = await anthropic.play(
        *ok(),
        ANTHROPIC.start(input_tokens=100, cache_creation_input_tokens=300, cache_read_input_tokens=2000),
        *ANTHROPIC.thinking_block(0, "hm"),
        *ANTHROPIC.text_block(1, "hi"),
        *ANTHROPIC.stop(output_tokens=50, output_tokens_details={"thinking_tokens": 20}),
    )
    assert isinstance(end, StepEnd)
    assert end.usage == Usage(input=100, output=30, reasoning=20, cache_read=2000, cache_write=300)
    assert end.usage.total == 100 + 300 + 2000 + 50


@pytest.mark.rule("US-1")
async def test_openai_usage_in_five_kinds_that_do_not_overlap(openai: Talk) -> None:
    """On this wire input includes the cache and output includes the reasoning."""
    *_, end = await openai.play(
        *ok(),
        OPENAI.chunk({"content": "hi"}),
        OPENAI.chunk({}, "stop"),
        OPENAI.usage(2400, 80, cached=2000, written=100, reasoning=60),
        OPENAI.done,
    )
    assert isinstance(end, StepEnd)
    assert end.usage == Usage(input=300, output=20, reasoning=60, cache_read=2000, cache_write=100)
    assert end.usage.total == 2480
