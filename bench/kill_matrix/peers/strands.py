"""Strands: ``FileSessionManager``, an interrupt in a hook for approvals, ``SummarizingConversationManager``."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from strands import Agent, tool  # type: ignore[import-not-found]
from strands.agent.conversation_manager import SummarizingConversationManager  # type: ignore[import-not-found]
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry  # type: ignore[import-not-found]
from strands.models.openai import OpenAIModel  # type: ignore[import-not-found]
from strands.session.file_session_manager import FileSessionManager  # type: ignore[import-not-found]

from bench.kill_matrix.script import NEXT, PAST, Side, run_side


class _Asks(HookProvider):  # type: ignore[misc]
    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self.ask)

    def ask(self, event: BeforeToolCallEvent) -> None:
        if event.interrupt("approval", reason=event.tool_use["input"]) != "y":
            event.cancel_tool = "not approved"


def _agent(side: Side) -> Any:
    @tool  # type: ignore[untyped-decorator]
    async def deploy(target: str) -> str:
        """Deploy a target."""
        return await side.adeploy(target)

    client = {"base_url": side.url, "api_key": "none", "max_retries": 0}
    more: dict[str, Any] = {}
    if side.scenario == "compaction":
        more["conversation_manager"] = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=4)
    return Agent(
        agent_id="matrix",
        model=OpenAIModel(client_args=client, model_id="m"),
        system_prompt="Answer.",
        tools=[deploy],
        hooks=[_Asks()] if side.scenario == "approval" else [],
        session_manager=FileSessionManager(session_id="matrix", storage_dir=str(side.folder / "sessions")),
        callback_handler=None,
        **more,
    )


async def _run(agent: Any, asked: Any, side: Side) -> Any:
    result = None
    async for event in agent.stream_async(asked):
        side.show(event.get("data", ""))
        result = event.get("result", result)
    return result


async def start(side: Side) -> None:
    agent = _agent(side)
    if side.scenario == "compaction":
        for question, _ in PAST:
            await _run(agent, question, side)
        # What the manager does when the model reports an overflow.
        await asyncio.to_thread(agent.conversation_manager.reduce_context, agent)
    result = await _run(agent, side.submit(), side)
    if result.stop_reason == "interrupt":
        await side.wait_for_kill(pending=result.interrupts[0].reason)


async def resume(side: Side) -> None:
    agent = _agent(side)
    side.stored([json.dumps(message) for message in agent.messages])
    if agent._interrupt_state.activated:  # no public way to ask: the docs keep the result of the first process
        answers = [
            {"interruptResponse": {"interruptId": one, "response": "y"}} for one in agent._interrupt_state.interrupts
        ]
        await _run(agent, answers, side)
    await _run(agent, NEXT, side)


if __name__ == "__main__":
    run_side(start, resume)
