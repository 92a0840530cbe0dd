"""The built-in tools as a set, and those that only pass a word on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clew.errors import ToolFailed
from clew.tools.arguments import check_arguments
from clew.tools.base import ChildOutcome, Tool
from clew.tools.builtin import BUILTIN, NAMES
from clew.transcript.rule import Target
from tests.unit.test_tools_support import context_of

TOOLS = {tool.name: tool for tool in BUILTIN}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "read": {"path": "a", "offset": 1, "limit": 2},
    "write": {"path": "a", "content": ""},
    "edit": {"path": "a", "old": "b", "new": "", "all": True},
    "ls": {"path": "."},
    "glob": {"pattern": "*", "path": "."},
    "grep": {"pattern": "x", "path": ".", "glob": "*.py", "ignore_case": True},
    "bash": {"command": "true", "timeout_ms": 1},
    "web_fetch": {"url": "https://example.com/", "format": "html"},
    "todo": {"items": [{"text": "find the thread", "status": "in_progress"}]},
    "question": {"question": "left or right?", "options": ["left", "right"]},
    "task": {"prompt": "look around", "agent": "scout"},
    "skill": {"name": "sailing"},
    "recall": {"query": "the minotaur"},
    "schedule": {"prompt": "look again", "in_minutes": 5, "at": "x", "cron": "x", "timezone": "UTC"},
}


def test_the_tools_are_those_the_rules_name() -> None:
    """By these names: pruning protects some of them, compaction reads the arguments of others."""
    assert tuple(TOOLS) == NAMES == tuple(ARGUMENTS)


@pytest.mark.parametrize("tool", BUILTIN, ids=lambda tool: tool.name)
def test_the_schema_takes_the_arguments_by_their_names_and_no_others(tool: Tool) -> None:
    """And says all of them, so that none is there that the model is not told of."""
    args = ARGUMENTS[tool.name]
    assert set(tool.input_schema["properties"]) == set(args)
    assert check_arguments(tool.input_schema, args) is None
    required = {name: args[name] for name in tool.input_schema.get("required", [])}
    assert check_arguments(tool.input_schema, required) is None
    assert check_arguments(tool.input_schema, {**args, "pth": 1}) is not None
    assert "$ref" not in json.dumps(tool.input_schema)
    assert all("description" in each for each in tool.input_schema["properties"].values())


def test_which_tools_need_a_workspace_and_which_ask_a_human() -> None:
    """A session without a workspace is offered no file tools and no shell."""
    assert {name for name, tool in TOOLS.items() if tool.needs_workspace} == {
        "read",
        "write",
        "edit",
        "ls",
        "glob",
        "grep",
        "bash",
    }
    assert {name for name, tool in TOOLS.items() if tool.asks_human} == {"question"}


def test_every_tool_says_a_target_under_its_own_name(tmp_path: Path) -> None:
    """None slips by the rules because it named nothing."""
    for name, args in ARGUMENTS.items():
        assert [target.permission for target in TOOLS[name].targets(args, tmp_path)] == [name]


@pytest.mark.slow
def test_the_tools_are_not_imported_before_they_are_asked_for() -> None:
    """Importing clew stays light."""
    code = (
        "import sys, clew, clew.tools.builtin as b; names = list(sys.modules); "
        "print([n for n in names if n.startswith('clew.tools.builtin.')], 'jsonschema_rs' in names, len(b.BUILTIN))"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told == "[] False 14\n"


async def test_the_todo_list_is_replaced_and_kept_for_the_session(tmp_path: Path) -> None:
    """The whole list comes back, so that the newest output says it all."""
    state: dict[str, Any] = {"todo": ["old"], "other": 1}
    context = context_of(tmp_path, state=state)
    output = await TOOLS["todo"].execute(ARGUMENTS["todo"], context)
    assert output.value == {"items": [{"text": "find the thread", "status": "in_progress"}]}
    assert state == {"todo": output.value["items"], "other": 1}
    assert (await TOOLS["todo"].execute({"items": []}, context)).value == {"items": []}
    assert state["todo"] == []


@pytest.mark.parametrize(
    "items", [[{"text": "x"}], [{"text": "x", "status": "done"}], [{"text": "", "status": "pending"}], "x"]
)
def test_a_todo_list_of_another_shape_is_refused(items: Any) -> None:
    """By the schema, with a sentence."""
    assert check_arguments(TOOLS["todo"].input_schema, {"items": items}) is not None


async def test_a_question_is_never_executed(tmp_path: Path) -> None:
    """Its output is the human's answer; a run that executes it has a bug and hears so."""
    with pytest.raises(ToolFailed, match="answered by a human"):
        await TOOLS["question"].execute(ARGUMENTS["question"], context_of(tmp_path))


async def test_a_task_hands_the_prompt_to_a_child_and_gives_back_what_it_said(tmp_path: Path) -> None:
    """With the child's session, so that it can be opened; very long words are cut like any output."""
    given: list[tuple[str, str | None]] = []

    async def spawn(prompt: str, agent: str | None) -> ChildOutcome:
        given.append((prompt, agent))
        return ChildOutcome("ses_1", "completed", "x" * 40_000 if agent is None else "found it")

    context = context_of(tmp_path, spawn_child=spawn)
    output = await TOOLS["task"].execute(ARGUMENTS["task"], context)
    assert output.value == {"session_id": "ses_1", "status": "completed", "text": "found it"}
    assert len((await TOOLS["task"].execute({"prompt": "more"}, context)).value["text"]) < 31_000
    assert given == [("look around", "scout"), ("more", None)]


def test_a_task_is_judged_by_its_agent_and_a_skill_by_its_name(tmp_path: Path) -> None:
    """That is what a rule can be written for; the prompt is shown with the request."""
    assert list(TOOLS["task"].targets({"prompt": "x", "agent": "scout"}, None)) == [Target("task", "plain", "scout")]
    assert list(TOOLS["task"].targets({"prompt": "x"}, None)) == [Target("task", "plain", "")]
    assert list(TOOLS["skill"].targets({"name": "sailing"}, None)) == [Target("skill", "plain", "sailing")]


async def test_a_skill_is_loaded_by_its_name(tmp_path: Path) -> None:
    """What the run answers is the output; what it refuses is a sentence."""

    async def load(name: str) -> str:
        if name != "sailing":
            raise ToolFailed(f"there is no skill {name}")
        return "# Sailing\nMind the wind."

    context = context_of(tmp_path, load_skill=load)
    assert (await TOOLS["skill"].execute({"name": "sailing"}, context)).value == "# Sailing\nMind the wind."
    with pytest.raises(ToolFailed, match="no skill flying"):
        await TOOLS["skill"].execute({"name": "flying"}, context)


def test_a_shell_line_is_judged_whole() -> None:
    """Permissions take it apart; the tool changes nothing about it."""
    line = "  git status; rm -rf ~ >x\n"
    assert list(TOOLS["bash"].targets({"command": line}, None)) == [Target("bash", "command", line)]
