"""A turn on stdout: its text as it comes, or its chunks, one a line."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from clew.fronts.cli.safe_text import plain, plain_json
from clew.transcript import chunk as c

__all__ = ["NewChunks", "Printer"]

_Key: TypeAlias = tuple[str, str | int]


class Printer:
    """Chunks to stdout. Whoever reads it may leave; the turn goes on without."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self._at_start = True
        self._said: list[str] = []
        self._places: dict[str, int] = {}
        self._end_shown = False
        self._new = NewChunks()

    def show(self, chunks: Sequence[c.Chunk], *, replayed: bool = False) -> None:
        """Print chunks of the turn. ``replayed``: from the message's first part on, whatever was printed of it."""
        if self.json:
            fresh = [new for chunk in chunks for new in self._new.take(chunk, replayed=replayed)]
            self._end_shown |= any(isinstance(chunk, c.Error | c.Abort) for chunk in fresh)
            self._print("".join(plain_json(c.encode_chunk(chunk).decode()) + "\n" for chunk in fresh))
            return
        for chunk in chunks:
            if isinstance(chunk, c.TextStart):
                self.end()
                self._places.pop(chunk.id, None)
            elif isinstance(chunk, c.TextDelta) and chunk.delta:
                self._say(self._places.setdefault(chunk.id, len(self._said)), chunk.delta)

    def show_error(self, text: str) -> None:
        """Why the turn failed, once; among chunks it is one of them."""
        if self._end_shown:
            return
        self._end_shown = True
        if self.json:
            self.show([c.Error(text), c.Finish("error")])
        else:
            self.end()
            print(f"clew: {plain(text)}", file=sys.stderr)

    def show_abort(self) -> None:
        """Among chunks, that the turn was aborted, unless that was one of them."""
        if self.json and not self._end_shown:
            self.show([c.Abort()])

    def catch_up(self, texts: Sequence[str]) -> None:
        """Print what of these, all the texts so far, was not printed yet."""
        for place, text in enumerate(() if self.json else texts):
            if place == len(self._said):
                self.end()
            said = self._said[place] if place < len(self._said) else ""
            if text.startswith(said) and text != said:
                self._say(place, text[len(said) :])

    def _say(self, place: int, text: str) -> None:
        if place == len(self._said):
            self._said.append("")
        self._said[place] += text
        self._print(plain(text))

    def end(self) -> None:
        """Begin a new line, unless one was just begun."""
        if not self.json and not self._at_start:
            self._print("\n")

    def _print(self, text: str) -> None:
        if text:
            self._at_start = text.endswith("\n")
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lasts


class _Printed:
    """What was printed of one message."""

    def __init__(self) -> None:
        self.keys: set[_Key] = set()
        self.counts: Counter[str] = Counter()
        self.lengths: Counter[_Key] = Counter()
        self.finished = False


class NewChunks:
    """Chunks in, those that were not printed before out.

    A server shows a message that goes on after an answer from its beginning, and what is stored is played from its
    beginning too. Parts are told apart by their place in the message, calls by their ids, texts by how long they are.
    """

    def __init__(self) -> None:
        self._messages: dict[str, _Printed] = {}
        self._open(_Printed())

    def _open(self, message: _Printed, start: c.Start | None = None, *, replayed: bool = True) -> None:
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
            self._open(self._messages.setdefault(message_id, _Printed()), chunk, replayed=replayed)
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
