"""Manifests: an agent out of a Markdown file, and what a manifest may not say."""

from __future__ import annotations

import pytest

from clew.agents.manifest import Agent, AgentSource, parse_manifest
from clew.errors import InvalidInput
from clew.transcript.rule import Rule

PATH = "/home/ann/.config/clew/agents/tidy.md"


def parse(*lines: str, body: str = "Tidy up.", name: str = "tidy", source: AgentSource = "user") -> Agent:
    return parse_manifest("\n".join(["---", *lines, "---", body]), name=name, source=source, path=PATH)


def test_a_manifest_with_everything_becomes_an_agent_with_everything() -> None:
    """Each key once."""
    agent = parse(
        "name: tidy",
        "description: Keeps folders in order",
        "mode: subagent",
        "tools: [read, mcp_files.move, read]",
        "model: anthropic/claude-9/beta",
        "max_steps: 25",
        "inspectable: false",
        "temperature: 0.5",
        "rules:",
        "  - permission: bash",
        '    pattern: "mv *"',
        "    action: allow",
        '  - permission: "*"',
        '    pattern: "/etc/**"',
        "    action: deny",
        "    pinned: true",
    )
    assert agent == Agent(
        name="tidy",
        description="Keeps folders in order",
        prompt="Tidy up.",
        tools=("read", "mcp_files.move"),
        rules=(
            Rule("bash", "mv *", "allow", source="manifest"),
            Rule("*", "/etc/**", "deny", source="manifest", pinned=True),
        ),
        model="anthropic/claude-9/beta",
        max_steps=25,
        mode="subagent",
        inspectable=False,
        temperature=0.5,
        source="user",
        path=PATH,
    )


def test_a_manifest_needs_only_a_description_and_a_prompt() -> None:
    """All tools, no rules, ten steps, and no model of its own."""
    agent = parse("description: Keeps folders in order")
    assert agent == Agent(
        name="tidy", description="Keeps folders in order", prompt="Tidy up.", source="user", path=PATH
    )
    assert (agent.tools, agent.rules, agent.model, agent.max_steps, agent.mode) == (None, (), None, None, "primary")


def test_no_list_of_tools_offers_all_and_an_empty_one_none() -> None:
    """`tools: []` is an agent that only talks."""
    every, some, none = (
        parse("description: d"),
        parse("description: d", "tools: [ls]"),
        parse("description: d", "tools: []"),
    )
    assert [agent.is_offered("ls") for agent in (every, some, none)] == [True, True, False]
    assert [agent.is_offered("bash") for agent in (every, some, none)] == [True, False, False]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "1: the description is missing"),
        (["description: ''"], "1: the description is missing"),
        (["description: " + "d" * 501], "2: more than 500 characters"),
        (["description: [d]"], "2: description must be a single value, not a list"),
        (["description: d", "name: other"], "3: the name must match the file name, tidy"),
        (["description: d", "mode: boss"], "3: mode must be one of primary, subagent, internal"),
        (["description: d", "tools: all"], "3: tools must be a list, for example [read, grep]"),
        (["description: d", "tools: [re/ad]"], "3: a tool name may contain only letters, digits, `_`, `-` and `.`"),
        (
            ["description: d", "model: claude"],
            "3: 'claude' is not a model; use provider/model, for example demo/echo",
        ),
        (["description: d", "max_steps: 0"], "3: max_steps must be an integer from 1 to 1000"),
        (["description: d", "max_steps: 1001"], "3: max_steps must be an integer from 1 to 1000"),
        (["description: d", "max_steps: ١٢"], "3: max_steps must be an integer from 1 to 1000"),
        (["description: d", "inspectable: yes"], "3: inspectable must be one of true, false"),
        (["description: d", "temperature: nan"], "3: temperature must be a number from 0 to 2"),
        (["description: d", "temperature: hot"], "3: temperature must be a number from 0 to 2"),
        (["description: d", "rules: none"], "3: rules must be a list of maps with permission, pattern and action"),
        (["description: d", "rules: [bash]"], "3: a rule must be a map with permission, pattern and action"),
        (["description: d", "rules:", "  - permission: bash"], "4: the rule has no pattern and no action"),
        (
            ["description: d", "rules:", "  - permission: 'a b'", "    pattern: x", "    action: deny"],
            "4: permission must be a tool name, or `*`",
        ),
        (
            ["description: d", "rules:", "  - permission: bash", "    pattern: ''", "    action: deny"],
            '5: pattern must not be empty; use "*" to match everything',
        ),
        (
            ["description: d", "rules:", "  - permission: bash", "    pattern: x", "    action: maybe"],
            "6: action must be one of allow, deny, ask",
        ),
        (
            [
                "description: d",
                "rules:",
                "  - permission: bash",
                "    pattern: x",
                "    action: deny",
                "    source: session",
            ],
            "7: source is not a rule key; use one of: permission, pattern, action, pinned",
        ),
    ],
)
def test_what_a_manifest_may_not_say_is_named_with_its_line(lines: list[str], message: str) -> None:
    """Nothing is bent into something that would pass."""
    with pytest.raises(InvalidInput) as caught:
        parse(*lines)
    assert str(caught.value) == f"{PATH}:{message}"


@pytest.mark.parametrize("key", ["rule", "base_url", "api_key", "provider", "env", "hooks"])
def test_a_key_that_is_not_known_spoils_the_manifest(key: str) -> None:
    """A misspelt `rules` must not give an agent without them, and addresses or keys are not a manifest's business."""
    with pytest.raises(InvalidInput, match=f":3: {key} is not a manifest key; use one of: name, description, "):
        parse("description: d", f"{key}: x")


def test_an_agent_without_a_prompt_is_refused() -> None:
    """It would be the bare model under another name."""
    with pytest.raises(InvalidInput, match=":1: the prompt is missing"):
        parse("description: d", body=" \n\n")


@pytest.mark.parametrize("name", ["Tidy", "ti dy", "-tidy", "tidy.v2", "tïdy", "t" * 65, "tidy\n", ""])
def test_a_name_is_short_and_plain(name: str) -> None:
    """It is also a file's, stands in the prompt, and is stored with every session."""
    with pytest.raises(InvalidInput, match=":1: the file must be named with lower case letters, digits and dashes"):
        parse("description: d", name=name)
