"""The gate for a model's stream: every chunk made keepable, none refused, and its part told when one was changed.

A provider may cut a character in two: the first half of a surrogate pair ends one delta, the second begins the
next. The half is held back until its other half comes. What stays invalid becomes U+FFFD, a number no store can
keep becomes text, and the part then carries ``clew.replaced`` in its provider metadata.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clew.transcript import chunk as c
from clew.transcript.gate import clean_text, clean_value

__all__ = ["ChunkGate"]

_REPLACEMENT = "\ufffd"
_Key = tuple[str, str]
"""What a chunk is about: a ``text``, a ``reasoning``, the ``call`` of a tool or its ``result``; and the id of that."""

_GROWING: Final[dict[str, str]] = {
    "text-delta": "delta",
    "reasoning-delta": "delta",
    "tool-input-delta": "inputTextDelta",
}
_DELTAS: Final = (c.TextDelta, c.ReasoningDelta, c.ToolInputDelta)
_TEXTS: Final = (c.TextStart, c.TextDelta, c.TextEnd)
_REASONINGS: Final = (c.ReasoningStart, c.ReasoningDelta, c.ReasoningEnd)
_RESULTS: Final = (c.ToolOutputAvailable, c.ToolOutputError, c.ToolInputError)
_STREAM_ENDS: Final = (c.FinishStep, c.Finish, c.Abort, c.Error)


class ChunkGate:
    """The state of one stream: what each open part said of itself last, which were changed, and halves held back."""

    def __init__(self) -> None:
        self._said: dict[_Key, dict[str, Any] | None] = {}
        self._changed: set[_Key] = set()
        self._held: dict[_Key, str] = {}

    def clean(self, chunk: c.Chunk) -> tuple[c.Chunk, ...]:
        """What the chunk becomes: itself nearly always; after halves that were never completed, more than one."""
        if not self._held and isinstance(chunk, _DELTAS) and _is_plain(chunk):
            return (chunk,)
        key = _key(chunk)
        flushed = self._flush(chunk, key)
        given = c.chunk_dict(chunk)
        wire, replaced = clean_value(self._joined(given, key))
        if wire is not given:
            chunk = c.parse_chunk(wire)
        if key is None or (isinstance(chunk, _DELTAS) and key not in self._said):
            chunk = _flagged(chunk, _metadata_of(chunk)) if replaced else chunk
        else:
            chunk = self._told(chunk, key, replaced)
        self._forget(chunk, key)
        return (*flushed, chunk)

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
        kind, id_ = key
        if replaced or (kind == "result" and ("call", id_) in self._changed):
            self._changed.add(key)
        given = _metadata_of(chunk)
        if given is not None or key not in self._said:
            self._said[key] = given
        if key in self._changed and (replaced or given is not None or not isinstance(chunk, _DELTAS)):
            # A client replaces a part's metadata whole, so what was said before is said again beside the flag.
            return _flagged(chunk, self._said[key])
        return chunk

    def _flush(self, chunk: c.Chunk, key: _Key | None) -> tuple[c.Chunk, ...]:
        """Halves that can no longer be completed, each as the replacement it becomes, before ``chunk``."""
        if not self._held or isinstance(chunk, _DELTAS):
            return ()
        if isinstance(chunk, _STREAM_ENDS):
            keys = list(self._held)
        elif isinstance(chunk, c.StartStep):
            # A text may go on in the next step, arguments may not.
            keys = [held for held in self._held if held[0] == "call"]
        elif key is None:
            keys = []
        elif isinstance(chunk, c.ToolInputAvailable | c.ToolInputError):
            # The arguments come whole now, and what was written of them gives way.
            self._held.pop(("call", key[1]), None)
            keys = []
        else:
            keys = [("call", key[1]) if isinstance(chunk, c.ToolOutputError) else key]
        return tuple(self._replacement(key) for key in keys if key in self._held)

    def _replacement(self, key: _Key) -> c.Chunk:
        del self._held[key]
        kind, id_ = key
        if kind == "call":
            return self._told(c.ToolInputDelta(id_, _REPLACEMENT), key, replaced=True)
        delta = c.TextDelta if kind == "text" else c.ReasoningDelta
        return self._told(delta(id_, _REPLACEMENT), key, replaced=True)

    def _forget(self, chunk: c.Chunk, key: _Key | None) -> None:
        """A part that has ended: its id may come again and then names another one."""
        if isinstance(chunk, c.FinishStep):
            over = [known for known in self._said if known[0] != "result"]
        elif key is None:
            over = []
        elif isinstance(chunk, _RESULTS):
            going_on = isinstance(chunk, c.ToolOutputAvailable) and chunk.preliminary is True
            over = [] if going_on else [key, ("call", key[1])]
        else:
            over = [key] if isinstance(chunk, c.TextEnd | c.ReasoningEnd | c.ToolInputAvailable) else []
        for known in over:
            self._said.pop(known, None)
            self._changed.discard(known)
            self._held.pop(known, None)


def _is_plain(chunk: c.TextDelta | c.ReasoningDelta | c.ToolInputDelta) -> bool:
    """Whether a delta is nothing but text that every store can keep: nothing to clean, nothing to remember."""
    if isinstance(chunk, c.ToolInputDelta):
        id_, text = chunk.tool_call_id, chunk.input_text_delta
    elif chunk.provider_metadata is c.UNSET:
        id_, text = chunk.id, chunk.delta
    else:
        return False
    return chunk.extra is c.UNSET and clean_text(text)[0] is text and clean_text(id_)[0] is id_


def _key(chunk: c.Chunk) -> _Key | None:
    if isinstance(chunk, _TEXTS):
        return "text", clean_text(chunk.id)[0]
    if isinstance(chunk, _REASONINGS):
        return "reasoning", clean_text(chunk.id)[0]
    tool_call_id = getattr(chunk, "tool_call_id", None)
    if tool_call_id is None:
        return None
    return "result" if isinstance(chunk, _RESULTS) else "call", clean_text(tool_call_id)[0]


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
