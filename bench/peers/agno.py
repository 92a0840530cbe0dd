"""agno: its agent and its ``SqliteDb``, the history in each request, with a model that follows the script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agno.agent import Agent  # type: ignore[import-not-found]
from agno.db.sqlite import SqliteDb  # type: ignore[import-not-found]
from agno.models.base import Model  # type: ignore[import-not-found]
from agno.models.response import ModelResponse  # type: ignore[import-not-found]

from bench.peers.run import Marks, Work, main


@dataclass
class _Model(Model):  # type: ignore[misc]
    id: str = "scripted"
    name: str = "Scripted"
    provider: str = "Scripted"
    marks: Marks = field(default_factory=Marks)

    def invoke(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def ainvoke(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def invoke_stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def ainvoke_stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        work = self.marks.work
        if self.marks.called():
            for _delta in work.arguments[:-1]:
                yield ModelResponse(role="assistant")
            function = {"name": "look_up", "arguments": "".join(work.arguments)}
            call = {"id": work.call_id, "type": "function", "function": function}
            yield ModelResponse(role="assistant", tool_calls=[call])
        else:
            for delta in work.deltas:
                yield ModelResponse(role="assistant", content=delta)

    def _parse_provider_response(self, response: Any, **_: Any) -> Any:
        return response

    def _parse_provider_response_delta(self, response: Any) -> Any:
        return response


class _Agno:
    def __init__(self, marks: Marks, folder: Path) -> None:
        async def look_up(path: str, about: str) -> str:
            """Look up what a module says about a topic."""
            return marks.work.output

        self._marks = marks
        self._agent = Agent(
            model=_Model(marks=marks),
            db=SqliteDb(db_file=str(folder / "agno.db")),
            session_id="bench",
            tools=[look_up],
            add_history_to_context=True,
            num_history_runs=100_000,
            telemetry=False,
        )

    async def fill(self, works: list[Work]) -> None:
        """Run the turns: agno stores the history itself."""
        for work in works:
            self._marks.start(work)
            async for _ in self.turn(work):
                pass

    async def turn(self, work: Work) -> AsyncIterator[str]:
        async for event in self._agent.arun(work.prompt, stream=True):
            if event.event == "RunContent" and event.content:
                yield event.content

    async def store_chunk(self, number: int, delta: str) -> bool:
        return False


if __name__ == "__main__":
    main(_Agno)
