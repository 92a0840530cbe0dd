"""The demo provider: its summaries and its tour."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.providers.demo.summary import SECTIONS
from tests.unit.demo_requests import BASH, LS, READ, WRITE, assistant, calls, request, said, user

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
