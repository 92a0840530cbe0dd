"""``todo``: the list of what is to be done in this session."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from clew.tools.base import ToolContext
from clew.tools.decorator import tool

__all__ = ["Item", "todo"]

MAX_ITEMS: Final = 100
STATE: Final = "todo"


class Item(msgspec.Struct, frozen=True):
    """One thing to do."""

    text: Annotated[str, Meta(min_length=1, max_length=1_000)]
    status: Literal["pending", "in_progress", "completed"]


@tool(capabilities=())
async def todo(
    items: Annotated[list[Item], Meta(description="The whole list, in order.", max_length=MAX_ITEMS)],
    context: ToolContext,
) -> dict[str, Any]:
    """Write down the list of things to do, in the place of the one before.

    Use it for work of several steps: one item in progress at a time, each completed as soon as it is done.
    """
    listed = [{"text": item.text, "status": item.status} for item in items]
    context.state[STATE] = listed
    return {"items": listed}
