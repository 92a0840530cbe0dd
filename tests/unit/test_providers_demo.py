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
from clew.providers.demo.summary import SECTIONS
from clew.testing.clock import FakeClock
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.usage import Usage

READ = ToolSchema("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LS = ToolSchema("ls", "Lists a folder.", {"type": "object", "properties": {"path": {"type": "string"}}})
BASH = ToolSchema("bash", "Runs a line.", {"type": "object", "properties": {"command": {"type": "string"}}})
WRITE = ToolSchema(
    "write",
    "Writes a file.",
    {"type": "object", "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}}},
)


def user(text: str, id: str = "m1", **metadata: Any) -> Message:
    return Message(id, "user", [{"type": "text", "text": text}], metadata)


def assistant(*parts: dict[str, Any], id: str = "a1") -> Message:
    return Message(id, "assistant", list(parts), {})


def request(model: str, *messages: Message, system: str = "", **fields: Any) -> ModelRequest:
    name, _, variant = model.partition("@")
    return ModelRequest(model=Model("demo", name, variant or None), system=system, messages=messages, **fields)


async def play(asked: ModelRequest, provider: DemoProvider | None = None) -> tuple[list[Chunk], StepEnd]:
    """The chunks of one call, checked by the fold, and how it ended."""
    *chunks, end = [item async for item in (provider or DemoProvider()).stream(asked)]
    assert isinstance(end, StepEnd)
    fold = Fold("answer")
    fold.apply(c.StartStep())
    legal: list[Chunk] = []
    for chunk in chunks:
        assert not isinstance(chunk, StepEnd)
        fold.apply(chunk)
        legal.append(chunk)
    fold.apply(c.FinishStep())
    assert [part["state"] for part in fold.parts if part["type"] in ("text", "reasoning")] == ["done"] * sum(
        part["type"] in ("text", "reasoning") for part in fold.parts
    )
    return legal, end


async def said(asked: ModelRequest, provider: DemoProvider | None = None) -> str:
    chunks, _ = await play(asked, provider)
    return "".join(chunk.delta for chunk in chunks if isinstance(chunk, c.TextDelta))


async def calls(asked: ModelRequest, provider: DemoProvider | None = None) -> list[tuple[str, Any]]:
    chunks, _ = await play(asked, provider)
    return [(chunk.tool_name, chunk.input) for chunk in chunks if isinstance(chunk, c.ToolInputAvailable)]


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
    assert reasoning == f"Somebody asked for {count} words. I will count them as I go."
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


@pytest.mark.parametrize("text", ["hello", "503 0", "12345", "200"])
async def test_fail_echoes_when_no_failure_is_asked_for(text: str) -> None:
    """A longer number is no status."""
    assert await said(request("fail", user(text))) == text


# Summary

CONVERSATION = """\
Summarise the conversation below.

<conversation>
[User]: Build a parser for dates. You must never use eval.
[Assistant]: I decided to use regular expressions.
[Assistant tool calls]: read(path="src/dates.py"), bash(command="pytest")
[Tool result]: error: 2 tests failed
second line
[User]: Fix the failing tests
[Assistant]: Looking at them now.
</conversation>

Use this format: ## Goal …
"""


async def test_the_summary_fills_the_fixed_sections() -> None:
    """From labelled text; instructions around it are not taken for conversation."""
    assert (
        await said(request("summary", user(CONVERSATION * 3)))
        == """\
## Goal
- Build a parser for dates. You must never use eval.

## Constraints & Preferences
- Build a parser for dates. You must never use eval.

## Progress
### Done
- [x] read(path="src/dates.py"), bash(command="pytest")
- [x] I decided to use regular expressions.
- [x] Looking at them now.
### In Progress
- Fix the failing tests
### Blocked
- error: 2 tests failed

## Key Decisions
- I decided to use regular expressions.

## Next Steps
- Go on from: Fix the failing tests

## Critical Context
- Build a parser for dates. You must never use eval.
- Fix the failing tests
"""
    )


async def test_the_summary_carries_an_earlier_one_on() -> None:
    """Its goal stays the goal, its lines come before the new ones, what was in progress is said anew."""
    first = await said(request("summary", user(CONVERSATION * 3)))
    text = f"Update.\n<previous-summary>\n{first}</previous-summary>\n\n[User]: Now add times, only in UTC.\n" * 2
    assert (
        await said(request("summary", user(text)))
        == """\
## Goal
- Build a parser for dates. You must never use eval.

## Constraints & Preferences
- Build a parser for dates. You must never use eval.
- Now add times, only in UTC.

## Progress
### Done
- [x] read(path="src/dates.py"), bash(command="pytest")
- [x] I decided to use regular expressions.
- [x] Looking at them now.
### In Progress
- Now add times, only in UTC.
### Blocked
- error: 2 tests failed

## Key Decisions
- I decided to use regular expressions.

## Next Steps
- Go on from: Now add times, only in UTC.

## Critical Context
- Build a parser for dates. You must never use eval.
- Fix the failing tests
- Now add times, only in UTC.
"""
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["User", "Assistant", "Assistant tool calls", "Tool result"]),
            st.text(st.characters(codec="utf-8"), min_size=20, max_size=300),
        ),
        min_size=4,
        max_size=60,
    )
)
async def test_a_summary_is_smaller_than_what_it_is_made_of(entries: list[tuple[str, str]]) -> None:
    """And has all its sections in order, for any conversation worth summarising."""
    text = "\n".join(f"[{label}]: {words}" for label, words in entries) + "\n" + "[User]: " + "x" * 600
    summary = await said(request("summary", user(text)))
    assert len(summary) <= len(text) // 2
    assert len(summary) <= 1600
    lines = summary.splitlines()
    assert [line for line in lines if line in SECTIONS] == list(SECTIONS)


async def test_a_summary_keeps_to_the_output_it_is_allowed() -> None:
    """A quarter of a small window is not much, and enough."""
    summary = await said(request("summary", user(CONVERSATION * 40), max_output_tokens=100))
    assert len(summary) <= 400
    assert [line for line in summary.splitlines() if line in SECTIONS] == list(SECTIONS)


# Tour


@pytest.mark.parametrize(
    ("question", "heading"),
    [
        ("What happens when the process is killed?", "## What survives"),
        ("what if I reload the tab", "## Streams"),
        ("who may approve a command", "## Permissions"),
        ("what happens to queued messages", "## Queue"),
        ("which models are there?", "## Models"),
        ("where is the database", "## Storage"),
        ("is there a python library?", "## Ways in"),
        ("What is clew?", "## clew"),
    ],
)
async def test_the_tour_answers_questions_about_clew(question: str, heading: str) -> None:
    """In Markdown, with things to try at the end."""
    answer = await said(request("tour", user(question)))
    assert answer.startswith(heading + "\n")
    assert "Things to try:\n\n- " in answer


@pytest.mark.parametrize("greeting", ["hi", "", "äöü 🙂"])
async def test_the_tour_offers_things_to_try(greeting: str) -> None:
    """To anybody who asks nothing it knows about."""
    answer = await said(request("tour", user(greeting)))
    assert answer.startswith("Hello! I am **demo/tour**")
    assert "\nThings to try:\n\n- " in answer


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("list the files", ("ls", {"path": "."})),
        ("Please show me the files in src/clew", ("ls", {"path": "src/clew"})),
        ("what files are in this folder?", ("ls", {"path": "."})),
        ("OK, now list the files", ("ls", {"path": "."})),
        ("read README.md", ("read", {"path": "README.md"})),
        ("Can you open `docs/rules.md`?", ("read", {"path": "docs/rules.md"})),
        ("run ls -la", ("bash", {"command": "ls -la"})),
        ("run `git status`!", ("bash", {"command": "git status"})),
        ("write a file notes.txt with hello there", ("write", {"file_path": "notes.txt", "content": "hello there"})),
    ],
)
async def test_the_tour_uses_tools_when_asked(question: str, expected: tuple[str, Any]) -> None:
    """One call, as the tools that are offered want it."""
    assert await calls(request("tour", user(question), tools=(READ, LS, BASH, WRITE))) == [expected]


@pytest.mark.parametrize(
    "question",
    [
        "How do I run clew?",
        "What happens to my files when I abort?",
        "how does it read a file like a.txt",
        "Is it safe to run a command?",
    ],
)
async def test_a_question_about_doing_something_is_a_question(question: str) -> None:
    """A wish begins with its verb."""
    assert await calls(request("tour", user(question), tools=(READ, LS, BASH, WRITE))) == []


async def test_the_tour_says_so_when_no_tool_is_offered() -> None:
    """And calls nothing."""
    asked = request("tour", user("list the files"))
    assert await calls(asked) == []
    assert (await said(asked)).startswith("I would use a tool for that, but none is offered here.")


async def test_the_tour_shows_what_tools_gave_back() -> None:
    """Output in a fence that nothing in it can close; errors and denials in words."""
    base = {"toolCallId": "c", "input": {"path": "a"}}
    done = assistant(
        {"type": "step-start"},
        {"type": "tool-read", **base, "state": "output-available", "output": "```\nx\n```"},
        {"type": "tool-ls", **base, "state": "output-error", "errorText": "no such folder"},
        {"type": "tool-bash", **base, "state": "output-denied"},
    )
    answer = await said(request("tour", user("read a"), done, tools=(READ,)))
    assert answer.startswith(
        '`read` {"path":"a"} says:\n\n````\n```\nx\n```\n````\n\n'
        '`ls` {"path":"a"} did not work: no such folder\n\n'
        '`bash` {"path":"a"} was denied. That is fine, nothing was done.\n\n'
        "Anything else? Things to try:"
    )
