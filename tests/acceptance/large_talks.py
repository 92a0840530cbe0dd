"""Conversations that fill a window."""

from __future__ import annotations

import clew
from clew.tools.base import Tool

from .compacting import Compacting, answer, bulk

THRESHOLD = 9_000
"""Of a window of 10,000 with a maximal output of 1,000."""


async def talk(s: Compacting, count: int, *, used: int | None = None, tokens: int = 500) -> None:
    """So many turns of which each word is heavy; ``used`` is what the provider counts at the last of them."""
    for n in range(count):
        s.model.add(answer(bulk(f"re{n}", tokens), used if n == count - 1 else 100))
        await s.say(bulk(f"ask{n}", tokens))


def large(name: str, tokens: int) -> Tool:
    """A tool whose output takes so many tokens."""

    async def run() -> str:
        """Gives much back."""
        return bulk(name, tokens)

    run.__name__ = name
    return clew.tool(run)


async def talk_on(s: Compacting, first: int, end: int, tokens: int = 500) -> None:
    for n in range(first, end):
        s.model.add(answer(bulk(f"re{n}", tokens), 100))
        await s.say(bulk(f"ask{n}", tokens))


def pairs(first: int, end: int) -> list[str]:
    return [line for n in range(first, end) for line in (f"user: ask{n}", f"assistant: re{n}")]
