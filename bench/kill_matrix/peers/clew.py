"""clew, as its own docs say: ``clew.open`` on a SQLite file, ``continue`` for a turn that a restart interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import clew
from bench.kill_matrix.script import NEXT, PAST, TOOL, Side, run_side
from clew.providers.catalog import ModelFacts
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.session.api import Engine


def endpoint(side: Side) -> Any:
    """Return the wire as a configured endpoint."""
    facts = {"m": ModelFacts(window=60_000, tools=True)}
    config = ProviderConfig(kind="openai-compatible", base_url=side.url, api_key="none", models=facts)
    return ProviderRegistry({"wire": config}, default_model="wire/m", environ={})


def _open(side: Side, providers: Callable[[Side], Any]) -> Any:
    @clew.tool
    async def deploy(target: str) -> str:
        """Deploy a target."""
        return await side.adeploy(target)

    return clew.open(
        f"sqlite:///{side.folder}/clew.db",
        agents=[clew.Agent(name="matrix", description="Answers.", prompt="Answer.", tools=(TOOL,))],
        rules=[clew.Rule(TOOL, "*", "ask" if side.scenario == "approval" else "allow")],
        tools=[deploy],
        builtin_tools=False,
        providers=providers(side),
    )


async def _ask(engine: Engine, session_id: str, prompt: str, side: Side) -> None:
    async for chunk in engine.run(session_id, prompt):
        side.show(chunk.get("delta", "") if chunk["type"] == "text-delta" else "")


async def start(side: Side, providers: Callable[[Side], Any] = endpoint) -> None:
    async with _open(side, providers) as engine:
        session = await engine.create_session(title="matrix", alias="matrix")
        if side.scenario == "compaction":
            for question, _ in PAST:
                await (await engine.submit(session.id, question)).wait()
            await engine.compact(session.id)
        await _ask(engine, session.id, side.submit(), side)
        if waiting := (await engine.get_status(session.id)).waiting:
            await side.wait_for_kill(pending=waiting[0].tool_call_id)


async def resume(side: Side, providers: Callable[[Side], Any] = endpoint) -> None:
    async with _open(side, providers) as engine:
        side.stored([str(message) for message in await engine.messages("matrix")])
        for waiting in (await engine.get_status("matrix")).waiting:
            await engine.answer("matrix", waiting.approval_id, "once")
            async for chunk in engine.attach("matrix"):
                side.show(chunk.get("delta", "") if chunk["type"] == "text-delta" else "")
        if side.scenario in ("text", "tool") and side.way == "resume":
            await (await engine.continue_turn("matrix")).wait()
        await _ask(engine, "matrix", NEXT, side)


if __name__ == "__main__":
    run_side(start, resume)
