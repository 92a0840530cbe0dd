"""What the model is sent, before and after everything that changes it, compared with texts one can read.

The texts lie in ``snapshots/``. A change to them is a change to what models see, and is reviewed as one. To write them
anew::

    CLEW_SNAPSHOTS=write pytest tests/acceptance/test_request_snapshots.py
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import clew
from clew.providers.base import ModelRequest
from clew.testing.scripted import call

from .compacting import Compacting, answer, bulk, opened, summary

SNAPSHOTS: Final = Path(__file__).parent / "snapshots"
_LONGEST: Final = 300


@clew.tool
async def look(n: int, size: int = 200) -> str:
    """Gives much back."""
    return bulk(f"out{n}", size)


def written(request: ModelRequest, names: dict[str, str]) -> str:
    """A request as a text: who says what, in which order. Ids get names in the order in which they come up.

    The system prompt is left out: it tells of the day and the machine.
    """
    lines = [f"model: {request.model}", f"tools: {', '.join(tool.name for tool in request.tools)}"]
    for message in request.messages:
        name = names.setdefault(message.id, f"message {len(names) + 1}")
        lines += ["", f"--- {message.role} ({name})"]
        lines += [_written(part) for part in message.parts]
    return "\n".join(lines) + "\n"


def _written(part: Mapping[str, Any]) -> str:
    kind = str(part["type"])
    if kind == "text":
        return _short(str(part["text"]))
    if "toolCallId" in part:
        given = " ".join(f"{key}={value}" for key, value in part["input"].items())
        return f"[{kind} {given}, {part['state']}] {_short(str(part.get('output', '')))}"
    return f"[{kind}]"


def _short(text: str) -> str:
    """The text; of a long one without a line break only the beginning."""
    return text if "\n" in text or len(text) <= _LONGEST else f"{text[:40]}… ({len(text)} characters)"


class Album:
    """The requests of one test, each under its name."""

    def __init__(self, s: Compacting) -> None:
        self._s = s
        self._names: dict[str, str] = {}

    def keep(self, name: str) -> None:
        """Compare the newest request with its snapshot, or write it."""
        text = written(self._s.model.requests[-1], self._names)
        path = SNAPSHOTS / f"{name}.txt"
        if os.environ.get("CLEW_SNAPSHOTS") == "write":
            SNAPSHOTS.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text, f"the request differs from {path.name}"


async def turns(s: Compacting, first: int, count: int) -> list[str]:
    """Turns that each call the tool; the ids of their messages."""
    sent = []
    for n in range(first, first + count):
        s.model.add(call("look", {"n": n}), answer(f"The answer to {n}."))
        submission = await s.send(f"Question {n}?")
        await submission.wait()
        await s.rest()
        sent.append(submission.message_id)
    return sent


@pytest.mark.rule("CP-3", "PR-4", "RW-4", "BR-4")
async def test_requests_read_as_they_are_meant(tmp_path: Path) -> None:
    """Prune, compaction, what follows it, a rewind past it, its undoing, and a branch."""
    async with opened(tmp_path, tools=[look], window=100_000, goal="to answer every question") as s:
        album = Album(s)
        await s.begin()
        await s.allow("look")
        sent = await turns(s, 0, 5)
        await s.say("Before anything.")
        album.keep("1-before")
        await s.engine.prune(s.id)
        await s.say("After a prune.")
        album.keep("2-after-prune")
        await s.engine.compact(s.id)
        compacted = await s.send("After a compaction.")
        await s.rest()
        album.keep("3-after-compaction")
        await turns(s, 5, 3)
        s.summariser.add(answer(summary("to answer every question", "six are answered")))
        await s.engine.compact(s.id)
        await s.say("After a second compaction.")
        album.keep("4-after-second-compaction")
        await s.engine.rewind(s.id, sent[3], mode="edit", text="Question 3, put another way?", run=True)
        await s.rest()
        album.keep("5-after-rewind-past-compactions")
        await s.engine.set_head(
            s.id, next(t for t, held in (await s.tree()).links.items() if compacted.message_id in held)
        )
        await s.say("Back after the first compaction.")
        album.keep("6-after-going-back")
        branch = await s.engine.branch(s.id, compacted.message_id)
        await (await s.engine.continue_turn(branch.id)).wait()
        album.keep("7-in-a-branch")
        assert await s.check() == []


@pytest.mark.rule("CP-1", "CP-2", "CP-3")
async def test_requests_of_a_split_turn_read_as_they_are_meant(tmp_path: Path) -> None:
    """The summary, the user's message, and the newest steps of the turn that goes on."""
    async with opened(tmp_path, tools=[look], goal="to look at everything") as s:
        album = Album(s)
        await s.begin()
        await s.allow("look")
        s.model.add(answer("Ready."), *(call("look", {"n": n, "size": 2_000}) for n in range(5)), answer("Seen."))
        await s.say("Be ready.")
        await s.say("Look at everything.")
        album.keep("8-inside-a-split-turn")
        await s.say("And now?")
        album.keep("9-after-a-split-turn")
        assert await s.check() == []
