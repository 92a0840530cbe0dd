"""What a session's rules say about a call that nobody has made: the same rules, the same targets, no run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from clew.contained import resolved
from clew.errors import InvalidInput, ToolFailed
from clew.permissions.evaluate import Decision
from clew.runtime.host import Host
from clew.runtime.setting import load_permit
from clew.tools.base import Tool
from clew.transcript.rule import Target
from clew.transcript.session import Session

__all__ = ["explain_call"]

_TOLD_BY: Final = ("command", "path", "url", "name", "agent")
"""The arguments that say what a call would touch, by the names the tools have for them."""


async def explain_call(host: Host, session: Session, tool: str, target: str) -> Decision:
    """What would be decided about a call of ``tool`` on ``target``, by the rules as they are now."""
    workspace = Path(session.workspace_root) if session.workspace_root else None
    with resolved(workspace) if workspace is not None and session.owner is not None else contextlib.nullcontext():
        catalog = await asyncio.to_thread(host.agents, workspace)
    agent = catalog.first_known(session.agent, host.choices.default_agent)
    permit = await load_permit(host, session, agent.rules, attended=True)
    targets = await asyncio.to_thread(_targets, host.tools.get(tool), tool, target, workspace)
    return await permit.decide(targets, tool)


def _targets(tool: Tool | None, name: str, target: str, workspace: Path | None) -> Sequence[Target]:
    plain = [Target(name, "plain", target)]
    told_by = next((one for one in _TOLD_BY if tool and one in tool.input_schema.get("properties", {})), None)
    if tool is None or told_by is None:
        return plain
    if told_by == "url" and "://" not in target:
        target = f"https://{target}"
    try:
        found = tool.targets({told_by: target}, workspace)
    except ToolFailed as error:
        raise InvalidInput(f"{name} could not be called so: {error}") from error
    except (KeyError, TypeError):
        # A tool of the host's own that needs more of its arguments than one.
        return plain
    # What is only text is matched as it is written.
    return plain if all(one.kind == "plain" for one in found) else found
