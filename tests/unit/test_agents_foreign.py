"""What opencode's words on permissions become: never freer than they are, whatever their patterns and their order."""

from __future__ import annotations

import itertools
import random
import re

import msgspec
import pytest

from clew.agents.catalog import builtin_agents, restrain
from clew.agents.foreign import OpencodeFile, parse_foreign
from clew.errors import InvalidInput
from clew.permissions.evaluate import evaluate
from clew.transcript.rule import Rule, Target

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
PATTERNS = {
    "read": [
        "*",
        "*.env",
        "src/*",
        "src/**",
        "src/*.ts",
        "src/**/*.ts",
        "src/a?.ts",
        "src/a*",
        "*/key",
        "a/*/b/*",
        "x.env",
    ],
    "bash": ["*", "git *", "git push", "git push *", "git p*", "rm ?x", "* --force", "ls"],
}
TARGETS = {
    "read": ["x.env", "a/x.env", "src/a.ts", "src/b/c.ts", "src/ab.ts", "src/ab/c", "a/key", "key", "a/q/b/c", "z"],
    "bash": ["git push", "git push origin", "git pull", "git log --force", "rm -x", "rm x", "ls", "ls -l"],
}


def elsewhere(cases: dict[str, str], text: str) -> str:
    """What opencode would do: of all patterns that match the last one decides, and a star goes over anything."""
    found = "allow"
    for pattern, action in cases.items():
        form = "".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern.removesuffix(" *"))
        form += "( .*)?" if pattern.endswith(" *") else ""
        found = action if re.fullmatch(form, text) else found
    return found


def here(tool: str, cases: dict[str, str], text: str) -> str:
    config = {"agent": {"x": {"description": "x", "prompt": "x", "permission": {tool: cases}}}}
    text_of = msgspec.json.encode(config).decode()
    [agent] = OpencodeFile(text_of, path="opencode.json", notice=lambda told: None).agents(str)
    held, _ = restrain(agent, tuple(rule for rule in builtin_agents()["assistant"].rules if rule.action == "allow"))
    target = Target(tool, "command", text) if tool == "bash" else Target(tool, "path", f"/project/{text}", inside=True)
    return evaluate([target], manifest=held.rules, workspace="/project").action


@pytest.mark.parametrize("tool", list(PATTERNS))
def test_an_agent_of_opencodes_is_never_freer_than_opencode_has_it(tool: str) -> None:
    """Every pattern by itself, and maps of several in any order."""
    chance = random.Random(7)
    maps = [{pattern: action} for pattern, action in itertools.product(PATTERNS[tool], STRICTNESS)]
    maps += [
        {pattern: chance.choice(list(STRICTNESS)) for pattern in chance.sample(PATTERNS[tool], chance.randint(2, 5))}
        for _ in range(150)
    ]
    freer = [
        (cases, text)
        for cases, text in itertools.product(maps, TARGETS[tool])
        if STRICTNESS[here(tool, cases, text)] < STRICTNESS[elsewhere(cases, text)]
    ]
    assert freer == []


def test_a_refusal_with_exceptions_leaves_them_to_be_asked_for() -> None:
    """So that such an agent is of use; a refusal without any is nobody's to lift."""
    cases = {"*": "deny", "git log *": "allow", "git push *": "deny"}
    assert [here("bash", cases, line) for line in ("git log -3", "git push", "ls")] == ["ask", "deny", "deny"]


def test_a_tool_of_a_server_is_refused_by_the_name_it_has_here() -> None:
    """opencode calls it by server and tool with one line between, clew by another name."""
    asked = {"github_*": "deny", "my_docs_search": "ask"}
    config = {"agent": {"x": {"description": "x", "prompt": "x", "permission": asked}}}
    text = msgspec.json.encode(config).decode()
    [agent] = OpencodeFile(text, path="opencode.json", notice=lambda told: None).agents(str)
    names = ("mcp__github__get", "github_get", "mcp__my_docs__search", "mcp__my__docs_search", "mcp__other__get")
    user = [Rule("*", "*", "allow")]
    decided = [evaluate([Target(one, "plain", "")], manifest=agent.rules, session=user).action for one in names[:2]]
    decided += [evaluate([Target(one, "plain", "")], manifest=agent.rules).action for one in names[2:]]
    assert decided == ["deny", "deny", "ask", "ask", "ask"]


def refused(tool: str, rules: tuple[Rule, ...]) -> bool:
    """Even where the user has allowed everything."""
    user = [Rule("*", "*", "allow")]
    return evaluate([Target(tool, "plain", "x")], manifest=rules, session=user).action == "deny"


@pytest.mark.parametrize("description", ["Reviews.", "Use it. Examples: <example>user: 'go'</example>"])
@pytest.mark.parametrize(
    ("line", "tools"),
    [
        ("disallowedTools: [Bash, WebFetch]", ["bash", "web_fetch"]),
        ('disallowedTools: "Bash, WebFetch"', ["bash", "web_fetch"]),
        ("disallowedTools: Bash # never", ["bash"]),
        ("disallowedTools: WebF*, Bash(git push, git pull)", ["bash", "web_fetch"]),
        ('permissionMode: "plan"', ["edit", "write"]),
        ("permissionMode: plan # nothing else", ["edit", "write"]),
    ],
)
def test_a_refusal_is_read_however_it_is_written(line: str, tools: list[str], description: str) -> None:
    """Also beside a description that is no YAML, which Claude Code takes."""
    text = f"---\ndescription: {description}\ncolor: a: b\n{line}\n---\nYou review."
    agent = parse_foreign(text, name="x", path="x.md", notice=lambda told: None)
    assert agent is not None
    assert (
        agent.description,
        [tool for tool in ("bash", "edit", "web_fetch", "write") if refused(tool, agent.rules)],
    ) == (
        description,
        tools,
    )


@pytest.mark.parametrize("line", ["disallowedTools: Bash Write", "permissionMode: planning", "disallowedTools: '# x'"])
def test_an_agent_whose_refusals_are_not_understood_is_left_out(line: str) -> None:
    """Nobody knows what it was to be kept from."""
    with pytest.raises(InvalidInput, match=r"x\.md:3: (disallowedTools must be a|permissionMode must be one of)"):
        parse_foreign(f"---\ndescription: x\n{line}\n---\nx", name="x", path="x.md", notice=lambda told: None)


@pytest.mark.parametrize("asked", [{"tools": {"webf*": False}}, {"permission": {"webf*": "deny"}}])
def test_a_name_with_a_star_is_also_that_of_a_tool_that_has_another_name_here(asked: dict[str, object]) -> None:
    """opencode's webfetch is called web_fetch here."""
    text = msgspec.json.encode({"agent": {"x": {"description": "x", "prompt": "x", **asked}}}).decode()
    [agent] = OpencodeFile(text, path="opencode.json", notice=lambda told: None).agents(str)
    assert [refused(tool, agent.rules) for tool in ("web_fetch", "read")] == [True, False]


def test_a_name_that_may_be_any_servers_offers_none_of_them() -> None:
    """Where all else is refused: what is refused by such a name is refused on every server, what is offered is not."""
    asked = {"permission": {"*": "deny", "a_b_c_d_e_f_g_h_i": "allow", "mcp__docs__*": "allow"}}
    text = msgspec.json.encode({"agent": {"x": {"description": "x", "prompt": "x", **asked}}}).decode()
    [agent] = OpencodeFile(text, path="opencode.json", notice=lambda told: None).agents(str)
    names = ("mcp__shop__buy", "mcp__docs__find", "a_b_c_d_e_f_g_h_i", "read")
    assert [agent.is_offered(name) for name in names] == [False, True, True, False]


@pytest.mark.parametrize(
    "text", ['"' + '\\"' * 32_000, '"' + '\\"' * 32_000 + "\\", "/* " * 21_000, '{"a": "' + ", " * 30_000]
)
def test_a_file_of_signs_that_are_never_closed_is_refused_at_once(text: str) -> None:
    """It comes with a folder from anywhere: looked through again from each sign it held the whole process up."""
    with pytest.raises(InvalidInput, match="it is not JSON"):
        OpencodeFile(text, path="opencode.json", notice=lambda told: None)
