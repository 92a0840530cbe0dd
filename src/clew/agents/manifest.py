"""An agent as a manifest: what it is told, which tools and rules it has, which model, and its limits.

A manifest is a Markdown file: front matter says what the agent is, the body is its prompt. It is read strictly. A
key that is not known is an error, because a misspelt ``rules`` must not become an agent without them. There are no
keys for addresses or credentials of providers; those belong to the user's own settings. How rules are weighed, and
which tools exist, is not known here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, Literal, cast, get_args

import msgspec

from clew.errors import InvalidInput
from clew.front_matter import Field, Scalar, Value, fail, parse_front_matter
from clew.transcript.rule import Rule
from clew.transcript.session import Model, parse_model

__all__ = ["DEFAULT_MAX_STEPS", "MAX_STEPS", "Agent", "AgentMode", "AgentSource", "is_agent_name", "parse_manifest"]

DEFAULT_MAX_STEPS: Final = 100
MAX_STEPS: Final = 1_000
_MAX_DESCRIPTION: Final = 500

AgentMode = Literal["primary", "subagent", "internal"]
"""primary: for sessions. subagent: also started by the task tool. internal: clew's own, never offered."""
AgentSource = Literal["builtin", "user", "project"]
_Action = Literal["allow", "deny", "ask"]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PERMISSION = re.compile(r"\*|[A-Za-z0-9_.-]{1,128}\*?")
_KEYS: Final = (
    "name",
    "description",
    "mode",
    "tools",
    "rules",
    "model",
    "max_steps",
    "inspectable",
    "temperature",
)
_RULE_KEYS: Final = ("permission", "pattern", "action", "pinned")


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. ``tools`` names those it is offered, None means all; ``path`` is None for a built-in one.

    ``max_steps`` None leaves the limit to the preset of the session.

    ``rules`` are the manifest scope. ``inspectable`` says whether its sessions are shown to people.
    """

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    rules: tuple[Rule, ...] = ()
    model: Model | None = None
    max_steps: int | None = None
    mode: AgentMode = "primary"
    inspectable: bool = True
    temperature: float | None = None
    source: AgentSource = "builtin"
    path: str | None = None

    def is_offered(self, tool: str) -> bool:
        """Whether the agent is told about a tool. That a call is allowed is another question."""
        return self.tools is None or tool in self.tools


def is_agent_name(name: str) -> bool:
    """Lower case letters, digits and dashes, at most 64: a name is also a file's and stands in the prompt."""
    return _NAME.fullmatch(name) is not None


def parse_manifest(text: str, *, name: str, source: AgentSource, path: str) -> Agent:
    """The agent a manifest describes. ``name`` is the file's; raises ``InvalidInput`` with file and line."""
    front = parse_front_matter(text, path)
    fields = _Fields(front.fields, path)
    fields.check_keys()
    if fields.text("name", name) != name:
        raise fail(path, fields.line("name"), f"the name must be the file's, {name}")
    if not is_agent_name(name):
        raise fail(path, 1, "the file must be named with lower case letters, digits and dashes, at most 64")
    if not front.body:
        raise fail(path, 1, "the prompt is missing; write it below the front matter")
    return Agent(
        name=name,
        description=fields.description(),
        prompt=front.body,
        tools=fields.tools(),
        rules=fields.rules(),
        model=fields.model(),
        max_steps=fields.max_steps(),
        mode=cast("AgentMode", fields.choice("mode", get_args(AgentMode), "primary")),
        inspectable=fields.flag("inspectable", True),
        temperature=fields.temperature(),
        source=source,
        path=None if source == "builtin" else path,
    )


class _Fields:
    """The fields of a manifest, each read as what it must be."""

    def __init__(self, fields: Mapping[str, Field], path: str) -> None:
        self._fields = fields
        self._path = path

    def line(self, key: str) -> int:
        return self._fields[key].line

    def check_keys(self) -> None:
        for key, field in self._fields.items():
            if key not in _KEYS:
                raise fail(self._path, field.line, f"{key} is not a key of a manifest; these are: {', '.join(_KEYS)}")
            if isinstance(field.value, Scalar) and not field.value.text and key != "description":
                raise fail(self._path, field.line, "the key has no value; give it one or leave the key out")

    def text(self, key: str, default: str) -> str:
        scalar = self._scalar(key)
        return default if scalar is None else scalar.text

    def description(self) -> str:
        text = self.text("description", "").strip()
        if not text:
            raise fail(self._path, 1, "the description is missing")
        if len(text) > _MAX_DESCRIPTION:
            raise fail(self._path, self.line("description"), f"more than {_MAX_DESCRIPTION} characters")
        return text

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        scalar = self._scalar(key)
        return default if scalar is None else self._one_of(key, scalar, choices)

    def flag(self, key: str, default: bool) -> bool:
        return self.choice(key, ("true", "false"), "true" if default else "false") == "true"

    def max_steps(self) -> int | None:
        scalar = self._scalar("max_steps")
        if scalar is None:
            return None
        if not re.fullmatch(r"[0-9]{1,4}", scalar.text) or not 1 <= int(scalar.text) <= MAX_STEPS:
            raise fail(self._path, scalar.line, f"max_steps is a whole number from 1 to {MAX_STEPS}")
        return int(scalar.text)

    def temperature(self) -> float | None:
        scalar = self._scalar("temperature")
        if scalar is None:
            return None
        try:
            value = float(scalar.text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 2:
            raise fail(self._path, scalar.line, "temperature is a number from 0 to 2")
        return value

    def model(self) -> Model | None:
        scalar = self._scalar("model")
        if scalar is None:
            return None
        try:
            return parse_model(scalar.text)
        except InvalidInput as error:
            raise fail(self._path, scalar.line, error.message) from error

    def tools(self) -> tuple[str, ...] | None:
        field = self._fields.get("tools")
        if field is None:
            return None
        if not isinstance(field.value, tuple):
            raise fail(self._path, field.line, "tools is a list, for example [read, grep]")
        names: dict[str, None] = {}
        for item in field.value:
            if not isinstance(item, Scalar) or not _TOOL.fullmatch(item.text):
                line = item.line if isinstance(item, Scalar) else field.line
                raise fail(self._path, line, "a tool's name has letters, digits, `_`, `-` and `.` only")
            names[item.text] = None
        return tuple(names)

    def rules(self) -> tuple[Rule, ...]:
        field = self._fields.get("rules")
        if field is None or field.value == ():
            return ()
        if not isinstance(field.value, tuple):
            raise fail(self._path, field.line, "rules is a list of maps with permission, pattern and action")
        return tuple(self._rule(item, field.line) for item in field.value)

    def _rule(self, value: Value, line: int) -> Rule:
        if not isinstance(value, Mapping):
            line = value.line if isinstance(value, Scalar) else line
            raise fail(self._path, line, "a rule is a map with permission, pattern and action")
        item = {key: scalar for key, scalar in value.items() if isinstance(scalar, Scalar)}
        line = min((scalar.line for scalar in item.values()), default=line)
        for key in value:
            at = item[key].line if key in item else line
            if key not in _RULE_KEYS:
                raise fail(self._path, at, f"{key} is not a key of a rule; these are: {', '.join(_RULE_KEYS)}")
            if key not in item:
                raise fail(self._path, at, f"{key} is a single value, not a list")
        missing = [key for key in _RULE_KEYS[:3] if key not in item]
        if missing:
            raise fail(self._path, line, f"the rule has no {' and no '.join(missing)}")
        permission = item["permission"]
        if not _PERMISSION.fullmatch(permission.text):
            raise fail(self._path, permission.line, "a permission is a tool's name, or `*`")
        if not item["pattern"].text:
            raise fail(self._path, item["pattern"].line, 'the pattern is empty; "*" matches everything')
        pinned = "pinned" in item and self._one_of("pinned", item["pinned"], ("true", "false")) == "true"
        action = self._one_of("action", item["action"], get_args(_Action))
        return Rule(permission.text, item["pattern"].text, cast("_Action", action), source="manifest", pinned=pinned)

    def _one_of(self, key: str, scalar: Scalar, choices: tuple[str, ...]) -> str:
        if scalar.text not in choices:
            raise fail(self._path, scalar.line, f"{key} is one of {', '.join(choices)}")
        return scalar.text

    def _scalar(self, key: str) -> Scalar | None:
        field = self._fields.get(key)
        if field is None:
            return None
        if not isinstance(field.value, Scalar):
            raise fail(self._path, field.line, f"{key} is a single value, not a list")
        return field.value
