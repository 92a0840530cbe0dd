"""agno: ``SqliteDb`` with checkpoints, history in each request, ``acontinue_run`` after a restart, ``Compaction``."""

from __future__ import annotations

import json
from typing import Any

from agno.agent import Agent  # type: ignore[import-not-found]
from agno.compaction import Compaction  # type: ignore[import-not-found]
from agno.db.sqlite import SqliteDb  # type: ignore[import-not-found]
from agno.models.openai.like import OpenAILike  # type: ignore[import-not-found]
from agno.run.base import RunStatus  # type: ignore[import-not-found]
from agno.tools import tool  # type: ignore[import-not-found]

from bench.kill_matrix.script import NEXT, PAST, Side, run_side


def _agent(side: Side, compacts: bool = False) -> Any:
    @tool(requires_confirmation=side.scenario == "approval")  # type: ignore[untyped-decorator]
    async def deploy(target: str) -> str:
        """Deploy a target."""
        return await side.adeploy(target)

    return Agent(
        model=OpenAILike(id="m", base_url=side.url, api_key="none", max_retries=0),
        db=SqliteDb(db_file=str(side.folder / "agno.db")),
        session_id="matrix",
        instructions="Answer.",
        tools=[deploy],
        add_history_to_context=True,
        num_history_runs=1_000,
        # 3.1.10 ends a streamed run that waits for a confirmation as completed if it is also checkpointed.
        checkpoint="runs" if side.scenario == "approval" and side.way == "start" else "tool-batch",
        compaction=Compaction(compact_at_tokens=500, uncompacted_runs=2) if compacts else None,
        telemetry=False,
    )


async def _run(stream: Any, side: Side) -> Any:
    paused = None
    async for event in stream:
        if event.event == "RunContent" and event.content:
            side.show(event.content)
        if event.event == "RunPaused":
            paused = event
    return paused


async def start(side: Side) -> None:
    if side.scenario == "compaction":
        agent = _agent(side)
        for question, _ in PAST:
            await _run(agent.arun(question, stream=True), side)
    agent = _agent(side, compacts=side.scenario == "compaction")
    paused = await _run(agent.arun(side.submit(), stream=True), side)
    if paused is not None:
        await side.wait_for_kill(pending=paused.tools[0].tool_args)


async def resume(side: Side) -> None:
    agent = _agent(side, compacts=side.scenario == "compaction")
    session = await agent.aget_session("matrix")
    side.stored([json.dumps(run.to_dict(), default=str) for run in (session.runs if session else None) or ()])
    for run in (session.runs if session else None) or ():
        if run.is_paused or run.status == RunStatus.running:
            for requirement in run.active_requirements:
                requirement.confirm()
            requirements = run.requirements if run.is_paused else None
            stream = agent.acontinue_run(run_id=run.run_id, requirements=requirements, session_id="matrix", stream=True)
            await _run(stream, side)
    await _run(agent.arun(NEXT, stream=True), side)


if __name__ == "__main__":
    run_side(start, resume)
