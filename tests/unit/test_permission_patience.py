"""No argument makes a decision take long: patterns that go back over a text, and paths without end."""

from __future__ import annotations

import time

import pytest

from clew.permissions.evaluate import evaluate
from clew.permissions.shell.command_paths import LookupBudget
from clew.session.turn.protected_paths import leads_to
from clew.transcript.rule import Rule, Target

LINES = {
    "paths that a program without a table may write": "".join(f"cd d{n};" for n in range(15))
    + "foo "
    + " ".join(f"x={n}/y/z/../w" for n in range(3_800)),
    "a package whose version is compared without end": "pip install a" + "=" * 20 + "/",
    "a package with versions without end": "npm install a" + "@1" * 14_000 + "/",
    "a program for sqlite of empty lines": "sqlite3 a.db '" + "\n" * 29_000 + "x'",
    "a path in a bundle, in many folders": "".join(f"cd d{n};" for n in range(15)) + "date -abcdefghijklmn;" * 1_200,
}


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_no_argument_makes_a_decision_take_long(line: str) -> None:
    """One line of twenty equals signs took minutes, with the whole server waiting for it."""
    closed = [Rule("*", f"/home/u/{n}/**", "deny", "manifest", pinned=True) for n in range(10)]
    before = time.process_time()
    decision = evaluate(
        [Target("bash", "command", line)], manifest=closed, workspace="/w", resolve=leads_to, home="/home/u"
    )
    assert (decision.action, time.process_time() - before < 2) == ("ask", True)


@pytest.mark.rule("PM-9")
def test_paths_that_are_too_many_to_look_up_are_asked_about() -> None:
    words = "cat " + " ".join(f"a{n}" for n in range(400))
    line = "; ".join(f"cd d{n}" for n in range(1, 15)) + "".join(f"; {words}" for _ in range(5))
    rules = [Rule("bash", "cat *", "allow"), Rule("bash", "cd *", "allow")]
    closed = [Rule("*", "/home/u/**", "deny", "manifest", pinned=True)]
    asked = [
        evaluate([Target("bash", "command", text)], manifest=closed, session=rules, workspace="/w").action
        for text in (words, line)
    ]
    assert (LookupBudget().left, asked) == (10_000, ["allow", "ask"])
