"""The gate for a model's stream: every chunk made keepable, none refused, and its part told when one was changed.

A provider may cut a character in two: the first half of a surrogate pair ends one delta, the second begins the
next. The half is held back until its other half comes. What stays invalid becomes U+FFFD, a number no store can
keep becomes text, and the part then carries ``clew.replaced`` in its provider metadata.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clew.transcript import chunk as c
from clew.transcript.gate import clean_text, clean_value, is_clean

__all__ = ["ChunkGate"]

_REPLACEMENT = "\ufffd"
_Key = tuple[str, str]
"""What a chunk is about: a ``text``, a ``reasoning`` or a ``tool`` call, and the id of that."""

_GROWING: Final[dict[str, str]] = {
    "text-delta": "delta",
    "reasoning-delta": "delta",
    "tool-input-delta": "inputTextDelta",
}
_TEXTS: Final = (c.TextStart, c.TextDelta, c.TextEnd)
_REASONINGS: Final = (c.ReasoningStart, c.ReasoningDelta, c.ReasoningEnd)
_PART_ENDS: Final = (
    c.TextEnd,
    c.ReasoningEnd,
    c.ToolInputAvailable,
    c.ToolInputError,
    c.ToolOutputAvailable,
    c.ToolOutputError,
)
_STREAM_ENDS: Final = (c.FinishStep, c.Finish, c.Abort, c.Error)


class ChunkGate:
    """The state of one stream: what each open part said of itself last, which were changed, and halves held back."""

    def __init__(self) -> None:
        self._said: dict[_Key, dict[str, Any] | None] = {}
        self._changed: set[_Key] = set()
        self._held: dict[_Key, str] = {}

    def clean(self, chunk: c.Chunk) -> tuple[c.Chunk, ...]:
        """What the chunk becomes: itself nearly always; after halves that were never completed, more than one."""
        if self.passes(chunk):
            return (chunk,)
        key = _key(chunk)
        flushed = self._flush(chunk, key)
        given = c.chunk_dict(chunk)
        wire, replaced = clean_value(self._joined(given, key))
        if wire is not given:
            chunk = c.parse_chunk(wire)
        if key is None or (isinstance(chunk, c.DELTAS) and key not in self._said):
            chunk = _flagged(chunk, _metadata_of(chunk)) if replaced else chunk
        else:
            chunk = self._told(chunk, key, replaced)
        self._forget(chunk, key)
        return (*flushed, chunk)

    def passes(self, chunk: c.Chunk) -> bool:
        """Whether it stays what it is and nothing of it has to be remembered, as of nearly every one."""
        if self._held or not isinstance(chunk, c.DELTAS) or chunk.extra is not c.UNSET:
            return False
        if isinstance(chunk, (c.TextDelta, c.ReasoningDelta)):
            return chunk.provider_metadata is c.UNSET and is_clean(chunk.delta) and is_clean(chunk.id)
        return is_clean(chunk.input_text_delta) and is_clean(chunk.tool_call_id)

    def _joined(self, wire: dict[str, Any], key: _Key | None) -> dict[str, Any]:
        """The chunk with the half held back before it, without the half that its text ends in."""
        name = _GROWING.get(wire["type"])
        if name is None or key is None or key not in self._said:
            return wire
        text = self._held.pop(key, "") + wire[name]
        if "\ud800" <= text[-1:] <= "\udbff":
            self._held[key] = text[-1]
            text = text[:-1]
        return wire if text == wire[name] else {**wire, name: text}

    def _told(self, chunk: c.Chunk, key: _Key, replaced: bool) -> c.Chunk:
        """The chunk, saying that its part was changed when this is news, or when it replaces what said so."""
        if replaced:
            self._changed.add(key)
        given = _metadata_of(chunk)
        if given is not None or key not in self._said:
            self._said[key] = given
        if key in self._changed and (replaced or given is not None or not isinstance(chunk, c.DELTAS)):
            # A client replaces a part's metadata whole, so what was said before is said again beside the flag.
            return _flagged(chunk, self._said[key])
        return chunk

    def _flush(self, chunk: c.Chunk, key: _Key | None) -> tuple[c.Chunk, ...]:
        """Halves that can no longer be completed, each as the replacement it becomes, before ``chunk``."""
        if not self._held or isinstance(chunk, c.DELTAS):
            return ()
        if isinstance(chunk, _STREAM_ENDS):
            keys = list(self._held)
        elif isinstance(chunk, c.StartStep):
            # A text may go on in the next step, arguments may not.
            keys = [held for held in self._held if held[0] == "tool"]
        elif key is None or isinstance(chunk, c.ToolInputAvailable | c.ToolInputError):
            # Arguments that come whole need no half: what was written of them gives way.
            keys = []
        else:
            keys = [key]
        return tuple(self._replacement(key) for key in keys if key in self._held)

    def left_over(self) -> tuple[c.Chunk, ...]:
        """What the halves become that nothing will complete any more: the stream ends without saying so."""
        return tuple(self._replacement(key) for key in list(self._held))

    def _replacement(self, key: _Key) -> c.Chunk:
        del self._held[key]
        kind, id_ = key
        if kind == "tool":
            return self._told(c.ToolInputDelta(id_, _REPLACEMENT), key, replaced=True)
        delta = c.TextDelta if kind == "text" else c.ReasoningDelta
        return self._told(delta(id_, _REPLACEMENT), key, replaced=True)

    def _forget(self, chunk: c.Chunk, key: _Key | None) -> None:
        """A part that has ended, or arguments that have: an id may come again, and a result speaks for itself."""
        if isinstance(chunk, c.FinishStep):
            over = [known for known in self._said if known[0] != "tool"]
        elif key is not None and isinstance(chunk, _PART_ENDS) and getattr(chunk, "preliminary", None) is not True:
            over = [key]
        else:
            return
        for known in over:
            self._said.pop(known, None)
            self._changed.discard(known)
            self._held.pop(known, None)


def _key(chunk: c.Chunk) -> _Key | None:
    if isinstance(chunk, _TEXTS):
        return "text", clean_text(chunk.id)[0]
    if isinstance(chunk, _REASONINGS):
        return "reasoning", clean_text(chunk.id)[0]
    tool_call_id = getattr(chunk, "tool_call_id", None)
    return None if tool_call_id is None else ("tool", clean_text(tool_call_id)[0])


def _metadata_of(chunk: c.Chunk) -> dict[str, Any] | None:
    value = getattr(chunk, "provider_metadata", c.UNSET)
    return None if value is c.UNSET else value


def _flagged(chunk: c.Chunk, metadata: dict[str, Any] | None) -> c.Chunk:
    """The chunk with the flag beside ``metadata``; a chunk that has no place for it stays as it is."""
    if hasattr(chunk, "provider_metadata"):
        return msgspec.structs.replace(chunk, provider_metadata=_flag(metadata))
    if isinstance(chunk, c.Data):
        extra = {} if chunk.extra is c.UNSET else chunk.extra
        return msgspec.structs.replace(chunk, extra={**extra, "providerMetadata": _flag(extra.get("providerMetadata"))})
    return chunk


def _flag(metadata: object) -> dict[str, Any]:
    known = metadata if isinstance(metadata, dict) else {}
    own = known.get("clew")
    return {**known, "clew": {**(own if isinstance(own, dict) else {}), "replaced": True}}
