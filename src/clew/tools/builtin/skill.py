"""``skill``: the body of a skill from the index in the prompt."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.transcript.rule import Target

__all__ = ["skill"]


@tool(targets=lambda args, workspace: [Target("skill", "plain", args["name"])], capabilities=())
async def skill(
    name: Annotated[str, Meta(description="The skill's name, as the index has it.", min_length=1, max_length=200)],
    context: ToolContext,
) -> str:
    """Load the instructions of a skill listed in the prompt."""
    return await context.load_skill(name)
