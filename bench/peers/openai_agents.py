"""openai-agents: its runner and its ``SQLiteSession``, with a model of its own kind that follows the script."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled  # type: ignore[import-not-found]
from agents.models.interface import Model  # type: ignore[import-not-found]
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from bench.peers.run import Marks, Work, main


class _Model(Model):  # type: ignore[misc]
    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    async def get_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        work, item = self._marks.work, f"item_{time.perf_counter_ns()}"
        if self._marks.called():
            for number, delta in enumerate(work.arguments):
                yield ResponseFunctionCallArgumentsDeltaEvent(
                    type="response.function_call_arguments.delta",
                    delta=delta,
                    item_id=item,
                    output_index=0,
                    sequence_number=number,
                )
            arguments = "".join(work.arguments)
            output: Any = ResponseFunctionToolCall(
                type="function_call", id=item, call_id=work.call_id, name="look_up", arguments=arguments
            )
        else:
            for number, delta in enumerate(work.deltas):
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta",
                    delta=delta,
                    item_id=item,
                    output_index=0,
                    content_index=0,
                    sequence_number=number,
                    logprobs=[],
                )
            text = ResponseOutputText(type="output_text", text="".join(work.deltas), annotations=[])
            output = ResponseOutputMessage(
                type="message", id=item, role="assistant", status="completed", content=[text]
            )
        response = Response(
            id=f"resp_{item}",
            created_at=0,
            model="scripted",
            object="response",
            output=[output],
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=999)


class _OpenAIAgents:
    def __init__(self, marks: Marks, folder: Path) -> None:
        set_tracing_disabled(True)

        @function_tool  # type: ignore[untyped-decorator]
        async def look_up(path: str, about: str) -> str:
            """Look up what a module says about a topic."""
            return marks.work.output

        self._agent = Agent(name="bench", instructions="Be brief.", tools=[look_up], model=_Model(marks))
        self._session = SQLiteSession("bench", folder / "openai-agents.db")
        self._chunks = SQLiteSession("chunks", folder / "openai-agents-chunks.db")

    async def fill(self, works: list[Work]) -> None:
        for work in works:
            text = {"type": "output_text", "text": "".join(work.deltas), "annotations": []}
            message = {"type": "message", "id": f"msg_{work.number}", "role": "assistant", "status": "completed"}
            call = {"type": "function_call", "id": f"fc_{work.number}", "call_id": work.call_id, "name": "look_up"}
            await self._session.add_items(
                [
                    {"role": "user", "content": work.prompt},
                    {**call, "arguments": "".join(work.arguments)},
                    {"type": "function_call_output", "call_id": work.call_id, "output": work.output},
                    {**message, "content": [text]},
                ]
            )

    async def turn(self, work: Work) -> AsyncIterator[str]:
        result = Runner.run_streamed(self._agent, work.prompt, session=self._session)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta

    async def store_chunk(self, number: int, delta: str) -> bool:
        await self._chunks.add_items([{"role": "assistant", "content": json.dumps({"n": number, "delta": delta})}])
        return True


if __name__ == "__main__":
    main(_OpenAIAgents)
