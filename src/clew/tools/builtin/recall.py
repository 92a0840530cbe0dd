"""``recall``: search in messages that were summarised or pruned."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clew.tools.base import ToolContext
from clew.tools.decorator import tool
from clew.transcript.rule import Target

__all__ = ["recall"]


@tool(targets=lambda args, workspace: [Target("recall", "plain", "this session")], capabilities=())
async def recall(
    query: Annotated[str, Meta(description="Words to look for, or the id of a message.", min_length=1, max_length=500)],
    context: ToolContext,
) -> str:
    """Look up earlier parts of this conversation that only a summary is left of."""
    return await context.recall(query)
