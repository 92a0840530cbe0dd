"""Tools of MCP servers in a run: tools whose definitions were accepted, and a placeholder tool for other servers.

Read again before each step: a server may have announced other tools, and a user may have allowed some. Rules decide
which definitions are accepted, as they do for calls; the target is the server's placeholder tool with the digest of the
definitions.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from clew.agents.manifest import Agent
from clew.providers.evidence import encode_tools
from clew.session.host import Host
from clew.session.prompt.turn_config import TurnConfig, schemas_of
from clew.session.turn.permission_check import RulesInForce
from clew.system_prompt.sections import assemble, environment
from clew.tools.base import Tool
from clew.tools.mcp_tools import ALLOWED, PREFIX, ServerScope
from clew.transcript.rule import Target
from clew.transcript.session import Session

__all__ = ["find_scope", "late_tool", "scope_of", "serve_tools", "served_names"]


def scope_of(config: TurnConfig) -> ServerScope:
    session = config.session
    return ServerScope(
        session_id=session.id, owner=session.owner, workspace=config.workspace, servers=config.agent.mcp_servers
    )


async def find_scope(host: Host, session: Session) -> ServerScope:
    """Return the same for an idle session."""
    workspace = Path(session.workspace_root) if session.workspace_root else None
    catalog = await asyncio.to_thread(host.agents, workspace, session.owner)
    agent = catalog.first_known(session.agent, host.choices.default_agent)
    return ServerScope(session_id=session.id, owner=session.owner, workspace=workspace, servers=agent.mcp_servers)


def late_tool(host: Host, config: TurnConfig, name: str) -> Tool | None:
    """Return a tool for an approved call before its server is connected."""
    return host.servers.late_tool(scope_of(config), name) if host.servers is not None else None


def served_names(host: Host, config: TurnConfig) -> tuple[str, ...]:
    """Return the servers whose tools a run has, once their definitions are accepted."""
    if host.servers is None or not config.info.tools:
        return ()
    return tuple(name for name in host.servers.names(scope_of(config)) if config.agent.is_served(f"{PREFIX}{name}"))


async def serve_tools(host: Host, config: TurnConfig, state: dict[str, Any]) -> TurnConfig:
    """Return the turn config with the servers' current tools; the same object if nothing changed."""
    scope, names = scope_of(config), served_names(host, config)
    if host.servers is None or not config.info.tools:
        return config
    own = {name: tool for name, tool in config.tools.items() if not _is_served(host, name)}
    if not names and len(own) == len(config.tools):
        return config
    rules = _as_attended(await config.permit.load()) if names else None
    if rules is not None:
        # Servers with no usable tool are not started.
        names = tuple(name for name in names if not (_only_reads(rules) or _is_denied(name, rules, config.agent)))
    found: dict[str, Tool] = {}
    for served in await host.servers.serve(scope, names):
        placeholder = served.placeholder
        action = (
            "ask"
            if rules is None
            else rules.decide([Target(placeholder.name, "plain", served.digest or "")], placeholder.name).action
        )
        accepted = served.trusted or (served.name, served.digest) in state.get(ALLOWED, ())
        if served.digest is not None and (action == "allow" or (accepted and action == "ask")):
            found |= {one.name: one for one in served.tools if config.agent.is_served(one.name)}
        elif action == "ask" and config.attended:
            found[placeholder.name] = placeholder
    tools = dict(sorted({**found, **own}.items()))
    schemas = schemas_of(tools)
    if schemas == config.schemas:
        # The same for the model, but calls must use the current tools.
        return config if tools == config.tools else replace(config, tools=tools)
    frozen = next((one.text for one in config.system_prompt.sections if one.name == environment.__name__), None)
    inputs = replace(config.inputs, tools=schemas)
    return replace(
        config,
        tools=tools,
        schemas=schemas,
        encoded_tools=encode_tools(schemas),
        inputs=inputs,
        system_prompt=assemble(replace(inputs, frozen_environment=frozen)),
    )


def _is_served(host: Host, name: str) -> bool:
    return name.startswith(PREFIX) and name not in host.tools


def _only_reads(rules: RulesInForce) -> bool:
    """Return whether only reading is allowed. A server's claim that a tool only reads is not trusted."""
    return rules.mode == "read_only" or (rules.parent is not None and _only_reads(rules.parent))


def _is_denied(server: str, rules: RulesInForce, agent: Agent) -> bool:
    """Return whether the rules deny everything a server could offer: its definitions, or every call of every tool that
    the agent would get from it."""
    placeholder = f"{PREFIX}{server}"
    if rules.denies_server(placeholder, "sha256:"):
        return True
    named = agent.tools if agent.mcp_servers is None else None
    tools = [one for one in named or () if one.startswith(f"{placeholder}__")]
    if named is None or any(f"{placeholder}__".startswith(one.removesuffix("*")) for one in named if one.endswith("*")):
        tools = [f"{placeholder}__*"]
    return bool(tools) and all(rules.denies_server(tool, "{") for tool in tools)


def _as_attended(rules: RulesInForce) -> RulesInForce:
    """Return the rules as if a user were present: asking then does not count as denying."""
    parent = _as_attended(rules.parent) if rules.parent is not None else None
    return replace(rules, attended=True, parent=parent)
