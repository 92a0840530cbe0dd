"""A program whose model charges a card and ships, and that dies at a given point: when a chunk of a type is shown in
the second step, or in the middle of a tool. Each effect is a line of a file, written immediately.

``python -m tests.rig.shop_child STORE_URL LEDGER MOMENT``
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import clew
from clew.testing.scripted import FakeProviders, ScriptedModel, call, cut_after, hang, say, think
from clew.transcript.metadata import local_place

__all__ = ["MOMENTS", "main", "shop_tools"]

MOMENTS: dict[str, list[Any]] = {
    "text-delta": [say("you will"), hang()],
    "reasoning-delta": [think("let me"), hang()],
    "tool-input-delta": [cut_after(2, call("charge", {"card": 2222222222222222}), by=hang())],
    "tool-output-available": [call("charge", {"card": 2}), call("ship", {})],
    "ship": [call("ship", {})],
}
"""The second step for each point of death."""


def shop_tools(ledger: Path, *, dies: bool = False) -> list[Any]:
    def note(effect: str) -> None:
        with ledger.open("a") as lines:
            lines.write(f"{effect}\n")

    @clew.tool
    async def charge(card: int) -> str:
        """Charge a card."""
        note(f"charged {card}")
        return "paid"

    @clew.tool
    async def ship() -> str:
        """Ship, which takes for ever."""
        note("shipped")
        if dies:
            _die()
        await asyncio.Event().wait()
        return "never"

    return [charge, ship]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _run(url: str, ledger: Path, moment: str) -> None:
    model = ScriptedModel([call("charge", {"card": 1}), MOMENTS[moment]])
    tools = shop_tools(ledger, dies=moment == "ship")
    async with clew.open(url, config=clew.Config(), providers=FakeProviders(model), tools=tools) as engine:
        session = await engine.create_session(title="shop", metadata=local_place(None))
        rules = [{"permission": tool, "pattern": "*", "action": "allow"} for tool in ("charge", "ship")]
        await engine.set_permissions(session.id, rules)
        steps = 0
        async for chunk in engine.run(session.id, "buy"):
            steps += chunk["type"] == "start-step"
            if steps == 2 and chunk["type"] == moment:
                _die()


def main() -> None:
    url, ledger, moment = sys.argv[1:]
    asyncio.run(_run(url, Path(ledger), moment))


if __name__ == "__main__":
    main()
