"""What the help desk can do: its agents, its tools, and who has to be asked."""

from __future__ import annotations

import struct
import zlib
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field

import clew


@dataclass
class Order:
    number: int
    customer: str
    article: str
    cents: int
    state: str = "on its way"


class Shop:
    """The shop's own data, which tools reach as ``context.deps``."""

    def __init__(self, *orders: Order) -> None:
        self._orders = orders

    def find(self, customer: str | None, number: int) -> Order:
        """An order of this customer's. Nobody is told that another one's is there."""
        for order in self._orders:
            if (order.number, order.customer) == (number, customer):
                return order
        raise ValueError(f"you have no order {number}")

    def search(self, customer: str | None, text: str) -> list[Order]:
        mine = [order for order in self._orders if order.customer == customer]
        return [order for order in mine if text.lower() in order.article.lower()]


class Query(BaseModel):
    text: str = Field(description="Part of an article's name; empty finds all.")
    most: int = Field(default=10, ge=1, le=50)


class Refund(BaseModel):
    order: Annotated[int, Field(ge=1, description="The number of the order.")]
    why: str = Field(min_length=3, description="In the customer's words.")


@clew.tool
def find_orders(query: Query, context: clew.ToolContext) -> list[Order]:
    """Find orders of the customer."""
    shop: Shop = context.deps
    return shop.search(context.owner, query.text)[: query.most]


@clew.tool
def pay_back(refund: Refund, context: clew.ToolContext) -> str:
    """Pay an order back. The customer is asked first."""
    shop: Shop = context.deps
    order = shop.find(context.owner, refund.order)
    order.state = f"paid back: {refund.why}"
    return f"{order.cents / 100:.2f} € for {order.article} go back to {order.customer}"


@clew.tool
def draw_label(number: int, context: clew.ToolContext) -> list[str | clew.File]:
    """Draw the label to send an order back with."""
    shop: Shop = context.deps
    order = shop.find(context.owner, number)
    return [f"The label for {order.article}:", clew.File(_stripes(number), name=f"label-{number}.png")]


def _stripes(number: int) -> bytes:
    """The number as a PNG of black and white stripes."""
    bits = [255 * (number * 40503 >> place & 1) for place in range(16)]
    row = b"\x00" + bytes(shade for bit in bits for shade in [bit] * 10)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 160, 60, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * 60)) + chunk(b"IEND", b"")


DESK = clew.Agent(
    name="desk",
    description="Helps customers.",
    prompt="You are the help desk of a shop. Be brief. Let the clerk look through many orders.",
    tools=("find_orders", "pay_back", "draw_label", "task"),
)
CLERK = clew.Agent(
    name="clerk",
    description="Looks through a customer's orders and says what matters.",
    prompt="You look through orders. Answer with what was asked for and nothing else.",
    tools=("find_orders",),
    mode="subagent",
)
RULES = [clew.Rule(tool, "*", "allow") for tool in ("find_orders", "draw_label", "task")]


def open_desk(url: str, shop: Shop, providers: clew.Providers | None) -> AbstractAsyncContextManager[clew.Engine]:
    """The engine. No rule says that money may be paid back, so a human is asked."""
    return clew.open(
        url,
        agents=[DESK, CLERK],
        tools=[find_orders, pay_back, draw_label],
        builtin_tools=["task"],
        rules=RULES,
        providers=providers,
        deps=shop,
    )
