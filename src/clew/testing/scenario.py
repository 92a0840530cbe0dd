"""A scenario: an engine, a scripted model and a session, whose transcript is readable lines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from clew.session.api import Engine
from clew.session.history.check import Problem, check
from clew.session.prompt.submission import Submission
from clew.testing.scripted import ScriptedModel
from clew.transcript import part as p
from clew.transcript.chunk import parse_chunk
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.metadata import local_place
from clew.transcript.session import Session

__all__ = ["Scenario", "reduced", "transcript"]


class Scenario:
    """One session of an engine with a scripted model, in a workspace of its own."""

    def __init__(self, engine: Engine, model: ScriptedModel, folder: Path) -> None:
        self.engine = engine
        self.model = model
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.session: Session | None = None

    @property
    def id(self) -> str:
        if self.session is None:
            raise AssertionError("begin the scenario first")
        return self.session.id

    async def begin(self, **fields: Any) -> Scenario:
        """Create the session, or find it after a restart."""
        known = (await self.engine.list_sessions()).sessions
        requires_metadata = self.engine.store.capabilities.required_metadata
        required = local_place(str(self.workspace)) if requires_metadata else {}
        fields = {"workspace_root": str(self.workspace), "title": "scenario", **fields}
        fields["metadata"] = {**required, **(fields.get("metadata") or {})}
        self.session = known[-1] if known else await self.engine.create_session(**fields)
        return self

    async def prompt(self, text: str, **options: Any) -> list[dict[str, Any]]:
        """Send a prompt and return all chunks of its turn."""
        return [chunk async for chunk in self.engine.run(self.id, text, **options)]

    async def send(self, text: str, **options: Any) -> Submission:
        return await self.engine.submit(self.id, text, **options)

    async def follow(self) -> list[dict[str, Any]]:
        return [chunk async for chunk in self.engine.attach(self.id)]

    async def settled(self) -> str:
        """Wait until nothing runs or is about to run, and return the state."""
        async for status in self.engine.watch_status(self.id):
            if status.state in ("idle", "error"):
                await asyncio.sleep(0)
                if self.engine.is_idle(self.id):
                    return status.state
        raise AssertionError("the status ended")

    async def transcript(self, view: Any = "visible") -> list[str]:
        return transcript(await self.engine.messages(self.id, view=view))

    async def check(self) -> list[Problem]:
        return await check(self.engine.store)


def reduced(chunks: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the message that a client reduces from these chunks."""
    first = next(chunk for chunk in chunks if chunk["type"] == "start")
    fold = Fold(first["messageId"], parts=parts)
    for chunk in chunks:
        fold.apply(parse_chunk(chunk))
    return fold.message()


def transcript(messages: Sequence[Message]) -> list[str]:
    """Return messages as lines: texts with their role, and calls with their state and outcome."""
    return [line for message in messages for part in message.parts for line in _lines(message.role, part)]


def _lines(role: str, part: Mapping[str, Any]) -> list[str]:
    kind, state = p.kind_of(part), p.state_of(part)
    if kind == p.STEP_START:
        return []
    if kind in ("text", "reasoning"):
        who = role if kind == "text" else f"{role} thinks"
        mark = "" if state != "streaming" else " …"
        return [f"{who}: {p.text_of(part, kind)}{mark}"]
    if p.is_call(part):
        given = orjson.dumps(p.input_of(part)).decode()
        end = str(state)
        if state == "output-available":
            end = orjson.dumps(p.output_of(part)).decode()
        elif state == "output-error":
            end = f"error: {p.error_text(part)}"
        return [f"{p.tool_name(part)} {given} → {end}"]
    return [f"{role}: [{kind}]"]
