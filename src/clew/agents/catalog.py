"""The available agents: clew's own, the user's, and the project's, in that order.

A user's manifest may replace a built-in agent. A project's may not replace either, and is limited to what a project may
define; so are its agents for Claude Code and opencode, which come after its own. A manifest that cannot be used is
reported in ``notices`` and skipped; it never stops a session from starting.

A project's files come from its authors, so :func:`restrain` lets its agents be stricter than clew, never less strict:
anything that would make them so is removed and reported. What they may do without asking is what clew grants every
agent (``granted``), not what the file asks for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from clew.agents.foreign import OpencodeFile, parse_foreign
from clew.agents.manifest import DEFAULT_MAX_STEPS, Agent, is_agent_name, parse_manifest
from clew.errors import InternalError, InvalidInput
from clew.safe_read import FileCache, Unreadable, list_contained, read_contained, shown
from clew.transcript.rule import Rule, is_known, unknown_permission

__all__ = ["MAX_MANIFESTS", "MAX_MANIFEST_BYTES", "AgentCatalog", "builtin_agents", "restrain"]

MAX_MANIFEST_BYTES: Final = 64 * 1024
MAX_MANIFESTS: Final = 200
"""Files read per folder, in the order of their names."""


@functools.cache
def builtin_agents() -> Mapping[str, Agent]:
    """Return the agents that ship with clew, by name."""
    agents: dict[str, Agent] = {}
    for file in sorted(resources.files("clew.agents").joinpath("builtin").iterdir(), key=lambda file: file.name):
        name, dot, kind = file.name.rpartition(".")
        if dot and kind == "md":
            try:
                agents[name] = parse_manifest(
                    file.read_text(encoding="utf-8"), name=name, source="builtin", path=f"builtin/{file.name}"
                )
            except InvalidInput as error:
                raise InternalError(f"a built-in agent is broken: {error}") from error
    return agents


class AgentCatalog:
    """The agents found at the time of loading. ``notices`` are sentences for people, each with a path."""

    def __init__(self, agents: Mapping[str, Agent], notices: tuple[str, ...] = ()) -> None:
        self._agents = dict(agents)
        self.notices = notices

    @classmethod
    def load(cls, user_dir: Path | None, workspace: Path | None, names: frozenset[str] | None = None) -> AgentCatalog:
        """Return the agents in ``<user_dir>/agents/*.md``, ``<workspace>/.clew/agents/*.md`` and other programs' files.

        Blocking. ``user_dir`` is clew's folder in the user's settings. Files are read again only if one has changed.
        Rules may name only tools in ``names``; None accepts any.
        """
        return _cache.get((user_dir, workspace, names), lambda: cls._read(user_dir, workspace, names))

    @classmethod
    def of(cls, given: Sequence[Agent], tools: Container[str], names: frozenset[str] | None = None) -> AgentCatalog:
        """Return a catalog of agents defined by a program, with clew's internal ones. Raise ``InvalidInput``."""
        agents = {name: agent for name, agent in builtin_agents().items() if agent.mode == "internal"}
        if len({agent.name for agent in given}) < len(given):
            raise InvalidInput("two of the given agents have the same name")
        if all(agent.mode == "internal" for agent in given):
            raise InvalidInput("at least one of the given agents must not be internal")
        for agent in given:
            if not is_agent_name(agent.name) or not agent.prompt.strip():
                raise InvalidInput(f"the agent {agent.name!r} needs a prompt, and a name of a-z, 0-9 and dashes")
            if missing := [
                name
                for name in agent.tools or ()
                if name not in tools and "*" not in name and not name.startswith("mcp__")
            ]:
                raise InvalidInput(f"the agent {agent.name} names unknown tools: {', '.join(missing)}")
            for rule in agent.rules:
                if names is not None and not is_known(rule.permission, names):
                    raise InvalidInput(f"the agent {agent.name}: {unknown_permission(rule.permission, names)}")
            rules = tuple(msgspec.structs.replace(rule, source="manifest") for rule in agent.rules)
            own = msgspec.structs.replace(agent, rules=rules, source="user", path=f"the agent {agent.name}")
            notices: list[str] = []
            if not _may_be_internal(own, notices.append):
                raise InvalidInput(notices[0])
            agents[agent.name] = own
        return cls(agents)

    @classmethod
    def _read(cls, user_dir: Path | None, workspace: Path | None, names: frozenset[str] | None = None) -> AgentCatalog:
        agents = dict(builtin_agents())
        notices: list[str] = []
        if user_dir is not None:
            own = functools.partial(parse_manifest, source="user", names=names)
            found = _read_folder(user_dir / "agents", user_dir / "agents", own, notices.append)
            agents |= {agent.name: agent for agent in found if _may_be_internal(agent, notices.append)}
        if workspace is not None:
            # Every project agent is granted what clew's own assistant may do without asking.
            granted = tuple(rule for rule in builtin_agents()["assistant"].rules if rule.action == "allow")
            for agent in _read_project(workspace, notices.append, names):
                if agent.name in agents:
                    owner = {"user": "the user", "builtin": "clew"}.get(agents[agent.name].source, "the project")
                    notices.append(f"{agent.path}: ignored; {owner} already has an agent of this name")
                elif _may_be_internal(agent, notices.append):
                    agents[agent.name], removals = restrain(agent, granted)
                    notices += removals
        return cls(agents, tuple(notices))

    def get(self, name: str) -> Agent:
        """Return an agent for a session or a turn. Raise ``InvalidInput`` with the available names."""
        agent = self._agents.get(name)
        if agent is None or agent.mode == "internal":
            known = ", ".join(sorted(agent.name for agent in self.list()))
            raise InvalidInput(f"unknown agent {name!r}; available: {known}", agent=name)
        return agent

    def first_known(self, *names: str | None) -> Agent:
        """Return the first of these agents that exists here; raise if not even the last one does."""
        known = (name for name in names[:-1] if name in self._agents and self._agents[name].mode != "internal")
        return self.get(next(known, str(names[-1])))

    def get_internal(self, name: str) -> Agent:
        """Return an internal agent: ``title`` or ``summary``."""
        agent = self._agents.get(name)
        if agent is None or agent.mode != "internal":
            raise InternalError(f"unknown internal agent {name!r}")
        return agent

    def list(self) -> tuple[Agent, ...]:
        """Return the offered agents: clew's first, then the user's and the project's, each by name."""
        order = {"builtin": 0, "user": 1, "project": 2}
        offered = (agent for agent in self._agents.values() if agent.mode != "internal")
        return tuple(sorted(offered, key=lambda agent: (order[agent.source], agent.name)))

    def internal(self) -> tuple[Agent, ...]:
        """Return the agents that only clew calls, by name."""
        return tuple(agent for _, agent in sorted(self._agents.items()) if agent.mode == "internal")

    def subagents(self) -> tuple[Agent, ...]:
        """Return the agents the task tool may start, in the order of :meth:`list`."""
        return tuple(agent for agent in self.list() if agent.mode == "subagent")


_cache: Final[FileCache[AgentCatalog]] = FileCache()


def _may_be_internal(agent: Agent, notice: Callable[[str], None]) -> bool:
    """Return whether the mode matches: internal agents have fixed names, and no manifest can add one."""
    builtin = builtin_agents().get(agent.name)
    internal = builtin is not None and builtin.mode == "internal"
    if internal == (agent.mode == "internal"):
        return True
    if internal:
        notice(f"{agent.path}: ignored; {agent.name} is one of clew's internal agents and must have mode: internal")
    else:
        notice(f"{agent.path}: ignored; mode: internal is reserved for clew's own agents")
    return False


def _read_project(workspace: Path, notice: Callable[[str], None], names: frozenset[str] | None) -> Iterator[Agent]:
    """Yield the agents of a project: clew's, then those for other programs."""
    own = functools.partial(parse_manifest, source="project", names=names)
    yield from _read_folder(workspace / ".clew" / "agents", workspace, own, notice)
    foreign = functools.partial(parse_foreign, notice=notice, names=names)
    yield from _read_folder(workspace / ".claude" / "agents", workspace, foreign, notice)
    files: list[OpencodeFile] = []
    for name in ("opencode.json", "opencode.jsonc"):
        file = workspace / name
        try:
            if (text := _read_text(file, workspace)) is not None:
                files.append(OpencodeFile(text, path=shown(file), notice=notice, names=names))
        except (Unreadable, InvalidInput) as error:
            # Its refusals for all agents are unknown, so none of opencode's agents can be loaded.
            problem = f"{shown(file)}: it {error}" if isinstance(error, Unreadable) else str(error)
            notice(f"{problem}; no opencode agents are loaded")
            return

    def prompt(path: str) -> str:
        try:
            return _read_text(workspace / path, workspace) or ""
        except Unreadable as error:
            raise InvalidInput(f"{shown(path)} {error}") from error

    found = [_read_folder(workspace / ".opencode" / name, workspace, foreign, notice) for name in ("agent", "agents")]
    for agent in chain(*found, *(one.agents(prompt) for one in files)):
        yield functools.reduce(lambda result, file: file.narrow(result), files, agent)


def _read_folder(
    folder: Path, inside: Path, parse: Callable[..., Agent | None], notice: Callable[[str], None]
) -> list[Agent]:
    """Return the agents of one folder. An invalid file is reported and skipped."""
    try:
        listing = list_contained(folder, inside, MAX_MANIFESTS, ".md")
    except Unreadable as error:
        notice(f"{shown(folder)}: ignored; it {error}")
        return []
    if listing.more:
        notice(f"{shown(folder)}: only the first {MAX_MANIFESTS} manifests are read")
    agents = []
    for name in listing.names:
        path = shown(folder / name)
        try:
            text = _read_text(listing.real / name, listing.real)
            if text is None:
                raise Unreadable("is gone")
            if agent := parse(text, name=Path(name).stem, path=path):
                agents.append(agent)
        except Unreadable as error:
            notice(f"{path}: ignored; it {error}")
        except InvalidInput as error:
            notice(f"{error}; the agent is ignored")
    return agents


def _read_text(file: Path, inside: Path) -> str | None:
    found = read_contained(file, inside, MAX_MANIFEST_BYTES)
    if found is not None and found.cut:
        raise Unreadable(f"is larger than {MAX_MANIFEST_BYTES} bytes")
    return None if found is None else found.text


def restrain(agent: Agent, granted: Sequence[Rule]) -> tuple[Agent, tuple[str, ...]]:
    """Return the agent limited to what a project may define, and a sentence for each removal.

    ``granted`` comes first among its rules, except where it could override a rule of the project.
    """
    notices: list[str] = []
    own = tuple(_stricter_rules(agent, notices))
    # All grants are to read. They name a tool, which is more specific than a capability.
    own += tuple(
        msgspec.structs.replace(rule, permission=grant.permission)
        for rule in own
        for grant in granted
        if rule.permission == "fs.read"
    )
    rules = (*(grant for grant in granted if not any(_may_be_overridden(rule, grant) for rule in own)), *own)
    changes: dict[str, object] = {}
    if agent.max_steps is not None and agent.max_steps > DEFAULT_MAX_STEPS:
        changes["max_steps"] = DEFAULT_MAX_STEPS
        notices.append(f"max_steps {agent.max_steps} exceeds the limit for projects; {DEFAULT_MAX_STEPS} is used")
    if not agent.inspectable:
        changes["inspectable"] = True
        notices.append("inspectable: false is ignored; a project cannot hide its agents' sessions")
    if defined := [name for name, server in (agent.mcp_servers or {}).items() if server is not None]:
        # A project must not start programs. Servers of the same name in the user's config stay available.
        changes["mcp_servers"] = dict.fromkeys(agent.mcp_servers or {})
        notices.append(
            f"its settings for the MCP servers {', '.join(defined)} are ignored; a project cannot start a program or "
            "connect to a host. Define them in your own config.toml"
        )
    restrained = msgspec.structs.replace(agent, rules=rules, **changes)
    return restrained, tuple(f"{agent.path}: {notice}" for notice in notices)


def _stricter_rules(agent: Agent, notices: list[str]) -> Iterator[Rule]:
    for rule in agent.rules:
        if rule.action == "allow":
            notices.append(
                f"the rule allowing {rule.permission} {rule.pattern} is ignored; a project cannot grant permissions"
            )
        elif rule.action == "ask" and rule.pinned:
            # Pinned rules are evaluated first: this one would turn a refusal by the user into a question.
            notices.append(
                f"the rule asking for {rule.permission} {rule.pattern} is not pinned; "
                "a project cannot override a refusal"
            )
            yield msgspec.structs.replace(rule, pinned=False)
        else:
            yield rule


def _may_be_overridden(rule: Rule, grant: Rule) -> bool:
    """Return whether the grant could be weighed as more specific, and so cancel a stricter rule of the project.

    Grants name a tool and the workspace. A rule for the same tool and a path below the workspace is at least as
    specific and comes later; one for several tools, for every path or for an absolute one might not be.
    """
    if rule.permission == grant.permission:
        return rule.pattern.startswith("/") or not rule.pattern.strip("*")
    return rule.permission.endswith("*") and grant.permission.startswith(rule.permission[:-1])
