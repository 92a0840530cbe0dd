"""``schedule``: continue the session automatically later, once or repeatedly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from clew.tools.base import NextTurn, ToolContext
from clew.tools.decorator import tool
from clew.transcript.rule import Target

__all__ = ["schedule"]


def _targets(args: Mapping[str, Any], workspace: Path | None) -> list[Target]:
    """Return the target for approvals and rules: ``once``, or ``cron`` and the expression."""
    return [Target("schedule", "plain", f"cron {args['cron']}" if args.get("cron") else "once")]


# A later turn is an agent that works by itself.
@tool(targets=_targets, capabilities=["agent.spawn"])
async def schedule(
    prompt: Annotated[str, Meta(description="What you are told then, in this conversation.", min_length=1)],
    context: ToolContext,
    in_minutes: Annotated[int | None, Meta(description="Once, so many minutes from now.")] = None,
    at: Annotated[str | None, Meta(description="Once, at this time: ISO 8601.")] = None,
    cron: Annotated[str | None, Meta(description="Again and again: five fields of cron.")] = None,
    timezone: Annotated[str, Meta(description="The zone whose clock counts.", max_length=64)] = "UTC",
) -> dict[str, Any]:
    """Have this conversation go on by itself at a later time: one of in_minutes, at and cron.

    Nobody is there to answer questions in that turn. People see what is scheduled and can remove it.
    """
    return await context.schedule(NextTurn(prompt=prompt, in_minutes=in_minutes, at=at, cron=cron, timezone=timezone))
