"""A help desk: a tool that looks up, one that refunds once a person approves, and customers who see only their own."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import clew


@dataclass
class Order:
    number: int
    customer: str
    article: str
    cents: int
    state: str = "on its way"


class Orders:
    """The orders of all customers. Replace it with your database; tools reach it as ``context.deps``."""

    def __init__(self, *orders: Order) -> None:
        self._orders = {order.number: order for order in orders}

    def find(self, number: int, customer: str | None) -> Order:
        """Return an order of this customer. Other customers' orders do not exist for them."""
        order = self._orders.get(number)
        if order is None or order.customer != customer:
            raise ValueError(f"you have no order {number}")
        return order


@clew.tool
def find_order(number: int, context: clew.ToolContext) -> dict[str, str]:
    """Look up one of the customer's orders by its number."""
    orders: Orders = context.deps
    order = orders.find(number, context.owner)
    return {"article": order.article, "price": f"{order.cents / 100:.2f} €", "state": order.state}


@clew.tool(capabilities=[])
def refund(number: int, reason: str, context: clew.ToolContext) -> str:
    """Refund one of the customer's orders. A person approves it first."""
    orders: Orders = context.deps
    order = orders.find(number, context.owner)
    if order.state.startswith("refunded"):
        return f"order {number} is already refunded"
    order.state = f"refunded: {reason}"
    return f"{order.cents / 100:.2f} € for {order.article} were refunded"


AGENT = clew.Agent(
    name="desk",
    description="Answers customers of the shop.",
    prompt="You are the help desk of a shop. Look orders up before you answer. Be brief.",
    tools=("find_order", "refund"),
)
RULES = [clew.Rule("find_order", "*", "allow")]  # no rule allows `refund`, so a person is asked


def open_desk(url: str | None, orders: Orders, **given: Any) -> AbstractAsyncContextManager[clew.Engine]:
    """Open the desk's sessions. ``engine.scoped(customer)`` is what a customer may see; staff use the engine itself."""
    given |= {"agents": [AGENT], "tools": [find_order, refund], "rules": RULES, "builtin_tools": False, "deps": orders}
    return clew.open(url, **given)


def opened(url: str | None, **given: Any) -> AbstractAsyncContextManager[clew.Engine]:
    """Open the desk with sample orders, for ``clew serve --app desk:opened``."""
    return open_desk(url, Orders(Order(7, "ann", "Blue lamp", 4900), Order(9, "ben", "Green chair", 12900)), **given)
