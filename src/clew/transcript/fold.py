"""The fold: builds one assistant message from its chunks while it streams.

Owns where in its message a chunk belongs, and what it does to the metadata. The result is the message a v6 client
reduces from the same chunks, as JSON. No I/O, no clock, and no knowledge of what is already stored.

A chunk is applied in two steps. :meth:`Fold.locate` decides where it belongs, and needs what only a live stream knows:
which text is open under which id. :meth:`Fold.apply_at` writes it there, and needs only the part at that index. So a
journal of (index, chunk) pairs can be applied to stored parts after the stream has ended. A chunk refused by either
step has changed nothing.

Stricter than the client where the client would silently create a second part or lose the first: an id that is open
cannot be opened again, a tool call id names one call in a message, the arguments of a call end in the step they began
in, a call stays static or dynamic, and ``start`` does not rename the message.

Copies of parts are new dicts, but the JSON values inside them are shared with the chunks and must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from clew.errors import IllegalChunk
from clew.transcript import chunk as c
from clew.transcript.chunk import UNSET
from clew.transcript.fold_part import GrowingPart, begin, check, extend
from clew.transcript.part import STEP_START, approval_of, call_id_of, kind_of, state_of

__all__ = ["Fold"]

Json: TypeAlias = dict[str, Any]
_TEXTS: Final[frozenset[type[c.Chunk]]] = frozenset({c.TextStart, c.TextDelta, c.TextEnd})
_PARTLESS: Final = (c.Start, c.MessageMetadata, c.Finish, c.FinishStep, c.Abort, c.Error)
_UNMERGED: Final = frozenset({"__proto__", "constructor", "prototype"})
"""Keys a client skips when it merges metadata, because they are special in JavaScript."""


_NO_NOTE: Final[Mapping[str, Any]] = {}


class Fold:
    """One assistant message. Pass the stored parts to continue where an earlier stream ended."""

    def __init__(
        self, message_id: str, *, parts: Sequence[Mapping[str, Any]] = (), metadata: Mapping[str, Any] | None = None
    ) -> None:
        self.message_id = message_id
        self.finish_reason: str | None = None
        self.error_text: str | None = None
        self.aborted = False
        self._metadata: Json | None = None if metadata is None else dict(metadata)
        self._parts: list[GrowingPart] = []
        self._texts: dict[str, int] = {}
        self._reasonings: dict[str, int] = {}
        self._tools: dict[str, int] = {}
        self._data: dict[tuple[str, str], int] = {}
        self._step = -1
        for part in parts:
            self._append(dict(part), changed=False)

    # The message so far.

    @property
    def part_count(self) -> int:
        return len(self._parts)

    def part(self, index: int) -> Json:
        """Return a copy of the part as it is now."""
        return self._parts[index].snapshot()

    @property
    def parts(self) -> list[Json]:
        return [part.snapshot() for part in self._parts]

    @property
    def metadata(self) -> Json | None:
        return None if self._metadata is None else dict(self._metadata)

    def message(self) -> Json:
        """Return the whole message as a client would hold it."""
        metadata = {} if self._metadata is None else {"metadata": self.metadata}
        return {"id": self.message_id, "role": "assistant", **metadata, "parts": self.parts}

    def text_length(self, index: int) -> int:
        """Return the length so far of a text, a reasoning, or streaming arguments; 0 for other parts."""
        return self._parts[index].text_length()

    @property
    def open_ids(self) -> dict[int, str]:
        """The id of each open text or reasoning in the live stream, by the index of its part."""
        return {index: id_ for ids in (self._texts, self._reasonings) for id_, index in ids.items()}

    def reopen(self, index: int, id_: str) -> None:
        """Continue a text or reasoning that was passed as a part, under this id."""
        (self._texts if kind_of(self._parts[index].data) == "text" else self._reasonings)[id_] = index

    def find_tool(self, tool_call_id: str) -> int | None:
        return self._tools.get(tool_call_id)

    # Applying chunks.

    def apply(self, chunk: c.Chunk) -> int | None:
        """Apply a chunk; return the index of the part it belongs to, None if it belongs to no part."""
        if isinstance(chunk, (c.TextDelta, c.ReasoningDelta)) and chunk.provider_metadata is UNSET:
            # Fast path: nearly every chunk adds text to an open part.
            at = (self._texts if chunk.__class__ is c.TextDelta else self._reasonings).get(chunk.id)
            if at is not None:
                self._parts[at].grow(chunk.delta)
                return at
        index = self.locate(chunk)
        self._write(index, chunk)
        return index

    def locate(self, chunk: c.Chunk) -> int | None:
        """Return where :meth:`apply` would put the chunk; an index past the last part means a new one."""
        index = _FIND[chunk.__class__](self, chunk)
        self._check(index, chunk)
        return index

    def apply_at(self, index: int | None, chunk: c.Chunk) -> None:
        """Apply a chunk whose position is known, as it is in a journal."""
        self._check(index, chunk)
        self._write(index, chunk)

    def answer(
        self, tool_call_id: str, *, approved: bool, reason: str | None = None, note: Mapping[str, Any] = _NO_NOTE
    ) -> int:
        """Write an answer into the call that waits for it, with a ``note`` of who gave it; return the index of its
        part."""
        index = self._tools.get(tool_call_id)
        if index is None:
            raise IllegalChunk(f"no tool call {tool_call_id!r} to answer", tool_call_id=tool_call_id)
        part = self._parts[index]
        state = part.state_after("approval-response", tool_call_id)
        answer: Json = {"approved": approved} if reason is None else {"approved": approved, "reason": reason}
        part.data.update(state=state, approval={**approval_of(part.data), **answer, **note})
        part.changed = True
        return index

    def apply_shown(self, chunk: c.Chunk) -> int | None:
        """Apply a chunk as a viewer receives it; return the same as :meth:`apply`.

        No chunk holds the answer to a request: the call's result is the first to follow it.
        """
        if isinstance(chunk, c.ToolOutputAvailable | c.ToolOutputError | c.ToolOutputDenied):
            index = self._tools.get(chunk.tool_call_id)
            if index is not None and state_of(self._parts[index].data) == "approval-requested":
                self.answer(chunk.tool_call_id, approved=not isinstance(chunk, c.ToolOutputDenied))
        return self.apply(chunk)

    # Where a chunk belongs: needs the live stream.

    def _find_new_text(self, chunk: c.TextStart | c.ReasoningStart) -> int:
        if chunk.id in self._ids(chunk):
            raise IllegalChunk(f"{chunk.type}: {chunk.id!r} is already open", chunk_type=chunk.type)
        return len(self._parts)

    def _find_open_text(self, chunk: c.TextDelta | c.TextEnd | c.ReasoningDelta | c.ReasoningEnd) -> int:
        index = self._ids(chunk).get(chunk.id)
        if index is None:
            raise IllegalChunk(f"{chunk.type}: no open text with the id {chunk.id!r}", chunk_type=chunk.type)
        return index

    def _find_call(self, chunk: c.ToolChunk) -> int:
        return self._tools.get(chunk.tool_call_id, len(self._parts))

    def _find_arguments(self, chunk: c.ToolChunk) -> int:
        index = self._find_call(chunk)
        if index < self._step:
            raise IllegalChunk(
                f"{chunk.type}: the tool call {chunk.tool_call_id!r} began in an earlier step",
                chunk_type=chunk.type,
                tool_call_id=chunk.tool_call_id,
            )
        return index

    def _find_data(self, chunk: c.Data) -> int | None:
        if chunk.transient is True:
            return None
        end = len(self._parts)
        return end if chunk.id is UNSET else self._data.get((chunk.type, chunk.id), end)

    def _ids(self, chunk: c.Chunk) -> dict[str, int]:
        return self._texts if chunk.__class__ in _TEXTS else self._reasonings

    # What it does there: all a journal needs.

    def _check(self, index: int | None, chunk: c.Chunk) -> None:
        if index is None and isinstance(chunk, c.Start):
            if chunk.message_id is not UNSET and chunk.message_id != self.message_id:
                raise IllegalChunk(
                    f"start has the message id {chunk.message_id!r}, expected {self.message_id!r}",
                    message_id=self.message_id,
                )
        elif index is None:
            if chunk.__class__ not in _PARTLESS and not (isinstance(chunk, c.Data) and chunk.transient is True):
                raise IllegalChunk(f"{chunk.type} needs a part", chunk_type=chunk.type)
        elif 0 <= index < len(self._parts):
            check(self._parts[index], chunk)
        elif index == len(self._parts):
            begin(chunk)
        else:
            raise IllegalChunk(f"{chunk.type}: no part {index}", chunk_type=chunk.type)

    def _write(self, index: int | None, chunk: c.Chunk) -> None:
        if index is None:
            self._apply_to_message(chunk)
        elif index == len(self._parts):
            self._append(begin(chunk), changed=True)
            if isinstance(chunk, (c.TextStart, c.ReasoningStart)):
                self._ids(chunk)[chunk.id] = index
        else:
            extend(self._parts[index], chunk)
            if isinstance(chunk, (c.TextDelta, c.ReasoningDelta)):
                # After a restart, this restores the id of an open text.
                self._ids(chunk)[chunk.id] = index
            elif isinstance(chunk, (c.TextEnd, c.ReasoningEnd)):
                for ids in (self._texts, self._reasonings):
                    for id_ in [id_ for id_, at in ids.items() if at == index]:
                        del ids[id_]

    def _append(self, data: Json, *, changed: bool) -> None:
        index = len(self._parts)
        self._parts.append(GrowingPart(data, changed=changed))
        kind, call_id, id_ = kind_of(data), call_id_of(data), data.get("id")
        if kind == STEP_START:
            self._step = index
        elif call_id is not None:
            self._tools[call_id] = index
        elif kind.startswith("data-") and isinstance(id_, str):
            self._data.setdefault((kind, id_), index)

    # Chunks about the message as a whole.

    def _apply_to_message(self, chunk: c.Chunk) -> None:
        if isinstance(chunk, c.FinishStep):
            self._texts.clear()
            self._reasonings.clear()
        elif isinstance(chunk, c.Abort):
            self.aborted = True
        elif isinstance(chunk, c.Error):
            self.error_text = chunk.error_text
        elif isinstance(chunk, (c.Start, c.MessageMetadata, c.Finish)):
            if isinstance(chunk, c.Finish) and chunk.finish_reason is not UNSET:
                self.finish_reason = chunk.finish_reason
            metadata = chunk.message_metadata
            if metadata is not None and metadata is not UNSET:
                self._metadata = dict(metadata) if self._metadata is None else _merged(self._metadata, metadata)


def _merged(base: Json, new: Json) -> Json:
    """Merge ``new`` into ``base``: objects recursively, other values replaced. Neither is changed."""
    out = dict(base)
    for key, value in new.items():
        if key in _UNMERGED:
            continue
        old = base.get(key)
        out[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


_FIND: Final[dict[type[c.Chunk], Callable[[Fold, Any], int | None]]] = {
    **dict.fromkeys(_PARTLESS, lambda fold, chunk: None),
    **dict.fromkeys((c.StartStep, c.SourceUrl, c.SourceDocument, c.File), lambda fold, chunk: fold.part_count),
    **dict.fromkeys((c.TextStart, c.ReasoningStart), Fold._find_new_text),
    **dict.fromkeys((c.TextDelta, c.TextEnd, c.ReasoningDelta, c.ReasoningEnd), Fold._find_open_text),
    **dict.fromkeys((c.ToolInputDelta, c.ToolInputAvailable, c.ToolInputError), Fold._find_arguments),
    **dict.fromkeys((c.ToolInputStart, c.ToolApprovalRequest), Fold._find_call),
    **dict.fromkeys((c.ToolOutputAvailable, c.ToolOutputError, c.ToolOutputDenied), Fold._find_call),
    c.Data: Fold._find_data,
}
