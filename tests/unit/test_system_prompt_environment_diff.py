"""What a turn is told of its environment, when the prompt tells it as it was."""

from __future__ import annotations

import pytest

from clew.system_prompt.environment_diff import environment_change

HEAD = "[The environment has changed:]\n"


def section(git: str | None = "branch main, nothing changed", date: str = "2026-10-03, UTC") -> str:
    lines = ["# Environment", "", "Platform: Linux", "Workspace: /w: x"]
    return "\n".join([*lines, *([f"Git: {git}"] if git else []), f"Date: {date}", "Model: demo/echo"])


@pytest.mark.rule("SP-1")
@pytest.mark.parametrize(
    ("now", "told", "change"),
    [
        (section(), None, None),
        (section("branch main, 1 file changed"), None, "Git: branch main, 1 file changed"),
        (section("branch b", "2026-10-04, UTC"), None, "Git: branch b\nDate: 2026-10-04, UTC"),
        (section(None), None, "Git: none"),
        # As long as the prompt is not right it is told again, whatever the turn before was told.
        (section("branch b"), f"{HEAD}Git: branch b", "Git: branch b"),
        # Once it is right again that is told, and then nothing any more.
        (section(), f"{HEAD}Git: branch b", "Git: branch main, nothing changed"),
        (section(), f"{HEAD}Git: branch main, nothing changed", None),
        (section(), f"{HEAD}Media: messages hold images", "Media: none"),
        (section(), f"{HEAD}Media: none", None),
    ],
)
def test_a_turn_is_told_what_the_prompt_does_not_say(now: str, told: str | None, change: str | None) -> None:
    """Only the lines that differ, in the order of the prompt."""
    assert environment_change(now, section(), told) == (None if change is None else HEAD + change)
