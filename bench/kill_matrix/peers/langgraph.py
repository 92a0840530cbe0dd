"""LangGraph: ``create_agent`` on ``AsyncSqliteSaver``, ``durability="sync"``; its middleware asks and summarises."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent  # type: ignore[import-not-found]
from langchain.agents.middleware import (  # type: ignore[import-not-found]
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
)
from langchain_core.tools import tool  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # type: ignore[import-not-found]
from langgraph.types import Command  # type: ignore[import-not-found]

from bench.kill_matrix.script import NEXT, PAST, TOOL, Side, run_side

_THREAD: dict[str, Any] = {"configurable": {"thread_id": "matrix"}}


def _agent(side: Side, saver: Any) -> Any:
    @tool  # type: ignore[untyped-decorator]
    async def deploy(target: str) -> str:
        """Deploy a target."""
        return await side.adeploy(target)

    model = ChatOpenAI(model="m", base_url=side.url, api_key="none", max_retries=0)
    middleware: list[Any] = []
    if side.scenario == "approval":
        middleware.append(HumanInTheLoopMiddleware(interrupt_on={TOOL: True}))
    if side.scenario == "compaction":
        trigger, keep = ("messages", 2 * len(PAST) + 1), ("messages", 4)
        middleware.append(SummarizationMiddleware(model=model, trigger=trigger, keep=keep))
    return create_agent(model, tools=[deploy], middleware=middleware, checkpointer=saver, system_prompt="Answer.")


async def _run(agent: Any, asked: Any, side: Side) -> None:
    stream = agent.astream(asked, _THREAD, stream_mode="messages", durability="sync")
    async for chunk, _ in stream:
        if chunk.type == "AIMessageChunk" and isinstance(chunk.content, str):
            side.show(chunk.content)


def _user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


async def start(side: Side) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(side.folder / "checkpoints.db")) as saver:
        agent = _agent(side, saver)
        if side.scenario == "compaction":
            for question, _ in PAST:
                await _run(agent, _user(question), side)
        await _run(agent, _user(side.submit()), side)
        if interrupts := (await agent.aget_state(_THREAD)).interrupts:
            await side.wait_for_kill(pending=str(interrupts[0].value))


async def resume(side: Side) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(side.folder / "checkpoints.db")) as saver:
        agent = _agent(side, saver)
        state = await agent.aget_state(_THREAD)
        side.stored([str(message) for message in state.values.get("messages", [])])
        if state.interrupts:
            await _run(agent, Command(resume={"decisions": [{"type": "approve"}]}), side)
        elif state.next and side.way == "resume":
            await _run(agent, None, side)
        await _run(agent, _user(NEXT), side)


if __name__ == "__main__":
    run_side(start, resume)
