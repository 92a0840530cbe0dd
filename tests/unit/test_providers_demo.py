"""The demo provider: what each model says, to the character, and what it counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.providers.base import ModelInfo, ModelRequest, ProviderFailure, StepEnd, ToolSchema
from clew.providers.demo import DEMO_MODELS, DemoProvider
from clew.providers.demo.reading import compact, request_stamp
from clew.testing.clock import FakeClock
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from tests.unit.demo_requests import BASH, LS, READ, WRITE, assistant, calls, play, request, said, user


async def failure(asked: ModelRequest, provider: DemoProvider | None = None) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        await play(asked, provider)
    return caught.value


def test_the_models_are_those_of_the_api() -> None:
    """Windows, the same maximal output for all, tools for two, one summariser, no prices to pay."""
    windows = {"tour": 200_000, "echo": 8_000, "small": 2_000, "tools": 200_000, "long": 200_000, "fail": 200_000}
    assert {
        name: ModelInfo(
            model=Model("demo", name),
            window=window,
            max_output=400,
            tools=name in ("tour", "tools"),
            summariser=Model("demo", "summary"),
            variants=("slow",),
        )
        for name, window in {**windows, "summary": 200_000}.items()
    } == DEMO_MODELS


# Echo


@pytest.mark.parametrize("model", ["echo", "small"])
async def test_echo_says_the_newest_words_word_by_word(model: str) -> None:
    """One delta a word, with the space behind it; four characters are a token."""
    asked = request(model, user("first"), assistant({"type": "text", "text": "first"}), user("hello  big world", "m2"))
    text = f"text_{request_stamp(asked)}_1"
    assert await play(asked) == (
        [
            c.TextStart(text),
            c.TextDelta(text, "hello  "),
            c.TextDelta(text, "big "),
            c.TextDelta(text, "world"),
            c.TextEnd(text),
        ],
        StepEnd(usage=Usage(input=7, output=4), finish_reason="stop"),
    )


@given(st.text())
async def test_echo_keeps_every_character(text: str) -> None:
    """Whatever space there is survives, at the beginning, in between and at the end."""
    assert await said(request("echo", user(text))) == text


async def test_what_a_person_said_is_echoed_not_what_clew_added() -> None:
    """A warning of the loop is no word of the user's; a summary is, when there is nothing else."""
    warned = [user("hello"), assistant({"type": "text", "text": "…"}), user("Do something else.", "m2", synthetic=True)]
    assert await said(request("echo", *warned)) == "hello"
    assert await said(request("echo", user("the summary", synthetic=True, summary=True))) == "the summary"


async def test_the_same_request_is_answered_the_same_way() -> None:
    """By any provider, and by the same one again."""
    asked = request("echo", user("hello world"))
    provider = DemoProvider()
    assert await play(asked, provider) == await play(asked, provider) == await play(asked)


async def test_tokens_are_counted_over_all_that_is_sent() -> None:
    """System text, words, calls with their results and tools; reasoning, data and steps are not sent."""
    history = [
        user("12345678"),
        assistant(
            {"type": "step-start"},
            {"type": "reasoning", "text": "not sent back " * 10},
            {"type": "data-note", "data": "not sent either"},
            {"type": "tool-read", "toolCallId": "c1", "state": "output-available", "input": {"p": 1}, "output": "abcd"},
            {"type": "tool-ls", "toolCallId": "c2", "state": "output-error", "errorText": "nope"},
        ),
        user("x", "m2"),
    ]
    _, end = await play(request("tools", *history, system="abcd", tools=(READ,)))
    characters = len("abcd") + 8 + len('read{"p":1}abcd') + len("lsnope") + 1 + len(compact([READ]))
    assert end.usage == Usage(input=-(-characters // 4), output=1)


@pytest.mark.parametrize(("model", "window"), [("echo", 8_000), ("small", 2_000)])
async def test_a_request_over_the_window_fails_as_an_overflow(model: str, window: int) -> None:
    """A full window is taken, one token more is not."""
    assert await said(request(model, user("a" * window * 4))) == "a" * window * 4
    failed = await failure(request(model, user("a" * window * 4 + "b")))
    assert (failed.kind, failed.status, str(failed)) == (
        "overflow",
        400,
        f"the prompt is too long: {window + 1} tokens > {window} maximum",
    )


async def test_a_model_that_does_not_exist_is_refused() -> None:
    """With the names of those that do."""
    failed = await failure(request("nothing", user("hello")))
    assert (failed.kind, str(failed)) == (
        "invalid",
        "there is no model demo/nothing; there are tour, echo, small, tools, long, fail, summary",
    )


# Slow


async def test_the_slow_variant_waits_before_each_chunk() -> None:
    """Twenty milliseconds of the given clock, and nothing before they have passed."""
    clock = FakeClock()
    stream = DemoProvider(clock).stream(request("echo@slow", user("one two")))
    moments: list[float] = []
    for _ in range(4):
        waiting = asyncio.ensure_future(anext(stream))
        for _ in range(3):
            await asyncio.sleep(0)
        clock.advance(19)
        await asyncio.sleep(0)
        assert not waiting.done()
        clock.advance(1)
        assert not isinstance(await waiting, StepEnd)
        moments.append(clock.monotonic_ms())
    assert moments == [20, 40, 60, 80]
    assert isinstance(await anext(stream), StepEnd)
    await stream.aclose()


async def test_an_unknown_variant_changes_nothing() -> None:
    """It lasts for a turn and may be meant for another provider."""
    assert await said(request("echo@thoughtful", user("hello"))) == "hello"


# Tools


async def test_each_line_with_an_exclamation_mark_becomes_a_call_in_one_step() -> None:
    """Arguments are named as the tools that are offered name them."""
    lines = "!read a b.txt\n!ls src\n!bash echo 'x y' | wc\n!write notes.txt two words\n!task look around\nnot this"
    asked = request("tools", user(lines), tools=(READ, LS, BASH, WRITE))
    stamp = request_stamp(asked)
    inputs: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": "a b.txt"}),
        ("ls", {"path": "src"}),
        ("bash", {"command": "echo 'x y' | wc"}),
        ("write", {"file_path": "notes.txt", "content": "two words"}),
        ("task", {"prompt": "look around"}),
    ]
    expected: list[Chunk] = []
    for number, (name, given_input) in enumerate(inputs, start=1):
        id_ = f"call_{stamp}_{number}"
        expected += [
            c.ToolInputStart(id_, name),
            c.ToolInputDelta(id_, compact(given_input)),
            c.ToolInputAvailable(id_, name, given_input),
        ]
    chunks, end = await play(asked)
    assert chunks == expected
    assert end.finish_reason == "tool-calls"
    assert end.usage.output == -(-sum(len(name) + len(compact(value)) for name, value in inputs) // 4)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("!ls", ("ls", {"path": "."})),
        ('!edit {"path": "a", "old": 1}', ("edit", {"path": "a", "old": 1})),
        ("!edit {not json", ("edit", {"input": "{not json"})),
        ("!todo", ("todo", {})),
    ],
)
async def test_lines_without_the_usual_shape(line: str, expected: tuple[str, Any]) -> None:
    """JSON stands for itself, a tool nobody offers is asked all the same, and nothing is asked for nothing."""
    assert await calls(request("tools", user(line))) == [expected]


async def test_required_arguments_are_filled() -> None:
    """A tool that wants a title beside its text gets one."""
    schema = {
        "type": "object",
        "properties": {"description": {"type": "string"}, "prompt": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["description", "prompt", "count"],
    }
    asked = request("tools", user("!task find it"), tools=(ToolSchema("task", "", schema),))
    assert await calls(asked) == [("task", {"prompt": "find it", "description": "find it"})]


@pytest.mark.parametrize("text", ["hello", "! not a call", "say !read it", "!"])
async def test_without_such_lines_it_echoes(text: str) -> None:
    """A mark inside a line is just a mark."""
    assert await said(request("tools", user(text))) == text


async def test_the_next_step_reports_one_line_per_result() -> None:
    """Of the newest step with calls, in their order, however they ended."""
    tool = {"toolCallId": "c", "input": {}}
    parts: list[dict[str, Any]] = [
        {"type": "step-start"},
        {"type": "tool-read", **tool, "state": "output-available", "output": "of an earlier step"},
        {"type": "step-start"},
        {"type": "tool-read", **tool, "state": "output-available", "output": "line one\nline two"},
        {"type": "tool-ls", **tool, "state": "output-available", "output": {"files": ["a"]}},
        {"type": "tool-bash", **tool, "state": "output-error", "errorText": "exit 1"},
        {"type": "tool-write", **tool, "state": "output-denied", "approval": {"id": "x", "reason": "not now"}},
        {"type": "tool-edit", **tool, "state": "output-denied"},
        {"type": "dynamic-tool", "toolName": "mcp", **tool, "state": "input-available"},
    ]
    lines = [
        "read done: line one line two\n",
        'ls done: {"files":["a"]}\n',
        "bash failed: exit 1\n",
        "write denied: not now\n",
        "edit denied\n",
        "mcp failed: no result was recorded\n",
    ]
    warning = user("Do something else.", "m2", synthetic=True)
    for messages in ([user("!read x"), assistant(*parts)], [user("!read x"), assistant(*parts), warning]):
        chunks, end = await play(request("tools", *messages))
        assert [chunk.delta for chunk in chunks if isinstance(chunk, c.TextDelta)] == lines
        assert end.finish_reason == "stop"


async def test_results_of_an_earlier_turn_are_not_reported_again() -> None:
    """What counts is what came after the newest words."""
    done = {"type": "tool-read", "toolCallId": "c", "input": {}, "state": "output-available", "output": "x"}
    assert await said(request("tools", user("!read x"), assistant(done), user("thanks", "m2"))) == "thanks"


async def test_two_steps_of_one_message_never_share_an_id() -> None:
    """Nor does a turn that is answered once more at the same place, as after a rewind."""
    provider = DemoProvider()
    first = request("tools", user("!ls\n!ls"))
    step = [{"type": "step-start"}, {"type": "tool-ls", "toolCallId": "c", "state": "output-available", "output": ""}]
    second = request("tools", user("!ls\n!ls"), assistant(*step), user("!ls", "m2"))
    seen = [
        chunk.tool_call_id
        for asked in (first, second, first)
        for chunk in (await play(asked, provider))[0]
        if isinstance(chunk, c.ToolInputAvailable)
    ]
    assert len(seen) == len(set(seen)) == 5


# Long


@pytest.mark.parametrize(
    ("text", "count"), [("go on", 200), ("write 7 words, not 9", 7), ("1", 1), ("0", 0), ("9" * 5000, None)]
)
async def test_long_reasons_and_then_says_as_many_words_as_asked(text: str, count: int | None) -> None:
    """The first number counts; without one it is two hundred; nobody gets more than a million."""
    if count is None:
        stream = DemoProvider().stream(request("long", user(text)))
        async for chunk in stream:
            if isinstance(chunk, c.ReasoningDelta) and chunk.delta.strip().isdigit():
                assert chunk.delta == "1000000 "
                break
        await stream.aclose()
        return
    chunks, end = await play(request("long", user(text)))
    kinds = [type(chunk) for chunk in chunks]
    assert kinds[0] is c.ReasoningStart
    assert kinds.index(c.ReasoningEnd) < kinds.index(c.TextStart)
    words = [chunk.delta for chunk in chunks if isinstance(chunk, c.TextDelta)]
    reasoning = "".join(chunk.delta for chunk in chunks if isinstance(chunk, c.ReasoningDelta))
    assert (len(words), len("".join(words).split())) == (count, count)
    assert reasoning == f"The user asked for {count} words. I will count them as I go."
    assert end.usage == Usage(
        input=-(-len(text) // 4), output=-(-len("".join(words)) // 4), reasoning=-(-len(reasoning) // 4)
    )


# Fail


async def test_fail_fails_so_many_times_and_then_echoes() -> None:
    """Counted per turn: another one begins anew, and so does the same one sent once more."""
    provider = DemoProvider()
    for asked in (request("fail", user("503 2", "m1")), request("fail", user("503 2", "m2"))):
        for _ in range(2):
            for _ in range(2):
                failed = await failure(asked, provider)
                assert (failed.kind, failed.status, failed.retry_after_ms) == ("transient", 503, None)
            assert await said(asked, provider) == "503 2"


@pytest.mark.parametrize(
    ("status", "kind", "retry_after_ms"),
    [
        (400, "invalid", None),
        (401, "auth", None),
        (403, "auth", None),
        (404, "invalid", None),
        (408, "transient", None),
        (413, "overflow", None),
        (429, "transient", 1000),
        (500, "transient", None),
        (529, "transient", None),
    ],
)
async def test_fail_without_a_number_of_times_always_fails(status: int, kind: str, retry_after_ms: int | None) -> None:
    """With the kind a real provider's status has; too many requests come with a time to wait."""
    provider = DemoProvider()
    for _ in range(7):
        failed = await failure(request("fail", user(f"please fail with {status}")), provider)
        assert (failed.kind, failed.status, failed.retry_after_ms) == (kind, status, retry_after_ms)


async def test_fail_asks_for_as_many_seconds_as_the_words_name() -> None:
    """A retry that is far away can be looked at."""
    provider = DemoProvider()
    failed = await failure(request("fail", user("503 1 100")), provider)
    assert (failed.kind, failed.status, failed.retry_after_ms) == ("transient", 503, 100_000)
    assert await said(request("fail", user("503 1 100")), provider) == "503 1 100"


@pytest.mark.parametrize("text", ["hello", "503 0", "12345", "200"])
async def test_fail_echoes_when_no_failure_is_asked_for(text: str) -> None:
    """A longer number is no status."""
    assert await said(request("fail", user(text))) == text
