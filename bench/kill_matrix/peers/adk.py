"""ADK: ``DatabaseSessionService`` on SQLite, a resumable app, tool confirmation, compaction of events, LiteLLM."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.apps.app import App, EventsCompactionConfig, ResumabilityConfig
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService
from google.adk.tools import FunctionTool
from google.genai import types

from bench.kill_matrix.script import NEXT, PAST, Side, run_side

_WHO: dict[str, str] = {"user_id": "user", "session_id": "matrix"}
_ASKS = "adk_request_confirmation"


def _runner(side: Side) -> Any:
    async def deploy(target: str) -> str:
        """Deploy a target."""
        return await side.adeploy(target)

    model = LiteLlm(model="openai/m", api_base=side.url, api_key="none", num_retries=0, max_retries=0)
    tool = FunctionTool(deploy, require_confirmation=side.scenario == "approval")
    compacted = {"compaction_interval": len(PAST) + 1, "overlap_size": 0}
    app = App(
        name="matrix",
        root_agent=LlmAgent(name="matrix", model=model, instruction="Answer.", tools=[tool]),
        resumability_config=ResumabilityConfig(is_resumable=True),
        events_compaction_config=EventsCompactionConfig(**compacted) if side.scenario == "compaction" else None,
    )
    service = DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{side.folder}/adk.db")
    return Runner(app=app, session_service=service)


def _user(text: str) -> Any:
    return types.Content(role="user", parts=[types.Part(text=text)])


async def _run(runner: Any, side: Side, **asked: Any) -> Any:
    """Run to the end, or to a confirmation, which is returned."""
    pending = None
    async for event in runner.run_async(**_WHO, run_config=RunConfig(streaming_mode=StreamingMode.SSE), **asked):
        for part in (event.content.parts if event.content else None) or ():
            if part.text and event.partial:
                side.show(part.text)
            if part.function_call and part.function_call.name == _ASKS:
                pending = part.function_call
    return pending


async def start(side: Side) -> None:
    runner = _runner(side)
    await runner.session_service.create_session(app_name="matrix", **_WHO)
    if side.scenario == "compaction":
        for question, _ in PAST:
            await _run(runner, side, new_message=_user(question))
    pending = await _run(runner, side, new_message=_user(side.submit()))
    if pending is not None:
        await side.wait_for_kill(pending=str(pending.args))


async def resume(side: Side) -> None:
    runner = _runner(side)
    session = await runner.session_service.get_session(app_name="matrix", **_WHO)
    side.stored([event.model_dump_json() for event in session.events])
    asked = [(call, one.invocation_id) for one in session.events for call in one.get_function_calls()]
    answered = {reply.id for one in session.events for reply in one.get_function_responses()}
    pending = [(call, by) for call, by in asked if call.name == _ASKS and call.id not in answered]
    if pending:
        call, invocation = pending[0]
        answer = types.FunctionResponse(id=call.id, name=_ASKS, response={"confirmed": True})
        message = types.Content(role="user", parts=[types.Part(function_response=answer)])
        await _run(runner, side, invocation_id=invocation, new_message=message)
    elif side.scenario != "compaction" and side.way == "resume":
        await _run(runner, side, invocation_id=session.events[-1].invocation_id)
    await _run(runner, side, new_message=_user(NEXT))


if __name__ == "__main__":
    run_side(start, resume)
