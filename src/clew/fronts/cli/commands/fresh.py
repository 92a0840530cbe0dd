"""Fresh chunks: of a message that is shown from its first part once more, only what was not printed before.

A server shows a message that goes on after an answer from its beginning, and what is stored is played from its
beginning too. Parts are told apart by their place in the message, calls by their ids, texts by how long they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from clew.transcript import chunk as c

__all__ = ["Fresh"]

_Key: TypeAlias = tuple[str, str | int]


class _Message:
    """What was printed of one message."""

    def __init__(self) -> None:
        self.keys: set[_Key] = set()
        self.counts: Counter[str] = Counter()
        self.lengths: Counter[_Key] = Counter()
        self.finished = False


class Fresh:
    """Chunks in, those that are new out."""

    def __init__(self) -> None:
        self._messages: dict[str, _Message] = {}
        self._open(_Message())

    def _open(self, message: _Message, start: c.Start | None = None, *, replayed: bool = True) -> None:
        self._message = message
        self._start = start
        self._known = frozenset(message.keys)
        self._counts: Counter[str] = Counter() if replayed else message.counts.copy()
        self._lengths: Counter[_Key] = Counter() if replayed else message.lengths.copy()
        self._texts: dict[str, _Key] = {}

    def take(self, chunk: c.Chunk, *, replayed: bool) -> Iterator[c.Chunk]:
        """The chunk, if it is new; before the first that is, how its message begins."""
        if isinstance(chunk, c.Start):
            message_id = str(chunk.message_id)
            again = message_id in self._messages
            self._open(self._messages.setdefault(message_id, _Message()), chunk, replayed=replayed)
            if not again:
                yield from self._begun()
        elif (new := chunk if isinstance(chunk, c.Finish) else self._new(chunk)) is not None:
            if isinstance(chunk, c.Finish | c.FinishStep) and self._start is not None and self._message.finished:
                return  # with nothing before it that is new, the end was printed as well
            yield from self._begun()
            self._message.finished = isinstance(chunk, c.Finish)
            yield new

    def _begun(self) -> Iterator[c.Chunk]:
        if self._start is not None:
            yield self._start
            self._start = None

    def _new(self, chunk: c.Chunk) -> c.Chunk | None:
        if isinstance(chunk, c.Error | c.Abort | c.MessageMetadata):
            return chunk
        if isinstance(chunk, c.TextDelta | c.ReasoningDelta):
            rest = self._rest(self._texts.get(chunk.id, ("text", chunk.id)), chunk.delta)
            return msgspec.structs.replace(chunk, delta=rest) if rest else None
        if isinstance(chunk, c.ToolInputDelta):
            rest = self._rest(("input", chunk.tool_call_id), chunk.input_text_delta)
            whole = ("tool-input-available", chunk.tool_call_id) in self._known
            return msgspec.structs.replace(chunk, input_text_delta=rest) if rest and not whole else None
        key = self._key(chunk)
        if key in self._known:
            return None
        self._message.keys.add(key)
        if isinstance(chunk, c.ToolInputStart) and ("tool-input-available", chunk.tool_call_id) in self._known:
            return None
        return chunk

    def _key(self, chunk: c.Chunk) -> _Key:
        call_id = getattr(chunk, "tool_call_id", None)
        if isinstance(call_id, str):
            early = "early " if getattr(chunk, "preliminary", None) is True else ""
            return early + chunk.type, call_id
        if isinstance(chunk, c.TextEnd | c.ReasoningEnd):
            kind, place = self._texts.get(chunk.id, ("text", chunk.id))
            return f"end of {kind}", place
        place = self._counts[chunk.type]
        self._counts[chunk.type] += 1
        self._message.counts[chunk.type] = max(self._message.counts[chunk.type], place + 1)
        if isinstance(chunk, c.TextStart | c.ReasoningStart):
            self._texts[chunk.id] = (chunk.type, place)
        return chunk.type, place

    def _rest(self, key: _Key, text: str) -> str:
        """What of a text is longer than what was printed of it."""
        self._lengths[key] += len(text)
        beyond = self._lengths[key] - self._message.lengths[key]
        if beyond <= 0:
            return ""
        self._message.lengths[key] = self._lengths[key]
        return text[-beyond:]
