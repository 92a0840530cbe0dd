"""Agents defined for Claude Code and opencode: Markdown files, and the ``agent`` map of ``opencode.json``.

Keys with an equivalent are converted; the others are reported. Such a file belongs to a project, so it is limited to
what a project may define (:mod:`clew.agents.catalog`). A restriction is never lost: a refusal that clew's rules
cannot express is widened, and if that is not possible the agent is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from clew.agents.manifest import (
    MAX_DESCRIPTION,
    MAX_STEPS,
    Agent,
    AgentMode,
    is_agent_name,
    is_permission,
    is_temperature,
)
from clew.convert import convert
from clew.errors import InvalidInput
from clew.front_matter import Field, Scalar, Value, fail, parse_front_matter, split_front_matter
from clew.safe_read import shown
from clew.transcript.rule import Rule, is_known
from clew.transcript.session import read_model

__all__ = ["OpencodeFile", "parse_foreign"]

_TOOLS: Final = {
    "agent": "task",
    "apply_patch": "edit",
    "askuserquestion": "question",
    "bash": "bash",
    "edit": "edit",
    "glob": "glob",
    "grep": "grep",
    "list": "ls",
    "ls": "ls",
    "multiedit": "edit",
    "patch": "edit",
    "question": "question",
    "read": "read",
    "skill": "skill",
    "task": "task",
    "todoread": "todo",
    "todowrite": "todo",
    "webfetch": "web_fetch",
    "write": "write",
}
"""clew's name of a tool, by its lower-case name in those programs. Other names stay as they are."""
_UNSUPPORTED: Final = frozenset(
    (
        "artifact", "batch", "bashoutput", "codesearch", "croncreate", "crondelete", "cronlist",
        "enterplanmode", "enterworktree", "exitplanmode", "exitworktree", "invalid", "killbash",
        "killshell", "listmcpresourcestool", "lsp", "monitor", "notebookedit", "notebookread",
        "plan_enter", "plan_exit", "powershell", "readmcpresourcetool", "schedulewakeup", "sendmessage",
        "slashcommand", "taskcreate", "taskget", "tasklist", "taskoutput", "taskstop", "taskupdate",
        "teamcreate", "teamdelete", "toolsearch", "websearch", "workflow",
    )
)  # fmt: skip
"""Tools of those programs that clew does not have, in lower case."""
_PERMISSIVE_MODES: Final = ("acceptEdits", "auto", "bypassPermissions", "dontAsk")
_MODES: Final[Mapping[str, AgentMode]] = {"primary": "primary", "subagent": "subagent", "all": "subagent"}
_USED: Final = frozenset(
    {
        *("name", "description", "mode", "model", "temperature", "prompt", "tools", "disallowedTools", "permission"),
        *("permissionMode", "maxTurns", "maxSteps", "steps", "disable", "disabled"),
    }
)
_LINE: Final = re.compile(r"^([A-Za-z][\w-]*):[ \t]+(\S.*)$", re.MULTILINE)
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}\*?")
_SERVER: Final = re.compile(r"mcp__(?:(?!__)[^*])+")
# Unclosed strings and comments extend to the end of the file; otherwise matching would take quadratic time.
_NOT_DATA: Final = re.compile(r'("(?:\\.|[^"\\])*+"?)|//[^\n]*|/\*(?:.*?\*/|.*)', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*+"?)|,(?=\s*[}\]])')
_IN_LIST: Final = re.compile(r"(?:[^,(]|\([^)]*(?:\)|$))++")
_MAX_RULES: Final = 1_000
_MAX_PARTS: Final = 8
"""The number of underscore-separated parts of a tool name up to which every possible server name is tried."""
_ANY_SERVER: Final = "mcp__*"
_FILE: Final = re.compile(r"\{file:([^{}]+)\}")


def parse_foreign(
    text: str, *, name: str, path: str, notice: Callable[[str], None], names: Collection[str] | None = None
) -> Agent | None:
    """Return the agent of a Markdown file; None for a disabled one. Raise ``InvalidInput`` with file and line.

    ``name`` is the file's; ``names`` are the tools known here, None accepts any.
    """
    try:
        front = parse_front_matter(text, path)
    except InvalidInput as error:
        # Claude Code accepts any characters in a description, YAML does not. Restrictions are never quoted.
        head, body = split_front_matter(text, path)
        try:
            front = parse_front_matter(f"---\n{_LINE.sub(_quoted, head)}\n---\n{body}", path)
        except InvalidInput:
            raise error from None
    return _Foreign(front.fields, path, notice, names).agent(name, front.body)


def _quoted(line: re.Match[str]) -> str:
    key, text = line[1], line[2].rstrip()
    if (key in _USED and key != "description") or (text[0] in "\"'" and text[0] == text[-1]):
        return line[0]
    return f"{key}: {msgspec.json.encode(text).decode()}"


class OpencodeFile:
    """An ``opencode.json``; comments and trailing commas are allowed. Raises ``InvalidInput`` for an invalid one."""

    def __init__(
        self, text: str, *, path: str, notice: Callable[[str], None], names: Collection[str] | None = None
    ) -> None:
        self._path, self._notice, self._names = path, notice, names
        plain = _LAST_COMMA.sub(r"\1", _NOT_DATA.sub(r"\1", text))
        try:
            settings = msgspec.json.decode(plain)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidInput(f"{path}: it is not JSON: {error}") from error
        if not isinstance(settings, dict) or not isinstance(agents := settings.get("agent", {}), dict):
            raise InvalidInput(f"{path}: `agent` must be a map of agents")
        self._agents = agents
        # Of the settings for all agents, use only the restrictions.
        shared = _fields({key: settings.get(key) for key in ("tools", "permission")}, path)
        self._offered, rules = _Foreign(shared, path, notice, names).permissions()
        self._rules = tuple(rule for rule in rules if rule.action != "allow")

    def narrow(self, agent: Agent) -> Agent:
        """Return the agent with the file's restrictions for all agents, before the agent's own."""
        rules = (*self._rules, *agent.rules)
        return msgspec.structs.replace(agent, tools=_intersection(agent.tools, self._offered), rules=rules)

    def agents(self, read: Callable[[str], str]) -> Iterator[Agent]:
        """Yield its agents. ``read`` returns a prompt stored in a project file, or raises ``InvalidInput``."""
        for name, raw in self._agents.items():
            where = f"{self._path}: agent {name!r}"
            try:
                if not isinstance(raw, dict):
                    raise InvalidInput(f"{where} must be a map of settings")
                if not isinstance(prompt := raw.get("prompt"), str):
                    self._notice(f"{where} is ignored; it has no prompt")
                    continue
                if file := _FILE.fullmatch(prompt.strip()):
                    try:
                        prompt = read(file[1].strip())
                    except InvalidInput as error:
                        raise InvalidInput(f"{where}: its prompt {error}") from error
                elif "{env:" in prompt or "{file:" in prompt:
                    raise InvalidInput(f"{where} has a composed prompt; only a single {{file:…}} is supported")
                if agent := _Foreign(_fields(raw, where), where, self._notice, self._names).agent(name, prompt.strip()):
                    yield agent
            except InvalidInput as error:
                self._notice(f"{error}; the agent is ignored")


def _fields(settings: Mapping[str, Any], where: str) -> dict[str, Field]:
    try:
        return {key: Field(0, _value(value)) for key, value in settings.items() if value is not None}
    except RecursionError as error:
        raise InvalidInput(f"{where} is nested too deeply") from error


def _intersection(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the tools that are in both lists; None means all."""
    if one is None or other is None:
        return other if one is None else one
    return tuple(tool for tool in one if tool in other)


def _value(value: Any) -> Value:
    """Convert a JSON value to a front matter value."""
    if isinstance(value, dict):
        return {key: _value(one) for key, one in value.items()}
    if isinstance(value, list):
        return tuple(map(_value, value))
    return Scalar(value.strip() if isinstance(value, str) else msgspec.json.encode(value).decode(), 0)


class _Foreign:
    """The fields of one agent, converted as far as clew has an equivalent."""

    def __init__(
        self,
        fields: Mapping[str, Field],
        path: str,
        notice: Callable[[str], None],
        names: Collection[str] | None,
    ) -> None:
        self._fields = fields
        self._names = names
        self._path = path
        self._send_notice = notice

    def _notice(self, what: str) -> None:
        self._send_notice(shown(f"{self._path}: {what}"))

    def agent(self, file_name: str, body: str) -> Agent | None:
        if any((self._text(key) or "").lower() == "true" for key in ("disable", "disabled")):
            return None
        name = self._text("name") or file_name
        if not is_agent_name(name):
            raise self._error(f"an agent's name may contain only a-z, 0-9 and dashes, not {name!r}")
        description = shown(" ".join((self._text("description") or "").split()))
        if not description or not body:
            raise self._error(f"the {'prompt' if description else 'description'} is missing")
        if unused := [key for key in self._fields if key not in _USED]:
            self._notice(f"clew has no equivalent for {', '.join(unused)}; ignored")
        tools, rules = self.permissions()
        return Agent(
            name=name,
            description=description
            if len(description) <= MAX_DESCRIPTION
            else f"{description[: MAX_DESCRIPTION - 1]}…",
            prompt=body,
            tools=tools,
            rules=rules,
            model=self._model(),
            max_steps=self._steps(),
            mode=self._mode(),
            temperature=self._temperature(),
            source="project",
            path=self._path,
        )

    def _text(self, key: str) -> str | None:
        field = self._fields.get(key)
        return field.value.text if field is not None and isinstance(field.value, Scalar) else None

    def _error(self, what: str, key: str | None = None) -> InvalidInput:
        line = (
            self._fields[key].line if key is not None else min((one.line for one in self._fields.values()), default=1)
        )
        return fail(self._path, line, what) if line else InvalidInput(f"{self._path}: {what}")

    def _ignored(self, key: str, why: str) -> None:
        self._notice(f"{key} is ignored; {why}")

    def _mode(self) -> AgentMode:
        mode = self._text("mode") or "all"
        if mode not in _MODES:
            self._ignored("mode", f"it must be one of {', '.join(_MODES)}")
        return _MODES.get(mode, "subagent")

    def _model(self) -> str | None:
        given = self._text("model")
        if given in (None, "", "inherit"):
            return None
        model = f"anthropic/{given}" if given.startswith("claude-") else given
        try:
            read_model(model if model.isprintable() else "")
        except InvalidInput:
            self._ignored("model", f"{given!r} is not provider/model; the session's model is used")
            return None
        return model

    def _steps(self) -> int | None:
        for key in ("maxTurns", "steps", "maxSteps"):
            text = self._text(key)
            if text is None:
                continue
            if re.fullmatch(r"[0-9]{1,9}", text) and int(text):
                return min(int(text), MAX_STEPS)
            self._ignored(key, "it must be an integer of at least 1")
        return None

    def _temperature(self) -> float | None:
        text = self._text("temperature")
        if text is None or is_temperature(text):
            return None if text is None else float(text)
        self._ignored("temperature", "it must be a number from 0 to 2")
        return None

    # ---------------------------------------------------------------- permissions

    def permissions(self) -> tuple[tuple[str, ...] | None, tuple[Rule, ...]]:
        """Return the tools it is offered, None for all, and its rules."""
        rules: list[Rule] = []
        offered = self._tools(rules)
        if "disallowedTools" in self._fields:
            rules += (_deny_rule(tool) for tool in self._known(self._named("disallowedTools")))
        if "permission" in self._fields:
            offered = _intersection(offered, self._permission(rules))
        mode = self._text("permissionMode")
        if mode == "plan":
            rules += (_deny_rule(tool) for tool in ("write", "edit"))
        elif mode not in (None, "", "default"):
            if mode not in _PERMISSIVE_MODES:
                raise self._error(
                    f"permissionMode must be one of default, plan, {', '.join(_PERMISSIVE_MODES)}", "permissionMode"
                )
            self._ignored(f"permissionMode: {mode}", "a project cannot grant permissions")
        if len(rules) > _MAX_RULES:
            raise self._error(f"it has more than {_MAX_RULES} rules")
        return offered, tuple(rules)

    def _tools(self, rules: list[Rule]) -> tuple[str, ...] | None:
        field = self._fields.get("tools")
        if field is None:
            return None
        if not isinstance(field.value, Mapping):
            named = self._named("tools")
            return None if "*" in named else named
        flags = dict(self._switches(field.value))
        if flags.pop("*", True):
            rules += (
                _deny_rule(tool)
                for name, on in flags.items()
                if not on
                for tool in self._known(_permission_tools(name))
            )
            return None
        switched_on = (name for name, on in flags.items() if on)
        tools = (
            tool
            for name in switched_on
            for tool in ((_tool(name),) if name.lower() in _TOOLS else _offered_tools(name))
        )
        return tuple(dict.fromkeys(tools))

    def _switches(self, value: Mapping[str, Value]) -> list[tuple[str, bool]]:
        """Return the tools that are enabled or disabled; entries before one for all tools do not count."""
        switches: list[tuple[str, bool]] = []
        for name, switch in value.items():
            if not isinstance(switch, Scalar) or switch.text not in ("true", "false") or not is_permission(name):
                raise self._error(f"{name} of tools must be true or false", "tools")
            switches = [] if name == "*" else switches
            switches.append((name, switch.text == "true"))
        return switches

    def _named(self, key: str) -> tuple[str, ...]:
        """Return the tools in a list, or in comma-separated text, under clew's names."""
        field = self._fields[key]
        items = field.value if isinstance(field.value, tuple) else (field.value,)
        names = []
        for item in items:
            if not isinstance(item, Scalar):
                raise self._error(f"{key} must be a list of tools", key)
            names += [name for part in _IN_LIST.findall(item.text) if (name := part.strip())]
        if partial := [name for name in names if name != "*" and not _TOOL_NAME.fullmatch(name)]:
            # Part of a tool: offering the whole tool would allow too much, refusing it is at least as strict.
            does = "not offered" if key == "tools" else "refused as a whole"
            self._notice(f"{', '.join(partial)} of {key}: clew supports only whole tools here; it is {does}")
            names = [name for name in names if name not in partial]
            if key != "tools":
                names += (whole := [name.partition("(")[0].strip() for name in partial])
                if not all(map(_TOOL_NAME.fullmatch, whole)):
                    raise self._error(f"{key} must be a comma-separated list of tools", key)
        if unknown := [
            name for name in names if name != "*" and not name.startswith("mcp__") and name.lower() not in _TOOLS
        ]:
            self._notice(f"{', '.join(unknown)} of {key}: clew has no such tool; it is offered only if one exists")
        return tuple(dict.fromkeys(tool for name in names for tool in _tools(name)))

    def _permission(self, rules: list[Rule]) -> tuple[str, ...] | None:
        """Convert opencode's map of allow, ask and deny; of several entries for one thing the last counts."""
        value = self._fields["permission"].value
        if not isinstance(value, Mapping):
            value = {"*": value}
        entries = list(value.items())
        last = max((at for at, (name, _) in enumerate(entries) if name == "*"), default=0)
        offered: list[str] | None = None
        for name, entry in entries[last:]:
            if not is_permission(name):
                raise self._error(f"{name} is not a tool name", "permission")
            cases = self._cases(name, entry)
            if name == "*" and cases[0][1] == "deny":
                offered = []
                continue
            if offered is not None and cases != [("*", "deny")]:
                offered += _offered_tools(name)
            if name in ("doom_loop", "external_directory"):
                self._ignored(f"permission {name}", "clew always asks")
                continue
            for tool in self._known_tools(name):
                rules += _rules_of(tool, cases)
        return None if offered is None else tuple(dict.fromkeys(offered))

    def _known(self, tools: Iterable[str]) -> list[str]:
        """Return the tools that clew or an MCP server may have: one that does not exist needs no refusal."""
        return [tool for tool in tools if self._names is None or is_known(tool, self._names)]

    def _known_tools(self, name: str) -> tuple[str, ...]:
        """Return the tools a permission applies to; an unknown one stays, and its rules apply to every tool."""
        tools = _permission_tools(name)
        # In opencode, names of MCP tools have no dot.
        known = self._known(tools if "." not in name else (_tool(name),))
        if known:
            return tuple(known)
        if name.lower() in _UNSUPPORTED:
            self._ignored(f"permission {name}", "clew has no such tool")
            return ()
        self._notice(f"permission {name} names no known tool; its deny and ask rules apply to every tool")
        return tools[:1]

    def _cases(self, name: str, value: Value) -> list[tuple[str, str]]:
        """Return patterns and actions in order, starting at the last entry for everything."""
        cases = list(value.items()) if isinstance(value, Mapping) else [("*", value)]
        found: list[tuple[str, str]] = []
        for pattern, action in cases:
            convert = pattern.strip() and pattern.isprintable()
            if not convert or not isinstance(action, Scalar) or action.text not in ("allow", "ask", "deny"):
                raise self._error(f"{name} must be allow, ask or deny, or a map of them", "permission")
            found = [] if not pattern.strip("*") else found
            found.append((pattern if found or pattern.strip("*") else "*", action.text))
        if not found:
            raise self._error(f"{name} is empty", "permission")
        return found


def _tool(name: str) -> str:
    return f"{name}__*" if _SERVER.fullmatch(name) else _TOOLS.get(name.lower(), name)


def _tools(name: str) -> tuple[str, ...]:
    """Return the tools a name means. A prefix with a star also matches tools that have another name in clew."""
    prefix = name[:-1].lower() if name.endswith("*") and name != "*" else None
    return (_tool(name), *(ours for theirs, ours in _TOOLS.items() if prefix is not None and theirs.startswith(prefix)))


def _permission_tools(name: str) -> tuple[str, ...]:
    """Return the tools that opencode means by the name of a permission.

    There, a tool of an MCP server is ``server_tool``, which does not tell where the server's name ends.
    """
    tools = _tools(name)
    if "edit" in tools:
        tools = (*tools, "write")
    if name.lower() in _TOOLS or name == "*":
        return tools
    stem, star = (name[:-1], "*") if name.endswith("*") else (name, "")
    parts = stem.split("_")
    if len(parts) > _MAX_PARTS:
        return (*tools, _ANY_SERVER)
    served = [f"mcp__{'_'.join(parts[:at])}__{'_'.join(parts[at:])}{star}" for at in range(1, len(parts))]
    return (*dict.fromkeys(tools), *served, *([f"mcp__{stem}*"] if star else []))


def _offered_tools(name: str) -> tuple[str, ...]:
    """Return the tools to offer for a name: one that could belong to any server means only itself."""
    return tuple(tool for tool in _permission_tools(name) if tool == name or tool != _ANY_SERVER)


def _deny_rule(tool: str) -> Rule:
    return Rule(tool, "*", "deny", "manifest", pinned=True)


def _rules_of(tool: str, cases: Sequence[tuple[str, str]]) -> Iterator[Rule]:
    """Yield rules that are at least as strict.

    A refusal is pinned unless it has exceptions that ask: then the more specific rule decides, as the later one does
    there.
    """
    excepting = cases[0] == ("*", "deny") and any(action != "deny" for _, action in cases)
    for pattern, action in cases:
        if excepting:
            action = "ask" if action == "allow" else action
        converted = "*" if pattern == "*" else _pattern(tool, pattern, within=excepting and action == "ask")
        if converted is None and (action == "allow" or (excepting and action == "ask")):
            continue  # neither a grant nor an exception to a refusal may be widened
        pinned = action == "deny" and not (excepting and pattern == "*")
        yield convert(
            {"permission": tool, "pattern": converted or "*", "action": action, "source": "manifest", "pinned": pinned},
            Rule,
        )


def _pattern(tool: str, pattern: str, *, within: bool) -> str | None:
    """Return a clew pattern that covers all that opencode's does or, with ``within``, nothing more; None if impossible.

    There, a star also matches slashes, and two stars mean the same as one.
    """
    if tool == "bash":
        return None if "?" in pattern or "\\" in pattern else pattern
    if tool not in ("read", "write", "edit", "ls") or any(sign in pattern for sign in "?[{\\!"):
        return None
    pattern = re.sub(r"^\$HOME(?=/)", "~", pattern)
    root = "" if pattern.startswith(("/", "~/")) else "./"
    before, star, after = re.sub(r"\*+", "*", pattern.removeprefix("./")).partition("*")
    is_folder = not before or before.endswith("/")
    if not star or (within and (after or not is_folder)):
        return f"{root}{before}{star}{after}"
    after = re.sub(r"^(?:/\*)+", "", after)
    if not after:
        return f"{root}{before}**" if is_folder else f"{root}{before}*/**"
    if is_folder and "*" not in after:
        return f"{root}{before}**{after}" if after.startswith("/") else f"{root}{before}**/*{after}"
    return None
