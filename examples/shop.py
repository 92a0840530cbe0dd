"""What both examples serve: a help desk with one tool that looks and one that a human has to allow."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import clew


@clew.tool
def find_order(number: int) -> dict[str, str]:
    """Look an order up by its number."""
    return {"order": str(number), "state": "on its way"}


@clew.tool
def refund(number: int, context: clew.ToolContext) -> str:
    """Pay an order back. Somebody has to allow it."""
    return f"order {number} is paid back to {context.metadata.get('customer', 'the customer')}"


DESK = clew.Agent(name="desk", description="Helps customers.", prompt="You are the help desk of a shop. Be brief.")


def open_shop(url: str, providers: clew.Providers | None = None) -> AbstractAsyncContextManager[clew.Engine]:
    """The engine of the shop. What no rule decides, such as a refund, is asked of a human."""
    return clew.open(
        url,
        agents=[DESK],
        tools=[find_order, refund],
        builtin_tools=False,
        rules=[clew.Rule("find_order", "*", "allow")],
        providers=providers,
    )
