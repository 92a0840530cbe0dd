"""What a system prompt is made of, as values. Where they come from is not known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

__all__ = ["Delegate", "Environment", "GitState", "Instruction", "PromptInputs", "PromptTool", "Skill", "SkillSource"]

SkillSource = Literal["user", "project"]


class PromptTool(Protocol):
    """A tool as the prompt names it. A provider's tool schema is one."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> Mapping[str, Any]: ...


class Delegate(msgspec.Struct, frozen=True):
    """An agent that work can be handed to."""

    name: str
    description: str


class Instruction(msgspec.Struct, frozen=True):
    """One file of project instructions. ``size`` is the whole file's in bytes when ``text`` is only its beginning."""

    path: str
    text: str
    size: int | None = None


class Skill(msgspec.Struct, frozen=True):
    """A skill as the index names it; its body is read when it is asked for."""

    name: str
    description: str
    source: SkillSource = "user"
    path: str | None = None


class GitState(msgspec.Struct, frozen=True):
    """Where a working copy stands. ``branch`` is None when no branch is checked out, and ``commit`` says what is.

    ``changed`` counts the files that differ from the last commit; None when that could not be found out.
    """

    branch: str | None = None
    commit: str | None = None
    changed: int | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when a turn runs. There is no clock time in it: the prompt stays the same for the day.

    ``media`` says that messages hold images or other files.
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
    """Everything a prompt depends on, and nothing that it does not.

    ``agent_path`` is set when the agent's prompt came out of a file of the project. ``swapped_from`` is the
    session's own agent, when another one has this turn. ``subagent``: the session works for another one.
    ``instructions`` are outermost first; the order of everything else does not matter. ``frozen_environment`` is the
    section as an earlier turn was sent it, and stands for ``environment``.
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
