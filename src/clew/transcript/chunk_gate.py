"""The gate for a model's stream: every chunk made keepable, none refused, and its part told when one was changed.

A provider may cut a character in two: the first half of a surrogate pair ends one delta, the second begins the
next. The half is held back until its other half comes. What stays invalid becomes U+FFFD, a number no store can
keep becomes text, and the part then carries ``clew.replaced`` in its provider metadata.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clew.transcript import chunk as c
from clew.transcript.gate import clean_text, clean_value

__all__ = ["ChunkGate"]

_REPLACEMENT = "\ufffd"
_Delta = c.TextDelta | c.ReasoningDelta | c.ToolInputDelta
_Key = tuple[str, str]


class ChunkGate:
    """The state of one stream: halves held back, and what each part said of itself last."""

    def __init__(self) -> None:
        self._held: dict[_Key, str] = {}
        self._flagged: set[_Key] = set()
        self._metadata: dict[_Key, dict[str, Any]] = {}

    def clean(self, chunk: c.Chunk) -> tuple[c.Chunk, ...]:
        """What the chunk becomes: itself nearly always; with a held half that was never completed, two chunks."""
        kind = chunk.__class__
        if kind is c.TextDelta or kind is c.ReasoningDelta:
            text = chunk.delta  # type: ignore[union-attr]
        elif kind is c.ToolInputDelta:
            text = chunk.input_text_delta  # type: ignore[union-attr]
        else:
            return self._clean_whole(chunk)
        plain = text.isascii() and "\x00" not in text
        if plain and not self._held and not self._flagged and chunk.extra is c.UNSET and not _has_metadata(chunk):
            return (chunk,)
        return (self._clean_delta(chunk, text),)  # type: ignore[arg-type]

    def _clean_delta(self, chunk: _Delta, text: str) -> c.Chunk:
        key = _key(chunk)
        assert key is not None
        text = self._held.pop(key, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held[key] = text[-1]
            text = text[:-1]
        text, replaced = clean_text(text)
        if replaced:
            self._flagged.add(key)
        changes: dict[str, Any] = {"extra": clean_value(chunk.extra)[0]} if chunk.extra is not c.UNSET else {}
        changes["input_text_delta" if isinstance(chunk, c.ToolInputDelta) else "delta"] = text
        chunk = msgspec.structs.replace(chunk, **changes)
        return self._with_flag(chunk, key)

    def _clean_whole(self, chunk: c.Chunk) -> tuple[c.Chunk, ...]:
        flushed = self._flush(chunk)
        wire, replaced = clean_value(c.chunk_dict(chunk))
        if replaced:
            chunk = c.parse_chunk(wire)
        key = _key(chunk)
        if key is None:
            if replaced and isinstance(chunk, c.Data):
                return (*flushed, _flag_data(chunk))
            if replaced and isinstance(chunk, c.SourceUrl | c.SourceDocument | c.File):
                chunk = msgspec.structs.replace(chunk, provider_metadata=_flag(_metadata_of(chunk)))
            return (*flushed, chunk)
        if isinstance(chunk, c.ToolOutputAvailable | c.ToolOutputError):
            # A result's metadata stands beside its call's, so an unchanged result says nothing.
            if replaced:
                chunk = msgspec.structs.replace(chunk, provider_metadata=_flag(_metadata_of(chunk)))
            return (*flushed, chunk)
        if replaced:
            self._flagged.add(key)
        return (*flushed, self._with_flag(chunk, key))

    def _with_flag(self, chunk: c.Chunk, key: _Key) -> c.Chunk:
        given = _metadata_of(chunk)
        if given is not None:
            given = clean_value(given)[0]
            self._metadata[key] = given
        if key not in self._flagged or not hasattr(chunk, "provider_metadata"):
            return chunk
        # A client replaces a part's metadata whole, so what was said before is said again beside the flag.
        return msgspec.structs.replace(chunk, provider_metadata=_flag(self._metadata.get(key)))

    def _flush(self, chunk: c.Chunk) -> tuple[c.Chunk, ...]:
        """Halves that can no longer be completed, each as the replacement it becomes, before ``chunk``."""
        if not self._held:
            return ()
        if isinstance(chunk, c.TextEnd | c.ReasoningEnd):
            keys = [key for key in self._held if key == _key(chunk)]
        elif isinstance(chunk, c.FinishStep | c.Finish | c.Abort | c.Error):
            keys = list(self._held)
        else:
            return ()
        return tuple(self._replacement(key) for key in keys)

    def _replacement(self, key: _Key) -> c.Chunk:
        del self._held[key]
        self._flagged.add(key)
        kind, id_ = key
        if kind == "tool":
            return c.ToolInputDelta(tool_call_id=id_, input_text_delta=_REPLACEMENT)
        delta = c.TextDelta if kind == "text" else c.ReasoningDelta
        return self._with_flag(delta(id=id_, delta=_REPLACEMENT), key)


def _key(chunk: c.Chunk) -> _Key | None:
    if isinstance(chunk, c.TextStart | c.TextDelta | c.TextEnd):
        return "text", chunk.id
    if isinstance(chunk, c.ReasoningStart | c.ReasoningDelta | c.ReasoningEnd):
        return "reasoning", chunk.id
    tool_call_id = getattr(chunk, "tool_call_id", None)
    return ("tool", tool_call_id) if tool_call_id is not None else None


def _metadata_of(chunk: c.Chunk) -> dict[str, Any] | None:
    value = getattr(chunk, "provider_metadata", c.UNSET)
    return None if value is c.UNSET else value


def _has_metadata(chunk: c.Chunk) -> bool:
    return getattr(chunk, "provider_metadata", c.UNSET) is not c.UNSET


def _flag(metadata: dict[str, Any] | None) -> dict[str, Any]:
    known = metadata or {}
    return {**known, "clew": {**known.get("clew", {}), "replaced": True}}


def _flag_data(chunk: c.Data) -> c.Chunk:
    extra = {} if chunk.extra is c.UNSET else chunk.extra
    return msgspec.structs.replace(chunk, extra={**extra, "providerMetadata": _flag(extra.get("providerMetadata"))})
