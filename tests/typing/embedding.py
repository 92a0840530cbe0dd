"""How a program embeds clew, for the type checkers alone: mypy and pyright, both strict. This file is never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, assert_type

import clew
import clew.server


@clew.tool
async def draw(month: str, context: clew.ToolContext) -> AsyncIterator[str | clew.File]:
    """Draw a chart."""
    owner: str | None = context.owner
    yield f"for {owner}"
    yield clew.File(Path("chart.png"), media_type="image/png", name=f"{month}.png")


@clew.tool(timeout_ms=5_000)
def count(things: list[str]) -> clew.ToolOutput:
    """Count them."""
    return clew.ToolOutput(len(things), {"seen": True}, (clew.File(b"%PDF-"),))


class Parrot(clew.Provider):
    async def stream(self, request: clew.ModelRequest) -> AsyncGenerator[Any, None]:
        yield clew.UsageUpdate(clew.Usage(input=1))
        yield clew.StepEnd(usage=clew.Usage(input=1, output=1))


async def before(call: clew.ToolCallValue, context: clew.HookContext) -> clew.ToolCallValue | None:
    return call if context.owner is None else None


async def ended(outcome: clew.TurnOutcome) -> None:
    assert_type(outcome.stopped, str | None)


async def embed(folder: Path) -> None:
    hooks: clew.HookMap = {"before_tool_call": before, "turn_finished": ended}
    providers = clew.ProviderSet({"bird": Parrot()}, default="bird/grey", cost=lambda model, used: used.total * 1e-6)
    async with clew.open(
        f"sqlite:///{folder}/clew.db",
        agents=[clew.Agent(name="desk", description="Helps.", prompt="Be brief.", tools=("draw",))],
        rules=[clew.Rule("draw", "*", "allow")],
        tools=[draw, count],
        builtin_tools=False,
        providers=providers,
        hooks=hooks,
        deps={"shop": 1},
    ) as engine:
        assert_type(engine, clew.Engine)
        own = engine.scoped("ada")
        session = await own.create_session(model="bird/grey", alias="first")
        started = await own.start(session.id, "hello", output={"type": "object"})
        async for chunk in started:
            print(chunk["type"])
        report = await engine.usage("owner")
        assert_type([group.cost_usd for group in report.groups], list[float])
        assert_type((await own.list_sessions(limit=5)).sessions, tuple[clew.Session, ...])
        for message in await own.messages(session.id):
            assert_type(message.parts, list[dict[str, Any]])
        try:
            await own.submit(session.id, "hello", on_busy="reject")
        except clew.RunInFlight as error:
            print(error.code)


def serve(engine: clew.Engine) -> object:
    return clew.server.make_app(
        engine, authenticate=lambda request: clew.server.Owner(request.headers["x-user"]), origins=["https://a.example"]
    )
