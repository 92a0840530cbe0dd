"""An agent as a manifest: its prompt, tools and rules, its model, and its limits.

A manifest is a Markdown file: front matter describes the agent, the body is its prompt. Parsing is strict: an unknown
key is an error, because a misspelt ``rules`` must not produce an agent without them. There are no keys for addresses or
credentials of providers; those belong in the user's own settings. Evaluating rules, and knowing which tools exist, is
done elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, cast, get_args

import msgspec

from clew.convert import convert
from clew.errors import InvalidInput
from clew.front_matter import Field, Scalar, Value, fail, parse_front_matter
from clew.mcp_server import McpServer, read_server
from clew.transcript.rule import Rule, is_known, unknown_permission
from clew.transcript.session import read_model

__all__ = [
    "DEFAULT_MAX_STEPS",
    "MAX_DESCRIPTION",
    "MAX_STEPS",
    "Agent",
    "AgentMode",
    "AgentSource",
    "is_agent_name",
    "is_permission",
    "is_temperature",
    "parse_manifest",
]

DEFAULT_MAX_STEPS: Final = 100
MAX_STEPS: Final = 1_000
MAX_DESCRIPTION: Final = 500

AgentMode = Literal["primary", "subagent", "internal"]
"""primary: for sessions. subagent: also started by the task tool. internal: clew's own, never offered."""
AgentSource = Literal["builtin", "user", "project"]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,128}\*?")
_PERMISSION = re.compile(r"\*|[A-Za-z0-9_.-]{1,128}\*?")
_KEYS: Final = (
    *("name", "description", "mode", "tools", "mcp_servers", "rules", "model", "max_steps", "inspectable"),
    "temperature",
)
_FLAGS: Final = ("true", "false")
_ACTIONS: Final = ("allow", "deny", "ask")


def is_permission(text: str) -> bool:
    """Return whether a text is a tool's name, a prefix followed by a star, or a star."""
    return _PERMISSION.fullmatch(text) is not None


_RULE: Final[dict[str, tuple[Callable[[str], object], str]]] = {
    "permission": (is_permission, "permission must be a tool name, or `*`"),
    "pattern": (bool, 'pattern must not be empty; use "*" to match everything'),
    "action": (_ACTIONS.__contains__, f"action must be one of {', '.join(_ACTIONS)}"),
    "pinned": (_FLAGS.__contains__, f"pinned must be one of {', '.join(_FLAGS)}"),
}
"""The keys of a rule: how a value is checked, and the error message for an invalid one."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. ``tools`` names those it is offered, None means all.

    ``mcp_servers`` likewise: the user's servers by name, and others with their definition. ``path`` is None for a
    built-in agent.

    ``max_steps`` None leaves the limit to the preset of the session.

    ``model`` is stored as written: only providers can interpret a suffix after a colon.

    ``rules`` are the manifest scope. ``inspectable`` says whether its sessions are shown to people.
    """

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    mcp_servers: Mapping[str, McpServer | None] | None = None
    rules: tuple[Rule, ...] = ()
    model: str | None = None
    max_steps: int | None = None
    mode: AgentMode = "primary"
    inspectable: bool = True
    temperature: float | None = None
    source: AgentSource = "builtin"
    path: str | None = None

    def is_offered(self, tool: str) -> bool:
        """Return whether the agent is offered a tool. Permission to call it is checked separately."""
        return self.tools is None or any(_names(one, tool) for one in self.tools)

    def is_served(self, name: str) -> bool:
        """Return whether the agent is offered an MCP server or its tool; servers it names come with all tools."""
        if self.mcp_servers is not None:
            return True
        return self.tools is None or any(_names(one, name) or one.startswith(f"{name}__") for one in self.tools)


def _names(written: str, tool: str) -> bool:
    return tool.startswith(written[:-1]) if written.endswith("*") else tool == written


def is_agent_name(name: str) -> bool:
    """Return whether a name has only lower case letters, digits and dashes, at most 64: it is also a file name."""
    return _NAME.fullmatch(name) is not None


def parse_manifest(
    text: str, *, name: str, source: AgentSource, path: str, names: Collection[str] | None = None
) -> Agent:
    """Return the agent a manifest describes. Raise ``InvalidInput`` with file and line.

    ``name`` is the file's; rules may name only tools in ``names``, any if it is None.
    """
    front = parse_front_matter(text, path)
    fields = _Fields(front.fields, path, names)
    fields.text("name", name.__eq__, f"the name must match the file name, {name}")
    if not is_agent_name(name):
        raise fail(path, 1, "the file must be named with lower case letters, digits and dashes, at most 64")
    if not front.body:
        raise fail(path, 1, "the prompt is missing; write it below the front matter")
    too_long = f"more than {MAX_DESCRIPTION} characters"
    description = fields.text("description", lambda text: len(text) <= MAX_DESCRIPTION, too_long)
    if not description:
        raise fail(path, 1, "the description is missing")
    steps = fields.text("max_steps", _is_max_steps, f"max_steps must be an integer from 1 to {MAX_STEPS}")
    temperature = fields.text("temperature", is_temperature, "temperature must be a number from 0 to 2")
    return Agent(
        name=name,
        description=description,
        prompt=front.body,
        tools=fields.tools(),
        mcp_servers=fields.mcp_servers(),
        rules=fields.rules(),
        model=fields.model(),
        max_steps=None if steps is None else int(steps),
        mode=cast("AgentMode", fields.choice("mode", get_args(AgentMode)) or "primary"),
        inspectable=fields.choice("inspectable", _FLAGS) != "false",
        temperature=None if temperature is None else float(temperature),
        source=source,
        path=None if source == "builtin" else path,
    )


class _Fields:
    """The fields of a manifest, each parsed as its type."""

    def __init__(self, fields: Mapping[str, Field], path: str, names: Collection[str] | None) -> None:
        self._fields = fields
        self._path = path
        self._names = names
        for key, field in fields.items():
            if key not in _KEYS:
                raise fail(path, field.line, f"{key} is not a manifest key; use one of: {', '.join(_KEYS)}")
            if isinstance(field.value, Scalar) and not field.value.text and key != "description":
                raise fail(path, field.line, "the key has no value; set one or remove the key")

    def text(self, key: str, is_fit: Callable[[str], object], what: str) -> str | None:
        """Return a single value; None if the key is missing. ``what`` is the error message for an invalid one."""
        field = self._fields.get(key)
        return None if field is None else self._single(key, field.value, field.line, is_fit, what)

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        return self.text(key, choices.__contains__, f"{key} must be one of {', '.join(choices)}")

    def model(self) -> str | None:
        name = self.text("model", bool, "")
        if name is not None:
            try:
                read_model(name)
            except InvalidInput as error:
                raise fail(self._path, self._fields["model"].line, error.message) from error
        return name

    def tools(self) -> tuple[str, ...] | None:
        field = self._fields.get("tools")
        if field is None:
            return None
        if not isinstance(field.value, tuple):
            raise fail(self._path, field.line, "tools must be a list, for example [read, grep]")
        names: dict[str, None] = {}
        for item in field.value:
            if not isinstance(item, Scalar) or not _TOOL.fullmatch(item.text):
                line = item.line if isinstance(item, Scalar) else field.line
                raise fail(self._path, line, "a tool name may contain only letters, digits, `_`, `-` and `.`")
            names[item.text] = None
        return tuple(names)

    def mcp_servers(self) -> Mapping[str, McpServer | None] | None:
        """Return the names of the user's servers, and servers with a definition."""
        field = self._fields.get("mcp_servers")
        if field is None:
            return None
        if not isinstance(field.value, tuple):
            raise fail(
                self._path,
                field.line,
                "mcp_servers must be a list of names, or of maps with a name and a command or url",
            )
        servers: dict[str, McpServer | None] = {}
        for item in field.value:
            if isinstance(item, Scalar):
                servers[item.text] = None
                continue
            plain = _plain(item)
            name = plain.pop("name", None) if isinstance(plain, dict) else None
            if not isinstance(name, str):
                raise fail(self._path, field.line, "a server must be a map with a name and a command or url")
            try:
                servers[name] = read_server(plain, name)
            except InvalidInput as error:
                raise fail(self._path, field.line, error.message) from error
        return servers

    def rules(self) -> tuple[Rule, ...]:
        field = self._fields.get("rules")
        if field is None:
            return ()
        if not isinstance(field.value, tuple):
            raise fail(self._path, field.line, "rules must be a list of maps with permission, pattern and action")
        return tuple(self._rule(item, field.line) for item in field.value)

    def _rule(self, value: Value, line: int) -> Rule:
        if not isinstance(value, Mapping):
            line = value.line if isinstance(value, Scalar) else line
            raise fail(self._path, line, "a rule must be a map with permission, pattern and action")
        lines = {key: field.line for key, field in value.items() if isinstance(field, Scalar)}
        line = min(lines.values(), default=line)
        texts: dict[str, str] = {}
        for key, field in value.items():
            if key not in _RULE:
                known = ", ".join(_RULE)
                raise fail(self._path, lines.get(key, line), f"{key} is not a rule key; use one of: {known}")
            texts[key] = self._single(key, field, line, *_RULE[key])
        missing = [key for key in _RULE if key not in texts and key != "pinned"]
        if missing:
            raise fail(self._path, line, f"the rule has no {' and no '.join(missing)}")
        if self._names is not None and not is_known(texts["permission"], self._names):
            what = unknown_permission(texts["permission"], self._names)
            raise fail(self._path, lines.get("permission", line), what)
        pinned = texts.pop("pinned", "false") == "true"
        return convert({**texts, "source": "manifest", "pinned": pinned}, Rule)

    def _single(self, key: str, value: Value, line: int, is_fit: Callable[[str], object], what: str) -> str:
        if not isinstance(value, Scalar):
            raise fail(self._path, line, f"{key} must be a single value, not a list")
        if not is_fit(value.text):
            raise fail(self._path, value.line, what)
        return value.text


def _plain(value: Value) -> Any:
    if isinstance(value, Scalar):
        return value.text
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()}


def _is_max_steps(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,4}", text) is not None and 1 <= int(text) <= MAX_STEPS


def is_temperature(text: str) -> bool:
    try:
        return 0 <= float(text) <= 2
    except ValueError:
        return False
