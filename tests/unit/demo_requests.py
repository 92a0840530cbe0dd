"""Requests to the demo provider, and what it says to them."""

from __future__ import annotations

from typing import Any

from clew.providers.base import ModelRequest, StepEnd, ToolSchema
from clew.providers.demo import DemoProvider
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.fold import Fold
from clew.transcript.message import Message
from clew.transcript.session import Model

READ = ToolSchema("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LS = ToolSchema("ls", "Lists a folder.", {"type": "object", "properties": {"path": {"type": "string"}}})
BASH = ToolSchema("bash", "Runs a line.", {"type": "object", "properties": {"command": {"type": "string"}}})
WRITE = ToolSchema(
    "write",
    "Writes a file.",
    {"type": "object", "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}}},
)


def user(text: str, id: str = "m1", **metadata: Any) -> Message:
    return Message(id, "user", [{"type": "text", "text": text}], metadata)


def assistant(*parts: dict[str, Any], id: str = "a1") -> Message:
    return Message(id, "assistant", list(parts), {})


def request(model: str, *messages: Message, system: str = "", **fields: Any) -> ModelRequest:
    name, _, variant = model.partition("@")
    return ModelRequest(model=Model("demo", name, variant or None), system=system, messages=messages, **fields)


async def play(asked: ModelRequest, provider: DemoProvider | None = None) -> tuple[list[Chunk], StepEnd]:
    """The chunks of one call, checked by the fold, and how it ended."""
    *chunks, end = [item async for item in (provider or DemoProvider()).stream(asked)]
    assert isinstance(end, StepEnd)
    fold = Fold("answer")
    fold.apply(c.StartStep())
    legal: list[Chunk] = []
    for chunk in chunks:
        assert not isinstance(chunk, StepEnd)
        fold.apply(chunk)
        legal.append(chunk)
    fold.apply(c.FinishStep())
    assert [part["state"] for part in fold.parts if part["type"] in ("text", "reasoning")] == ["done"] * sum(
        part["type"] in ("text", "reasoning") for part in fold.parts
    )
    return legal, end


async def said(asked: ModelRequest, provider: DemoProvider | None = None) -> str:
    chunks, _ = await play(asked, provider)
    return "".join(chunk.delta for chunk in chunks if isinstance(chunk, c.TextDelta))


async def calls(asked: ModelRequest, provider: DemoProvider | None = None) -> list[tuple[str, Any]]:
    chunks, _ = await play(asked, provider)
    return [(chunk.tool_name, chunk.input) for chunk in chunks if isinstance(chunk, c.ToolInputAvailable)]
