"""Sanitises a model's stream: makes every chunk storable, rejects none, and marks parts whose content was changed.

A provider may split a character: the first half of a surrogate pair ends one delta, the second begins the next. The
first half is held back until the second arrives. What stays invalid becomes U+FFFD, a number that no store can hold
becomes text, and the part then has ``clew.replaced`` in its provider metadata.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clew.transcript import chunk as c
from clew.transcript.value_check import clean_text, clean_value, is_clean

__all__ = ["ChunkSanitizer"]

_REPLACEMENT = "\ufffd"
_Key = tuple[str, str]
"""The subject of a chunk: a ``text``, a ``reasoning`` or a ``tool`` call, and its id."""

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


class ChunkSanitizer:
    """The state of one stream: the last metadata of each open part, the changed parts, and halves held back."""

    def __init__(self) -> None:
        self._metadata: dict[_Key, dict[str, Any] | None] = {}
        self._changed: set[_Key] = set()
        self._held_back: dict[_Key, str] = {}

    def clean(self, chunk: c.Chunk) -> tuple[c.Chunk, ...]:
        """Return the sanitised chunk, nearly always unchanged, after any halves that were never completed."""
        if self.passes(chunk):
            return (chunk,)
        key = _key(chunk)
        flushed = self._flush(chunk, key)
        original = c.chunk_dict(chunk)
        wire, replaced = clean_value(self._joined(original, key))
        if wire is not original:
            chunk = c.parse_chunk(wire)
        if key is None or (isinstance(chunk, c.DELTAS) and key not in self._metadata):
            chunk = _flagged(chunk, _metadata_of(chunk)) if replaced else chunk
        else:
            chunk = self._with_flag(chunk, key, replaced)
        self._forget(chunk, key)
        return (*flushed, chunk)

    def passes(self, chunk: c.Chunk) -> bool:
        """Return whether the chunk needs no change and no state, as is true of nearly every chunk."""
        if self._held_back or not isinstance(chunk, c.DELTAS) or chunk.extra is not c.UNSET:
            return False
        if isinstance(chunk, (c.TextDelta, c.ReasoningDelta)):
            return chunk.provider_metadata is c.UNSET and is_clean(chunk.delta) and is_clean(chunk.id)
        return is_clean(chunk.input_text_delta) and is_clean(chunk.tool_call_id)

    def _joined(self, wire: dict[str, Any], key: _Key | None) -> dict[str, Any]:
        """Return the chunk with the half held back before it, and without a half at its own end."""
        name = _GROWING.get(wire["type"])
        if name is None or key is None or key not in self._metadata:
            return wire
        text = self._held_back.pop(key, "") + wire[name]
        if "\ud800" <= text[-1:] <= "\udbff":
            self._held_back[key] = text[-1]
            text = text[:-1]
        return wire if text == wire[name] else {**wire, name: text}

    def _with_flag(self, chunk: c.Chunk, key: _Key, replaced: bool) -> c.Chunk:
        """Return the chunk, with the flag if its part was changed and the client must be informed."""
        if replaced:
            self._changed.add(key)
        metadata = _metadata_of(chunk)
        if metadata is not None or key not in self._metadata:
            self._metadata[key] = metadata
        if key in self._changed and (replaced or metadata is not None or not isinstance(chunk, c.DELTAS)):
            # A client replaces a part's metadata as a whole, so repeat the earlier metadata along with the flag.
            return _flagged(chunk, self._metadata[key])
        return chunk

    def _flush(self, chunk: c.Chunk, key: _Key | None) -> tuple[c.Chunk, ...]:
        """Return replacements for halves that can no longer be completed, to be sent before ``chunk``."""
        if not self._held_back or isinstance(chunk, c.DELTAS):
            return ()
        if isinstance(chunk, _STREAM_ENDS):
            keys = list(self._held_back)
        elif isinstance(chunk, c.StartStep):
            # A text may continue in the next step, arguments may not.
            keys = [waiting for waiting in self._held_back if waiting[0] == "tool"]
        elif key is None or isinstance(chunk, c.ToolInputAvailable | c.ToolInputError):
            # Complete arguments replace what was streamed, so the half is not needed.
            keys = []
        else:
            keys = [key]
        return tuple(self._replacement(key) for key in keys if key in self._held_back)

    def left_over(self) -> tuple[c.Chunk, ...]:
        """Return replacements for halves still held back when the stream ends without an end chunk."""
        return tuple(self._replacement(key) for key in list(self._held_back))

    def _replacement(self, key: _Key) -> c.Chunk:
        del self._held_back[key]
        kind, id_ = key
        if kind == "tool":
            return self._with_flag(c.ToolInputDelta(id_, _REPLACEMENT), key, replaced=True)
        delta = c.TextDelta if kind == "text" else c.ReasoningDelta
        return self._with_flag(delta(id_, _REPLACEMENT), key, replaced=True)

    def _forget(self, chunk: c.Chunk, key: _Key | None) -> None:
        """Drop the state of parts that have ended: an id may be used again, and a result needs no flag."""
        if isinstance(chunk, c.FinishStep):
            ended = [known for known in self._metadata if known[0] != "tool"]
        elif key is not None and isinstance(chunk, _PART_ENDS) and getattr(chunk, "preliminary", None) is not True:
            ended = [key]
        else:
            return
        for known in ended:
            self._metadata.pop(known, None)
            self._changed.discard(known)
            self._held_back.pop(known, None)


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
    """Return the chunk with the flag added to ``metadata``; a chunk without metadata is returned unchanged."""
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
