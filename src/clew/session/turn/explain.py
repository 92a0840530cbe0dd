"""Explain what a session's rules would decide about a call, without making it: same rules, same targets, no run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from clew.errors import InvalidInput, ToolFailed
from clew.permissions.evaluate import Decision
from clew.session.host import Host
from clew.session.prompt.turn_config import load_permit
from clew.tools.base import Tool
from clew.transcript.rule import Target
from clew.transcript.session import Session

__all__ = ["explain_call"]

_TARGET_ARGS: Final = ("command", "path", "url", "name", "agent")
"""The arguments that name what a call would touch, as the built-in tools call them."""


async def explain_call(host: Host, session: Session, tool: str, target: str) -> Decision:
    """Return the decision about a call of ``tool`` on ``target`` by the current rules."""
    workspace = Path(session.workspace_root) if session.workspace_root else None
    catalog = await asyncio.to_thread(host.agents, workspace, session.owner)
    agent = catalog.first_known(session.agent, host.choices.default_agent)
    permit = await load_permit(host, session, agent.rules, attended=True)
    targets = await asyncio.to_thread(_targets, host.tools.get(tool), tool, target, workspace)
    return await permit.decide(targets, tool)


def _targets(tool: Tool | None, name: str, target: str, workspace: Path | None) -> Sequence[Target]:
    plain = [Target(name, "plain", target)]
    argument = next((one for one in _TARGET_ARGS if tool and one in tool.input_schema.get("properties", {})), None)
    if tool is None or argument is None:
        return plain
    if argument == "url" and "://" not in target:
        target = f"https://{target}"
    try:
        found = tool.targets({argument: target}, workspace)
    except ToolFailed as error:
        raise InvalidInput(f"{name} cannot be called with this target: {error}") from error
    except (KeyError, TypeError):
        # A custom tool that needs more arguments than one.
        return plain
    # Plain targets are matched as written.
    return plain if all(one.kind == "plain" for one in found) else found
