"""pydantic-ai on DBOS and SQLite: a workflow per turn, tools as steps; a restart recovers unfinished workflows."""

from __future__ import annotations

import asyncio
from typing import Any

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.durable_exec.dbos import DBOSDurability  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.messages import ModelMessagesTypeAdapter, PartDeltaEvent, PartStartEvent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.kill_matrix.script import CALL, NEXT, TOOL, Side, run_side, said


def _launch(side: Side) -> Any:
    """Make the agent and its workflow, and launch DBOS, which recovers what an earlier process left unfinished."""
    DBOS(
        config={
            "name": "matrix",
            "system_database_url": f"sqlite:///{side.folder}/dbos.db",
            "application_version": "matrix",
            "run_admin_server": False,
            "enable_otlp": False,
            "log_level": "ERROR",
        }
    )

    async def show(_: Any, events: Any) -> None:
        async for event in events:
            if isinstance(event, PartDeltaEvent):
                side.show(getattr(event.delta, "content_delta", ""))
            elif isinstance(event, PartStartEvent):
                side.show(getattr(event.part, "content", ""))

    @DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
    async def deploy(target: str) -> str:
        """Deploy a target."""
        return await side.adeploy(target)

    provider = OpenAIProvider(base_url=side.url, api_key="none")
    agent = Agent(
        OpenAIChatModel("m", provider=provider),
        name="matrix",
        instructions="Answer.",
        output_type=[str, DeferredToolRequests],
        capabilities=[DBOSDurability(event_stream_handler=show)],
    )
    agent.tool_plain(requires_approval=side.scenario == "approval", name=TOOL)(deploy)

    @DBOS.workflow(name="turn")  # type: ignore[untyped-decorator, unused-ignore]
    async def turn(prompt: str | None, history: bytes, approved: str | None) -> tuple[bytes, str | None]:
        """Return the history after the turn, and the call that waits for an approval."""
        result = await agent.run(
            prompt,
            message_history=ModelMessagesTypeAdapter.validate_json(history),
            deferred_tool_results=DeferredToolResults(approvals={approved: True}) if approved else None,
        )
        waiting = result.output.approvals if isinstance(result.output, DeferredToolRequests) else []
        return result.all_messages_json(), waiting[0].tool_call_id if waiting else None

    DBOS.launch()
    return turn


async def _run(turn: Any, name: str, *asked: Any) -> Any:
    with SetWorkflowID(name):
        return await turn(*asked)


async def start(side: Side) -> None:
    if side.scenario == "compaction":
        said(no_such_feature="compaction is the provider's (OpenAI's Responses, Anthropic), or a processor of your own")
        return
    turn = _launch(side)
    _, waiting = await _run(turn, "turn-1", side.submit(), b"[]", None)
    if waiting:
        await side.wait_for_kill(pending=waiting)


async def resume(side: Side) -> None:
    turn = _launch(side)
    history, waiting = await _result("turn-1")
    if waiting:
        answered = await DBOS.get_workflow_status_async("turn-2")
        history, _ = await (_result("turn-2") if answered else _run(turn, "turn-2", None, history, CALL))
    side.stored([history.decode()])
    await _run(turn, "turn-3", NEXT, history, None)


async def _result(name: str) -> Any:
    handle: Any = await DBOS.retrieve_workflow_async(name)
    return await asyncio.wait_for(handle.get_result(), 30)


if __name__ == "__main__":
    run_side(start, resume)
