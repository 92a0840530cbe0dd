"""The position of a client in the stream of a message, which is valid across connections.

A server sends a message from its first part to every new connection, with its deltas joined and under other ids, and at
least as far as any client has seen it. So the position is not a number: it is the number of parts of each kind, the
length of each text, and the state of each tool call. Repetitions in a later connection are left out; the rest continues
under the ids that were seen first. ``web/client/src/seen.ts`` is the same for browsers; one test covers both.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["Seen"]

Chunk = dict[str, Any]

_ENDINGS: Final = frozenset({"finish", "abort", "error"})
_LAST: Final = frozenset({"finish", "abort"})
_GOES_ON: Final = frozenset({"tool-calls", "error"})
"""The end of a message whose turn may continue by itself after a cut."""
_OF_CALL: Final = ("providerExecuted", "toolMetadata")
"""What is said of a call as a whole, at its beginning or with its end."""
_CALL_ENDS: Final = frozenset({"tool-output-error", "tool-output-denied", "tool-input-error"})


class _Text:
    """A text or a reasoning that came: its id here, how much of it, and whether it can go on."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.length = 0
        self.open = True
        self.metadata: Any = None


class _Call:
    """A tool call that came: in which step, how much of its arguments was written, and what is known of it."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.written = 0
        self.begun = self.whole = self.ended = False
        self.output: Any = None
        self.about: dict[str, Any] = {}


class _Pass:
    """The position of one connection."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.texts: dict[tuple[str, str], int] = {}
        self.lengths: dict[tuple[str, object], int] = {}

    def count(self, kind: str) -> int:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind]

    def grow(self, kind: str, which: object, by: int) -> int:
        self.lengths[kind, which] = self.lengths.get((kind, which), 0) + by
        return self.lengths[kind, which]


class Seen:
    """Takes the chunks of one connection after the other, and gives each of them out once. A turn may have several
    messages."""

    def __init__(self) -> None:
        self._messages: dict[Any, _Message] = {}
        self._now = _Message()
        self.turn_id: str | None = None
        self.goes_on = False
        """The last thing that came may not be the end: a human's word, or a message of its own, may follow."""

    @property
    def began(self) -> bool:
        return bool(self._messages)

    @property
    def asks(self) -> bool:
        """The message that came last has a call without a result: where nothing runs, it waits for a human."""
        return self._now.asks

    def join_again(self) -> None:
        """Begin another connection, which starts with the first part."""
        for message in self._messages.values():
            message.join_again()

    def take(self, chunk: Chunk) -> list[Chunk]:
        """Return the part of a chunk that was not seen before."""
        if chunk["type"] == "start":
            self._now = self._messages.setdefault(chunk.get("messageId"), _Message())
            self.turn_id = (chunk.get("messageMetadata") or {}).get("turn_id") or self.turn_id
        self.goes_on = chunk["type"] == "finish" and chunk.get("finishReason") in _GOES_ON
        return self._now.take(chunk)


class _Message:
    """The position in one message."""

    def __init__(self) -> None:
        self._joined_again = self._began = False
        self._metadata: dict[str, Any] = {}
        self._texts: dict[str, list[_Text]] = {"text": [], "reasoning": []}
        self._calls: dict[str, _Call] = {}
        self._approvals: set[Any] = set()
        self._counts: dict[str, int] = {}
        self._values: dict[tuple[str, str], Any] = {}
        self._finished: set[int] = set()
        self._endings: set[str] = set()
        self._pass = _Pass()

    @property
    def asks(self) -> bool:
        return any(not call.ended for call in self._calls.values())

    def join_again(self) -> None:
        self._joined_again = True
        self._pass = _Pass()

    def take(self, chunk: Chunk) -> list[Chunk]:
        fresh = self._take(chunk)
        kind = chunk["type"]
        if kind in _ENDINGS:
            self._endings.add(kind)
        elif any(one["type"] != "message-metadata" for one in fresh):
            # A chunk about a message after its end does not begin it again.
            self._endings.clear()
        return fresh if self._joined_again else [chunk]

    @property
    def _has_ended(self) -> bool:
        """Nothing ends it a second time. Of an error alone the end is still to come."""
        return not self._endings.isdisjoint(_LAST)

    def _take(self, chunk: Chunk) -> list[Chunk]:
        kind: str = chunk["type"]
        if kind == "start":
            return self._start(chunk)
        if kind in _ENDINGS:
            return [] if kind in self._endings or self._has_ended else [chunk]
        if kind == "message-metadata":
            return [chunk] if self._merge(chunk) else []
        if kind.startswith(("text-", "reasoning-")):
            return self._text(chunk, *kind.split("-", 1))
        if kind.startswith("tool-"):
            return self._tool(chunk, kind)
        if kind in ("start-step", "finish-step"):
            return self._step(chunk, kind)
        return self._single(chunk, kind)

    def _start(self, chunk: Chunk) -> list[Chunk]:
        changed, was_begun, self._began = self._merge(chunk), self._began, True
        if not was_begun:
            return [chunk]
        return [{"type": "message-metadata", "messageMetadata": changed}] if changed else []

    def _merge(self, chunk: Chunk) -> dict[str, Any]:
        """Return the new part of a message's metadata."""
        told = chunk.get("messageMetadata") or {}
        changed = {
            key: value for key, value in told.items() if key not in self._metadata or self._metadata[key] != value
        }
        self._metadata |= changed
        return changed

    def _text(self, chunk: Chunk, kind: str, what: str) -> list[Chunk]:
        seen, now = self._texts[kind], self._pass
        if what == "start":
            place = now.texts[kind, chunk["id"]] = now.count(kind) - 1
            is_new = place >= len(seen)
            if is_new:
                id_ = chunk["id"]
                while self._joined_again and any(one.open and one.id == id_ for one in seen):
                    id_ += "+"
                seen.append(_Text(id_))
        else:
            found = now.texts.get((kind, chunk["id"]))
            if found is None:
                return [chunk]
            place, is_new = found, what == "end" and seen[found].open
        text = seen[place]
        told = {**chunk, "id": text.id}
        if what == "end":
            text.open = False
        elif what == "delta":
            rest = now.grow(kind, place, len(chunk["delta"])) - text.length
            if is_new := rest > 0:
                text.length += rest
                told["delta"] = chunk["delta"][-rest:]
        metadata = chunk.get("providerMetadata")
        is_told, text.metadata = metadata is None or metadata == text.metadata, metadata or text.metadata
        if is_new or is_told or not text.open:
            return [told] if is_new else []
        # What is said of a text with something that had been seen.
        return [{"type": f"{kind}-delta", "id": text.id, "delta": "", "providerMetadata": metadata}]

    def _tool(self, chunk: Chunk, kind: str) -> list[Chunk]:
        is_known = chunk["toolCallId"] in self._calls
        call = self._calls.setdefault(chunk["toolCallId"], _Call(self._pass.counts.get("step", 0)))
        call.about |= {key: chunk[key] for key in _OF_CALL if key in chunk}
        if kind == "tool-input-start":
            return [] if is_known else [chunk]
        if kind == "tool-input-delta":
            rest = self._pass.grow("call", chunk["toolCallId"], len(chunk["inputTextDelta"])) - call.written
            # Empty arguments differ from arguments that have not begun.
            was_begun, call.begun = call.begun, True
            if rest <= 0 and was_begun:
                return []
            call.written += rest
            return [{**chunk, "inputTextDelta": chunk["inputTextDelta"][-rest:] if rest else ""}]
        if kind == "tool-approval-request":
            is_known = chunk["approvalId"] in self._approvals
            self._approvals.add(chunk["approvalId"])
            return [] if is_known else [chunk]
        if call.ended:
            return []
        if kind == "tool-input-available":
            # Of one that was cut off while it was written a server says all there is; its step is over.
            was_whole, call.whole = call.whole or call.step in self._finished, True
            return [] if was_whole else [chunk]
        if kind in _CALL_ENDS or not chunk.get("preliminary"):
            call.ended = True
            if kind == "tool-input-error" and call.step in self._finished:
                chunk = {**chunk, "type": "tool-output-error"}
            return [chunk if kind == "tool-output-denied" else {**chunk, **call.about}]
        before, call.output = call.output, (chunk.get("output"), chunk.get("providerMetadata"))
        return [] if before == call.output else [{**chunk, **call.about}]

    def _step(self, chunk: Chunk, kind: str) -> list[Chunk]:
        if kind == "finish-step":
            step = self._pass.counts.get("step", 0)
            if step in self._finished:
                return []
            self._finished.add(step)
            # Nothing that was open in a step goes on after it.
            for text in (*self._texts["text"], *self._texts["reasoning"]):
                text.open = False
            # A step that was cut ended with its message.
            return [] if self._has_ended else [chunk]
        step = self._pass.count("step")
        if step <= self._counts.get("step", 0):
            return []
        self._counts["step"] = step
        # Where a server left out that the step before it ended, it is not told afterwards.
        self._finished.add(step - 1)
        return [chunk]

    def _single(self, chunk: Chunk, kind: str) -> list[Chunk]:
        if chunk.get("transient"):
            return [chunk]
        if isinstance(chunk.get("id"), str):
            key, value = (kind, chunk["id"]), chunk.get("data")
            if key in self._values and self._values[key] == value:
                return []
            self._values[key] = value
            return [chunk]
        number = self._pass.count(kind)
        if number <= self._counts.get(kind, 0):
            return []
        self._counts[kind] = number
        return [chunk]
