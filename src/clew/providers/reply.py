"""A limit on the size of a model's reply.

A model that does not stop would fill the store and the memory of all clients. At the limit the call is closed with its
open texts, and the step ends with ``length``, as if the model had reached its output limit. Tool calls of such a step
are not run, since the reply is incomplete.
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
"""The key in the data of a step with the limit it was cut off at."""
_NOT_RUN: Final = "the reply was cut off at its limit, so this call was not run"


async def bounded(
    stream: AsyncGenerator[c.Chunk | UsageUpdate | StepEnd, None], limit: int
) -> AsyncGenerator[c.Chunk | UsageUpdate | StepEnd, None]:
    """Yield the stream up to ``limit`` bytes of content."""
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
    # The provider reports the rest of the usage at its end, which was not awaited.
    yield StepEnd(usage=used, finish_reason="length", data={CUT: limit, "usage": NOT_REPORTED})


class _Reply:
    """The state of a reply: how much is left of the limit, and which texts and calls are open."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._texts: dict[str, None] = {}
        self._reasonings: dict[str, None] = {}
        self._calls: dict[str, int] = {}

    def grow(self, chunk: c.TextDelta | c.ReasoningDelta | c.ToolInputDelta) -> c.Chunk | None:
        """Return a delta, shortened to the limit; None if nothing of it fits."""
        if isinstance(chunk, (c.TextDelta, c.ReasoningDelta)):
            return self._grown(chunk, "delta", chunk.delta)
        before = self.left
        grown = self._grown(chunk, "input_text_delta", chunk.input_text_delta)
        self._calls[chunk.tool_call_id] = self._calls.get(chunk.tool_call_id, 0) + before - self.left
        return grown

    def take(self, chunk: c.Chunk) -> c.Chunk:
        """Count any other chunk, which is never shortened."""
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
                # Arguments that were counted as deltas count once.
                self.left += self._calls.setdefault(chunk.tool_call_id, 0)
            case c.ToolInputError() | c.ToolOutputAvailable() | c.ToolOutputError():
                self._calls.pop(chunk.tool_call_id, None)
        self.left -= len(c.encode_chunk(chunk))
        return chunk

    def close(self) -> Iterator[c.Chunk]:
        """Yield the ends of open texts and calls."""
        yield from (c.TextEnd(id_) for id_ in self._texts)
        yield from (c.ReasoningEnd(id_) for id_ in self._reasonings)
        yield from (c.ToolOutputError(call_id, _NOT_RUN) for call_id in self._calls)

    def _grown(self, chunk: c.Chunk, name: str, text: str) -> c.Chunk | None:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        room = self.left
        # An empty delta counts too, since their number is unlimited.
        self.left -= size or 1
        if size <= room:
            return chunk
        fits = text.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
        return msgspec.structs.replace(chunk, **{name: fits}) if fits else None
