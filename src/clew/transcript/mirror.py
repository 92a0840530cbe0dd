"""A mirror: the state of a message that is streamed by another process, as viewers of this process have seen it.

It is updated by chunks, one after the other, as the other process streams them, and by the stored message, which may be
ahead by chunks that are not available any more: the mirror then makes chunks for the difference. Either way a client
has the stored message in the end, without repetitions and in order.

A stored text does not have the id under which the other process continues it, so viewers know it by another id, and
chunks are renamed. No I/O and no chunk numbers: the caller ensures that the chunks fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from clew.errors import IllegalChunk
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.fold_part import continues
from clew.transcript.part import STEP_START, Part, kind_of, state_of
from clew.transcript.replay import Diverged, growth_chunks, part_chunks, stored_id

__all__ = ["Mirror", "Unplaced"]

_Text: TypeAlias = c.TextStart | c.TextDelta | c.TextEnd | c.ReasoningStart | c.ReasoningDelta | c.ReasoningEnd
_TEXTS: Final = frozenset({c.TextStart, c.TextDelta, c.TextEnd})
_BEGINS: Final = frozenset({c.TextStart, c.ReasoningStart})
_GROWS: Final = frozenset({c.TextDelta, c.TextEnd, c.ReasoningDelta, c.ReasoningEnd})


class Unplaced(Exception):
    """Several texts are open, and which of them a chunk is for cannot be told: ask where its place is known."""


class Mirror:
    """The state of one assistant message in the viewers of this process."""

    def __init__(self, message_id: str) -> None:
        self.began = False
        self._fold = Fold(message_id)
        self._metadata: Mapping[str, Any] = {}
        self.in_step = False
        # By the kind of text and the id that it has elsewhere: its id here.
        self._ids: dict[tuple[bool, str], str] = {}

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self._fold.parts

    def take(self, chunk: c.Chunk, index: int | None = None) -> list[c.Chunk]:
        """The next chunk of the stream, as it is shown here; ``index`` is that of its part, where that is known."""
        kind = chunk.__class__
        if kind in _GROWS:
            shown: list[c.Chunk] = [self._renamed(chunk, index)]  # type: ignore[arg-type]
        elif kind in _BEGINS:
            shown = [self._begun(chunk)]  # type: ignore[arg-type]
        elif isinstance(chunk, c.StartStep) and self.in_step:
            # The end of the step before it came with what was stored.
            shown = [c.FinishStep(), chunk]
        else:
            shown = [chunk]
        try:
            for one in shown:
                self._apply(one)
        except IllegalChunk as error:
            raise Diverged(str(error)) from error
        return shown

    def catch_up(self, parts: Sequence[Part], metadata: Mapping[str, Any]) -> list[c.Chunk]:
        """Return the chunks that turn the message as shown into the one that is stored now."""
        before, open_ids = self.parts, self._fold.open_ids
        if not continues(parts, before):
            raise Diverged("the stored message does not match what was shown")
        chunks: list[c.Chunk] = []
        if not self.began:
            chunks.append(c.Start(self._fold.message_id, dict(metadata)))
        elif metadata != self._metadata:
            chunks.append(c.MessageMetadata(dict(metadata)))
        still_open: dict[int, str] = {}
        for index, part in enumerate(parts):
            id_ = open_ids.get(index)
            if kind_of(part) == STEP_START:
                # What was left open in the step before it is forgotten, here as everywhere.
                still_open.clear()
            if index >= len(before):
                id_ = self._fresh_id(part, index, still_open)
                if kind_of(part) == STEP_START:
                    chunks += [c.FinishStep()] if self.in_step else []
                    self.in_step = True
                chunks += part_chunks(part, iter((id_,)), id_ if state_of(part) == "streaming" else None)
            elif part != before[index]:
                chunks += growth_chunks(before[index], part, id_)
            if state_of(part) == "streaming" and id_ is not None:
                still_open[index] = id_
        self._fold = Fold(self._fold.message_id, parts=parts)
        for index, id_ in still_open.items():
            self._fold.reopen(index, id_)
        left = {(kind_of(parts[index]) == "text", id_) for index, id_ in still_open.items()}
        self._ids = {key: id_ for key, id_ in self._ids.items() if (key[0], id_) in left}
        self.began, self._metadata = True, dict(metadata)
        return chunks

    def _apply(self, chunk: c.Chunk) -> None:
        self._fold.apply_shown(chunk)
        self.began = True
        if isinstance(chunk, c.StartStep | c.FinishStep):
            self.in_step = isinstance(chunk, c.StartStep)
            if not self.in_step:
                self._ids.clear()

    def _begun(self, chunk: c.TextStart | c.ReasoningStart) -> c.Chunk:
        key = chunk.__class__ in _TEXTS, chunk.id
        taken = self._open(key[0])
        id_ = chunk.id
        while id_ in taken.values():
            id_ += "+"
        self._ids[key] = id_
        return chunk if id_ == chunk.id else msgspec.structs.replace(chunk, id=id_)

    def _renamed(
        self, chunk: c.TextDelta | c.TextEnd | c.ReasoningDelta | c.ReasoningEnd, index: int | None
    ) -> c.Chunk:
        key = chunk.__class__ in _TEXTS, chunk.id
        id_ = self._ids.get(key)
        if id_ is None:
            taken = self._open(key[0])
            # A text that was opened before anybody looked, and not heard of since.
            heard = {one for (is_text, _), one in self._ids.items() if is_text == key[0]}
            unheard = [one for one in taken.values() if one not in heard]
            if index is not None:
                id_ = taken.get(index)
            elif not key[0] and chunk.id in unheard:
                id_ = chunk.id
            elif len(unheard) == 1:
                id_ = unheard[0]
            if id_ is None:
                raise Unplaced
            self._ids[key] = id_
        if isinstance(chunk, c.TextEnd | c.ReasoningEnd):
            del self._ids[key]
        return chunk if id_ == chunk.id else msgspec.structs.replace(chunk, id=id_)

    def _open(self, is_text: bool) -> dict[int, str]:
        """Open texts, or reasonings, by the index of their part: their ids here."""
        kind = "text" if is_text else "reasoning"
        return {index: id_ for index, id_ in self._fold.open_ids.items() if kind_of(self._fold.part(index)) == kind}

    def _fresh_id(self, part: Part, index: int, open_ids: Mapping[int, str]) -> str:
        if (own := stored_id(part)) is not None:
            return own
        id_ = f"stored-{index}"
        while id_ in open_ids.values():
            id_ += "+"
        return id_
