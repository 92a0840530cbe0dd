"""Steps that ask for a great deal at once: how much of it runs, how it is judged, and what a person is shown (PM-8)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import clew
from clew.permissions import approval_rules, match
from clew.permissions.shell.commands import Parts, take_apart
from clew.session.turn.calls import MAX_CALLS, MAX_CALLS_AT_ONCE, TOO_MANY
from clew.testing.scripted import call, say
from tests.acceptance.errands import allow, ask_once

from .conftest import Open


class Crowd:
    """A tool that counts how many calls of it run at once. The first go on when as many are there as may be."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.ran: list[int] = []
        self.full = asyncio.Event()

    def tool(self) -> Any:
        @clew.tool
        async def enter(n: int) -> int:
            """Enter."""
            self.running += 1
            self.most = max(self.most, self.running)
            if self.running >= MAX_CALLS_AT_ONCE:
                self.full.set()
            await self.full.wait()
            # Whoever could enter has done so by then.
            for _ in range(20):
                await asyncio.sleep(0)
            self.ran.append(n)
            self.running -= 1
            return n

        return enter


@pytest.mark.rule("PM-8")
async def test_of_a_step_with_too_many_calls_the_first_run_and_each_of_the_others_is_told_so(
    open_scenario: Open,
) -> None:
    """16 at once and 128 in all; every call has its result, in its place, and the turn goes on."""
    count, crowd = MAX_CALLS + 7, Crowd()
    script = [[call("enter", {"n": n}) for n in range(count)], say("Done.")]
    async with open_scenario(script, tools=[crowd.tool()]) as s:
        await s.begin()
        await allow(s, "enter")
        await s.prompt("all of you")
        parts = [part for part in (await s.engine.messages(s.id))[1].parts if part["type"] == "tool-enter"]
        told = [(part["state"], part["input"]["n"], part.get("output"), part.get("errorText")) for part in parts]
        assert told == [
            ("output-available", n, n, None) if n < MAX_CALLS else ("output-error", n, None, TOO_MANY)
            for n in range(count)
        ]
        assert (crowd.most, sorted(crowd.ran)) == (MAX_CALLS_AT_ONCE, list(range(MAX_CALLS)))
        assert (await s.transcript())[-1] == "assistant: Done."
        assert await s.check() == []


@pytest.mark.rule("PM-8")
async def test_a_shell_line_is_never_read_on_the_event_loop(
    open_scenario: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when it is judged nor when an answer about it is stored: a long one would hold everybody up."""
    readers: list[bool] = []

    def reading(line: str) -> Parts:
        readers.append(threading.current_thread() is threading.main_thread())
        return take_apart(line)

    monkeypatch.setattr(match, "take_apart", reading)
    monkeypatch.setattr(approval_rules, "take_apart", reading)
    async with open_scenario([call("bash", {"command": "echo hi"}), say("Done.")]) as s:
        await s.begin()
        await s.prompt("say hi")
        await s.engine.answer(s.id, await ask_once(s), "session")
        await s.settled()
        assert [rule.pattern for rule in await s.engine.permissions(s.id)] == ["echo hi"]
    assert len(readers) >= 2
    assert not any(readers)


@pytest.mark.rule("PM-8")
async def test_an_output_hidden_in_a_variable_waits_for_a_person_who_is_told_why(open_scenario: Open) -> None:
    """Under a rule for all of git; before, this wrote git's settings without a question."""
    line = "x=; git log -1 $x--output=.git/config; git status"
    async with open_scenario([call("bash", {"command": line}), say("As you wish.")]) as s:
        await s.begin()
        rules = [
            {"permission": "bash", "pattern": pattern, "action": "allow"}
            for pattern in ("git *", "git log*", "git status*", "x=")
        ]
        await s.engine.set_permissions(s.id, rules)
        await s.prompt("look")
        approval = (await s.engine.messages(s.id))[1].parts[1]["approval"]
        assert approval["descriptor"]["reason"].endswith(
            ": what `…--output=.git/config` will be is known only to the running shell, and it could be an option that "
            "makes `git log` run a program or write a file"
        )
        await s.engine.answer(s.id, await ask_once(s), "deny")
        await s.settled()
        assert not (s.workspace / ".git").exists()
