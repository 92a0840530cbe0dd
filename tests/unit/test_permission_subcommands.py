"""A subcommand that no table knows is covered by the rule that names it, and by no shorter one."""

from __future__ import annotations

import pytest

from clew.transcript.rule import Rule
from tests.corpora.options import decide


@pytest.mark.rule("PM-8")
@pytest.mark.parametrize(
    ("pattern", "line", "action"),
    [
        ("uv run *", "uv run pytest -q", "allow"),
        ("uv run pytest *", "uv run pytest -q", "allow"),
        ("uv *", "uv run pytest -q", "ask"),
        ("uv run *", "uv run $x", "ask"),
        ("uv run *", "uv --project /x run pytest", "ask"),
        ("docker compose up *", "docker compose up -d web", "allow"),
        ("docker compose *", "docker compose up -d web", "ask"),
        ("docker *", "docker run x", "ask"),
        ("git worktree add *", "git worktree add sub", "allow"),
        ("git *", "git worktree add sub", "ask"),
        ("git worktree add *", "git -c alias.x=y worktree add sub", "ask"),
        ("git submodule *", "git submodule foreach 'touch x'", "ask"),
        ("gh api *", "gh api repos/a/b", "allow"),
    ],
)
def test_an_unknown_subcommand_is_covered_by_the_rule_that_names_it(pattern: str, line: str, action: str) -> None:
    assert decide(line, Rule("bash", pattern, "allow")).action == action
