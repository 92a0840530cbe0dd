"""The inputs of a system prompt, as values, independent of where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

__all__ = ["Delegate", "Environment", "GitState", "Instruction", "PromptInputs", "PromptTool", "Skill", "SkillSource"]

SkillSource = Literal["user", "project"]


class PromptTool(Protocol):
    """A tool as the prompt describes it. A provider's tool schema satisfies this protocol."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> Mapping[str, Any]: ...


class Delegate(msgspec.Struct, frozen=True):
    """An agent that work can be delegated to."""

    name: str
    description: str


class Instruction(msgspec.Struct, frozen=True):
    """A project instruction file. ``size`` is its full size in bytes if ``text`` is only the beginning."""

    path: str
    text: str
    size: int | None = None


class Skill(msgspec.Struct, frozen=True):
    """A skill as the index lists it; its body is read on demand."""

    name: str
    description: str
    source: SkillSource = "user"
    path: str | None = None


class GitState(msgspec.Struct, frozen=True):
    """The state of a working copy. ``branch`` is None if no branch is checked out; ``commit`` is set instead.

    ``changed`` counts the files that differ from the last commit; None if unknown.
    """

    branch: str | None = None
    commit: str | None = None
    changed: int | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of a turn: machine, workspace, date. No clock time, so the prompt stays the same for the day.

    ``media`` means that messages contain images or other files.
    """

    platform: str
    date: str
    zone: str
    model: str
    variant: str | None = None
    workspace: str | None = None
    git: GitState | None = None
    media: bool = False


class PromptInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a prompt depends on.

    ``agent_path`` is set if the agent's prompt comes from a file of the project. ``swapped_from`` is the session's own
    agent if another one runs this turn. ``subagent``: the session works for another one. ``instructions`` are outermost
    first; the order of everything else does not matter. ``frozen_environment`` is the section as an earlier turn was
    sent it, and replaces ``environment``.
    """

    agent_prompt: str = ""
    agent_path: str | None = None
    session_override: str | None = None
    swapped_from: str | None = None
    subagent: bool = False
    delegates: tuple[Delegate, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    skills: tuple[Skill, ...] = ()
    environment: Environment | None = None
    frozen_environment: str | None = None
    tools: tuple[PromptTool, ...] = ()
