"""Random valid streams: all chunk types in every order that the fold allows, the same for the same seed.

It defines valid streams with minimal state and shares no code with the fold, which it tests. Streams may be cut
anywhere, so a text or a call can stay open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from clew.errors import IllegalChunk
from clew.live.stream import LocalStream
from clew.transcript import chunk as c
from clew.transcript.chunk import UNSET, Chunk
from clew.transcript.fold import Fold
from clew.transcript.stream_cursor import NumberedChunk

__all__ = ["Answer", "Run", "numbered", "random_runs", "random_stream", "show", "stepped_stream"]

_SCRAPS: Final = ("a", "word ", "two words ", "é", "😀", "\n", '"', "\\", "{", "]", ",", "\u2028", "0", "née ", "")
_KEYS: Final = ("a", "b", "c d", "é", 'quote"', "back\\", "nested")
_TOOLS: Final = ("search", "read-file", "run")
# Ids that need care: numbers, JavaScript's own names, and ids that a replay generates.
_TEXT_IDS: Final = ("1", "2", "txt-0", "replayed-1", "__proto__", "")


@dataclass(frozen=True)
class Answer:
    """The answer to an approval request."""

    tool_call_id: str
    approved: bool
    reason: str | None


@dataclass(frozen=True)
class Run:
    """A stream on a message, and the answers before it."""

    answers: tuple[Answer, ...]
    chunks: list[Chunk]


def random_stream(seed: int, *, message_id: str = "m1", size: int = 40) -> list[Chunk]:
    """Return a stream of up to about ``size`` chunks for a new message."""
    return random_runs(seed, message_id=message_id, size=size, runs=1)[0].chunks


def random_runs(seed: int, *, message_id: str = "m1", size: int = 40, runs: int = 3) -> list[Run]:
    """Return streams on one message. Each but the first follows the answers to requests of the one before."""
    writer = _Writer(Random(seed), message_id)
    written = [Run((), writer.run(size))]
    while len(written) < runs and (answers := writer.answer()):
        written.append(Run(answers, writer.run(size)))
    return written


@dataclass
class _Call:
    """A tool call. ``state`` is the part's state, or ``running`` for a preliminary output."""

    id: str
    name: str
    dynamic: bool
    step: int
    state: str
    unwritten: str = ""
    approved: bool | None = None


class _Values:
    """Random values for the fields of chunks."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def maybe(self, make: Callable[[], Any], share: float = 0.25) -> Any:
        return make() if self.chance(share) else UNSET

    def words(self) -> str:
        return "".join(self.random.choices(_SCRAPS, k=self.random.randint(0, 4)))

    def value(self, depth: int = 3) -> Any:
        kind = self.random.randrange(10)
        if depth and kind < 2:
            return [self.value(depth - 1) for _ in range(self.random.randint(0, 3))]
        if depth and kind < 6:
            return self.object(depth)
        scalars = (self.words(), self.random.randint(-(10**6), 10**6), self.random.random(), None, True, False)
        return self.random.choice(scalars)

    def object(self, depth: int = 3) -> dict[str, Any]:
        return {key: self.value(depth - 1) for key in self.random.sample(_KEYS, self.random.randint(0, 3))}

    def metadata(self) -> dict[str, Any]:
        own = self.maybe(lambda: self.random.choice(("constructor", "__proto__")), 0.1)
        return {**self.object(), **({} if own is UNSET else {own: self.value()})}

    def flag(self) -> Any:
        return self.maybe(lambda: self.chance(0.5))

    def part_fields(self) -> dict[str, Any]:
        """Return the optional fields of any chunk about a part."""
        return {
            "provider_metadata": self.maybe(lambda: {"one": self.object(), "other": {}}, 0.2),
            "extra": self.unknown(),
        }

    def tool_fields(self) -> dict[str, Any]:
        return {**self.part_fields(), "provider_executed": self.flag(), "tool_metadata": self.maybe(self.object)}

    def unknown(self) -> Any:
        return self.maybe(lambda: {"x-unknown": self.value(), "extra": self.value(1)}, 0.08)


class _Writer(_Values):
    """Writes streams on one message. A move that is not possible does nothing."""

    def __init__(self, random: Random, message_id: str) -> None:
        super().__init__(random)
        self.message_id = message_id
        self.chunks: list[Chunk] = []
        self.texts: list[str] = []
        self.reasonings: list[str] = []
        self.calls: list[_Call] = []
        self.step = 0

    def run(self, size: int) -> list[Chunk]:
        self.chunks = []
        self.texts, self.reasonings = [], []
        length = self.random.randint(1, size)
        if self.chance(0.95):
            id_ = self.maybe(lambda: self.message_id, 0.8)
            self.put(c.Start(id_, self.maybe(self.metadata, 0.4), extra=self.unknown()))
        moves = [move for move, weight in self.moves().items() for _ in range(weight)]
        while len(self.chunks) < length:
            self.random.choice(moves)()
        if self.chance(0.7):
            self.end()
        return self.chunks

    def moves(self) -> dict[Callable[[], None], int]:
        return {
            self.start_step: 2,
            self.finish_step: 1,
            self.start_text: 4,
            self.add_text: 14,
            self.end_text: 3,
            self.start_reasoning: 3,
            self.add_reasoning: 8,
            self.end_reasoning: 2,
            self.start_call: 4,
            self.add_input: 16,
            self.complete_input: 4,
            self.call_at_once: 2,
            self.refuse_input: 1,
            self.put_output: 6,
            self.put_error: 2,
            self.add_source: 2,
            self.add_file: 1,
            self.add_data: 4,
            self.add_metadata: 1,
        }

    def put(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)

    def end(self) -> None:
        """End a stream in one of the possible ways."""
        for call in self.calls:
            if call.state == "input-available" and self.chance(0.5):
                call.state = "approval-requested"
                fields = (self.maybe(self.value), self.maybe(self.value), self.maybe(self.words))
                self.put(c.ToolApprovalRequest(f"approve-{call.id}", call.id, *fields, extra=self.unknown()))
        how = self.random.randrange(10)
        if how == 0:
            self.put(c.Error(self.words() or "it broke"))
        elif how == 1:
            self.put(c.Abort(self.maybe(self.words), extra=self.unknown()))
        else:
            self.put(c.FinishStep())
            reasons = ("stop", "length", "content-filter", "tool-calls", "error", "other")
            reason = self.maybe(lambda: self.random.choice(reasons), 0.8)
            self.put(c.Finish(reason, self.maybe(self.metadata), extra=self.unknown()))

    def answer(self) -> tuple[Answer, ...]:
        waiting = [call for call in self.calls if call.state == "approval-requested"]
        answers = []
        for call in waiting:
            call.state, call.approved = "approval-responded", self.chance(0.6)
            answers.append(Answer(call.id, call.approved, self.words() if self.chance(0.4) else None))
        return tuple(answers)

    # Steps.

    def start_step(self) -> None:
        self.step += 1
        self.put(c.StartStep(extra=self.unknown()))

    def finish_step(self) -> None:
        if self.chance(0.8):
            for id_ in self.texts:
                self.put(c.TextEnd(id_))
            for id_ in self.reasonings:
                self.put(c.ReasoningEnd(id_))
        self.texts, self.reasonings = [], []
        self.put(c.FinishStep(extra=self.unknown()))

    # Texts, several at a time.

    def start_text(self) -> None:
        id_ = self.random.choice(_TEXT_IDS)
        if id_ not in self.texts:
            self.texts.append(id_)
            self.put(c.TextStart(id_, **self.part_fields()))

    def add_text(self) -> None:
        if self.texts:
            self.put(c.TextDelta(self.random.choice(self.texts), self.words(), **self.part_fields()))

    def end_text(self) -> None:
        if self.texts:
            id_ = self.texts.pop(self.random.randrange(len(self.texts)))
            self.put(c.TextEnd(id_, **self.part_fields()))

    def start_reasoning(self) -> None:
        id_ = self.random.choice(_TEXT_IDS)
        if id_ not in self.reasonings:
            self.reasonings.append(id_)
            self.put(c.ReasoningStart(id_, **self.part_fields()))

    def add_reasoning(self) -> None:
        if self.reasonings:
            self.put(c.ReasoningDelta(self.random.choice(self.reasonings), self.words(), **self.part_fields()))

    def end_reasoning(self) -> None:
        if self.reasonings:
            id_ = self.reasonings.pop(self.random.randrange(len(self.reasonings)))
            self.put(c.ReasoningEnd(id_, **self.part_fields()))

    # Tool calls, several at a time.

    def new_call(self, state: str) -> _Call:
        name = self.random.choice(_TOOLS)
        call = _Call(f"call-{len(self.calls)}", name, self.chance(0.3), self.step, state)
        self.calls.append(call)
        return call

    def pick(self, *states: str, in_step: bool = False) -> _Call | None:
        calls = [call for call in self.calls if call.state in states and (not in_step or call.step == self.step)]
        return self.random.choice(calls) if calls else None

    def dynamic(self, call: _Call) -> Any:
        return True if call.dynamic else self.maybe(lambda: False, 0.2)

    def start_call(self) -> None:
        call = self.new_call("input-streaming")
        encoding = self.maybe(lambda: self.random.choice(("json", "text")))
        call.unwritten = json.dumps(self.value(4), ensure_ascii=self.chance(0.5)) + self.words()
        title = self.maybe(self.words)
        dynamic = self.dynamic(call)
        self.put(c.ToolInputStart(call.id, call.name, encoding, title, dynamic=dynamic, **self.tool_fields()))

    def add_input(self) -> None:
        call = self.pick("input-streaming", in_step=True)
        if call is not None:
            cut = self.random.randint(0, min(len(call.unwritten), 12))
            self.put(c.ToolInputDelta(call.id, call.unwritten[:cut], extra=self.unknown()))
            call.unwritten = call.unwritten[cut:]

    def complete_input(self) -> None:
        call = self.pick("input-streaming", in_step=True)
        if call is not None:
            self.make_available(call)

    def call_at_once(self) -> None:
        self.make_available(self.new_call(""))

    def make_available(self, call: _Call) -> None:
        call.state = "input-available"
        title = self.maybe(self.words)
        dynamic = self.dynamic(call)
        self.put(c.ToolInputAvailable(call.id, call.name, self.value(), title, dynamic=dynamic, **self.tool_fields()))

    def refuse_input(self) -> None:
        started = self.pick("input-streaming", in_step=True) if self.chance(0.6) else None
        call = started or self.new_call("")
        call.state = "output-error"
        # For a call that has started, the client uses the fields of its beginning.
        dynamic = self.flag() if started else self.dynamic(call)
        title = self.maybe(self.words)
        fields = self.tool_fields()
        self.put(c.ToolInputError(call.id, call.name, self.value(), self.words(), title, dynamic=dynamic, **fields))

    def put_output(self) -> None:
        call = self.pick("input-available", "approval-responded", "running")
        if call is None:
            return
        denied = call.approved is False or (call.state == "input-available" and self.chance(0.03))
        if denied:
            call.state = "output-denied"
            self.put(c.ToolOutputDenied(call.id, extra=self.unknown()))
            return
        preliminary = self.flag()
        call.state = "running" if preliminary is True else "output-available"
        fields = self.tool_fields()
        self.put(c.ToolOutputAvailable(call.id, self.value(), preliminary, dynamic=self.flag(), **fields))

    def put_error(self) -> None:
        call = self.pick("input-streaming", "input-available", "approval-responded", "running")
        if call is not None and call.approved is not False:
            call.state = "output-error"
            self.put(c.ToolOutputError(call.id, self.words(), dynamic=self.flag(), **self.tool_fields()))

    # Parts that are one chunk, and the message itself.

    def add_source(self) -> None:
        if self.chance(0.5):
            self.put(c.SourceUrl(self.words(), self.words(), self.maybe(self.words), **self.part_fields()))
        else:
            name = self.maybe(self.words)
            self.put(c.SourceDocument(self.words(), "text/plain", self.words(), name, **self.part_fields()))

    def add_file(self) -> None:
        self.put(c.File(self.words(), "image/png", **self.part_fields()))

    def add_data(self) -> None:
        id_ = self.maybe(lambda: self.random.choice(("1", "2")), 0.7)
        name = self.random.choice(("weather", "progress-bar", ""))
        self.put(c.Data(name, self.value(), id_, self.flag(), extra=self.unknown()))

    def add_metadata(self) -> None:
        metadata = None if self.chance(0.1) else self.metadata()
        self.put(c.MessageMetadata(metadata, extra=self.unknown()))


_ABOUT_MESSAGE: Final = (c.Start, c.MessageMetadata, c.Finish, c.Abort, c.Error)


def stepped_stream(seed: int, size: int = 60, *, transient: bool = False) -> list[c.Chunk]:
    """Return a random stream as a loop would have it: what belongs to a part is inside a step, and steps end."""
    fold, accepted, inside = Fold("m1"), list[c.Chunk](), False
    for chunk in random_stream(seed, size=size):
        ahead: list[c.Chunk] = []
        if isinstance(chunk, c.StartStep):
            ahead = [c.FinishStep()] if inside else []
        elif isinstance(chunk, c.FinishStep) and not inside:
            continue
        elif not inside and not isinstance(chunk, (*_ABOUT_MESSAGE, c.FinishStep)):
            ahead = [c.StartStep()]
        for one in (*ahead, chunk):
            if c.is_transient(one) and not transient:
                continue
            try:
                fold.apply(one)
            except IllegalChunk:
                continue
            accepted.append(one)
            inside = isinstance(one, c.StartStep) or (inside and not isinstance(one, c.FinishStep))
    return accepted


def numbered(chunks: Sequence[Chunk], last_n: int = 0) -> list[NumberedChunk]:
    """Return chunks with the numbers that a run gives them."""
    found: list[NumberedChunk] = []
    for chunk in chunks:
        last_n += not c.is_transient(chunk)
        found.append((last_n, chunk))
    return found


def show(stream: LocalStream, chunks: Sequence[Chunk]) -> None:
    """Show the next chunks of a run."""
    if chunks:
        stream.show(numbered(chunks, stream.shown_n))
