"""A turn on stdout: its text as it arrives, or its chunks, one per line."""

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
    """Prints chunks to stdout. If the reader closes the pipe, the turn continues."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self._at_start = True
        self._texts_printed: list[str] = []
        self._places: dict[str, int] = {}
        self._end_shown = False
        self._new = NewChunks()

    def show(self, chunks: Sequence[c.Chunk], *, replayed: bool = False) -> None:
        """Print chunks of the turn. ``replayed``: from the message's first part, even if it was printed."""
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
                self._print_text(self._places.setdefault(chunk.id, len(self._texts_printed)), chunk.delta)

    def show_error(self, text: str) -> None:
        """Print once why the turn failed; with JSON as a chunk."""
        if self._end_shown:
            return
        self._end_shown = True
        if self.json:
            self.show([c.Error(text), c.Finish("error")])
        else:
            self.end()
            print(f"clew: {plain(text)}", file=sys.stderr)

    def show_abort(self) -> None:
        """Print an abort chunk with JSON, unless there was one."""
        if self.json and not self._end_shown:
            self.show([c.Abort()])

    def catch_up(self, texts: Sequence[str]) -> None:
        """Print what was not printed yet of all texts so far."""
        for place, text in enumerate(() if self.json else texts):
            if place == len(self._texts_printed):
                self.end()
            printed = self._texts_printed[place] if place < len(self._texts_printed) else ""
            if text.startswith(printed) and text != printed:
                self._print_text(place, text[len(printed) :])

    def _print_text(self, place: int, text: str) -> None:
        if place == len(self._texts_printed):
            self._texts_printed.append("")
        self._texts_printed[place] += text
        self._print(plain(text))

    def end(self) -> None:
        """End the current line, unless it is empty."""
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
    """The printed content of one message."""

    def __init__(self) -> None:
        self.keys: set[_Key] = set()
        self.counts: Counter[str] = Counter()
        self.lengths: Counter[_Key] = Counter()
        self.finished = False


class NewChunks:
    """A filter for chunks that were not printed before.

    A server streams a message that continues after an answer from its start, and so does a replay of stored messages.
    Parts are identified by their position in the message, calls by their ids, texts by their length.
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
        """Yield the chunk if it is new; before the first new one the start of its message."""
        if isinstance(chunk, c.Start):
            message_id = str(chunk.message_id)
            again = message_id in self._messages
            self._open(self._messages.setdefault(message_id, _Printed()), chunk, replayed=replayed)
            if not again:
                yield from self._started()
        elif (new := chunk if isinstance(chunk, c.Finish) else self._new(chunk)) is not None:
            if isinstance(chunk, c.Finish | c.FinishStep) and self._start is not None and self._message.finished:
                return  # nothing new before it, so the end was printed too
            yield from self._started()
            self._message.finished = isinstance(chunk, c.Finish)
            yield new

    def _started(self) -> Iterator[c.Chunk]:
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
        """Return the part of a text that goes beyond what was printed."""
        self._lengths[key] += len(text)
        beyond = self._lengths[key] - self._message.lengths[key]
        if beyond <= 0:
            return ""
        self._message.lengths[key] = self._lengths[key]
        return text[-beyond:]
