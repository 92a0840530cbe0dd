"""A model's reply, with an end to how much of it is taken.

A model that does not stop would fill the store and everybody's memory. What it says is counted as it comes; at the
limit the call is closed, what is open is closed with it, and the step ends as ``length``: the way a model that used up
its own tokens ends. A tool call of such a step is not run, for nobody knows what else was to be said.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Final

import msgspec

from clew.providers.base import StepEnd, UsageUpdate
from clew.transcript import chunk as c
from clew.transcript.turn import NOT_REPORTED
from clew.transcript.usage import Usage

__all__ = ["CUT", "bounded"]

CUT: Final = "cut"
"""In the data of a step: the limit it was cut off at."""
_NOT_RUN: Final = "the reply was cut off at its limit, so this call was not run"


async def bounded(
    stream: AsyncGenerator[c.Chunk | UsageUpdate | StepEnd, None], limit: int
) -> AsyncGenerator[c.Chunk | UsageUpdate | StepEnd, None]:
    """The stream, up to ``limit`` bytes of what is said in it."""
    reply = _Reply(limit)
    used = Usage()
    async with contextlib.aclosing(stream) as source:
        async for item in source:
            if isinstance(item, c.DELTAS):
                taken: c.Chunk | None = reply.grow(item)
            elif isinstance(item, StepEnd):
                yield item
                return
            elif isinstance(item, UsageUpdate):
                used = item.usage
                yield item
                continue
            else:
                taken = reply.take(item)
            if taken is not None:
                yield taken
            if reply.left <= 0:
                break
        else:
            return
    for chunk in reply.close():
        yield chunk
    # The rest of what was used is told at the end, and nobody waited for it.
    yield StepEnd(usage=used, finish_reason="length", data={CUT: limit, "usage": NOT_REPORTED})


class _Reply:
    """What was said so far: how much is left, and what is open."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._texts: dict[str, None] = {}
        self._reasonings: dict[str, None] = {}
        self._calls: dict[str, int] = {}

    def grow(self, chunk: c.TextDelta | c.ReasoningDelta | c.ToolInputDelta) -> c.Chunk | None:
        """More of a part: the chunk, or as much of it as there is room for; None when that is nothing."""
        if isinstance(chunk, (c.TextDelta, c.ReasoningDelta)):
            return self._grown(chunk, "delta", chunk.delta)
        before = self.left
        grown = self._grown(chunk, "input_text_delta", chunk.input_text_delta)
        self._calls[chunk.tool_call_id] = self._calls.get(chunk.tool_call_id, 0) + before - self.left
        return grown

    def take(self, chunk: c.Chunk) -> c.Chunk:
        """Anything else, which is taken whole."""
        match chunk:
            case c.TextStart():
                self._texts[chunk.id] = None
            case c.TextEnd():
                self._texts.pop(chunk.id, None)
            case c.ReasoningStart():
                self._reasonings[chunk.id] = None
            case c.ReasoningEnd():
                self._reasonings.pop(chunk.id, None)
            case c.ToolInputStart():
                self._calls.setdefault(chunk.tool_call_id, 0)
            case c.ToolInputAvailable():
                # Its arguments came in pieces before; then they count once.
                self.left += self._calls.setdefault(chunk.tool_call_id, 0)
            case c.ToolInputError() | c.ToolOutputAvailable() | c.ToolOutputError():
                self._calls.pop(chunk.tool_call_id, None)
        self.left -= len(c.encode_chunk(chunk))
        return chunk

    def close(self) -> Iterator[c.Chunk]:
        """What ends that which is open."""
        yield from (c.TextEnd(id_) for id_ in self._texts)
        yield from (c.ReasoningEnd(id_) for id_ in self._reasonings)
        yield from (c.ToolOutputError(call_id, _NOT_RUN) for call_id in self._calls)

    def _grown(self, chunk: c.Chunk, name: str, text: str) -> c.Chunk | None:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        room = self.left
        # A piece of nothing counts too: there is no end to how many of them can come.
        self.left -= size or 1
        if size <= room:
            return chunk
        fits = text.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
        return msgspec.structs.replace(chunk, **{name: fits}) if fits else None
