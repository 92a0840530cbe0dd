"""Blanket denials: said before there is a call, and never of anything that a rule lets through."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from clew.permissions.evaluate import denies_all, evaluate
from clew.permissions.rules import base_rules, own_rules
from clew.transcript.rule import Rule, Target
from tests.rounds import rounds

pytestmark = [pytest.mark.rule("PM-2"), pytest.mark.rule("MC-1")]
ALL = "mcp__x__*"
OWN = (*own_rules(["/home/me/clew"], ["/home/me/store.db"], ["/home/me/clew/spill"], "ses_1"), *base_rules())


def deny(permission: str = ALL, pattern: str = "*", **more: Any) -> Rule:
    return Rule(permission, pattern, "deny", **more)


@pytest.mark.parametrize(
    ("scopes", "denied"),
    [
        ({}, False),
        ({"manifest": [deny()]}, True),
        ({"manifest": [deny("mcp__*")]}, True),
        ({"manifest": [deny("*", " ** ")]}, True),
        ({"session": [deny()]}, True),
        ({"project": [deny()], "session": [deny("mcp__x__a")]}, True),
        ({"manifest": [Rule("*", "*", "ask"), deny()]}, True),
        ({"manifest": [deny(), Rule("mcp__*", "*", "allow")]}, False),
        (
            {"manifest": [deny(pinned=True), Rule("mcp__x__a", "*", "allow")], "session": [Rule("*", "*", "allow")]},
            True,
        ),
        ({"manifest": [deny(), Rule("mcp__x__a", "*", "ask", pinned=True)]}, False),
        ({"manifest": [deny()], "session": [Rule("mcp__x__a", "*", "allow")]}, False),
        ({"manifest": [deny()], "session": [Rule("mcp__x", "*", "allow"), Rule("mcp__y__*", "*", "allow")]}, True),
        ({"manifest": [deny()], "session": [Rule("*", "/etc/*", "allow"), Rule("*", "x", "ask")]}, True),
        ({"manifest": [deny()], "session": [Rule("*", '{"a":*', "allow")]}, False),
        ({"manifest": [deny("mcp__x__a")]}, False),
        ({"manifest": [deny("mcp__x__**")]}, False),
        ({"manifest": [deny(pattern='{"a":*')]}, False),
        ({"manifest": [deny(pattern="{*")]}, True),
    ],
)
def test_a_denial_is_a_blanket_one_only_where_nothing_gets_through(scopes: dict[str, Any], denied: bool) -> None:
    """By the same weights as a call; among clew's own rules, which are about places."""
    scopes = {**scopes, "manifest": [*OWN, *scopes.get("manifest", ())]}
    assert denies_all(ALL, "{", **scopes) is denied


PERMISSIONS = ["*", "mcp__*", "mcp__x*", "mcp__x__*", "mcp__x__**", "mcp__x__a*", "mcp__x__a", "mcp__x__ab", "mcp__x"]
PERMISSIONS += ["mcp__x**", "mcp__y__*"]
PATTERNS = ["*", "**", " *", "{*", "{}", '{"a":*', "*1*", "x", "/dev/fd/**", "sha256:*", "sha256:a*", "sha256:ab"]
ARGS, DIGESTS = ("{}", '{"a":1}', '{"b":2}'), ("sha256:", "sha256:ab", "sha256:b1")


@pytest.mark.parametrize(
    ("permission", "begins", "named", "values"),
    [
        (ALL, "{", ("mcp__x__a", "mcp__x__ab", "mcp__x__b", "mcp__x__"), ARGS),
        ("mcp__x__a", "{", ("mcp__x__a",), ARGS),
        ("mcp__x", "sha256:", ("mcp__x",), DIGESTS),
    ],
    ids=["kind", "tool", "door"],
)
@pytest.mark.parametrize("seeds", [range(n, n + rounds(1_500)) for n in (0, 100_000)])
def test_what_is_called_denied_throughout_is_denied_whatever_is_called(
    seeds: range, permission: str, begins: str, named: tuple[str, ...], values: tuple[str, ...]
) -> None:
    """Random rules of all scopes: the evaluation of every call agrees, of all tools, of one, and of the door."""
    targets = [Target(name, "plain", value) for name in named for value in values]
    said_so = 0
    for seed in seeds:
        chance = Random(seed)

        def drawn(chance: Random = chance) -> list[Rule]:
            return [
                Rule(
                    chance.choice(PERMISSIONS),
                    chance.choice(PATTERNS),
                    chance.choice(("deny", "deny", "deny", "ask", "allow")),
                    pinned=chance.random() < 0.2,
                )
                for _ in range(chance.randint(0, 3))
            ]

        scopes: dict[str, Any] = {name: drawn() for name in ("manifest", "session", "project")}
        said = denies_all(permission, begins, **scopes)
        all_denied = all(evaluate([target], **scopes).action == "deny" for target in targets)
        assert all_denied or not said, seed
        said_so += said
    assert said_so
