"""Turns that look at files, and what of it the model still sees."""

from __future__ import annotations

from typing import Any

import clew
from clew.testing.scripted import call, then
from clew.transcript.usage import Usage

from .compacting import Compacting, answer, bulk


@clew.tool
async def look(n: int = 0, size: int = 800) -> str:
    """Gives much back."""
    return bulk(f"out{n}", size)


async def looks(s: Compacting, count: int, *, used: int | None = None, size: int = 800, first: int = 0) -> None:
    """Turns that each call a tool; ``used`` is what the provider counts at the end of the last."""
    for n in range(first, first + count):
        s.model.add(
            then(call("look", {"n": n, "size": size}), usage=Usage(100, 5)),
            answer(f"re{n}", used if n == first + count - 1 else 100),
        )
        await s.say(f"ask{n}")


def outputs(messages: Any) -> list[str]:
    return [str(part["output"]) for message in messages for part in message.parts if "output" in part]
