"""openai-agents: ``SQLiteSession`` for the history, ``RunState`` in a JSON file for what waits for an approval.

Its compaction calls ``responses.compact`` of OpenAI, which only a program that speaks OpenAI's Responses API has.
"""

from __future__ import annotations

import json
from typing import Any

from agents import (  # type: ignore[import-not-found]
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesCompactionSession,
    Runner,
    RunState,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from bench.kill_matrix.script import NEXT, PAST, Side, run_side


def _agent(side: Side) -> Any:
    set_tracing_disabled(True)

    @function_tool(needs_approval=side.scenario == "approval")  # type: ignore[untyped-decorator]
    async def deploy(target: str) -> str:
        """Deploy a target."""
        return await side.adeploy(target)

    client = AsyncOpenAI(base_url=side.url, api_key="none", max_retries=0)
    model = OpenAIChatCompletionsModel(model="m", openai_client=client)
    return Agent(name="matrix", instructions="Answer.", tools=[deploy], model=model)


async def _run(agent: Any, asked: Any, session: Any, side: Side) -> Any:
    result = Runner.run_streamed(agent, asked, session=session)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            side.show(event.data.delta)
    return result


async def start(side: Side) -> None:
    session = SQLiteSession("matrix", str(side.folder / "session.db"))
    agent = _agent(side)
    if side.scenario == "compaction":
        for question, _ in PAST:
            await _run(agent, question, session, side)
        client = AsyncOpenAI(base_url=side.url, api_key="none", max_retries=0)
        compacted = OpenAIResponsesCompactionSession("matrix", session, client=client)
        await compacted.run_compaction({"force": True, "compaction_mode": "input"})
    result = await _run(agent, side.submit(), session, side)
    if result.interruptions:
        (side.folder / "state.json").write_text(json.dumps(result.to_state().to_json()))
        await side.wait_for_kill(pending=result.interruptions[0].name)


async def resume(side: Side) -> None:
    agent = _agent(side)
    session = SQLiteSession("matrix", str(side.folder / "session.db"))
    side.stored([json.dumps(item) for item in await session.get_items()])
    saved = side.folder / "state.json"
    if saved.exists():
        state = await RunState.from_json(agent, json.loads(saved.read_text()))
        for interruption in state.get_interruptions():
            state.approve(interruption)
        await _run(agent, state, session, side)
        saved.unlink()
    await _run(agent, NEXT, session, side)


if __name__ == "__main__":
    run_side(start, resume)
