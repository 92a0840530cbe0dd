"""agno: ``SqliteDb``, the history in each request, ``requires_confirmation`` with ``acontinue_run``, session summaries."""

from __future__ import annotations

import json
from typing import Any

from agno.agent import Agent  # type: ignore[import-not-found]
from agno.db.sqlite import SqliteDb  # type: ignore[import-not-found]
from agno.models.openai.like import OpenAILike  # type: ignore[import-not-found]
from agno.tools import tool  # type: ignore[import-not-found]

from bench.kill_matrix.script import NEXT, PAST, Side, main


def _agent(side: Side, summaries: bool) -> Any:
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
        enable_session_summaries=summaries,
        add_session_summary_to_context=summaries,
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
        agent = _agent(side, summaries=False)
        for question, _ in PAST:
            await _run(agent.arun(question, stream=True), side)
    agent = _agent(side, summaries=side.scenario == "compaction")
    paused = await _run(agent.arun(side.prompt, stream=True), side)
    if paused is not None:
        await side.wait_for_kill(pending=paused.tools[0].tool_args)


async def resume(side: Side) -> None:
    agent = _agent(side, summaries=side.scenario == "compaction")
    session = await agent.aget_session("matrix")
    side.stored([json.dumps(run.to_dict(), default=str) for run in (session.runs if session else None) or ()])
    for run in (session.runs if session else None) or ():
        if run.is_paused:
            for requirement in run.active_requirements:
                requirement.confirm()
            going_on = agent.acontinue_run(
                run_id=run.run_id, requirements=run.requirements, session_id="matrix", stream=True
            )
            await _run(going_on, side)
    await _run(agent.arun(NEXT, stream=True), side)


if __name__ == "__main__":
    main(start, resume)
